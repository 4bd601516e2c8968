"""A metric against the cost, or against a second metric: which configurations no other one beats in
both.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from clsweep.analysis.array_types import Array
from clsweep.analysis.best_setting import best_setting, nameable_rows, tuned_level, why_no_best
from clsweep.analysis.contrast import scored_by
from clsweep.analysis.reasons import Note, Reason, note, noted
from clsweep.analysis.recommend import TIE_TOLERANCE, config_levels, ties
from clsweep.analysis.sweep import ANYWHERE, Sweep
from clsweep.catalog import METRIC
from clsweep.catalog.rows import SECONDS
from clsweep.errors import RequestError, nearest
from clsweep.statistics import charts
from clsweep.statistics.charts import alt
from clsweep.statistics.computed import ReportContext, Statistics
from clsweep.statistics.recommend import ONLY_ON, with_fresh
from clsweep.statistics.report_objects import REASON_COLUMNS, Figure
from clsweep.statistics.statistic import Column, Statistic, between, half, level_cell, whole_number
from clsweep.sweeps.study_data import StudyData, mode_of, unit_of, worker_seconds

MAX_COSTS = 750  # beside those on a front: a page has to stay small
PARETO_COLUMNS = {
    "objective": "name; objectives that are scored alike share a front",
    "config": "number of the configuration within its objective",
    "at": "its swept hyperparameters, of those on the front and by_fresh",
    "seconds": "worker seconds of a trial, wall_time_s x workers: mean over the seeds that say it",
    "second": "against another metric: its mean over the seeds",
    "second_low": "t-interval of second by the seed noise, pooled where it is even",
    "second_high": "",
    "score": "mean over the seeds; those on the front are picked by it, so optimistic",
    "low": "t-interval of score by the seed noise, pooled where it is even",
    "high": "",
    "num_seeds": "seeds that score rests on",
    "when_tuned": "of the best of its objective: its level without the luck of the pick, that of "
    "`recommend`",
    "on_front": "whether no configuration scored alike is as good in both and better in one, by "
    "these means; the best of its objective also where it ties with such a one",
    "by_fresh": "whether it is the best of its objective because fresh seeds overturned the pick "
    "by these means",
    **REASON_COLUMNS,
}


def pareto(of: Statistics, *, against: str = SECONDS) -> pd.DataFrame:
    """One row per configuration with the columns of `PARETO_COLUMNS`, the cheapest, or the best in
    the second metric, first in each group of objectives that are scored alike, which have a front
    of their own.

    A configuration takes part with a score on every planned seed
    (`best_setting.nameable_rows`) and a known time or second metric. Where devices differ, or times
    are not known, the notes say so.

    Args:
        against: `seconds`, or another metric.

    Raises:
        RequestError: the trials have no such metric, or nothing says which of its values is best.
    """
    trials = of.data.trials
    devices = trials["device"].nunique() if "device" in trials else 0
    notes = [note(Reason.SEVERAL_DEVICES)] * (devices > 1 and against == SECONDS)
    of_these = against != SECONDS and of.data.images == "new images" and against not in of.data.hits
    notes += [note(Reason.SECOND_OF_THESE_IMAGES, metric=against)] * of_these
    second_of = _seconds(trials) if against == SECONDS else _second_metric(of.data, against)
    frames = []
    for group in of.data.scored_alike(of.data.sweeps).values():
        tables = [_rows(sweep.measured, against, second_of, notes) for sweep in group]
        rows = pd.concat(tables, ignore_index=True)
        other = "second" if against == SECONDS else "seconds"
        known = rows.reindex(columns=[n for n in PARETO_COLUMNS if n.partition("_")[0] != other])
        signs = {sweep.objective: sweep.sign for sweep in group}
        scores = known["score"] * known["objective"].map(signs).astype(float)
        costs = rows.reindex(columns=["cost"])["cost"].to_numpy(float)
        known["on_front"] = on_front(costs, scores.to_numpy(float))
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
        frames.append(known.iloc[np.argsort(costs, kind="stable")])
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


_SecondOf = Callable[[Sweep], Mapping[str, Array]]  # columns of all configurations, `cost` of them


def _seconds(trials: pd.DataFrame) -> _SecondOf:
    """Mean worker seconds of the trials of each configuration that finished and say it."""
    finished = trials[trials["status"] == "finished"]
    keys = [finished["objective"].astype(str), finished["config"]]
    means = worker_seconds(finished).groupby(keys).mean().to_dict()

    def of(sweep: Sweep) -> Mapping[str, Array]:
        spent = [means.get((sweep.objective, config), np.nan) for config in sweep.configs]
        return dict.fromkeys(("seconds", "cost"), np.array(spent))

    return of


def _second_metric(data: StudyData, metric: str) -> _SecondOf:
    """Levels of another metric; of the cost less is better."""
    if metric == data.metric:
        raise RequestError(f"against: expected another metric than the study's, given '{metric}'")
    if metric not in data.trials:
        known = [m for m in METRIC if m in data.trials and data.trials[m].notna().any()]
        scored = [SECONDS, *(m for m in known if m != data.metric)]
        expected = f"{nearest(metric, scored)} Expected one of: {', '.join(scored)}"
        raise RequestError(f"against: no other metric '{metric:.80}'.{expected}")
    sign = 1.0 if mode_of(metric, None, None, "against") == "min" else -1.0
    limits = METRIC[metric].limits if metric in METRIC else ANYWHERE

    def of(sweep: Sweep) -> Mapping[str, Array]:
        hits = data.hits.get(metric)
        levels = config_levels(scored_by(sweep, data.trials, metric, hits, limits=limits))
        names = {"score": "second", "low": "second_low", "high": "second_high"}
        columns = {name: levels[column] for column, name in names.items()}
        return columns | {"cost": sign * levels["score"]}

    return of


def _rows(sweep: Sweep, against: str, second_of: _SecondOf, notes: Sequence[Note]) -> pd.DataFrame:
    """One row per configuration that takes part, by its row of the sweep; else why none does."""
    start: dict[str, Any] = {"objective": sweep.objective, "at": ""}
    start |= dict.fromkeys(("on_front", "by_fresh", "is_pick"), False)
    if why := sweep.no_score:
        return pd.DataFrame([{**start, **noted(why=why)}])
    second = second_of(sweep)
    may = nameable_rows(sweep)
    part = np.flatnonzero(may & np.isfinite(second["cost"]))
    if not part.size:
        unknown = Reason.TIMES_UNKNOWN if against == SECONDS else Reason.SECOND_UNKNOWN
        why = note(unknown, metric=against) if may.any() else why_no_best(sweep)
        return pd.DataFrame([{**start, **noted(*sweep.failures, why=why)}])
    levels = {name: values[part] for name, values in config_levels(sweep).items()}
    best = best_setting(sweep)
    picked = [note(Reason.PICKED)] if len(sweep.configs) > 1 else []  # one alone is no choice
    notes_of = noted(*picked, *notes, *(ties(sweep, best) if best else ()), *sweep.failures)
    noted_columns = {name: [value] * len(part) for name, value in notes_of.items()}
    is_pick = np.isin(part, [best.row] if best else [])
    overturned = is_pick & bool(best and best.row != best.first)
    columns = {"config": sweep.configs[part], **levels, **noted_columns}
    columns |= {name: values[part] for name, values in second.items()}
    level = sweep.sign * tuned_level(sweep, best) if best else np.nan
    columns |= {"by_fresh": overturned, "is_pick": is_pick}
    columns["when_tuned"] = np.where(is_pick, level, np.nan)
    return pd.DataFrame({**start, **columns}, index=part)


def pareto_figure(costs: pd.DataFrame, data: StudyData, against: str = SECONDS) -> Figure | None:
    """Every configuration of `pareto` by seconds, or a second metric, and score, the front filled;
    None of fewer than two.
    """
    is_timed = against == SECONDS
    x_name = "seconds" if is_timed else "second"
    known = costs[costs[x_name].notna() & costs["score"].notna()]
    front = known["on_front"].astype(bool)
    others = known[~front]
    drawn = pd.concat([known[front], others.sample(min(len(others), MAX_COSTS), random_state=0)])
    if len(drawn) < 2 or (is_timed and not (drawn["seconds"] > 0).all()):
        return None
    frame = drawn[["objective", "at", x_name, "score", "on_front", "num_seeds"]]
    frame = frame.rename(columns={"score": "y"}).assign(at=charts.settings_at(data, drawn))
    title = data.metric_title
    scale = alt.Scale(type="log" if is_timed else "linear", zero=False, nice=False, padding=12)
    better = "less" if is_timed or mode_of(against, None, None, "against") == "min" else "more"
    x_title = "worker seconds of a trial" if is_timed else f"{titled(against)}, {better} is better"
    x = alt.X(f"{x_name}:Q", title=x_title, scale=scale)
    names = {"objective": "objective", "at": "setting", "y": title, x_name: x_title}
    tips = charts.tips(**names, num_seeds="seeds")
    hue, form = charts.looks(data, frame)
    marks = [
        alt.Chart(frame)
        .transform_filter(f"datum.on_front == {condition}")
        .mark_point(filled=filled, size=size, opacity=1, fillOpacity=0.85, strokeOpacity=0.5)
        .encode(x, charts.score_axis(title), hue, form, tooltip=tips)
        for condition, filled, size in (("false", False, 30), ("true", True, 70))
    ]
    title = "Accuracy against cost" if is_timed else f"{data.metric} against {against}"
    return Figure(
        name="pareto" if is_timed else "front",
        title=title,
        caption="A point is a configuration. Filled: none scored alike is as good in both and "
        "better in one, by the means over the seeds, but for ties with the best.",
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
        Column("config", whole_number("config"), drop_order=2),
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
        Column("seeds", whole_number("num_seeds"), drop_order=1),
    ),
    levels="score",
    rows=lambda frame, of: with_fresh(
        frame[frame[["on_front", "by_fresh"]].astype(bool).any(axis=1)], of
    ),
    intro="Settings that no other one beats in both cost and score, and what fresh seeds name",
    caption="{columns}. Intervals: 95 %{images}.",
    has_notes=False,
    figures=lambda context: [pareto_figure(context.compute(pareto), context.data)],
    formulas={"accuracy against cost": PARETO_COLUMNS},
)


def pareto_of(against: str) -> Statistic:
    """`PARETO` against the seconds or another metric."""
    if against == SECONDS:
        return PARETO
    means = "the second metric: mean over the seeds. It was weighed too, so it is optimistic"
    second = Column(against, between("second"), means)
    return replace(
        PARETO,
        name="front",
        title=f"{{metric}} against {against}",
        header=f"{{metric}} against {titled(against)}, with 95 % intervals{{images}}",
        options=lambda _: {"against": against},
        columns=tuple(second if each.header == "seconds" else each for each in PARETO.columns),
        intro="Settings that no other one beats in both metrics, and what fresh seeds name",
        figures=lambda context: [
            pareto_figure(context.compute(pareto, against=against), context.data, against)
        ],
    )


def titled(metric: str) -> str:
    """A metric and its unit."""
    unit = unit_of(metric)
    return f"{metric} ({unit})" if unit else metric


def _second_of(context: ReportContext) -> list[Statistic]:
    """The front of a search with a second metric, which a report has beside that of the cost."""
    second = context.data.second_objective
    return [pareto_of(second)] if second != SECONDS else []


FRONT = Statistic(
    name="front",
    tables=lambda context: [
        table for each in _second_of(context) for table in each.tables_of(context)
    ],
    figures=lambda context: [
        figure for each in _second_of(context) for figure in each.figures(context)
    ],
    has_notes=False,
)
