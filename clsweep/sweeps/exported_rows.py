"""The rows of an exported table: CSV, TSV, JSON, or JSON one a line."""

from __future__ import annotations

import csv
import io
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from clsweep.errors import RequestError
from clsweep.sweeps.parsing import parse_text
from clsweep.sweeps.source_files import read_text, refuse_damaged

_POINT = re.compile(r"(^|;)-?\d+\.\d+(;|\s*$)")  # in a number between semicolons
_SEPARATOR = re.compile(r'"?sep=(.)"?\s*')  # as Excel's first line tells it
_EMPTY = {"NA", "N/A", "n/a", "#N/A", "<NA>"}  # of R, spreadsheets and pandas
# of columns that say how far a run came
STEP_NAMES = {"epoch", "current_epoch", "step", "_step", "global_step", "iteration", "iter"}
STEP_NAMES |= {"training_iteration"}
_COMMA = re.compile(r"^(-?\d+),(\d+)([eE][-+]?\d+)?$")  # as the point of a number


def rows_of_csv(source: Path, notes: list[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The rows of a CSV, each with its place. Cells between semicolons have a comma as their point;
    notes say in which columns.

    Raises:
        RequestError: names the line; also where 64,64 and 64,640 would become one number.
    """
    lines = io.StringIO(read_text(source), newline="").readlines()
    head = next(filter(str.strip, lines), "")
    separator = max(",;\t|", key=head.count)
    if line := _SEPARATOR.fullmatch(head):
        lines[lines.index(head)], separator = "\n", line[1]
    has_comma = separator == ";" and not any(_POINT.search(line) for line in lines[1:])
    reader = csv.reader(lines, delimiter=separator, skipinitialspace=True)
    names = [name.strip() for name in next(filter(None, reader), [])]
    if twice := [name for name, count in Counter(names).items() if name and count > 1]:
        raise RequestError(f"{source}:1: the column {twice[0]!r} stands twice: which is it?")
    if any(name.endswith("__MIN") for name in names):
        raise RequestError(f"{source}: expected a row for each run, given the steps of a chart")
    written: dict[tuple[str, str], str] = {}  # of a column and number: its text
    for given in filter(None, reader):
        at = f"{source}:{reader.line_num}"
        cells = ["" if cell.strip() in _EMPTY else cell.strip() for cell in given]
        if len(cells) != len(names):
            raise RequestError(f"{at}: expected {len(names)} cells, given {len(cells)}")
        if has_comma:
            cells = [_COMMA.sub(r"\1.\2\3", cell) for cell in cells]
            for name, text, cell in zip(names, map(str.strip, given), cells, strict=True):
                if (
                    text != cell != ""
                    and written.setdefault((name, repr(float(cell))), text) != text
                ):
                    before = written[name, repr(float(cell))]
                    both = f"{name}: {before} and {text} would be one number"
                    raise RequestError(f"{at}: {both}. Export the runs as JSON")
        yield at, dict(zip(names, cells, strict=True))
    if written:
        columns = dict.fromkeys(name for name, _ in written)
        notes.append(f"read with a comma as the point: {', '.join(columns)}")


def runs_of_json(source: Path, kind: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """The runs of a JSON list, or one a line, each with its place."""
    text = read_text(source)
    lines = [(f"{source}:{n}", s) for n, s in enumerate(text.split("\n"), 1) if s.strip()]
    if kind == "json" and (len(lines) < 2 or not lines[1][1].startswith("{")):
        given = json.loads(text)
        if not isinstance(given, list):
            raise RequestError(f"{source}: expected a list of runs")
        runs = [(f"{source}: run {number}", run) for number, run in enumerate(given, 1)]
    else:
        runs = []
        for at, line in lines:
            with refuse_damaged(Path(at), "a run of W&B"):
                runs.append((at, json.loads(line)))
    for at, run in runs:
        if not isinstance(run, dict):
            raise RequestError(f"{at}: expected a run, given {str(run)[:40]!r}")
        yield at, run


def rows_of_runs(
    rows: Mapping[str, Mapping[str, Any]], settings: Callable[[str], bool]
) -> tuple[str, dict[str, list[Mapping[str, Any]]]]:
    """The rows of each run by the place of its first, where a table has a row for each step, and
    the column that counts these; "" and nothing where it has one for each run.

    Runs stand one behind the other: where the count falls, the next begins, at the same number,
    which is one step at most. No column that is one of `settings` differs within a run, and one
    that is constant there differs between runs.
    """
    given = [*rows.values()]
    names = [*given[0]] if given else []
    for counter in (name for name in names if re.split(r"[./]", name)[-1].lower() in STEP_NAMES):
        steps = [parse_text(str(row.get(counter))) for row in given]
        if not all(type(step) in (int, float) for step in steps):
            continue
        starts = [n for n, step in enumerate(steps) if n == 0 or step <= steps[n - 1]]
        runs = [given[a:b] for a, b in zip(starts, [*starts[1:], len(given)], strict=True)]
        first, second = steps[:2] if len(runs[0]) > 1 else (1, 0)
        if not 1 < len(runs) <= len(given) / 2 or 2 * first > second:
            continue
        if any(steps[start] != first for start in starts):
            continue
        values = {n: [{str(row.get(n)) for row in run} for run in runs] for n in names}
        constant = {n for n in names if all(len(each) == 1 for each in values[n])}
        differing = [name for name in constant if len(set[str]().union(*values[name])) > 1]
        if differing and {*filter(settings, names)} <= constant:
            places = [*rows]
            return counter, {places[n]: run for n, run in zip(starts, runs, strict=True)}
    return "", {}
