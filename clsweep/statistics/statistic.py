"""A question with its table for eyes: an interval stands beside its number.

The command line prints that table, the report sets it. Whatever is in the unit of the metric is
text already, with as many decimals as its column needs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

import pandas as pd

from clsweep.catalog.rows import Row
from clsweep.display.cells import texts_of_values
from clsweep.display.numbers import THRESHOLD, Number, fixed, is_number, p_value, setting, texts_of
from clsweep.statistics.computed import ReportContext, TableFunction, TableRequest
from clsweep.statistics.report_objects import Figure, Sentences, Table
from clsweep.sweeps.notes import factors_in_front, in_cell, is_measured, notes_of, records_of
from clsweep.sweeps.study_data import StudyData

_Cell = Callable[[Row], Any]
PAGE_ROWS = 20  # of one table on a page; its file has them all


@dataclass(frozen=True)
class Column:
    """A column of a table for eyes, which leaves it out where it has no value."""

    # Its name; `{near}`, `{points}`, `{metric}` and `{images}` stand for what is asked, `{scored}`
    # for the images where a table knows of no others.
    header: str
    cell: str | _Cell = ""  # the column of the full table, the heading's by default, or a function
    means: str = ""  # what `--explain` and the report's caption say of it
    _: KW_ONLY
    # A screen without room does without it, 1 goes first, equal ones together; 0 always stays.
    drop_order: int = 0
    called: str = ""  # how the explanation names it, where that is not the heading


@dataclass(frozen=True, kw_only=True)
class Statistic:
    """A statistic: its table, and what a report says and draws of it."""

    name: str  # of its table and files in a report; a slug
    # Of its table in a report, or what makes it; as the heading of a `Column`.
    title: str | Callable[[ReportContext], str] = ""
    header: str = ""  # above its table on a screen, where that is not the title
    # The full table, what a report asks it with, and the one of a report where that takes more.
    table: TableFunction | None = None
    options: Callable[[ReportContext], Mapping[str, Any]] = lambda _: {}
    frame: Callable[[ReportContext], pd.DataFrame] | None = None
    columns: tuple[Column, ...] = ()  # of the table for eyes; none: the full table as it is
    # The column of the full table whose size tells how fine the unit of the metric is: numbers in
    # it have two digits of what resolves them where all are 1 at most; of percent and the like, two
    # decimals do as long as they show it.
    levels: str = ""
    # What is shown of the full table.
    rows: Callable[[pd.DataFrame, StudyData], pd.DataFrame] = lambda frame, _: frame
    intro: str = ""  # what an explanation begins with
    caption: str = "{columns}"  # of the table in a report, around what its columns mean
    has_notes: bool = True  # whether a report has the notes of the full table
    is_apart: bool = False  # whether its table is a file beside the page alone
    page_drops: int = 4  # of `drop_order`, how many a page goes without: its file has them all
    # Of a report, as all that follow.
    sentences: Callable[[ReportContext], Sentences] = lambda _: ()
    figures: Callable[[ReportContext], Iterable[Figure | None]] = lambda _: ()  # None is left out
    # Where they are not those of this question's one table.
    tables: Callable[[ReportContext], Iterable[Table | None]] | None = None
    notes: Callable[[ReportContext], Iterable[str]] | None = None
    # Whether `table` takes so long that a report has it computed ahead, or what it does.
    ahead: bool | Callable[[ReportContext], Iterable[TableRequest]] = False
    # Name -> what the columns of the full table are, for the appendix.
    formulas: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    # Words that a reader may not know, and what they mean.
    terms: Mapping[str, str] = field(default_factory=dict)

    @property
    def drop_order(self) -> list[list[str]]:
        """The columns that a screen without room for all of them does without, in that order."""
        numbers = sorted({c.drop_order for c in self.columns if c.drop_order})
        return [[c.header for c in self.columns if c.drop_order == number] for number in numbers]

    def heading(self, data: StudyData, within: float) -> str:
        """The line above its table on a screen."""
        text = self.header or str(self.title)
        return filled(text, within, data.metric_title, data.images, data.unit)

    def explained(self, table: pd.DataFrame, data: StudyData, within: float) -> list[str]:
        """The meaning of the columns of a `shown` table, a text each."""
        meanings = [
            f"{each.called or each.header}: {each.means}"
            for each in self.columns
            if each.means and filled(each.header, within, data.metric_title) in table
        ]
        texts = [text for text in (self.intro, *meanings) if text]
        return [filled(text, within, unit=data.unit) for text in texts]

    def shown(self, frame: pd.DataFrame, data: StudyData, within: float) -> pd.DataFrame:
        """The table for eyes."""
        rows = self.rows(frame, data)
        if not self.columns:
            return plain(rows)
        sizes = [abs(x) for x in rows[self.levels] if is_number(x)] if self.levels else []
        is_fine = bool(sizes) and max(sizes) <= 1
        shown = {}
        for column in self.columns if len(rows) else ():
            cell = column.cell or column.header
            values = [cell(row) if callable(cell) else row[cell] for row in records_of(rows)]
            if any(isinstance(value, Number) for value in values):
                numbers = [value if isinstance(value, Number) else None for value in values]
                values = texts_of(numbers, is_fine=is_fine)
            if any(value != "" and not pd.isna(value) for value in values):
                shown[filled(column.header, within, data.metric_title)] = values
        return pd.DataFrame(shown, dtype=object)

    def full(self, context: ReportContext) -> pd.DataFrame:
        """The full table of a report; empty where it has none."""
        if self.frame:
            return self.frame(context)
        return (
            context.compute(self.table, **self.options(context)) if self.table else pd.DataFrame()
        )

    def tables_of(self, context: ReportContext) -> list[Table]:
        """The tables of a report; none without rows, or of which nothing was measured."""
        if self.tables:
            return [table for table in self.tables(context) if table is not None]
        if not self.title:
            return []
        frame = self.full(context)
        if frame.empty or ("reason" in frame and not frame["reason"].map(is_measured).any()):
            return []
        data, within = context.data, context.within
        shown = self.shown(frame, data, within)
        spare = {name for names in self.drop_order[: self.page_drops] for name in names}
        shown = shown.drop(columns=spare & {*shown})
        meanings = "; ".join(self.explained(shown, data, within))
        title = self.title(context) if callable(self.title) else self.title
        caption = self.caption.replace("{columns}", meanings)
        return [
            Table(
                name=self.name,
                title=filled(title, within, data.metric, data.images, data.unit),
                caption=filled(caption, within, images=data.images, unit=data.unit),
                frame=frame,
                shown=shown,
                limit=PAGE_ROWS,
                is_apart=self.is_apart,
            )
        ]

    def notes_of(self, context: ReportContext) -> list[str]:
        """The notes of a report."""
        if self.notes:
            return list(self.notes(context))
        return notes_of(self.full(context)) if self.has_notes else []


def filled(text: str, within: float, metric: str = "", images: str = "", unit: str = "%") -> str:
    """A text with what its table is asked by; `unit` is that of the metric."""
    values = {"near": setting(within), "points": points(within, unit), "metric": metric}
    values["images"] = f" for {images}" if images else ""
    values["scored"] = values["images"].replace("new", "these")
    for name, value in values.items():
        text = text.replace(f"{{{name}}}", value)
    return text


def points(within: float, unit: str) -> str:
    """`1 point`, `2.5 points`, `0.1 nats`, `0.01` of what has no unit."""
    name = "points" if unit == "%" else unit
    return f"{setting(within)} {name.removesuffix('s') if within == 1 else name}".rstrip()


def plain(frame: pd.DataFrame) -> pd.DataFrame:
    """As it is, without columns that have no value, and without the notes, which stand apart."""
    apart = ("reason", "note")
    columns = frame[[name for name in frame if name not in apart and frame[name].notna().any()]]
    return columns.apply(
        lambda column: texts_of_values(column.tolist()) if column.dtype.kind == "f" else column
    )


def with_levels(frame: pd.DataFrame, table: pd.DataFrame) -> pd.DataFrame:
    """The display table of `frame`, with the factors of `frame` in front."""
    return in_cell(table, {name: frame[name].tolist() for name in factors_in_front(frame)})


# Cells


def between(name: str, stem: str | None = None, **options: Any) -> Callable[[Row], Number | None]:
    """A value in the unit of the metric with its interval, in the columns that `ends` says."""

    def cell(row: Row) -> Number | None:
        low, high = ends(row, name, stem)
        return Number.of(row.get(name), low=low, high=high, **options)

    return cell


def level_cell(
    name: str, spread: Callable[[Row], float] = lambda _: math.nan
) -> Callable[[Row], Number | None]:
    """A value in the unit of the metric alone; `spread`, or a hundredth, says how fine it is."""

    def cell(row: Row) -> Number | None:
        value, size = row[name], spread(row)
        if is_number(value) and not (is_number(size) and size):
            size = value / 100
        return Number.of(value, spread=size)

    return cell


def fraction(name: str, stem: str | None = None, most: int = 4) -> Callable[[Row], Number | None]:
    """A number between 0 and 1, or -1 and 1, with its interval."""
    return between(name, stem, most=most, is_fine=False)


def p_of(name: str) -> _Cell:
    """A p-value that reads as the threshold only where it is one."""

    def cell(row: Row) -> str | None:
        value = row[name]
        if not is_number(value):
            return None
        text = fixed(value)
        return p_value(value) if float(text) == THRESHOLD else text

    return cell


def whole_number(name: str) -> _Cell:
    """A number rounded up."""
    return lambda row: (
        math.ceil(row[name]) if is_number(row[name]) and math.isfinite(row[name]) else None
    )


def half(name: str, stem: str | None = None) -> Callable[[Row], float]:
    """Resolution of a value: half its interval, or its own size."""

    def spread(row: Row) -> float:
        interval = between(name, stem)(row)
        return interval.resolution if interval else math.nan

    return spread


def ends(row: Row, name: str, stem: str | None = None) -> tuple[float, float]:
    """The interval of a value: columns `<stem>_low` and `<stem>_high`, of `name` itself by default;
    `low` and `high` for stem "".
    """
    before = name if stem is None else stem
    low, high = (row.get(f"{before}_{end}" if before else end, math.nan) for end in ("low", "high"))
    return (low, high) if is_number(low) and is_number(high) else (math.nan, math.nan)
