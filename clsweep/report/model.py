"""What a report is made of, before it is a page or a text."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

import pandas as pd

from clsweep.questions.model import Figure, Table, slug

NAME = r"[a-z0-9][a-z0-9_-]*"  # of files and anchors


@dataclass(frozen=True, kw_only=True, eq=False)
class Section:
    """One question of the report and its answer. `id` is a slug, unique in the report.

    Attributes:
        open: what is not resolved; the first screen has it, a section alone links there.
        notes: what to beware of, folded on the page.
    """

    id: str
    title: str
    sentences: tuple[str, ...] = ()
    open: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    tables: tuple[Table, ...] = ()
    figures: tuple[Figure, ...] = ()

    @property
    def is_empty(self) -> bool:
        return not (self.sentences or self.tables or self.figures)


@dataclass(frozen=True)
class Step:
    """What to do next, and the command that does it; `command` may be empty."""

    sentence: str
    command: str = ""


@dataclass(frozen=True, kw_only=True, eq=False)
class Report:
    """Everything that is shown. All texts are plain text: what looks like HTML or Markdown in them
    is shown as it is.

    Attributes:
        question: what the study asked, and of what, in one line.
        verdicts: the answer, one or two sentences.
        notes: what limits it: trials that are left, a reference that no objective beats.
        board: each objective at its best, and what is reached without training.
        hero: the charts of the first screen.
        steps: what to do next, the most useful first.
        open: what is not resolved, and what would resolve it.
        facts: name -> value, at the end of the page: "Results", "Metric", "Made".
        terms: what the page explains: name -> meaning.
        sources: the folders or files that it was made from, for the manifest.
        on_test: every score is of the test split, which a column of the written tables says.
    """

    title: str
    question: str = ""
    verdicts: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    board: Table | None = None
    hero: tuple[Figure, ...] = ()
    steps: tuple[Step, ...] = ()
    open: tuple[str, ...] = ()
    sections: tuple[Section, ...] = ()
    facts: Mapping[str, str] = field(default_factory=dict)
    terms: Mapping[str, str] = field(default_factory=dict)
    sources: tuple[str, ...] = ()
    on_test: bool = False

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


def check(report: Report) -> None:
    """Raise ValueError where a name cannot be that of a file or an anchor, or stands twice."""
    parts = {
        "section": [section.id for section in report.sections],
        "table": [table.name for table in report.tables],
        "figure": [figure.name for figure in report.figures],
    }
    for kind, names in parts.items():
        for name in names:
            wrong = ""
            if not re.fullmatch(NAME, name):
                wrong = f"lower-case letters, digits and hyphens: {slug(name)!r}"
            elif names.count(name) > 1:
                wrong = f"one of this name, given {names.count(name)}"
            if wrong:
                raise ValueError(f"{kind} {name!r}: expected {wrong}")
