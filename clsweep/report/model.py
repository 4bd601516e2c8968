"""What a report is made of, before it is a page or a text."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pandas as pd

if TYPE_CHECKING:
    import altair as alt

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


@dataclass(frozen=True, kw_only=True, eq=False)
class Table:
    """A table as it is shown, and in full precision.

    Attributes:
        name: slug of its files, unique in the report.
        frame: what is written as Parquet and CSV.
        shown: the cells as the page shows them, strings or numbers; the header is the column names.
    """

    name: str
    title: str
    caption: str
    frame: pd.DataFrame
    shown: pd.DataFrame


@dataclass(frozen=True, kw_only=True, eq=False)
class Section:
    """One question of the report and its answer. `id` is a slug, unique in the report."""

    id: str
    title: str
    sentences: tuple[str, ...]
    notes: tuple[str, ...]
    tables: tuple[Table, ...]
    figures: tuple[Figure, ...]


@dataclass(frozen=True, kw_only=True, eq=False)
class Report:
    """Everything that is shown. All texts are plain text: what looks like HTML or Markdown in them
    is shown as it is.

    Attributes:
        facts: name -> value, at the head of the page: "Studies", "Trials", "Metric", "Made at".
        verdicts: the sentences at the top.
        sources: the folders or files that it was made from, for the manifest.
        on_test: every score is of the test split, which a column of the written tables says.
    """

    title: str
    facts: Mapping[str, str]
    verdicts: tuple[str, ...]
    sections: tuple[Section, ...]
    sources: tuple[str, ...] = ()
    on_test: bool = False


def slug(text: str) -> str:
    """A name for files and anchors: lower-case Latin letters, digits and hyphens.

    >>> slug("DCL (τ = 0.1)")
    'dcl-0-1'
    """
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-") or "unnamed"


def check(report: Report) -> None:
    """Raise ValueError where a name cannot be that of a file or an anchor, or stands twice."""
    for kind, names in (
        ("section", [section.id for section in report.sections]),
        ("table", [table.name for section in report.sections for table in section.tables]),
        ("figure", [figure.name for section in report.sections for figure in section.figures]),
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
