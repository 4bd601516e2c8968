"""Lines with bands: tolerance, tuning, the metric against each hyperparameter and against training,
and a paper's points beside the measured ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import altair as alt
import numpy as np
import pandas as pd

from clsweep.analysis.reference import Verdict
from clsweep.findings.material import Material
from clsweep.findings.reproduction import Layout
from clsweep.report.figures.encodings import (
    bands_text,
    colour,
    has_interval,
    in_order,
    in_points,
    interval_tips,
    layers,
    legend_place,
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
EFFORTS = {
    "epoch": ("epochs", "epochs"),
    "images": ("images", "images trained on"),
    "pairs": ("pairs", "pairs of views compared"),
    "seconds": ("seconds", "seconds of training"),
}
LEAST_SEEDS = 3  # for a band: two seeds give one that fills the chart
LONG = 18  # letters of a name of which four do not fit side by side


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


def learning_figures(learning: pd.DataFrame, material: Material) -> list[Figure]:
    """The metric against each measure of effort that orders the objectives in another way than
    those before it: an axis on which all curves are only stretched alike is left out.
    """
    if learning.empty or learning.groupby("objective")["epoch"].nunique().max() < 2:
        return []
    drawn: list[str] = []
    found: list[Figure] = []
    for axis in EFFORTS:
        known = learning[np.isfinite(numbers(learning, axis))]
        if len(known) < len(learning) or any(_is_alike(learning, axis, one) for one in drawn):
            continue
        drawn.append(axis)
        found.append(learning_figure(learning, material, axis=axis))
    return found


def learning_figure(learning: pd.DataFrame, material: Material, *, axis: str) -> Figure:
    """The metric against one of `EFFORTS`, a line an objective."""
    columns = {"x": axis, "y": "mean", "low": "low", "high": "high", "num": "num_seeds"}
    frame = pd.DataFrame({key: numbers(learning, name) for key, name in columns.items()})
    frame.insert(0, "objective", learning["objective"].to_numpy())
    has_band = bool((frame["num"] >= LEAST_SEEDS).any())
    few = frame["num"] < LEAST_SEEDS
    frame.loc[few, ["low", "high"]] = np.nan
    frame = in_order(frame.dropna(subset=["x", "y"]), material)
    short, called = EFFORTS[axis]
    title = material.metric_title
    tips = [
        tooltip("objective", "objective", number=False),
        tooltip("x", called),
        *interval_tips(f"mean {title}"),
        tooltip("num", "seeds"),
    ]
    x = alt.X(
        "x",
        type="quantitative",
        title=called,
        axis=alt.Axis(format="~s" if axis != "epoch" else "d", tickCount=6, grid=False),
    )
    lines, said = reference_lines(
        material, frame[["y", "low", "high"]].to_numpy(dtype=float), title
    )
    bands = (
        "Bands are 95 % intervals over the seeds."
        if has_band
        else f"Bands need {LEAST_SEEDS} seeds."
    )
    return Figure(
        name=f"learning-{short}",
        title=f"Learning curves against {short}",
        caption=f"Mean {material.metric} of the best configuration of each objective. {bands}"
        f"{said}",
        chart=layers(
            [
                *lines,
                *banded(
                    frame, material, x, lambda field: score_axis(title, field), tips, marked=True
                ),
            ],
            describe=f"{material.metric} against {called}, a line an objective.",
        ),
        data=learning,
    )


def under_way_figure(epochs: pd.DataFrame, material: Material) -> Figure | None:
    """The trials that have not ended, a line each: the metric where any of them has been scored,
    else the training loss.

    Args:
        epochs: `Findings.under_way`.
    """
    if epochs.empty:
        return None
    is_scored = bool(np.isfinite(numbers(epochs, material.metric)).any())
    name = material.metric if is_scored else "train_loss"
    title = material.metric_title if is_scored else "training loss"
    frame = pd.DataFrame({"x": numbers(epochs, "epoch"), "y": numbers(epochs, name)})
    frame = frame.assign(**epochs[["trial_id", "objective", "status"]])
    frame = in_order(frame.dropna(), material)
    if frame.empty:
        return None
    names = {"trial_id": "trial", "objective": "objective", "status": "status"}
    tips = [tooltip(field, text, number=False) for field, text in names.items()]
    ends = frame.groupby("trial_id", sort=False).tail(1)
    hue = colour(material, frame["objective"])
    x = alt.X("x", type="quantitative", title="epochs", axis=alt.Axis(format="d", grid=False))
    y = score_axis(title)
    tips = [*tips, tooltip("x", "epochs"), tooltip("y", title)]
    line = alt.Chart(frame).mark_line(strokeWidth=1.5, strokeDash=[4, 3])
    point = alt.Chart(ends).mark_point(filled=True, size=50, opacity=1)
    num = frame["trial_id"].nunique()
    left_out = epochs["trial_id"].nunique() - num
    more = f" Not drawn: {left_out}, not scored yet or without an ended trial of their objective."
    return Figure(
        name="under-way",
        title="Trials under way",
        caption=f"{title[0].upper()}{title[1:]} of {num} trials that have not ended, a line each. "
        f"No number of this page counts them.{more if left_out else ''}",
        chart=layers(
            [line.encode(x, y, hue, detail="trial_id:N"), point.encode(x, y, hue, tooltip=tips)],
            describe=f"{title} against epochs, a line for each trial that has not ended.",
        ),
        data=epochs,
    )


def _is_alike(learning: pd.DataFrame, axis: str, other: str) -> bool:
    """Whether two axes differ by one factor, the same for all objectives. Of seconds always where
    the times of equal work differ by less than a tenth.
    """
    ratio = numbers(learning, axis) / np.maximum(numbers(learning, other), 1e-12)
    ratio = ratio[np.isfinite(ratio) & (ratio > 0)]
    return bool(len(ratio) and ratio.max() <= 1.1 * ratio.min())


def reproduction_figures(parts: Sequence[Layout], material: Material) -> list[Figure]:
    """A figure of each measured part of a paper's table that has two numbers across."""
    curves = [(part, _paper_points(part)) for part in parts if part.is_measured]
    drawn = [(part, frame) for part, frame in curves if frame["x"].nunique() > 1]
    names = slugs("paper", [f"{part.item} {part.title}" for part, _ in drawn])
    return [
        _paper_figure(name, part, frame, material)
        for name, (part, frame) in zip(names, drawn, strict=True)
    ]


