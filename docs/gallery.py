"""The measured studies as pages, from the Parquet kept below `results/`: `make gallery`.

`python docs/gallery.py keep FOLDER NAME` puts a finished study there.
"""

from __future__ import annotations

import re
import shutil
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.parquet as pq
import yaml

import clsweep
from clsweep.display.theme import themed, to_svg
from clsweep.report.content import Report
from clsweep.report.report_folder import render_markdown
from clsweep.report.sections import build_report
from clsweep.statistics.contrast import outcome
from clsweep.statistics.pair_sentences import interval, number
from clsweep.study.document import study_question

DOCS = Path(__file__).parent
RESULTS = DOCS / "results"
TABLES = ("trials", "epochs", "plan", "references", "histograms", "hits")
VERSIONS = ("clsweep_version", "torch_version", "ray_version", "optuna_version")

# Links to files that are not kept.
_FILES = re.compile(r" \(\[(?:numbers|all columns)\]\([^)]*\)\)| in \[tables/[^]]*\]\([^)]*\)")
_BESIDE = re.compile(r"\[([^]]*)\]\((?:tables/[^)]*|formulas\.html)\)")
_SHAPE = re.compile(r' (?:d|transform|width|height|[xyr][12]?|c[xy])="[^"]*"')
_DECIMALS = re.compile(r"(?<=\d\.\d)\d+")  # of shapes alone: a text's are what it says
_MARKUP = re.compile(r' (?:aria-[a-z]+|role|pointer-events)="[^"]*"')  # an image has no use for it
_LEFT_OUT = ("Made", "Results")  # facts that change with the day and the place


@dataclass(frozen=True)
class Kept:
    """A study that was run, and how.

    Attributes:
        run: run.yaml: study (below studies/), preset, machine, within (of `reproduce`), effect (a
            swept name and its values: what the question asks of each objective, from the first
            value to each other one), remark (what a reader should know besides).
    """

    folder: Path
    run: dict[str, Any]

    @property
    def results(self) -> clsweep.Results:
        return clsweep.open_results(self.folder)

    @property
    def question(self) -> str:
        """What the study asks, as its file says."""
        return study_question(DOCS.parent / "studies" / f"{self.run['study']}.yaml")

    @property
    def command(self) -> str:
        preset = f" -p {self.run['preset']}" if self.run.get("preset") else ""
        return f"clsweep run studies/{self.run['study']}.yaml{preset}"

    def report(self) -> Report:
        return build_report(self.results, within=self.run.get("within"))


def kept() -> list[Kept]:
    """All kept studies, by name."""
    paths = sorted(RESULTS.glob("*/run.yaml"))
    return [Kept(path.parent, yaml.safe_load(path.read_text(encoding="utf-8"))) for path in paths]


def keep(source: Path, name: str) -> None:
    """Copy what the analysis reads of a finished study, small; run.yaml is written by hand."""
    out = RESULTS / name
    out.mkdir(parents=True, exist_ok=True)
    for table in TABLES:
        if (path := source / f"{table}.parquet").exists():
            _pack(path, out / path.name)
    if (source / "references").is_dir():
        shutil.copytree(source / "references", out / "references", dirs_exist_ok=True)
    study = (source / "study.yaml").read_text(encoding="utf-8")
    study = re.sub(r"\n +root: /.*", "", study)  # where the images lay on that machine
    (out / "study.yaml").write_text(study, encoding="utf-8")


def _pack(source: Path, out: Path) -> None:
    table = pq.read_table(source)
    pq.write_table(
        table,
        out,
        compression="zstd",
        compression_level=19,
        store_schema=False,
        write_statistics=False,
    )


def write(out: Path = DOCS) -> None:
    """Write results/README.md and the report of every kept study below gallery/."""
    parts = [(RESULTS / "head.md").read_text(encoding="utf-8").rstrip()]
    studies = kept()
    for one in studies:
        report = one.report()
        if asked := tuple(part for part in report.sections if part.id == "contrasts"):
            report = replace(report, sections=asked)  # the rest is no answer to what was asked
        parts.append(answer(one, report))
        write_report(report, out / "gallery" / one.folder.name)
    (out / "claims.md").write_text(claims(studies), encoding="utf-8")
    (out / "results").mkdir(parents=True, exist_ok=True)
    (out / "results" / "README.md").write_text("\n\n".join(parts) + "\n", encoding="utf-8")


def answer(one: Kept, report: Report) -> str:
    """Question, findings, and what was run where."""
    trials = one.results.trials
    hours = trials["wall_time_s"].sum() / 3600
    versions = ", ".join(
        f"{name.removesuffix('_version')} {trials[name].iloc[0]}" for name in VERSIONS
    )
    name = one.folder.name
    return "\n".join(
        [
            f"## {name}",
            "",
            one.question,
            "",
            *(f"- {sentence}" for sentence in (*findings(report), *extra(one))),
            *(f"- {sentence}" for sentence in one.run.get("remark", [])),
            "",
            f"`{one.command}`: {len(trials)} trials of {hours:.1f} hours in all, on "
            f"{one.run['machine']}; {versions}. [Report](../gallery/{name}/report.md).",
        ]
    )


