"""Sentences, figures, tables and what their columns are, before they are a page or files."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from concurrent.futures import Future
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pandas as pd

from clsweep.display.theme import Picture, draw_chart, legible_spec, themed

if TYPE_CHECKING:
    import altair as alt

Sentences = tuple[str, ...]
_LINE_SEPARATORS = {0x2028: " ", 0x2029: " "}
REASON_COLUMNS = {
    "reason": "why nothing was measured or resolved; empty where something was",
    "note": "that, what is missing, and what to beware of",
}


class Unresolved(str):
    """A sentence that says what is not resolved, or not compared, and what would resolve it."""

    __slots__ = ()


def resolved_only(sentences: Sentences) -> Sentences:
    """Those that say something."""
    return tuple(sentence for sentence in sentences if not isinstance(sentence, Unresolved))


@dataclass(frozen=True, kw_only=True, eq=False)
class Figure:
    """A chart and the numbers behind it."""

    name: str  # slug of its files, unique in the report: "tolerance", "marginal-tau"
    title: str
    caption: str  # one or two sentences: what is seen, what the band is
    # One view or layers with `width="container"`, never facets or rows of views: it is shown at any
    # width. It has no theme of its own, `theme.themed` gives it one.
    chart: alt.TopLevelMixin
    data: pd.DataFrame  # few numbers: a CSV file
    is_apart: bool = False  # a file beside the page, as are those of one objective
    is_resolved: bool = True  # False where every row of it is not resolved

    @cached_property
    def spec(self) -> dict[str, Any]:
        """The chart as Vega-Lite without a theme, however many rows its data has; readers of
        screens get its title.

        Raises:
            ValueError: it holds a number that is not finite.
        """
        import altair as alt

        with alt.data_transformers.enable("default", max_rows=None):
            # Our own charts fit the schema: to look costs a fifth of a large report's drawing.
            spec = {"description": self.title, **self.chart.to_dict(validate=False)}
        # Vega takes a title into an expression, where a line separator would be the end of the
        # line.
        text = json.dumps(spec, ensure_ascii=False, allow_nan=False).translate(_LINE_SEPARATORS)
        return legible_spec(json.loads(text))

    @cached_property
    def standing_alone(self) -> dict[str, Any]:
        """The spec with the theme of the files."""
        return themed(self.spec, dark=False, background=None)

    @cached_property
    def picture(self) -> Future[Picture]:
        """The same as a picture, which is drawn from the first time on that this is asked for."""
        return draw_chart(self.standing_alone)


@dataclass(frozen=True, kw_only=True, eq=False)
class Table:
    """A table as it is shown, and in full precision."""

    name: str  # slug of its files, unique in the report
    title: str
    caption: str
    frame: pd.DataFrame  # what is written as Parquet and CSV
    shown: pd.DataFrame  # the cells as the page shows them, strings or numbers
    soft: tuple[int, ...] = ()  # numbers of the rows that are shown for comparison only, from 0
    limit: int = 200  # rows of `shown` that the page has
    is_apart: bool = False  # a file beside the page, which has its name alone


def described(names: Iterable[str], /, **formulas: str) -> dict[str, str]:
    """Each column of a table with its formula. A lower end is the interval of the column before it,
    and an upper one has no text, where nothing else is given; `objective` is a name.
    """
    texts = {"objective": "name, in order of first appearance"} | formulas | REASON_COLUMNS
    before = ""
    for name in names:
        texts.setdefault(name, f"interval of {before}" if name.endswith("low") else "")
        before = name
    return {name: texts[name] for name in names}


def as_slug(text: str) -> str:
    """A name for files and anchors: lower-case Latin letters, digits and hyphens.

    >>> slug("DCL (τ = 0.1)")
    'dcl-0-1'
    """
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-") or "unnamed"
