"""Marks that several figures share: points with intervals in rows, and lines with bands."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from clsweep.display.theme import GREY
from clsweep.findings.material import Material
from clsweep.questions import charts
from clsweep.questions.charts import alt

SHADES = ("#5f6773", "#878d97", "#a7acb5")  # of kinds; legible on white and on black
LOWER = 7  # pixels from the middle of a row, below its label


def intervals(table: pd.DataFrame, x: str, low: str, high: str) -> pd.DataFrame:
    """Objective, x, low, high and note of every row; a column that is not there is NaN."""
    columns = {"x": x, "low": low, "high": high}
    found = {
        key: charts.numbers(table, name) if name in table.columns else np.nan
        for key, name in columns.items()
    }
    frame = pd.DataFrame({"objective": table["objective"].to_numpy(), **found})
    frame["note"] = table["note"].fillna("").to_numpy() if "note" in table.columns else ""
    return frame


def forest(
    frame: pd.DataFrame,
    material: Material,
    x: alt.X,
    *,
    describe: str,
    line: float | None = None,
    legend: bool = True,
) -> alt.LayerChart:
    """Rows of points and intervals in their objective's colour, grey where nothing is resolved."""
    winners = frame["objective"][frame["resolved"]]
    legend = legend and not winners.empty
    hue = (
        alt.when("datum.resolved")
        .then(charts.colour(material, winners, legend=legend))
        .otherwise(alt.value(GREY))
    )
    form = (
        alt.when("datum.resolved")
        .then(charts.shape(material, winners, legend=legend))
        .otherwise(alt.value("circle"))
    )
    place = alt.Chart(frame).encode(_rows(frame["row"]))
    tips = charts.tips(row="row", x="estimate", **charts.ENDS)
    if frame["note"].ne("").any():
        tips += charts.tips(note="note")
    known, missing = (
        place.transform_filter("isValid(datum.x)"),
        place.transform_filter("!isValid(datum.x)"),
    )
    marks = [] if line is None else [_rule_at(line, x)]
    marks += [
        _labels(frame, charts.ROW_HEIGHT),
        _bars(place, x, yOffset=LOWER).encode(color=hue),
        known.mark_point(filled=True, size=90, opacity=1, yOffset=LOWER).encode(
            x, color=hue, shape=form, tooltip=tips
        ),
        missing.mark_text(align="left", yOffset=LOWER, style="soft", text="not measured").encode(
            x=alt.value(0)
        ),
    ]
    for end, arrow in {"low": "triangle-left", "high": "triangle-right"}.items():
        if f"{end}_open" in frame and frame[f"{end}_open"].any():
            open_end = place.transform_filter(f"datum.{end}_open")
            head = open_end.mark_point(filled=True, size=60, shape=arrow, opacity=1, yOffset=LOWER)
            marks.append(head.encode(_column(x, end), color=hue))
    return charts.layers(
        marks, height=charts.ROW_HEIGHT * frame["row"].nunique(), describe=describe
    )


def dots(
    frame: pd.DataFrame,
    x: alt.X,
    kinds: Sequence[str],
    *,
    tips: Sequence[alt.Tooltip],
    describe: str,
    null: bool = False,
) -> alt.LayerChart:
    """Rows with one point for each of the kinds, apart in shape, shade and place: colours are the
    objectives'. `null` adds ticks.
    """
    shown = [kind for kind in kinds if kind in set(frame["kind"])]
    scale, legend = alt.Scale(domain=list(kinds)), alt.Legend(**charts.legend_place(), values=shown)
    shades = alt.Scale(domain=list(kinds), range=SHADES[: len(kinds)])
    hue = alt.Color("kind:N", title=None, scale=shades, legend=legend)
    form = alt.Shape("kind:N", title=None, scale=scale, legend=legend)
    row_height = charts.ROW_HEIGHT / 2 + 14 * len(shown)
    base = alt.Chart(frame).encode(_rows(frame["row"]), tooltip=list(tips))
    spread = alt.Scale(domain=shown, range=[charts.ROW_HEIGHT / 2 - 2, row_height - 5])
    beside = alt.YOffset("kind:N", scale=spread)
    marks = [
        _labels(frame, row_height),
        _bars(base, x).encode(beside, hue),
        base.mark_point(filled=True, size=70, opacity=1).encode(beside, x, hue, form),
    ]
    if null:
        known = base.transform_filter("isValid(datum.null)")
        tick = known.mark_tick(
            color=GREY,
            thickness=2,
            size=row_height - charts.ROW_HEIGHT / 2,
            yOffset=charts.ROW_HEIGHT / 4,
        )
        marks.insert(0, tick.encode(_column(x, "null")))
    return charts.layers(marks, height=row_height * frame["row"].nunique(), describe=describe)


