"""Accuracy against cost: which configurations no other one beats in both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from clsweep.analysis.array_types import Array
from clsweep.analysis.best_setting import best_setting, nameable_rows, tuned_level, why_no_best
from clsweep.analysis.reasons import Note, Reason, note, noted
from clsweep.analysis.recommend import TIE_TOLERANCE, config_levels, ties
from clsweep.analysis.sweep import Sweep
from clsweep.statistics import charts
from clsweep.statistics.charts import alt
from clsweep.statistics.column_formulas import REASON_COLUMNS
from clsweep.statistics.computed import Statistics
from clsweep.statistics.recommend import ONLY_ON, with_fresh
from clsweep.statistics.report_objects import Figure
from clsweep.statistics.statistic import Column, Statistic, between, half, level_cell
from clsweep.statistics.statistic import whole_number as rounded_up
from clsweep.sweeps.study_data import StudyData, worker_seconds

MAX_COSTS = 750  # beside those on a front: a page has to stay small
PARETO_COLUMNS = {
    "objective": "name; objectives that are scored alike share a front",
    "config": "number of the configuration within its objective",
    "at": "its swept hyperparameters, of those on the front and by_fresh",
    "seconds": "worker seconds of a trial, wall_time_s x workers: mean over the seeds that say it",
    "score": "mean over the seeds; those on the front are picked by it, so optimistic",
    "low": "t-interval of score by the seed noise, pooled where it is even",
    "high": "",
    "num_seeds": "seeds that score rests on",
    "when_tuned": "of the best of its objective: its level without the luck of the pick, that of "
    "`recommend`",
    "on_front": "whether no configuration scored alike is as cheap and better, or cheaper and as "
    "good, by these means; the best of its objective also where it ties with such a one",
    "by_fresh": "whether it is the best of its objective because fresh seeds overturned the pick "
    "by these means",
    **REASON_COLUMNS,
}


def pareto(of: Statistics) -> pd.DataFrame:
    """One row per configuration with the columns of `PARETO_COLUMNS`, the cheapest first in each
    group of objectives that are scored alike, which have a front of their own.

    A configuration takes part with a score on every planned seed
    (`best_setting.nameable_rows`) and a known time. Where devices differ, or times are not known,
    the notes say so.
    """
    trials = of.data.trials
    seconds = _seconds(trials)
    devices = trials["device"].nunique() if "device" in trials else 0
    notes = [note(Reason.SEVERAL_DEVICES)] * (devices > 1)
    frames = []
    for group in of.data.scored_alike(of.data.sweeps).values():
        tables = [_rows(sweep.measured, seconds, notes) for sweep in group]
        rows = pd.concat(tables, ignore_index=True)
        known = rows.reindex(columns=list(PARETO_COLUMNS))
        signs = {sweep.objective: sweep.sign for sweep in group}
        scores = known["score"] * known["objective"].map(signs).astype(float)
        known["on_front"] = on_front(known["seconds"].to_numpy(float), scores.to_numpy(float))
        for at in np.flatnonzero(rows["is_pick"]):
            tied = np.isclose(rows["score"], rows["score"][at], rtol=TIE_TOLERANCE, atol=0.0)
            tied &= rows["objective"] == rows["objective"][at]
            known.loc[at, "on_front"] = bool(known["on_front"][tied].any())
        places = [(sweep, row) for sweep, t in zip(group, tables, strict=True) for row in t.index]
        is_ahead = known["on_front"] | known["by_fresh"].astype(bool)
        known["at"] = [x.label(row) * at for (x, row), at in zip(places, is_ahead, strict=True)]
        # Of a setting that another one beats nothing is shown that a note could be about.
        beaten = ~is_ahead & (known["reason"] == "")
        known["note"] = [() if b else n for b, n in zip(beaten, known["note"], strict=True)]
        frames.append(known.sort_values("seconds", kind="stable"))
    return pd.concat(frames, ignore_index=True)


def on_front(costs: Array, scores: Array) -> Any:
    """(n,) bool: no other is at least as good in cost (low) and score (high), and better in one."""
    known = np.isfinite(costs) & np.isfinite(scores)
    front = np.zeros(len(costs), dtype=bool)
    best, last = -np.inf, np.nan
    for i in np.lexsort((-scores, costs)):
        is_equal = bool(np.isclose(scores[i], best, rtol=TIE_TOLERANCE, atol=0.0))
        if known[i] and (costs[i] == last if is_equal else scores[i] > best):
            front[i], best, last = True, scores[i], costs[i]
    return front


def _seconds(trials: pd.DataFrame) -> Mapping[tuple[str, Any], float]:
    """Mean worker seconds of the trials of each configuration that finished and say it."""
    finished = trials[trials["status"] == "finished"]
    keys = [finished["objective"].astype(str), finished["config"]]
    groups = worker_seconds(finished).groupby(keys)
    means: dict[Any, float] = groups.mean().dropna().to_dict()
    return means


def _rows(
    sweep: Sweep, seconds: Mapping[tuple[str, Any], float], notes: Sequence[Note]
) -> pd.DataFrame:
    """One row per configuration that takes part, by its row of the sweep; else why none does."""
    start: dict[str, Any] = {"objective": sweep.objective, "at": ""}
    start |= dict.fromkeys(("on_front", "by_fresh", "is_pick"), False)
    if why := sweep.no_score:
        return pd.DataFrame([{**start, **noted(why=why)}])
    spent = np.array([seconds.get((sweep.objective, config), np.nan) for config in sweep.configs])
    may = nameable_rows(sweep)
    part = np.flatnonzero(may & np.isfinite(spent))
    if not part.size:
        why = note(Reason.TIMES_UNKNOWN) if may.any() else why_no_best(sweep)
        return pd.DataFrame([{**start, **noted(*sweep.failures, why=why)}])
    levels = {name: values[part] for name, values in config_levels(sweep).items()}
    best = best_setting(sweep)
    picked = [note(Reason.PICKED)] if len(sweep.configs) > 1 else []  # one alone is no choice
    notes_of = noted(*picked, *notes, *(ties(sweep, best) if best else ()), *sweep.failures)
    noted_columns = {name: [value] * len(part) for name, value in notes_of.items()}
    is_pick = np.isin(part, [best.row] if best else [])
    overturned = is_pick & bool(best and best.row != best.first)
    columns = {"config": sweep.configs[part], "seconds": spent[part], **levels, **noted_columns}
    level = sweep.sign * tuned_level(sweep, best) if best else np.nan
    columns |= {"by_fresh": overturned, "is_pick": is_pick}
    columns["when_tuned"] = np.where(is_pick, level, np.nan)
    return pd.DataFrame({**start, **columns}, index=part)


def _shown(frame: pd.DataFrame) -> pd.DataFrame:
    return frame[frame["on_front"].astype(bool) | frame["by_fresh"].astype(bool)]


def pareto_figure(costs: pd.DataFrame, data: StudyData) -> Figure | None:
    """Every configuration of `pareto` by seconds and score, the front filled; None of fewer than
    two.
    """
    known = costs[costs["seconds"].notna() & costs["score"].notna()]
    front = known["on_front"].astype(bool)
    others = known[~front]
    drawn = pd.concat([known[front], others.sample(min(len(others), MAX_COSTS), random_state=0)])
    if len(drawn) < 2 or not (drawn["seconds"] > 0).all():
        return None
    frame = drawn[["objective", "at", "seconds", "score", "on_front", "num_seeds"]]
    frame = frame.rename(columns={"score": "y"}).assign(at=charts.settings_at(data, drawn))
    title, scale = data.metric_title, alt.Scale(type="log", zero=False, nice=False, padding=12)
    x = alt.X("seconds:Q", title="worker seconds of a trial", scale=scale)
    names = {"objective": "objective", "at": "setting", "y": title, "seconds": "worker seconds"}
    tips = charts.tips(**names, num_seeds="seeds")
    hue, form = charts.looks(data, frame)
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
        "better and as cheap, by the means over the seeds, but for ties with the best.",
        chart=charts.layers(marks),
        data=costs,
    )


PARETO = Statistic(
    name="pareto",
    is_apart=True,
    title="Accuracy against cost",
    header="Accuracy against cost by {metric}, with 95 % intervals{images}",
    table=pareto,
    ahead=True,
    columns=(
        Column("objective"),
        Column("config", rounded_up("config"), drop_order=2),
        Column("at"),
        Column("seconds", means="worker seconds of a trial. A near tie is no finding"),
        Column(
            "score",
            between("score", ""),
            "mean over the seeds. These were picked by it, so it is optimistic",
        ),
        Column(
            "when tuned",
            level_cell("when_tuned", half("score", "")),
            "level of the best of its objective without the luck of the pick, of which the lead is "
            "said",
            drop_order=3,
        ),
        Column("fresh seeds", between("fresh")),
        ONLY_ON,
        Column(
            "named by",
            lambda row: "fresh seeds" if row["by_fresh"] else None,
            "fresh seeds overturned the pick by these scores, so this is the best of its objective",
        ),
        Column("seeds", rounded_up("num_seeds"), drop_order=1),
    ),
    levels="score",
    rows=lambda frame, of: with_fresh(_shown(frame), of),
    intro="Settings that no other one beats in both cost and score, and what fresh seeds name",
    caption="{columns}. Intervals: 95 %{images}.",
    has_notes=False,
    figures=lambda context: [pareto_figure(context.compute(pareto), context.data)],
    formulas={"accuracy against cost": PARETO_COLUMNS},
)
