"""Configurations one by one: a search's history with the best so far, lines across the
hyperparameters, and accuracy against cost.
"""

from __future__ import annotations

import altair as alt
import numpy as np
import pandas as pd

from clsweep.analysis.sweep import Sweep
from clsweep.display.numbers import mentioned, settings
from clsweep.findings.material import Material
from clsweep.report.figures.encodings import (
    HEIGHT,
    colour,
    in_order,
    layers,
    legend_place,
    param_title,
    score_axis,
    settings_at,
    shape,
    slugs,
    tooltip,
)
from clsweep.report.figures.theme import GREY
from clsweep.report.model import Figure

MAX_LINES = 150  # more configurations than this are a grey mass
MAX_POINTS = 1500
MAX_COSTS = 750  # beside those on a front: a page has to stay small


def history_figure(history: pd.DataFrame, material: Material) -> Figure | None:
    """The score of every configuration in the order of the plan, and the best so far."""
    columns = {"tried": "x", "score": "y"}
    frame = in_order(history.rename(columns=columns).dropna(subset=["y"]), material)
    if frame.empty:
        return None
    if len(frame) > MAX_POINTS:
        frame = frame.iloc[np.linspace(0, len(frame) - 1, MAX_POINTS).astype(int)]
    frame = frame.assign(at=settings_at(material, frame))
    frame = frame[["objective", "x", "y", "best", "at", "state", "num_seeds"]]
    title = material.metric_title
    x = alt.X(
        "x",
        type="quantitative",
        title="configurations tried",
        scale=alt.Scale(zero=False, nice=False, padding=8),
        axis=alt.Axis(format="d", tickMinStep=1, tickCount=8, grid=False),
    )
    tips = [
        tooltip("objective", "objective", number=False),
        tooltip("at", "setting", number=False),
        tooltip("y", title),
        tooltip("state", "state", number=False),
        tooltip("num_seeds", "seeds"),
        tooltip("best", "best so far"),
    ]
    base = alt.Chart(frame)
    hue, form = colour(material, frame["objective"]), shape(material, frame["objective"])
    line = base.transform_filter("isValid(datum.best)").mark_line(
        strokeWidth=2.5, interpolate="step-after"
    )
    points = {True: "datum.state == 'finished'", False: "datum.state != 'finished'"}
    stopped = bool((frame["state"] != "finished").any())
    marks = [
        base.transform_filter(condition)
        .mark_point(filled=filled, size=40, opacity=1, fillOpacity=0.75, strokeOpacity=0.6)
        .encode(x, score_axis(title), hue, form, tooltip=tips)
        for filled, condition in points.items()
        if filled or stopped
    ]
    return Figure(
        name="history",
        title="The search: every configuration, and the best so far",
        caption="A point is a configuration, in the order in which it was planned. The line is the "
        f"best so far.{' Open points were stopped early, raced out or failed.' if stopped else ''}",
        chart=layers(
            [line.encode(x, score_axis(title, "best"), hue), *marks],
            describe=f"{material.metric} of every configuration in the order of the search; a line "
            "an objective: the best so far.",
        ),
        data=history,
    )


def parallel_figures(material: Material, scores: pd.DataFrame) -> list[Figure]:
    """Every configuration as a line across its hyperparameters, a figure for each objective that
    sweeps two or more; the colour is the score.

    scores: objective, config and score, a row a configuration, as `history` has them.
    """
    sweeps = [sweep for sweep in material.sweeps if len(sweep.params) > 1]
    known = scores.dropna(subset=["score"])
    if known.empty:
        return []
    domain = [float(known["score"].min()), float(known["score"].max())]
    frames = {s.objective: _lines(s, known[known["objective"] == s.objective]) for s in sweeps}
    frames = {name: frame for name, frame in frames.items() if not frame.empty}
    return [
        _parallel(slug, sweep, frames[sweep.objective], domain, material)
        for slug, sweep in zip(
            slugs("parallel", list(frames)),
            [s for s in sweeps if s.objective in frames],
            strict=True,
        )
    ]


def _lines(sweep: Sweep, scores: pd.DataFrame) -> pd.DataFrame:
    """A row for each configuration and hyperparameter: `place` is 0 to 1 along its axis."""
    best = scores.sort_values("score", ascending=sweep.sign < 0, kind="stable")
    if len(best) > MAX_LINES:
        best = best.iloc[np.linspace(0, len(best) - 1, MAX_LINES).astype(int)]
    row_of = {config: row for row, config in enumerate(sweep.configs)}
    rows = best["config"].map(row_of).to_numpy(dtype=int)
    at = [sweep.label(row) for row in rows]
    parts = []
    for name in sweep.params:
        values = sweep.settings[name].iloc[rows]
        parts.append(
            pd.DataFrame(
                {
                    "param": name,
                    "place": _places(sweep, name)[rows],
                    "value": settings(values.tolist()),
                    "config": best["config"].to_numpy(),
                    "score": best["score"].to_numpy(),
                    "at": at,
                }
            )
        )
    found = pd.concat(parts, ignore_index=True)
    return found.dropna(subset=["place"])


def _places(sweep: Sweep, name: str) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """(n,) where each value stands between the lowest, 0, and the highest, 1."""
    if sweep.scales[name] == "category":
        codes = sweep.settings[name].astype(str).factorize(sort=True)[0].astype(float)
        axis = np.where(codes < 0, np.nan, codes)
    else:
        axis = sweep.axis(name)
    low, high = np.nanmin(axis), np.nanmax(axis)
    return np.asarray((axis - low) / (high - low) if high > low else np.zeros(len(axis)))


