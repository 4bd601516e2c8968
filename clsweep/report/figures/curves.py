"""Lines with bands: tolerance, tuning, and the metric against each hyperparameter."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import altair as alt
import pandas as pd

from clsweep.findings.material import Material
from clsweep.report.figures.encodings import (
    bands_text,
    colour,
    has_interval,
    in_order,
    in_points,
    interval_tips,
    layers,
    numbers,
    objectives,
    param_axis,
    param_title,
    reference_lines,
    score_axis,
    shape,
    slugs,
    tooltip,
)
from clsweep.report.model import Figure

Tips = Sequence[alt.Tooltip]


def tolerance_curves(curves: pd.DataFrame, material: Material) -> Figure | None:
    """Share of the space within delta of the best against delta, from `tolerance_curve`."""
    frame = _curves(curves, material, x="delta", y="share")
    if frame.empty:
        return None
    title = "share of the space within δ"

    def share(field: str) -> alt.Y:
        scale, axis = alt.Scale(domain=[0, 1]), alt.Axis(format="%", tickCount=6)
        return alt.Y(field, type="quantitative", title=title, scale=scale, axis=axis)

    x = alt.X(
        "x",
        type="quantitative",
        title=in_points("δ, distance from the best", material),
        axis=alt.Axis(tickCount=6),
    )
    tips = [
        tooltip("objective", "objective", number=False),
        tooltip("x", in_points("δ", material)),
        alt.Tooltip("y", type="quantitative", title="share of the space", format=".3~p"),
        alt.Tooltip("low", type="quantitative", title="95 % from", format=".3~p"),
        alt.Tooltip("high", type="quantitative", title="95 % to", format=".3~p"),
    ]
    return Figure(
        name="tolerance",
        title="How much of the space is good enough",
        caption="Share of the swept space within δ of the objective's best. A curve that rises "
        f"early belongs to an objective that forgives a wrong setting. {bands_text(frame)}",
        chart=layers(
            banded(frame, material, x, share, tips, marked=_sparse(frame)),
            describe=f"Share of the space within delta of the best {material.metric}, a line an "
            "objective.",
        ),
        data=frame.rename(columns={"x": "delta", "y": "share"}),
    )


def best_of_k_curves(curves: pd.DataFrame, material: Material) -> Figure | None:
    """Expected score of the best of k configurations against k, from `best_of_k`."""
    frame = _curves(curves, material, x="k", y="expected")
    frame = frame[frame["x"] > 0]
    if frame.empty:
        return None
    title = f"best {material.metric_title}"
    x = alt.X(
        "x",
        type="quantitative",
        title="k, configurations tried",
        scale=alt.Scale(type="log", nice=False, padding=8),
        axis=alt.Axis(
            values=_halvings(frame["x"].max()), format="d", labelOverlap="greedy", grid=False
        ),
    )
    tips = [
        tooltip("objective", "objective", number=False),
        tooltip("x", "tries"),
        *interval_tips(title),
    ]
    lines, said = reference_lines(
        material, frame[["y", "low", "high"]].to_numpy(dtype=float), title
    )
    charts = banded(
        frame, material, x, lambda field: score_axis(title, field), tips, marked=_sparse(frame)
    )
    return Figure(
        name="best-of-k",
        title="What tuning costs",
        caption="Score to expect of the best of k configurations tried at random. A curve that is "
        "flat from the start "
        f"belongs to an objective that needs no tuning. {bands_text(frame)}{said}",
        chart=layers(
            [*lines, *charts],
            describe=f"Expected best {material.metric} of k configurations, against k; a line an "
            "objective.",
        ),
        data=frame.rename(columns={"x": "k", "y": "expected"}),
    )


def marginal_figures(marginals: pd.DataFrame, material: Material) -> list[Figure]:
    """The metric against each hyperparameter, averaged over the others, with all objectives that
    sweep it.
    """
    if marginals.empty:
        return []
    tables = {
        str(param): _marginal(rows, material)
        for param, rows in marginals.groupby("param", sort=False)
    }
    tables = {param: frame for param, frame in tables.items() if not frame.empty}
    names = slugs("marginal", list(tables))
    return [
        _marginal_figure(name, param, tables[param], material)
        for name, param in zip(names, tables, strict=True)
    ]


def _curves(curves: pd.DataFrame, material: Material, *, x: str, y: str) -> pd.DataFrame:
    """The columns of every curve; rows without a value are left out."""
    if curves.empty:
        return pd.DataFrame(columns=["objective", "x", "y", "low", "high"])
    columns = {"x": x, "y": y, "low": "low", "high": "high"}
    frame = pd.DataFrame({key: numbers(curves, column) for key, column in columns.items()})
    frame.insert(0, "objective", curves["objective"].to_numpy())
    return in_order(frame.dropna(subset=["x", "y"]), material)


def _marginal(rows: pd.DataFrame, material: Material) -> pd.DataFrame:
    columns = {"x": "position", "y": "mean", "low": "low", "high": "high", "num": "num_configs"}
    frame = pd.DataFrame({key: numbers(rows, column) for key, column in columns.items()})
    frame.insert(0, "objective", rows["objective"].to_numpy())
    frame.insert(1, "at", rows["label"].astype(str).to_numpy())
    frame["binned"] = numbers(rows, "value_low") < numbers(rows, "value_high")
    return in_order(frame.dropna(subset=["y"]), material)


def _marginal_figure(name: str, param: str, frame: pd.DataFrame, material: Material) -> Figure:
    metric, title, called = material.metric, material.metric_title, param_title(material, param)
    by_name = bool(frame["x"].isna().any())
    tips = [
        tooltip("objective", "objective", number=False),
        tooltip("at", called, number=False),
        *interval_tips(f"mean {title}"),
        tooltip("num", "configurations"),
    ]
    lines, said = reference_lines(
        material, frame[["y", "low", "high"]].to_numpy(dtype=float), title
    )
    if by_name:
        charts = _side_by_side(frame, material, called, title, tips)
    else:
        x = param_axis(
            material, param, frame["x"].to_numpy(dtype=float), ticks=not frame["binned"].any()
        )
        charts = banded(
            frame, material, x, lambda field: score_axis(title, field), tips, marked=True
        )
    binned = " Each point stands for a range of values." if frame["binned"].any() else ""
    return Figure(
        name=name,
        title=f"{metric} against {called}",
        caption=f"Mean {metric} over all settings that share a value of {param}.{binned} "
        f"{bands_text(frame, 'Bars' if by_name else 'Bands')}{said}",
        chart=layers(
            [*lines, *charts],
            describe=f"Mean {metric} against {param}, with intervals; a line an objective.",
        ),
        data=frame.drop(columns=["x", "binned"]).rename(
            columns={"at": "value", "y": "mean", "num": "num_configs"}
        ),
    )


def banded(
    frame: pd.DataFrame,
    material: Material,
    x: alt.X,
    y: Callable[[str], alt.Y],
    tips: Tips,
    *,
    marked: bool,
) -> list[alt.Chart]:
    """A band, a line and, where `marked`, points of each objective; unmarked lines have points that
    only hover.
    """
    base = alt.Chart(frame)
    hue, form = colour(material, frame["objective"]), shape(material, frame["objective"])
    band = base.transform_filter("isValid(datum.low) && isValid(datum.high)").mark_area(
        opacity=0.16
    )
    line = base.mark_line(strokeWidth=2)
    point = base.mark_point(filled=True, size=60, opacity=1 if marked else 0)
    return [
        *([band.encode(x, y("low"), alt.Y2("high"), hue)] if has_interval(frame) else []),
        line.encode(x, y("y"), hue),
        point.encode(x, y("y"), hue, form, tooltip=list(tips)),
    ]


def _side_by_side(
    frame: pd.DataFrame, material: Material, called: str, title: str, tips: Tips
) -> list[alt.Chart]:
    """Points with error bars, for a hyperparameter whose values are names."""
    place = alt.X(
        "at",
        type="nominal",
        title=called,
        scale=alt.Scale(domain=list(dict.fromkeys(frame["at"]))),
        axis=alt.Axis(labelAngle=0, labelOverlap="greedy", labelLimit=100, grid=False),
    )
    beside = alt.XOffset("objective", type="nominal", scale=alt.Scale(domain=objectives(material)))
    base = alt.Chart(frame)
    hue, form = colour(material, frame["objective"]), shape(material, frame["objective"])
    bar = base.transform_filter("isValid(datum.low) && isValid(datum.high)").mark_rule(
        strokeWidth=2
    )
    point = base.mark_point(filled=True, size=70, opacity=1)
    return [
        bar.encode(place, beside, score_axis(title, "low"), alt.Y2("high"), hue),
        point.encode(place, beside, score_axis(title), hue, form, tooltip=list(tips)),
    ]


def _sparse(frame: pd.DataFrame) -> bool:
    return bool(frame["x"].nunique() <= 12)


def _halvings(largest: float) -> list[int]:
    """1, 2, 4, ... up to the largest number of tries."""
    return [2**power for power in range(max(1, int(largest)).bit_length())]
