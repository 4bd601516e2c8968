"""Accuracy against cost: which configurations no other one beats in both."""

from __future__ import annotations

import pandas as pd

from clsweep.analysis import pareto as analysis
from clsweep.findings.material import Material
from clsweep.questions import charts
from clsweep.questions.answers import Answers
from clsweep.questions.charts import alt
from clsweep.questions.column import Column, Question, measured, whole
from clsweep.questions.model import Figure
from clsweep.questions.recommend import ONLY_ON, with_fresh

MAX_COSTS = 750  # beside those on a front: a page has to stay small


def pareto(of: Answers) -> pd.DataFrame:
    """One row per configuration, see `analysis.pareto`."""
    found = of.material
    return analysis.pareto(found.trials, found.sweeps, yardsticks=found.yardsticks)


def _shown(frame: pd.DataFrame) -> pd.DataFrame:
    return frame[frame["on_front"].astype(bool) | frame["by_fresh"].astype(bool)]


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
    frame = frame.rename(columns={"score": "y"}).assign(at=charts.settings_at(material, drawn))
    title = material.metric_title
    x = alt.X(
        "seconds:Q",
        title="worker seconds of a trial",
        scale=alt.Scale(type="log", zero=False, nice=False, padding=12),
    )
    tips = charts.tips(
        objective="objective", at="setting", y=title, seconds="worker seconds", num_seeds="seeds"
    )
    hue, form = charts.looks(material, frame)
    marks = [
        alt.Chart(frame)
        .transform_filter(f"datum.on_front == {condition}")
        .mark_point(filled=filled, size=size, opacity=1, fillOpacity=0.85, strokeOpacity=0.5)
        .encode(x, charts.score_axis(title), hue, form, tooltip=tips)
        for condition, filled, size in (("false", False, 30), ("true", True, 70))
    ]
    return Figure(
        name="pareto",
        title="Accuracy against cost",
        caption="A point is a configuration. Filled: none scored alike is cheaper and as good, or "
        "better and as cheap, by the means over the seeds.",
        chart=charts.layers(marks),
        data=costs,
    )


QUESTION = Question(
    name="pareto",
    title="Accuracy against cost",
    heading="Accuracy against cost by {metric}, with 95 % intervals{images}",
    table=pareto,
    ahead=True,
    columns=(
        Column("objective"),
        Column("config", whole("config"), spare=2),
        Column("at"),
        Column("seconds", means="worker seconds of a trial. A near tie is no finding"),
        Column(
            "score",
            measured("score", ""),
            "mean over the seeds. These were picked by it, so it is optimistic",
        ),
        Column("fresh seeds", measured("fresh"), optional=True),
        ONLY_ON,
        Column(
            "named by",
            lambda row: "fresh seeds" if row["by_fresh"] else None,
            "fresh seeds overturned the pick by these scores, so this is the best of its objective",
            optional=True,
        ),
        Column("seeds", whole("num_seeds"), spare=1),
    ),
    levels="score",
    rows=lambda frame, of: with_fresh(_shown(frame), of),
    intro="Settings that no other one beats in both cost and score, and what fresh seeds name",
    caption="{columns}. Intervals: 95 %{images}.",
    has_notes=False,
    draw=lambda asked: [pareto_figure(asked.ask(pareto), asked.material)],
    formulas={"accuracy against cost": analysis.COLUMNS},
)
