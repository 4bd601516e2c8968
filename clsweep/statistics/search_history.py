"""An adaptive search: its history, best settings, importances and stopped trials."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from clsweep.analysis import importance as analysis
from clsweep.analysis.best_setting import nameable_rows
from clsweep.analysis.reasons import Reason
from clsweep.analysis.recommend import config_level
from clsweep.analysis.sweep import ENDED_STATUSES
from clsweep.catalog.rows import Row
from clsweep.display.cells import texts_of_values
from clsweep.display.numbers import Wording, count, interval, joined, known, number, work
from clsweep.statistics import charts
from clsweep.statistics.charts import alt
from clsweep.statistics.computed import Statistics
from clsweep.statistics.pair_sentences import depends
from clsweep.statistics.report_objects import Figure, Sentences, Unresolved, described
from clsweep.statistics.robustness import shown_band
from clsweep.statistics.statistic import Column, Statistic, between, fraction
from clsweep.sweeps.notes import records_of, status_text
from clsweep.sweeps.study_data import StudyData, worker_seconds

HISTORY_COLUMNS = {
    "objective": "name, in order of first appearance",
    "tried": "1 for the configuration that was planned first, 2 for the next, ...",
    "config": "its number within its objective",
    "score": "mean of the metric over its trials; of stopped ones where they stopped",
    "num_seeds": "seeds that finished",
    "best": "the best score so far among configurations with as many seeds as any has",
    "state": '"finished", "skipped", "stopped" or "failed": the worst of its seeds',
}
SAVED_COLUMNS = {
    "objective": "name",
    "stopped": "trials stopped early",
    "trials": "trials that ended",
    "epochs": "epochs trained, over all trials",
    "planned_epochs": "epochs that the same trials would have trained to their end",
    "saved": "epochs that the stopped trials had left / planned_epochs. What failed is not saved",
    "hours": "worker hours spent: sum of wall_time_s x workers / 3600",
    "saved_hours": "worker hours not spent: of each stopped trial, its time per epoch times the "
    "epochs that it had left",
}
TOP_COLUMNS = {
    "objective": "name",
    "rank": "1 for the best mean among configurations with as many seeds as any has",
    "config": "number of the configuration within its objective",
    "at": "its swept hyperparameters",
    "score": "mean over the seeds; picked on its own noise, so optimistic",
    "low": "t-interval of score by the seed noise, pooled where it is even",
    "high": "",
    "num_seeds": "seeds that it rests on",
    "seeds": "the score of each seed, in the order of the seeds",
}
LATE = 0.8  # of the tries: an improvement after so many of them says that the search still moved
_MAX_POINTS = 1500


def history(of: Statistics) -> pd.DataFrame:
    """One row per configuration in the order of the plan, with `HISTORY_COLUMNS`."""
    trials, metric = of.data.trials, of.data.metric
    rank = trials["status"].map({state: i for i, state in enumerate(ENDED_STATUSES)})
    groups = [trials["objective"], trials["config"]]
    worst = rank.groupby(groups).max().to_dict()
    seen = trials[metric].astype(float).groupby(groups).mean().to_dict()
    frames = []
    for sweep in of.data.sweeps:
        measured = sweep.measured
        counts = measured.num_measured
        whole = np.where(counts == max(counts.max(initial=1), 1), measured.means, np.nan)
        keys = [(sweep.objective, config) for config in sweep.configs]
        columns = {
            "objective": sweep.objective,
            "tried": np.arange(1, len(keys) + 1),
            "config": sweep.configs,
            "score": [seen[key] for key in keys],
            "num_seeds": counts,
            "best": sweep.sign * np.fmax.accumulate(whole),
            "state": [ENDED_STATUSES[worst[key]] for key in keys],
        }
        frames.append(pd.DataFrame(columns))
    return pd.concat(frames, ignore_index=True)


def top(of: Statistics, num: int = 5) -> pd.DataFrame:
    """The best `num` nameable configurations of each objective, with `TOP_COLUMNS`."""
    rows = []
    for sweep in of.data.sweeps:
        measured = sweep.measured
        means = np.where(nameable_rows(measured), measured.means, -np.inf)
        order = np.argsort(-means, kind="stable")[: min(num, int(np.isfinite(means).sum()))]
        for rank, i in enumerate(order.tolist(), 1):
            scores = sweep.sign * measured.scores[i]
            seeds = tuple(scores[np.isfinite(scores)].tolist())
            row = {"objective": sweep.objective, "rank": rank, "seeds": seeds}
            rows.append(row | config_level(measured, i))
    return pd.DataFrame(rows, columns=list(TOP_COLUMNS))


def importance(of: Statistics, *, within: float | None = None) -> pd.DataFrame:
    """Which hyperparameter matters to a search, see `analysis.importance`."""
    sweeps = [sweep for sweep in of.data.sweeps if sweep.of_space.not_measured]
    return analysis.importance(sweeps, within=of.near(within))


def saved(of: Statistics) -> pd.DataFrame:
    """One row per objective of which trials were stopped, with the columns of `SAVED_COLUMNS`."""
    trials = of.data.trials
    if not {"epochs", "epochs_trained"} <= set(trials.columns):
        return pd.DataFrame(columns=list(SAVED_COLUMNS))
    frame = trials.assign(planned=trials["epochs"].astype(float))
    frame = frame[frame["epochs_trained"].notna() & np.isfinite(frame["planned"])]
    frame["hours"] = worker_seconds(frame) / 3600
    trained = frame["epochs_trained"].astype(float)
    left = (frame["planned"] - trained).clip(lower=0).where(frame["status"] == "stopped", 0.0)
    frame["left"], per_epoch = left, frame["hours"] / trained.where(trained > 0)
    frame["saved_hours"] = (per_epoch * left).where(left > 0, 0.0)
    rows = []
    for name, group in frame.groupby("objective", sort=False):
        num_stopped = int((group["status"] == "stopped").sum())
        if not num_stopped:
            continue
        planned = float(group["planned"].sum())
        row = {"objective": name, "stopped": num_stopped, "trials": len(group)}
        row |= {"epochs": float(group["epochs_trained"].sum()), "planned_epochs": planned}
        row["saved"] = float(group["left"].sum()) / planned
        if group["hours"].notna().all():
            row |= group[["hours", "saved_hours"]].sum().to_dict()
        rows.append(row)
    return pd.DataFrame(rows, columns=list(SAVED_COLUMNS))


def course(history: pd.DataFrame, words: Wording) -> Sentences:
    """When each objective's best was found, from `Results.history`."""
    out = []
    for name, rows in history.groupby("objective", sort=False):
        if rows["best"].notna().any():
            best, num = rows["best"].dropna().iloc[-1], len(rows)
            at = rows.loc[rows["best"] == best, "tried"].iloc[0]
            late = at > LATE * num and num > 4
            more = " It still improved near the end, so more tries may help." if late else ""
            best_at = f"{words.level(best)}, at try {count(at)} of {count(num)}"
            out.append(f"{name} found its best, {best_at}.{more}")
    return tuple(out)


