"""The files of a report: the page, figures, tables, a manifest; and the report as Markdown."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from clsweep.display.cells import frame_cells
from clsweep.display.printing import markdown, markdown_table
from clsweep.display.theme import scripts
from clsweep.errors import RequestError
from clsweep.machine import num_cores
from clsweep.processes import worker_processes
from clsweep.report.content import NAME, Report
from clsweep.report.page import render_page, to_csv, to_parquet, vega_versions
from clsweep.report.sections import Progress, build_report, formula_report
from clsweep.results.disk import Disk
from clsweep.statistics.computed import Statistics
from clsweep.statistics.report_objects import Figure, Table
from clsweep.version import VERSION

MANIFEST = "manifest.json"
LIBRARIES = (
    "numpy", "scipy", "pandas", "scikit-learn", "pyarrow", "altair", "vl-convert-python", "jinja2",
)  # fmt: skip

# All that a report consists of: nothing else is ever removed or replaced, whatever a manifest says.
_OURS = re.compile(
    rf"(index|formulas)\.html|report\.md|figures/{NAME}\.(svg|png|vl\.json|csv)|tables/{NAME}\.(parquet|csv)"
)

MOST_PROCESSES = 4

_WITHIN_BRACKETS = re.compile(r"(?<!\w)_|_(?!\w)|[\[\]]")  # no other bracket may be open there
# What would make a heading, a list or a quotation of a line.
_START = re.compile(r"^(?:[#+=>[-]|\d+(?=[.)](?:\s|$)))")


def write_bundle(
    report: Report, out: str | os.PathLike[str], *, progress: Progress | None = None
) -> Path:
    """Write all files of a report into the folder `out` and return the path of its page.

    `index.html`, `formulas.html`, `report.md`, `figures/NAME.svg`, `.png`, `.vl.json` and `.csv`
    (the numbers behind it), `tables/NAME.parquet` and `.csv`, `manifest.json` (versions, sources,
    bytes and SHA-256 of every file). Everything is made before anything is written, and each file
    is replaced as a whole. Files that an earlier report left there and this one does not have are
    removed; others are never touched.

    Parquet holds the exact tables, columns of mixed types as text. In CSV a text that a spreadsheet
    would read as a formula has an apostrophe before it. `progress` is called with the name of every
    part. RequestError where `out` cannot be written, or holds a file of these names that no report
    wrote.
    """
    disk = report_target(out)
    written = _written_before(disk)
    files = dict(_files(report, progress or (lambda _: None)))
    for name in files:
        if name not in written and disk.is_file(name):
            raise RequestError(
                f"{disk.place(name)}: expected a folder that is empty, new or of an earlier "
                "report, given one with this file, which no report wrote. Nearest: "
                f"{disk.folder}/report"
            )
    entries = {
        name: {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        for name, data in files.items()
    }
    # Before the files, a manifest of those to come and those to go: whatever is interrupted here,
    # the next one knows.
    _write_manifest(disk, report, written | entries)
    for name, data in files.items():
        disk.write(name, data, durable=False)
    for name in written.keys() - entries.keys():
        disk.remove(name)
    _write_manifest(disk, report, entries)
    return Path(disk.place("index.html"))


def report_target(path: str | os.PathLike[str], *, is_made: bool = True) -> Disk:
    """The folder of a report; `is_made` or only looked at.

    Raises:
        RequestError: it cannot be made or written, or it holds results.
    """
    out, wrong = os.fspath(path), ""
    if "://" in out:
        raise RequestError(f"{out}: expected a folder of this machine for the report, given a URI")
    disk = Disk(out)
    try:
        there = _nearest_existing(disk.folder)
        if not os.path.isdir(there):
            wrong = f"a folder for the report, given a file. Nearest: {there}-report"
        elif not os.access(there, os.W_OK | os.X_OK):
            wrong = "a folder that can be written, given: Permission denied"
        elif disk.is_file("study.yaml") and disk.is_file("plan.parquet"):
            wrong = f"a folder beside the results, given the results. Nearest: {out}/report"
        elif is_made:
            os.makedirs(disk.folder, exist_ok=True)
    except OSError as error:
        wrong = f"a folder that can be made, given: {error.strerror}"
    if wrong:
        raise RequestError(f"{out:.200}: expected {wrong}")
    return disk


def _nearest_existing(place: str) -> str:
    """The file or folder itself, or the first folder above it that is there."""
    while True:
        try:
            os.stat(place)
        except FileNotFoundError:
            place = os.path.dirname(place)
        else:
            return place


def _written_before(disk: Disk) -> dict[str, Any]:
    """The files of the report that is there, by the names its manifest lists."""
    try:
        manifest = json.loads(disk.read(MANIFEST))
    except FileNotFoundError:
        return {}
    except ValueError:
        manifest = None
    files = manifest.get("files") if isinstance(manifest, dict) and "clsweep" in manifest else None
    if not isinstance(files, dict):
        given = f"given another file. Nearest: {disk.folder}/report"
        raise RequestError(f"{disk.place(MANIFEST)}: expected the manifest of a report, {given}")
    return {name: entry for name, entry in files.items() if _OURS.fullmatch(name)}


def _write_manifest(disk: Disk, report: Report, files: dict[str, Any]) -> None:
    manifest = {
        "clsweep": VERSION,
        "title": report.title,
        "sources": list(report.sources),
        "libraries": {name: version(name) for name in LIBRARIES} | vega_versions(),
        "files": dict(sorted(files.items())),
    }
    text = json.dumps(manifest, indent=2, ensure_ascii=False) + "\n"
    disk.write(MANIFEST, _encoded(text), durable=False)


def _files(report: Report, progress: Progress) -> Iterator[tuple[str, bytes]]:
    """Name and content of every file but the manifest."""
    progress("index.html")
    yield "index.html", _encoded(render_page(report))
    yield "formulas.html", _encoded(render_page(formula_report(report.title)))
    yield "report.md", _encoded(render_markdown(report))
    for table in report.tables:
        place, frame = f"tables/{table.name}", report.marked(table.frame)
        progress(place)
        yield f"{place}.parquet", to_parquet(frame)
        yield f"{place}.csv", to_csv(frame)
    for figure in report.figures:
        place, spec = f"figures/{figure.name}", figure.standing_alone
        progress(place)
        picture = figure.picture.result()
        yield f"{place}.svg", picture.svg.encode()
        yield f"{place}.png", picture.png
        yield f"{place}.vl.json", json.dumps(spec, ensure_ascii=False, allow_nan=False).encode()
        yield f"{place}.csv", to_csv(report.marked(figure.data))


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "replace")  # the name of a folder need not be UTF-8


def write_report(
    findings: Statistics,
    out: str | os.PathLike[str],
    *,
    within: float | None = None,
    progress: Progress | None = None,
) -> tuple[Report, Path]:
    """The report and the path of its page; as `build_report` and `write_bundle`."""
    report_target(out, is_made=False)  # before the work
    with worker_processes(min(MOST_PROCESSES, num_cores())):
        scripts()
        report = build_report(
            findings,
            within=within,
            progress=progress,
            made=lambda figures: [figure.picture for figure in figures],  # begins to draw them
        )
        return report, write_bundle(report, out, progress=progress)


# Markdown


def render_markdown(report: Report) -> str:
    """The report as GitHub-flavoured Markdown, all texts escaped."""
    return "\n\n".join(_blocks(report)) + "\n"


def _blocks(report: Report) -> Iterator[str]:
    yield f"# {escaped(report.title)}"
    if report.question:
        yield escaped(report.question)
    if report.verdicts:
        yield "## Answer"
        yield _list(report.verdicts)
    for note in report.notes:
        yield f"> {escaped(note)}"
    if report.board:
        yield from _table(report.board)
    for figure in report.hero:
        yield from _figure(figure)
    if report.steps:
        commands = [f": {escaped(step.command)}" if step.command else "." for step in report.steps]
        steps = zip(report.steps, commands, strict=True)
        yield "\n".join(f"- {escaped(step.sentence)}{command}" for step, command in steps)
    if report.open:
        yield "## Not resolved"
        yield _list(report.open)
    for section in report.sections:
        yield f"## {escaped(section.title)}"
        if section.sentences:
            yield _list(section.sentences)
        for note in section.notes:
            yield f"> {escaped(note)}"
        for figure in section.own_figures:
            yield from _figure(figure)
        for table in section.own_tables:
            yield from _table(table)
        if section.undrawn:
            yield f"Not drawn, as no row is resolved: {_links(section.undrawn)}."
        if section.apart:
            yield f"Beside this page: {_links(section.apart)}."
    for title, parts in {"Terms": report.terms, "This report": report.facts}.items():
        if parts:
            yield f"## {title}"
            yield "\n".join(f"- {escaped(name)}: {escaped(value)}" for name, value in parts.items())


def _figure(figure: Figure) -> Iterator[str]:
    yield f"![{markdown(figure.title, _WITHIN_BRACKETS)}](figures/{figure.name}.svg)"
    numbers = f"([numbers](figures/{figure.name}.csv))"
    yield f"**{escaped(figure.title)}** {escaped(figure.caption)} {numbers}"


def _table(table: Table) -> Iterator[str]:
    link = f"([all columns](tables/{table.name}.csv))"
    yield " ".join(filter(None, (f"**{escaped(table.title)}**", escaped(table.caption), link)))
    if table.shown.empty:
        yield "No rows."
        return
    cells = frame_cells(table.shown, limit=table.limit)
    yield markdown_table(cells.columns, cells.rows, cells.is_numeric)
    if cells.left:
        yield f"{cells.left} more in [tables/{table.name}.csv](tables/{table.name}.csv)."


def escaped(words: str) -> str:
    """One line of plain text, escaped."""
    return _START.sub(
        lambda start: f"{start[0]}\\" if start[0].isdigit() else f"\\{start[0]}", markdown(words)
    )


def _links(files: Mapping[str, str]) -> str:
    return ", ".join(
        f"[{markdown(title, _WITHIN_BRACKETS)}]({place})" for title, place in files.items()
    )


def _list(sentences: tuple[str, ...]) -> str:
    return "\n".join(f"- {escaped(sentence)}" for sentence in sentences)
