"""A sentence, a figure and a table, before they are a page, a text or files."""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pandas as pd

from clsweep.display.theme import Picture, draw_chart, legible_spec, themed

if TYPE_CHECKING:
    import altair as alt

_LINE_SEPARATORS = {0x2028: " ", 0x2029: " "}


Sentences = tuple[str, ...]


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
    data: pd.DataFrame  # few numbers: a table for those who cannot see the chart, and a CSV file
    settings: tuple[str, ...] = ()  # the columns of `data` that hold a hyperparameter's values

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
        """The spec with the theme of the files, and without links, as the page alone has rows."""
        return themed(_unlinked(self.spec), dark=False, background=None)

    @cached_property
    def picture(self) -> Future[Picture]:
        """The same as a picture, which is drawn from the first time on that this is asked for."""
        return draw_chart(self.standing_alone)


def _unlinked(part: Any) -> Any:
    """A part of a spec without encodings of links; the rows of its data stay as they are."""
    if isinstance(part, Mapping):
        encodings = {k: v for k, v in part.items() if not (k == "href" and isinstance(v, Mapping))}
        return {k: v if k == "datasets" else _unlinked(v) for k, v in encodings.items()}
    return [_unlinked(each) for each in part] if isinstance(part, list) else part


@dataclass(frozen=True, kw_only=True, eq=False)
class Table:
    """A table as it is shown, and in full precision."""

    name: str  # slug of its files, unique in the report
    title: str
    caption: str
    frame: pd.DataFrame  # what is written as Parquet and CSV
    shown: pd.DataFrame  # the cells as the page shows them, strings or numbers
    anchors: tuple[str, ...] = ()  # the id of each row that is shown, for links from points
    soft: tuple[int, ...] = ()  # numbers of the rows that are shown for comparison only, from 0
    limit: int = 200  # rows of `shown` that the page has
    more: int = 0  # rows of `frame` that are not even in `shown`


def as_slug(text: str) -> str:
    """A name for files and anchors: lower-case Latin letters, digits and hyphens.

    >>> slug("DCL (τ = 0.1)")
    'dcl-0-1'
    """
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-") or "unnamed"


def trial_anchor(trial_id: str) -> str:
    """The id of a trial's row on the page."""
    return f"trial-{as_slug(trial_id)[:60]}-{zlib.crc32(trial_id.encode()):08x}"