def importances(table: pd.DataFrame, words: Wording) -> Sentences:
    """Which hyperparameters matter, and where they may be set, from `Results.importance`."""
    out: list[str] = []
    for name, frame in table.groupby("objective", sort=False):
        rows = [row for row in records_of(frame) if row["resolved"]]
        sentences = [f"{row['param']} ({_importance(row)})" for row in rows]
        if rows and not known(rows[0]["importance"]):
            out.append(depends(str(name), rows[0]["param"], rows[0]["r2"]))
        elif sentences:
            verb = "matters" if len(sentences) == 1 else "matter"
            out.append(f"{name}: {joined(sentences)} {verb}, by the surrogate of the search.")
        elif (reason := frame["reason"].iloc[0]) != Reason.NOTHING_SWEPT:
            why = frame["note"].iloc[0] if reason else "the surrogate's draws differ"
            what = f"Which hyperparameter matters for {name} is {status_text(reason)}"
            out.append(Unresolved(f"{what}: {why}."))
        places = [f"{row['param']} {_usable(row)}" for row in rows if _usable(row) != "-"]
        if places:
            near = words.amount(words.within)
            out.append(f"{name} is within {near} of its best level at {joined(places)}.")
    return tuple(out)


def _importance(row: Row) -> str:
    return f"{number(row['importance'])}{interval(row['low'], row['high'])}"


def _usable(row: Row) -> str:
    """`0.01 to 0.1`."""
    return shown_band(row, "usable", named=False) or "-"


def savings(table: pd.DataFrame) -> Sentences:
    """Epochs that stopping early saved, from `Results.saved`."""
    out = []
    for row in records_of(table):
        hours = f", about {work(row['saved_hours'])}" if known(row["saved_hours"]) else ""
        out.append(
            f"{row['objective']}: {count(row['stopped'])} of {count(row['trials'])} trials were "
            f"stopped early, which saved {number(100 * row['saved'])} % of the epochs{hours}."
        )
    return tuple(out)