def _rows(names: Iterable[str]) -> alt.Y:
    """A band for each row. Its label stands in it, not beside it: a phone has no room there."""
    scale = alt.Scale(domain=list(dict.fromkeys(names)), paddingInner=0, paddingOuter=0)
    return alt.Y("row:N", title=None, scale=scale, axis=None)


def _labels(frame: pd.DataFrame, row_height: float) -> alt.Chart:
    text = alt.Chart(frame[["row"]].drop_duplicates()).mark_text(
        align="left", dy=10 - row_height / 2, limit=alt.ExprRef("width"), style="ink"
    )
    return text.encode(_rows(frame["row"]), x=alt.value(0), text=alt.Text("row:N"))


def _bars(base: alt.Chart, x: alt.X, **options: Any) -> alt.Chart:
    whole = base.transform_filter("isValid(datum.low) && isValid(datum.high)")
    return whole.mark_rule(strokeWidth=2.5, **options).encode(_column(x, "low"), alt.X2("high"))


def _rule_at(value: float, x: alt.X) -> alt.Chart:
    line = alt.Chart(pd.DataFrame({"x": [value]})).mark_rule(color=GREY, strokeDash=[5, 4])
    return line.encode(x)


def _column(x: alt.X, field: str) -> alt.X:
    """The same axis over another column."""
    other = x.copy()
    other.shorthand = field
    return other


def plain_x(title: str, **scale: Any) -> alt.X:
    axis = alt.Axis(labelOverlap="greedy", labelSeparation=5, tickCount=6, format=".4~r")
    return alt.X("x:Q", title=title, scale=alt.Scale(**scale), axis=axis)


def curve_frame(curves: pd.DataFrame, material: Material, *, x: str, y: str) -> pd.DataFrame:
    """The columns of every curve; rows without a value are left out."""
    if curves.empty:
        return pd.DataFrame(columns=["objective", "x", "y", "low", "high"])
    frame = charts.columns(curves, x=x, y=y, low="low", high="high")
    return charts.in_order(frame.dropna(subset=["x", "y"]), material)


def banded(
    frame: pd.DataFrame,
    material: Material,
    x: alt.X,
    y: Callable[[str], alt.Y],
    tips: Sequence[alt.Tooltip],
    *,
    marked: bool,
) -> list[alt.Chart]:
    """A band, a line and, where `marked`, points of each objective; unmarked lines have points that
    only hover.
    """
    base = alt.Chart(frame)
    hue, form = charts.looks(material, frame)
    band = base.transform_filter("isValid(datum.low) && isValid(datum.high)").mark_area(
        opacity=0.16
    )
    line = base.mark_line(strokeWidth=2)
    point = base.mark_point(filled=True, size=60, opacity=1 if marked else 0)
    return [
        *([band.encode(x, y("low"), alt.Y2("high"), hue)] if charts.has_interval(frame) else []),
        line.encode(x, y("y"), hue),
        point.encode(x, y("y"), hue, form, tooltip=list(tips)),
    ]


def curves(
    frame: pd.DataFrame,
    material: Material,
    x: alt.X,
    title: str,
    tips: Sequence[alt.Tooltip],
    *,
    marked: bool = True,
) -> tuple[list[alt.Chart], str]:
    """The same over an axis of scores, beside what is reached without training; and a sentence on
    that.
    """
    lines, said = charts.reference_lines(material, frame, title)
    drawn = banded(frame, material, x, partial(charts.score_axis, title), tips, marked=marked)
    return [*lines, *drawn], said


def is_sparse(frame: pd.DataFrame) -> bool:
    return bool(frame["x"].nunique() <= 12)
