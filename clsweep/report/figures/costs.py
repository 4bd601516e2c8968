"""Accuracy against cost."""

from __future__ import annotations

import altair as alt
import pandas as pd

from clsweep.findings.material import Material
from clsweep.report.figures.encodings import (
    colour,
    layers,
    score_axis,
    shape,
    tooltip,
)
from clsweep.report.model import Figure

MAX_POINTS = 750  # beside those on a front: a page has to stay small


def pareto_figure(costs: pd.DataFrame, material: Material) -> Figure | None:
    """Every configuration by worker seconds and score, those on the front filled; None with fewer
    than two.

    costs: the table of `Findings.pareto`.
    """
    known = costs[costs["seconds"].notna() & costs["score"].notna()]
    front = known["on_front"].astype(bool)
    others = known[~front]
    drawn = pd.concat([known[front], others.sample(min(len(others), MAX_POINTS), random_state=0)])
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
