"""The numbers that a paper printed, as they lie beside a study: CSV files that name it in a line
`# study: FILE`.

`studies/README.md` says what the columns hold. A results folder takes the files along, with the
cells that the study plans at the paper's scale.
"""

from __future__ import annotations

import contextlib
import csv
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from clsweep.catalog.rows import Row
from clsweep.errors import StudyError, nearest
from clsweep.files import read_regular
from clsweep.study.design import plan_row, plan_trials
from clsweep.study.document import MAX_BYTES, preset_names
from clsweep.study.factors import split_name
from clsweep.study.resolve import load_study

CPU_PRESET = "cpu"  # the one preset that is never at the paper's scale
ID_COLUMNS = ("objective", "dataset", "encoder")
VALUE_COLUMNS = ("metric", "value", "spread", "delta", "delta_to", "note")
REQUIRED = ("objective", "metric", "value")
_NUMBERS = ("value", "spread", "delta")
STAND_IN = "; the study has "  # between the paper's encoder and the study's


@dataclass(frozen=True, kw_only=True)
class PaperTable:
    """One table of a paper.

    Attributes:
        header: what the `#` lines say, by their first word; a word may stand in several lines.
        rows: as written, one for each printed number; a column that is missing is empty.
        settings: the columns that hold hyperparameters.
    """

    header: Mapping[str, tuple[str, ...]]
    rows: tuple[Mapping[str, str], ...]
    settings: tuple[str, ...]

    def first(self, key: str) -> str:
        """The header's first text under a key, or nothing."""
        return next(iter(self.header.get(key, ())), "")

    @property
    def reference_only(self) -> frozenset[str]:
        """Methods that the study does not train."""
        lines = self.header.get("reference only", ())
        return frozenset(name for line in lines for name in line.split("; "))

    @property
    def stand_ins(self) -> dict[str, str]:
        """The paper's encoder -> the one that the study has in its place."""
        lines = [line.partition(STAND_IN) for line in self.header.get("encoder", ())]
        return {paper: study for paper, _, study in lines if study}


def checked_files(study: str | Path) -> dict[str, str]:
    """The text of each CSV file beside a study file that names it, by the file's name.

    Raises:
        StudyError: `parse_printed` cannot read one.
    """
    path = Path(study)
    if not path.is_file():
        return {}
    files = {}
    for file in sorted(path.parent.glob("*.csv")):
        with contextlib.suppress(OSError, UnicodeDecodeError):  # not ours
            text = read_regular(file, MAX_BYTES).decode("utf-8")
            if path.name in _header(text).get("study", ()):
                files[file.name] = text
    for name, text in files.items():
        parse_paper_table(text, str(path.parent / name))
    return files


def parse_paper_table(text: str, place: str) -> PaperTable:
    """Read one file.

    Raises:
        StudyError: a column is missing or stands twice, a row has more or fewer cells than there
            are columns, or what should be a number is none; with file and line.
    """
    lines = [
        (number, line)
        for number, line in enumerate(text.splitlines(), start=1)
        if line.strip() and not line.startswith("#")
    ]
    reader = csv.reader(line for _, line in lines)
    try:
        cells = [(lines[reader.line_num - 1][0], row) for row in reader]
    except csv.Error as error:
        raise StudyError(f"{place}:{lines[reader.line_num - 1][0]}: {error}") from None
    columns = cells[0][1] if cells else []
    for name in REQUIRED:
        if name not in columns:
            given = f"{nearest(name, columns)} Columns: {', '.join(columns) or 'none'}"
            raise StudyError(f"{place}: no column '{name}'.{given}")
    for name in columns:
        if columns.count(name) > 1:
            raise StudyError(f"{place}:{cells[0][0]}: column '{name}' stands twice")
    rows = [_row(columns, row, f"{place}:{number}") for number, row in cells[1:]]
    known = {*ID_COLUMNS, *VALUE_COLUMNS}
    return PaperTable(
        header=_header(text),
        rows=tuple(rows),
        settings=tuple(name for name in columns if name not in known),
    )


def paper_cells(study: str | Path) -> list[Row]:
    """Configurations that a study plans at the paper's scale, a row each: first without a preset,
    then under each of its presets but `cpu` what that has not.

    A preset that cannot be planned here, for want of its images, has none.
    """
    rows: dict[tuple[object, ...], Row] = {}
    for preset in [None, *(name for name in preset_names(study) if name != CPU_PRESET)]:
        try:
            planned = load_study(study, preset=preset)
        except StudyError:
            continue
        seed = planned.sections.seeds[0]
        cells = [plan_row(planned, t) for t in plan_trials(planned) if t.seed == seed]
        for row in cells:
            row |= split_name(planned.document.tree, row["objective"])
            same = tuple(each for each in row.items() if each[0] not in ("trial_id", "config"))
            rows.setdefault(same, row)
    return list(rows.values())


def _header(text: str) -> dict[str, tuple[str, ...]]:
    header: dict[str, tuple[str, ...]] = {}
    for line in text.splitlines():
        if line.startswith("# "):
            key, _, rest = line.removeprefix("# ").partition(": ")
            header[key] = (*header.get(key, ()), rest.strip())
    return header


def _row(columns: Sequence[str], cells: Sequence[str], place: str) -> dict[str, str]:
    if len(cells) != len(columns):
        raise StudyError(f"{place}: expected {len(columns)} cells, given {len(cells)}")
    row = dict.fromkeys((*ID_COLUMNS, *VALUE_COLUMNS), "") | {
        name: cell.strip() for name, cell in zip(columns, cells, strict=True)
    }
    for name in _NUMBERS:
        with contextlib.suppress(ValueError):
            if not row[name] or math.isfinite(float(row[name])):
                continue
        raise StudyError(f"{place}: {name}: expected a number, given {row[name]!r:.80}")
    if not row["value"] and not row["spread"]:
        raise StudyError(f"{place}: expected a value or a spread, given neither")
    return row
