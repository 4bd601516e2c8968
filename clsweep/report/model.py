"""What a report is made of, before it is a page or a text."""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pandas as pd

if TYPE_CHECKING:
    import altair as alt

    from clsweep.report.figures.drawing import Picture

_LINE_SEPARATORS = {0x2028: " ", 0x2029: " "}

NAME = r"[a-z0-9][a-z0-9_-]*"  # of files and anchors


@dataclass(frozen=True, kw_only=True, eq=False)
class Figure:
    """A chart and the numbers behind it.

    Attributes:
        name: slug of its files, unique in the report: "tolerance", "marginal-tau".
        caption: one or two sentences: what is seen, what the band is.
        chart: one view or layers with `width="container"`, never facets or rows of views: it is
            shown at any width. It has no theme of its own, `theme.themed` gives it one.
        data: the numbers behind it, few: a table for those who cannot see the chart, and a CSV
            file.
        settings: the columns of `data` that hold a hyperparameter's values.
    """

    name: str
    title: str
    caption: str
    chart: alt.TopLevelMixin
    data: pd.DataFrame
    settings: tuple[str, ...] = ()

    @cached_property
    def spec(self) -> dict[str, Any]:
        """The chart as Vega-Lite without a theme, however many rows its data has; readers of
        screens get its title.

        Raises:
            ValueError: it holds a number that is not finite.
        """
        import altair as alt

        from clsweep.report.figures.theme import legible_spec

        with alt.data_transformers.enable("default", max_rows=None):
            # Our own charts fit the schema: to look costs a fifth of a large report's drawing.
            spec = {"description": self.title, **self.chart.to_dict(validate=False)}
        # Vega takes a title into an expression, where a line separator would be the end of the
        # line.
        text = json.dumps(spec, ensure_ascii=False, allow_nan=False).translate(_LINE_SEPARATORS)
        return legible_spec(json.loads(text))

    @cached_property
    def standing_alone(self) -> dict[str, Any]:
        """The spec with the theme of the files, and without links: the page alone has the rows that
        they lead to.
        """
        from clsweep.report.figures.theme import themed

        return themed(_unlinked(self.spec), dark=False, background=None)

    @cached_property
    def picture(self) -> Future[Picture]:
        """The same as a picture, which is being drawn from the first time on that this is asked
        for.
        """
        from clsweep.report.figures.drawing import draw

        return draw(self.standing_alone)


def _unlinked(part: Any) -> Any:
    """A part of a spec without encodings of links; the rows of its data stay as they are."""
    if isinstance(part, Mapping):
        kept = {k: v for k, v in part.items() if not (k == "href" and isinstance(v, Mapping))}
        return {k: v if k == "datasets" else _unlinked(v) for k, v in kept.items()}
    return [_unlinked(each) for each in part] if isinstance(part, list) else part


@dataclass(frozen=True, kw_only=True, eq=False)
class Table:
    """A table as it is shown, and in full precision.

    Attributes:
        name: slug of its files, unique in the report.
        frame: what is written as Parquet and CSV.
        shown: the cells as the page shows them, strings or numbers; the header is the column names.
        anchors: the id of each row that is shown, for links from points; none where empty.
        soft: numbers of the rows that are shown for comparison only, from 0.
        limit: rows of `shown` that the page has.
        more: rows of `frame` that are not even in `shown`.
    """

    name: str
    title: str
    caption: str
    frame: pd.DataFrame
    shown: pd.DataFrame
    anchors: tuple[str, ...] = ()
    soft: tuple[int, ...] = ()
    limit: int = 200
    more: int = 0


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


@dataclass(frozen=True, kw_only=True)
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


def slug(text: str) -> str:
    """A name for files and anchors: lower-case Latin letters, digits and hyphens.

    >>> slug("DCL (τ = 0.1)")
    'dcl-0-1'
    """
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-") or "unnamed"


def trial_anchor(trial_id: str) -> str:
    """The id of a trial's row on the page."""
    return f"trial-{slug(trial_id)[:60]}-{zlib.crc32(trial_id.encode()):08x}"


def check(report: Report) -> None:
    """Raise ValueError where a name cannot be that of a file or an anchor, or stands twice."""
    for kind, names in (
        ("section", [section.id for section in report.sections]),
        ("table", [table.name for table in report.tables]),
        ("figure", [figure.name for figure in report.figures]),
    ):
        for name in names:
            if not re.fullmatch(NAME, name):
                raise ValueError(
                    f"{kind} {name!r}: expected lower-case letters, digits and hyphens: "
                    f"{slug(name)!r}"
                )
            if names.count(name) > 1:
                raise ValueError(
                    f"{kind} {name!r}: expected one of this name, given {names.count(name)}"
                )