def _paper_points(part: Layout) -> pd.DataFrame:
    """Rows with a place on the axis; none where names stand across."""
    rows = part.rows.assign(at=pd.to_numeric(part.rows[part.across], errors="coerce"))
    columns = {"x": "at", "printed": "value", "y": "measured", "low": "low", "high": "high"}
    frame = pd.DataFrame({key: numbers(rows, column) for key, column in columns.items()})
    frame.insert(0, "objective", part.rows["objective"].to_list())
    frame.insert(1, "label", list(part.labels))
    settings = [
        label.removeprefix(name).removeprefix(", ")
        for label, name in zip(part.labels, frame["objective"], strict=True)
    ]
    frame.insert(2, "setting", settings)
    frame["verdict"] = rows["verdict"].to_numpy()
    return frame.dropna(subset=["x"]).sort_values("x", kind="stable")


def _paper_figure(name: str, part: Layout, frame: pd.DataFrame, material: Material) -> Figure:
    metric = str(part.rows["metric"].iloc[0])
    param = param_title(material, part.across)
    place = ", ".join(str(part.rows[n].iloc[0]) for n in ("dataset", "encoder"))
    return Figure(
        name=name,
        title=f"{part.item}: {metric} against {param}, {place.strip(', ')}",
        caption=f"Filled points: measured. {bands_text(frame, 'Bars')} Open points, dashed: "
        f"printed in {part.paper}.{_scale_note(frame)}",
        chart=layers(
            _printed(frame, part.across, metric, material),
            describe=f"Measured and printed {metric} against {part.across}; two lines an "
            "objective.",
        ),
        data=frame.drop(columns="setting").rename(columns={"x": part.across, "y": "measured"}),
        settings=(part.across,),
    )


def _scale_note(frame: pd.DataFrame) -> str:
    apart = (frame["verdict"] == Verdict.OTHER_SCALE).any()
    return " The scales differ: see the notes." if apart else ""


def _columns(labels: Sequence[str]) -> dict[str, int]:
    """Fewer columns of a legend with long names."""
    return {"columns": 2, "labelLimit": 290} if max(map(len, labels)) > LONG else {}


def _printed(frame: pd.DataFrame, param: str, metric: str, material: Material) -> list[alt.Chart]:
    labels, known = list(dict.fromkeys(frame["objective"])), objectives(material)
    kinds = list(dict.fromkeys(frame["setting"]))
    hue = alt.Color(
        "objective",
        type="nominal",
        title=None,
        scale=alt.Scale(domain=[*known, *(label for label in labels if label not in known)]),
        legend=alt.Legend(**legend_place() | _columns(labels), values=labels),
    )
    form: alt.Shape | alt.ShapeValue = alt.ShapeValue("circle")
    if len(kinds) > 1:
        scale, legend = alt.Scale(domain=kinds), alt.Legend(**legend_place() | _columns(kinds))
        form = alt.Shape("setting", type="nominal", title=None, scale=scale, legend=legend)
    x = param_axis(material, param, frame["x"].to_numpy(dtype=float), ticks=True)
    tips = [
        tooltip("label", "objective", number=False),
        tooltip("x", param),
        *interval_tips("measured"),
        tooltip("printed", "printed"),
        tooltip("verdict", "verdict", number=False),
    ]
    base = alt.Chart(frame).encode(detail="label:N")
    measured = base.transform_filter("isValid(datum.y)")
    bars = base.transform_filter("isValid(datum.low) && isValid(datum.high)")

    def y(field: str) -> alt.Y:
        return score_axis(metric, field)

    return [
        base.mark_line(strokeWidth=1.5, strokeDash=[4, 4], opacity=0.8).encode(
            x, y("printed"), hue
        ),
        base.mark_point(filled=False, size=60, opacity=1).encode(
            x, y("printed"), hue, form, tooltip=tips
        ),
        base.mark_line(strokeWidth=2).encode(x, y("y"), hue),  # broken where nothing is measured
        bars.mark_rule(strokeWidth=2).encode(x, y("low"), alt.Y2("high"), hue),
        measured.mark_point(filled=True, size=70, opacity=1).encode(
            x, y("y"), hue, form, tooltip=tips
        ),
    ]
