"""The content of a report, before it is a page or a text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pandas as pd

from clsweep.statistics.report_objects import Figure, Table

NAME = r"[a-z0-9][a-z0-9_-]*"  # of files and anchors


@dataclass(frozen=True, kw_only=True, eq=False)
class Section:
    """One question of the report and its answer."""

    id: str  # a slug, unique in the report
    title: str
    sentences: tuple[str, ...] = ()
    open: tuple[str, ...] = ()  # what is not resolved; the first screen has it, this links there
    notes: tuple[str, ...] = ()  # what to beware of, folded on the page
    tables: tuple[Table, ...] = ()
    figures: tuple[Figure, ...] = ()
    pages: Mapping[str, str] = field(default_factory=dict)  # title -> file: what else is beside it

    @property
    def is_empty(self) -> bool:
        return not (self.sentences or self.tables or self.figures)

    @property
    def own_figures(self) -> tuple[Figure, ...]:
        """The figures that the page shows."""
        return tuple(f for f in self.figures if f.is_resolved and not f.is_apart)

    @property
    def own_tables(self) -> tuple[Table, ...]:
        """The tables that the page shows."""
        return tuple(table for table in self.tables if not table.is_apart)

    @property
    def undrawn(self) -> dict[str, str]:
        """Title -> file of the figures of which no row is resolved."""
        return {f.title: f"figures/{f.name}.svg" for f in self.figures if not f.is_resolved}

    @property
    def apart(self) -> dict[str, str]:
        """Title -> file of all else that is a file beside the page alone."""
        figures = (f for f in self.figures if f.is_apart and f.is_resolved)
        tables = {t.title: f"tables/{t.name}.csv" for t in self.tables if t.is_apart}
        return {**self.pages, **{f.title: f"figures/{f.name}.svg" for f in figures}, **tables}


@dataclass(frozen=True)
class Step:
    """A next step, and the command that does it; `command` may be empty."""

    sentence: str
    command: str = ""


@dataclass(frozen=True, kw_only=True, eq=False)
class Report:
    """Everything that is shown. All texts are plain text: what looks like HTML or Markdown in them
    is shown as it is.
    """

    title: str
    question: str = ""  # what the study asked, and of what, in one line
    verdicts: tuple[str, ...] = ()  # the answer, one or two sentences
    notes: tuple[str, ...] = ()  # what limits it, as trials that are left
    board: Table | None = None  # each objective at its best, and what is reached without training
    hero: tuple[Figure, ...] = ()  # the charts of the first screen
    steps: tuple[Step, ...] = ()  # what to do next, the most useful first
    open: tuple[str, ...] = ()  # what is not resolved, and what would resolve it
    sections: tuple[Section, ...] = ()
    facts: Mapping[str, str] = field(default_factory=dict)  # at the end: "Results", "Metric"
    terms: Mapping[str, str] = field(default_factory=dict)  # that the page explains -> meaning
    sources: tuple[str, ...] = ()  # the folders or files that it was made from
    on_test: bool = False  # every score is of the test split, which the written tables say

    @property
    def tables(self) -> tuple[Table, ...]:
        """All of them, the leaderboard first."""
        board = () if self.board is None else (self.board,)
        return (*board, *(table for section in self.sections for table in section.tables))

    def marked(self, frame: pd.DataFrame) -> pd.DataFrame:
        """A table as it is written: it says where its scores are of the test split."""
        return frame.assign(score_on="test") if self.on_test else frame

    @property
    def figures(self) -> tuple[Figure, ...]:
        """All of them, those of the first screen first."""
        return (*self.hero, *(figure for part in self.sections for figure in part.figures))

    @property
    def own_figures(self) -> tuple[Figure, ...]:
        """Those that the page shows."""
        return (*self.hero, *(figure for part in self.sections for figure in part.own_figures))