def _parallel(
    slug: str, sweep: Sweep, frame: pd.DataFrame, domain: list[float], material: Material
) -> Figure:
    title, names = material.metric_title, list(dict.fromkeys(frame["param"]))
    x = alt.X(
        "param",
        type="nominal",
        title=None,
        scale=alt.Scale(domain=names, type="point", padding=0.25),
        axis=alt.Axis(orient="top", labelAngle=0, labelLimit=120, domain=False, ticks=False),
    )
    y = alt.Y("place", type="quantitative", axis=None, scale=alt.Scale(domain=[0, 1], padding=16))
    hue = alt.Color(
        "score",
        type="quantitative",
        title=title,
        scale=alt.Scale(domain=domain, range="heatmap"),
        legend=alt.Legend(**legend_place() | {"gradientLength": 160}),
    )
    tips = [tooltip("at", "setting", number=False), tooltip("score", title)]
    base = alt.Chart(frame)
    ends = _ends(frame)
    rules = alt.Chart(pd.DataFrame({"param": names})).mark_rule(color=GREY)
    labels = alt.Chart(ends)
    text = alt.Text("value", type="nominal")
    order = "best first" if material.mode == "max" else "lowest first"
    return Figure(
        name=slug,
        title=f"{sweep.objective}: every configuration across its hyperparameters",
        caption="A line is a configuration, its colour the score. Each axis runs from its lowest "
        "value, below, to its highest, on its own scale. Lines of one colour that meet at a value "
        f"show what good settings share. Rows of the numbers: {order}.",
        chart=layers(
            [
                rules.encode(x),
                base.mark_line(strokeWidth=1.8, opacity=1, strokeOpacity=0.7).encode(
                    x, y, hue, detail="config:N", tooltip=tips
                ),
                base.mark_point(filled=True, size=30, opacity=1).encode(x, y, hue, tooltip=tips),
                labels.transform_filter("datum.place == 0")
                .mark_text(dy=14, style="soft")
                .encode(x, y, text=text),
                labels.transform_filter("datum.place == 1")
                .mark_text(dy=-10, style="soft")
                .encode(x, y, text=text),
            ],
            height=HEIGHT,
            describe=f"{material.metric} of {sweep.objective}: each configuration as a line across "
            f"{', '.join(param_title(material, name) for name in names)}.",
        ),
        data=frame[["config", "param", "value", "score"]],
        settings=("value",),
    )


def _ends(frame: pd.DataFrame) -> pd.DataFrame:
    """The text of the lowest and the highest value of every axis."""
    ordered = frame.sort_values("place", kind="stable")
    groups = ordered.groupby("param", sort=False)
    ends = pd.concat([groups.head(1), groups.tail(1)])[["param", "place", "value"]]
    ends = ends[ends["place"].isin([0.0, 1.0])].drop_duplicates(["param", "place"])
    return ends.assign(value=[_short(value) for value in ends["value"]])


def _short(value: str) -> str:
    try:
        return mentioned(float(f"{float(value):.3g}"))
    except ValueError:
        return value


def pareto_figure(costs: pd.DataFrame, material: Material) -> Figure | None:
    """Every configuration by worker seconds and score, those on the front filled; None with fewer
    than two.

    costs: the table of `Findings.pareto`.
    """
    known = costs[costs["seconds"].notna() & costs["score"].notna()]
    front = known["on_front"].astype(bool)
    others = known[~front]
    drawn = pd.concat([known[front], others.sample(min(len(others), MAX_COSTS), random_state=0)])
    if len(drawn) < 2 or not (drawn["seconds"] > 0).all():
        return None
    frame = drawn[["objective", "at", "seconds", "score", "on_front", "num_seeds"]]
    frame = frame.rename(columns={"score": "y"}).assign(at=_labels(drawn, material))
    title = material.metric_title
    x = alt.X(
        "seconds:Q",
        title="worker seconds of a trial",
        scale=alt.Scale(type="log", zero=False, nice=False, padding=12),
    )
    tips = [
        tooltip("objective", "objective", number=False),
        tooltip("at", "setting", number=False),
        tooltip("y", title),
        tooltip("seconds", "worker seconds"),
        tooltip("num_seeds", "seeds"),
    ]
    hue, form = colour(material, frame["objective"]), shape(material, frame["objective"])
    marks = [
        alt.Chart(frame)
        .transform_filter(f"datum.on_front == {condition}")
        .mark_point(filled=filled, size=size, opacity=1, fillOpacity=0.85, strokeOpacity=0.5)
        .encode(x, score_axis(title), hue, form, tooltip=tips)
        for condition, filled, size in (("false", False, 30), ("true", True, 70))
    ]
    return Figure(
        name="pareto",
        title="Accuracy against cost",
        caption="A point is a configuration. Filled: none scored alike is cheaper and as good, or "
        "better and as cheap, by the means over the seeds.",
        chart=layers(
            marks,
            describe=f"{material.metric} against the worker seconds of a trial.",
        ),
        data=costs,
    )


def _labels(drawn: pd.DataFrame, material: Material) -> list[str]:
    """The swept hyperparameters of each point."""
    rows = {
        (sweep.objective, config): (sweep, row)
        for sweep in material.sweeps
        for row, config in enumerate(sweep.configs.tolist())
    }
    found = (rows[key] for key in zip(drawn["objective"], drawn["config"], strict=True))
    return [sweep.label(row) for sweep, row in found]
