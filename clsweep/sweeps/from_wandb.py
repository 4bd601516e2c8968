"""Runs of Weights & Biases: folders of offline runs, or a table that was exported as CSV or JSON.

An offline run is one file in LevelDB's log format: after a header of 7 bytes, blocks of 32 KiB with
pieces of records (checksum, length, kind). A record is a protocol buffer of wandb's `Record`; of it
run, config, summary, history and exit are read.
"""

from __future__ import annotations

import ast
import csv
import io
import json
import re
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from clsweep.errors import RequestError
from clsweep.sweeps.import_table import ENDS, OWN, ForeignSweep, ForeignTrial, read_numbers
from clsweep.sweeps.source_files import flat, numbers, text_of, told

BLOCK, HEADER = 32 * 1024, 7
HISTORY, SUMMARY, CONFIG, RUN, EXIT = 2, 3, 5, 17, 18  # fields of a `Record`
STATES = {"finished": "finished", "failed": "failed", "crashed": "failed", "killed": "failed"}
# and as the tables of Optuna, MLflow and others say it, in a column that may be called otherwise
STATES |= {"complete": "finished", "completed": "finished", "terminated": "finished"}
STATES |= {"fail": "failed", "error": "failed", "pruned": "stopped", "stopped": "stopped"}
STATES |= dict.fromkeys(("running", "scheduled", "waiting", "pending", "paused"), "running")
STATED = ("State", "state", "Status", "status")
NUMBERED = ("_", "Unnamed: ")  # W&B's own columns, and those of pandas that number rows
POINT = re.compile(r"(^|;)-?\d+\.\d+(;|\s*$)")  # in a number between semicolons
SEPARATOR = re.compile(r'"?sep=(.)"?\s*')  # as Excel's first line tells it
COMMA = re.compile(r"^(-?\d+),(\d+)([eE][-+]?\d+)?$")  # as the point of a number
# Columns of an export that are neither settings nor results.
LABELS = (
    "Name", "ID", "State", "Notes", "User", "Tags", "Created", "Runtime", "Sweep", "Agent", "Group",
    "GitHub", "GPU Count", "GPU Type", "Hostname", "Job Type", "Relative Time (Process)", "Updated",
    "name", "id", "state", "notes", "user", "tags", "created", "created_at", "runtime", "url",
    "run_id",
)  # fmt: skip
TABLES, LISTS = ("csv", "tsv"), ("json", "jsonl", "ndjson")
# Settings and results of a run, as W&B's interfaces call them otherwise.
ALSO = {
    "json_config": "config", "rawconfig": "config", "summary_metrics": "summary",
    "summaryMetrics": "summary",
}  # fmt: skip

Fields = list[tuple[int, Any]]


def read_wandb(source: Path) -> ForeignSweep:
    """All runs of a folder of offline runs, or of an exported table. The web page's CSV does not
    say which columns are settings and which are results.

    Raises:
        RequestError: neither is there, or it is damaged.
    """
    kind = source.name.lower().removesuffix(".gz").rpartition(".")[2]
    notes: list[str] = []
    with told(source, "runs of W&B", EOFError, zlib.error):
        if is_table := kind in TABLES + LISTS:
            given = _lines(source, notes) if kind in TABLES else _listed(source, kind)
            runs = {at: {ALSO[n]: run[n] for n in ALSO if n in run} | run for at, run in given}
            mixed = not all(map(_is_apart, runs.values()))
            read = {at: _row(run, at) for at, run in runs.items()}
            lengths = [trial.length or 0 for trial in read.values() if not trial.labels]
            if mixed and len(lengths) == len(read) > 1 and lengths == sorted({1, *lengths}):
                raise RequestError(f"{source}: expected a row for each run, given each step of one")
        else:
            files = [source] if kind == "wandb" else sorted(source.rglob("run-*.wandb"))
            if not files:
                raise RequestError(
                    f"{source}: expected an exported .{', .'.join(TABLES + LISTS)} or .gz of one, "
                    "or folders of offline runs (run-*.wandb), found none"
                )
            mixed, read = False, {str(file): _offline(file) for file in files}
    # a run that was resumed has a file each time, which does not say whether it began anew
    trials: dict[str, ForeignTrial] = {}
    for at, trial in read.items():
        name = str(next((trial.labels[n] for n in ("ID", "id", "run_id") if n in trial.labels), at))
        earlier = trials.get(name, trial)
        if is_table and earlier != trial:
            raise RequestError(f"{at}: the run {name} stands twice, with different values")
        settings, results = earlier.settings | trial.settings, earlier.results | trial.results
        length = trial.length if is_table or name not in trials else None
        trials[name] = replace(trial, settings=settings, results=results, length=length)
    if copies := len(read) - len(trials):
        notes.append(f"left out: {copies} earlier rows or files of runs that come again")
    read_numbers(trials.values(), typed=not mixed)
    reported = [trial for trial in trials.values() if trial.length]
    by_step = not all("epoch" in trial.results for trial in reported)
    for trial in reported:
        trial.length = trial.length if by_step else trial.results["epoch"] + 1
    return ForeignSweep(trials=[*trials.values()], mixed=mixed, by_step=by_step, notes=notes)