def history_figure(history: pd.DataFrame, data: StudyData) -> Figure | None:
    """The score of every configuration in the order of the plan, and the best so far."""
    columns = {"tried": "x", "score": "y"}
    frame = charts.by_objective_order(history.rename(columns=columns).dropna(subset=["y"]), data)
    if frame.empty:
        return None
    if len(frame) > _MAX_POINTS:
        frame = frame.iloc[np.linspace(0, len(frame) - 1, _MAX_POINTS).astype(int)]
    frame = frame.assign(at=charts.settings_at(data, frame))
    frame = frame[["objective", "x", "y", "best", "at", "state", "num_seeds"]]
    title, scale = data.metric_title, alt.Scale(zero=False, nice=False, padding=8)
    axis = alt.Axis(format="d", tickMinStep=1, tickCount=8, grid=False)
    x = alt.X("x:Q", title="configurations tried", scale=scale, axis=axis)
    names = {"objective": "objective", "at": "setting", "y": title, "state": "state"}
    tips = charts.tips(**names, num_seeds="seeds", best="best so far")
    base = alt.Chart(frame)
    hue, form = charts.looks(data, frame)
    line = base.transform_filter("isValid(datum.best)").mark_line(
        strokeWidth=2.5, interpolate="step-after"
    )
    stopped = bool((frame["state"] != "finished").any())
    look: dict[str, Any] = {"size": 40, "opacity": 1, "fillOpacity": 0.75, "strokeOpacity": 0.6}
    marks = [
        base.transform_filter(f"datum.state {'==' if filled else '!='} 'finished'")
        .mark_point(filled=filled, **look)
        .encode(x, charts.score_axis(title), hue, form, tooltip=tips)
        for filled in (True, False)[: 1 + stopped]
    ]
    return Figure(
        name="history",
        title="The search: every configuration, and the best so far",
        caption="A point is a configuration, in the order in which it was planned. The line is the "
        f"best so far.{' Open points were stopped early, raced out or failed.' if stopped else ''}",
        chart=charts.layers([line.encode(x, charts.score_axis(title, "best"), hue), *marks]),
        data=history,
    )


HISTORY = Statistic(
    name="history",
    table=history,
    sentences=lambda context: course(context.compute(history), context.words),
    figures=lambda context: [history_figure(context.compute(history), context.data)],
    formulas={"search history": HISTORY_COLUMNS},
)
TOP = Statistic(
    name="search-top",
    title="The best configurations of each objective",
    table=top,
    columns=(
        Column("objective"),
        Column("rank"),
        Column("at"),
        Column(
            "score",
            between("score", ""),
            "mean over the seeds, with its 95 % interval. These were picked by it, so it is "
            "optimistic",
        ),
        Column(
            "seeds",
            lambda row: "  ".join(texts_of_values(list(row["seeds"]), 2)),
            "the score of each",
        ),
    ),
    levels="score",
    formulas={"best of a search": TOP_COLUMNS},
)
_IMPORTANCE_FORMULAS = described(
    analysis.IMPORTANCE_COLUMNS,
    objective="name",
    param="swept hyperparameter",
    importance="its share of the variance over the space with all its interactions: the total "
    "Sobol index ST of the surrogate (a Gaussian process), each value on its axis equally likely",
    low="its interval, of the surrogate's draws",
    null="what an inert one reaches in 95 % of cases",
    resolved="whether low is above null; of a single one, which has it all: whether the surrogate "
    "predicts configurations left out",
    usable_low="the run of values around the best whose level E[f | x] is within so many units of "
    "the best level, in 95 % of the draws at each value; none where no value is, nor where the "
    "hyperparameter is not resolved",
    r2="share of the variance of configurations left out that the surrogate explains",
    num_configs="configurations with a score",
)
IMPORTANCE = Statistic(
    name="importance",
    title="Which hyperparameter matters, by the surrogate of the search",
    header="Importance for {metric}, with 95 % intervals{scored}",
    table=importance,
    ahead=True,
    columns=(
        Column("objective"),
        Column("hyperparameter", "param"),
        Column(
            "importance",
            lambda row: _importance(row) if known(row["importance"]) else "-",
            "share of the variance over the space, with all interactions. Where the search hardly "
            "tried, it rests on the smoothness of the surrogate",
        ),
        Column(
            "inert", "null", "what one without any effect reaches in 95 % of cases", drop_order=3
        ),
        Column(
            "usable",
            _usable,
            "values that are shown to be within {points} of the best level, where it matters",
        ),
        Column(
            "fit", "r2", "R2 of settings left out: how well the surrogate predicts", drop_order=1
        ),
        Column("configs", "num_configs", "configurations with a score", drop_order=2),
        Column("verdict", lambda row: "matters" if row["resolved"] else status_text(row["reason"])),
    ),
    sentences=lambda context: importances(context.compute(importance), context.words),
    formulas={"importance": _IMPORTANCE_FORMULAS},
    terms={
        "importance": "Share of the variance over the swept space that goes with one "
        "hyperparameter, by a smooth surrogate through whatever the search tried.",
        "TPE": "Tree-structured Parzen estimator: a search that tries more where scores were good.",
        "racing": "A configuration gets its next seed only while it may be the best.",
        "ASHA": "Successive halving: the worse configurations are stopped early.",
    },
)
_SAVED = Statistic(
    name="stopped-early",
    title="What stopping early saved",
    table=saved,
    columns=(
        Column("objective"),
        Column("stopped", lambda row: f"{count(row['stopped'])} of {count(row['trials'])} trials"),
        Column("epochs", lambda row: f"{count(row['epochs'])} of {count(row['planned_epochs'])}"),
        Column("saved", fraction("saved", most=2), "share of the epochs that stopping left out"),
        Column("hours"),
        Column(
            "hours saved",
            "saved_hours",
            "the epochs that each stopped trial had left, times its time per epoch",
        ),
    ),
    sentences=lambda context: savings(context.compute(saved)),
    formulas={"stopped early": SAVED_COLUMNS},
)