def findings(report: Report) -> list[str]:
    """The sentences at the top, and what was asked by name, or who wins where."""
    parts = {part.id: part for part in report.sections}
    if asked := parts.get("contrasts"):
        return list(dict.fromkeys((*report.verdicts, *report.notes, *asked.sentences, *asked.open)))
    where = parts["comparison"].sentences if "comparison" in parts else ()
    return list(dict.fromkeys((*report.verdicts, *report.notes, *where)))


def extra(one: Kept) -> list[str]:
    """What the findings leave to tables: scores with their intervals, the largest difference."""
    results = one.results
    printed = results.reproduce(within=one.run.get("within"))
    if not printed.empty:
        seen = printed[printed["measured"].notna()]
        worst = seen["difference"].abs().max()
        return [f"{len(seen)} numbers measured; the largest difference is {worst:.2f}."]
    best = results.best_of_k().groupby("objective", sort=False).tail(1)
    return [
        f"{row.objective}: {row.expected:.1f} [{row.low:.1f}, {row.high:.1f}]"
        + (
            f" at the best of {row.k} settings, picked without the seed that scores it."
            if row.k > 1
            else "."
        )
        for row in best.itertuples()
        if row.expected == row.expected
    ] + effects(one)


def effects(one: Kept) -> list[str]:
    """What each objective gains between the values of run.yaml, asked of the trials later."""
    if not (told := one.run.get("effect")):
        return []
    (name, (first, *others)), asked = told.popitem(), {}
    for objective, part in one.results.trials.groupby("objective", sort=False):
        for value in others if part[name].nunique() > 1 else ():
            title = f"{objective}, {name} {value:g} instead of {first:g}"
            asked[title] = {"of": objective, "at": {name: value}, "minus": {name: first}}
    return [
        f"{row['contrast']}: {row['estimate']:+.2f} points "
        f"[{row['low_holm']:+.2f}, {row['high_holm']:+.2f}]"
        f"{'' if row['shown'] else ': not resolved'}."
        for row in one.results.contrasts(asked).to_dict("records")
    ]


CLAIMS = DOCS.parent / "studies" / "claims.csv"
_HEADINGS = "| claim | paper | here | room | verdict |"


def claims(studies: list[Kept]) -> str:
    """The page of claims: of each what its paper found, what the kept studies did, the verdict."""
    measured = {
        (one.folder.name, row["contrast"]): row
        for one in studies
        for row in one.results.contrasts().to_dict("records")
    }
    lines = [(RESULTS / "claims.md").read_text(encoding="utf-8").rstrip()]
    listed = pd.read_csv(CLAIMS, dtype=str, keep_default_na=False)
    for paper, rows in listed.groupby("paper", sort=False):
        lines += ["", f"## {paper}", "", _HEADINGS, "|---|---|---|---|---|"]
        for claim in rows.to_dict("records"):
            name = claim["study"]
            row = measured[name, claim["contrast"]]
            cells = (
                f"{claim['claim']} ([{name}](gallery/{name}/report.md))",
                f"{claim['effect']} ({claim['item']}: {claim['scale']})" if claim["item"] else "-",
                f"{number(row['estimate'])}{interval(row['low_holm'], row['high_holm'])}",
                number(row["room"]),
                outcome(row),
            )
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def write_report(report: Report, folder: Path) -> None:
    """The Markdown of a report and its figures, without what changes from day to day."""
    facts = {name: value for name, value in report.facts.items() if name not in _LEFT_OUT}
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "figures").mkdir(parents=True)
    # the commands of the next steps name this folder, which a reader does not have
    text = _FILES.sub("", render_markdown(replace(report, facts=facts, steps=())))
    text = _BESIDE.sub(r"\1", text)
    (folder / "report.md").write_text(text, encoding="utf-8")
    for figure in report.figures:
        svg = to_svg(themed(figure.spec, dark=False, background="white"))
        path = folder / "figures" / f"{figure.name}.svg"
        path.write_text(_MARKUP.sub("", rounded(svg)), encoding="utf-8")


def rounded(svg: str) -> str:
    """An image whose shapes are to a tenth of a pixel."""
    return _SHAPE.sub(lambda shape: _DECIMALS.sub("", shape[0]), svg)


if __name__ == "__main__":
    if sys.argv[1:2] == ["keep"]:
        keep(Path(sys.argv[2]), sys.argv[3])
    else:
        write()