def _lines(source: Path, notes: list[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The rows of a CSV, by their places; cells between semicolons have a comma as their point, and
    notes say in which columns.

    Raises:
        RequestError: names the line; also where 64,64 and 64,640 would become one number.
    """
    lines = io.StringIO(text_of(source), newline="").readlines()
    head = next(filter(str.strip, lines), "")
    separator = max(",;\t|", key=head.count)
    if said := SEPARATOR.fullmatch(head):
        lines[lines.index(head)], separator = "\n", said[1]
    has_comma = separator == ";" and not any(POINT.search(line) for line in lines[1:])
    reader = csv.reader(lines, delimiter=separator, skipinitialspace=True)
    names = [name.strip() for name in next(filter(None, reader), [])]
    if twice := [name for name, count in Counter(names).items() if name and count > 1]:
        raise RequestError(f"{source}:1: the column {twice[0]!r} stands twice: which is it?")
    if any(name.endswith("__MIN") for name in names):
        raise RequestError(f"{source}: expected a row for each run, given the steps of a chart")
    written: dict[tuple[str, str], str] = {}  # of a column and number: its text
    for given in filter(None, reader):
        at, cells = f"{source}:{reader.line_num}", [*map(str.strip, given)]
        if len(cells) != len(names):
            raise RequestError(f"{at}: expected {len(names)} cells, given {len(cells)}")
        if has_comma:
            cells = [COMMA.sub(r"\1.\2\3", cell) for cell in cells]
            for name, text, cell in zip(names, map(str.strip, given), cells, strict=True):
                if text != cell and written.setdefault((name, repr(float(cell))), text) != text:
                    before = written[name, repr(float(cell))]
                    both = f"{name}: {before} and {text} would be one number"
                    raise RequestError(f"{at}: {both}. Export the runs as JSON")
        yield at, dict(zip(names, cells, strict=True))
    if written:
        found = dict.fromkeys(name for name, _ in written)
        notes.append(f"read with a comma as the point: {', '.join(found)}")


def _listed(source: Path, kind: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """The runs of a JSON list, or one a line, by their places."""
    text = text_of(source)
    lines = [(f"{source}:{n}", s) for n, s in enumerate(text.split("\n"), 1) if s.strip()]
    if kind == "json" and (len(lines) < 2 or not lines[1][1].startswith("{")):
        given = json.loads(text)
        if not isinstance(given, list):
            raise RequestError(f"{source}: expected a list of runs")
        runs = [(f"{source}: run {number}", run) for number, run in enumerate(given, 1)]
    else:
        runs = []
        for at, line in lines:
            with told(Path(at), "a run of W&B"):
                runs.append((at, json.loads(line)))
    for at, run in runs:
        if not isinstance(run, dict):
            raise RequestError(f"{at}: expected a run, given {str(run)[:40]!r}")
        yield at, run


def _is_apart(run: Mapping[str, Any]) -> bool:
    """Whether settings and results stand apart; a setting may be called `config`, too."""
    return "config" in run and ("summary" in run or not isinstance(run["config"], str))


def _row(run: Mapping[str, Any], at: str) -> ForeignTrial:
    """A run with `config` and `summary` apart, as in W&B's API, or all in one: a line of the web
    page's table. Its numbers stand among settings and results, until one is the metric. A column
    without a name numbers the rows.
    """
    if not _is_apart(run):
        row = {name: "" if value is None else str(value) for name, value in run.items()}
        stated = [n for n in STATED if n in row and (n in LABELS or row[n].lower() in STATES)]
        values = {n: text for n, text in row.items() if n and n not in (*LABELS, *stated)}
        results = numbers(values)
        return ForeignTrial(
            group="wandb",
            status=_status(row[stated[0]] if stated else None),
            length=_length(results),
            settings={n: text for n, text in values.items() if not n.startswith(NUMBERED)},
            results=results,
            labels={name: row[name] for name in LABELS if row.get(name)},
        )
    config, summary = (
        _table(run.get(name) or {}, f"{at}: {name}") for name in ("config", "summary")
    )
    settings = {}
    for name, entry in config.items():  # as it is, or its value beside a description
        kept = isinstance(entry, Mapping) and "value" in entry and {*entry} <= {"value", "desc"}
        if not name.startswith("_wandb"):
            settings[name] = entry["value"] if kept else entry
    status = _status(run.get("state"))
    is_told = {*settings} >= OWN and summary.get("status") in ENDS  # by clsweep's own logger
    names = ("name", "group", "job_type", "id")
    return ForeignTrial(
        group=str(run.get("project") or "wandb"),
        status=summary["status"] if is_told else status,
        settings=flat(settings),
        results=numbers({n: v for n, v in summary.items() if not n.startswith("_")}),
        labels={n: run[n] for n in names if isinstance(run.get(n), str)},
        length=None if is_told else _length(summary),
    )


def _status(state: str | None) -> str:
    return "finished" if state is None else STATES.get(state.lower(), "running")


def _length(values: Mapping[str, Any]) -> float | None:
    step = values.get("_step")
    return step + 1 if isinstance(step, int | float) else None


def _table(given: Any, at: str) -> Mapping[str, Any]:
    """A table, which may be a text of JSON or, as the CSV of W&B's guide has it, of Python."""
    found = given
    if isinstance(given, str):
        try:
            found = json.loads(given)
        except ValueError:
            try:
                found = ast.literal_eval(_Numbers().visit(ast.parse(given, mode="eval")))
            except (ValueError, SyntaxError):
                found = None
    if not isinstance(found, Mapping):
        raise RequestError(f"{at}: expected a table of names and values, given {str(given)[:40]!r}")
    return found


class _Numbers(ast.NodeTransformer):
    """Python writes what is no number by a name."""

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return ast.Constant(float(node.id)) if node.id in ("nan", "inf") else node


def _offline(file: Path) -> ForeignTrial:
    config: dict[str, Any] = {}
    last: dict[str, Any] = {}
    labels = {"id": file.stem.removeprefix("run-")}
    status = "running"
    for record in _records(file.read_bytes()):
        for kind, payload in _fields(record):
            if kind == RUN:
                run = _fields(payload)
                names = {3: "project", 6: "group", 7: "job_type", 8: "name"}
                labels |= {names[n]: value.decode() for n, value in run if n in names}
                config |= _items([v for n, v in run if n == 4])
            elif kind == CONFIG:
                config |= _items([payload])
            elif kind in (SUMMARY, HISTORY):
                last |= _items([payload])
            elif kind == EXIT:
                status = "failed" if dict(_fields(payload)).get(1) else "finished"
    return _row({"config": config, "summary": last, "state": status, **labels}, str(file))


def _items(messages: list[bytes]) -> dict[str, Any]:
    """The entries of configs, summaries and histories: a key, or nested ones, and JSON."""
    found: dict[str, Any] = {}
    for message in messages:
        for number, item in _fields(message):
            if number == 1:
                parts = _fields(item)
                named, nested = ([v.decode() for n, v in parts if n == at] for at in (1, 2))
                text = next((v.decode() for n, v in parts if n == 16), "null")
                found[".".join(named or nested)] = json.loads(text)
    return found


def _records(data: bytes) -> Iterator[bytes]:
    """The records of LevelDB's log; one that was cut off when the run died is left out."""
    if not data.startswith(b":W&B"):
        raise ValueError("expected a file that begins with :W&B")
    at, record = HEADER, b""
    while at + HEADER <= len(data):
        if BLOCK - at % BLOCK < HEADER:  # the rest of a block that holds no further head
            at += BLOCK - at % BLOCK
            continue
        size, kind = int.from_bytes(data[at + 4 : at + 6], "little"), data[at + 6]
        piece = data[at + HEADER : at + HEADER + size]
        if len(piece) < size or not kind:
            return
        record = piece if kind in (1, 2) else record + piece  # 1: whole, 2: first, 4: last
        if kind in (1, 4):
            yield record
        at += HEADER + size


def _fields(message: bytes) -> Fields:
    """The fields of a protocol buffer: number, and an integer or bytes."""
    found: Fields = []
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        number, wire = key >> 3, key & 7
        if wire == 0:
            value: Any
            value, at = _varint(message, at)
        else:
            size, at = _varint(message, at) if wire == 2 else ({1: 8, 5: 4}[wire], at)
            value, at = message[at : at + size], at + size
        found.append((number, value))
    return found


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at
