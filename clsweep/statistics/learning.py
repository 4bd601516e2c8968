"""Learning curves of the best configurations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from clsweep.analysis.noise import half_width
from clsweep.catalog import COMPONENT, METRIC
from clsweep.statistics import charts
from clsweep.statistics.charts import alt
from clsweep.statistics.computed import Statistics
from clsweep.statistics.recommend import recommend
from clsweep.statistics.report_objects import Figure
from clsweep.statistics.statistic import Statistic
from clsweep.sweeps.study_data import StudyData

EFFORTS = {
    "epoch": ("epochs", "epochs"),
    "images": ("images", "images trained on"),
    "pairs": ("pairs", "pairs of views compared"),
    "seconds": ("seconds", "seconds of training"),
}
_FORMULAS = {
    "objective": "name",
    "config": "number of the configuration within its objective",
    "epoch": "epochs trained",
    "images": "images trained on so far, each with all its views; mean over the seeds",
    "pairs": "pairs of views compared so far: images x pairs of views of an image",
    "seconds": "time trained so far: sum of time_s, mean over the seeds",
    "mean": "mean of the metric over the seeds",
    "low": "t-interval of mean over the seeds: the variance is pooled over the epochs of the "
    "curve, the degrees of freedom are those of one epoch, whose seeds are all there are; none of "
    "one seed",
    "high": "",
    "num_seeds": "seeds scored at this epoch",
}
LEAST_SEEDS = 3  # for a band: two seeds give one that fills the chart


def learning(of: Statistics) -> pd.DataFrame:
    """The curves of the best configuration of each objective, with the columns of `FORMULAS`."""
    data, recommended = of.data, of.compute(recommend)
    best = recommended[recommended["kind"] == "best"]
    keys = set(zip(best["objective"], best["config"], strict=True))
    trials = data.trials
    chosen = trials[trials["status"] == "finished"]
    picked = [key in keys for key in zip(chosen["objective"], chosen["config"], strict=True)]
    chosen = chosen.loc[picked]  # of no trial, an empty list would choose among columns
    known = METRIC.get(data.metric)
    return learning_curves(
        of.epochs_of(set(chosen["trial_id"])),
        chosen,
        metric=data.metric,
        pairs={row["trial_id"]: pairs_of_views(row) for row in chosen.to_dict("records")},
        limits=known.limits if known else (-float("inf"), float("inf")),
    )


def learning_curves(
    epochs: pd.DataFrame,
    trials: pd.DataFrame,
    *,
    metric: str,
    pairs: Mapping[str, float],
    limits: tuple[float, float],
) -> pd.DataFrame:
    """One row per objective, configuration and epoch that was scored, with the columns of
    `FORMULAS`.

    `epochs` have trial_id, epoch, time_s and the metric, which is missing where the encoder was not
    scored. `trials`, those to draw, have trial_id, objective, config, and where recorded num_images
    and epochs_trained. `pairs` of views of an image are by trial_id. Intervals end at `limits`.
    """
    if epochs.empty or metric not in epochs or trials.empty:
        return pd.DataFrame(columns=list(_FORMULAS))
    known = trials.set_index("trial_id")
    frame = epochs[epochs["trial_id"].isin(known.index)].sort_values(["trial_id", "epoch"])
    frame = frame.assign(seconds=frame.groupby("trial_id")["time_s"].cumsum())
    frame = frame[frame[metric].notna()]
    frame = frame.join(known[["objective", "config"]], on="trial_id")
    per_epoch = pd.Series(np.nan, index=known.index)
    if {"num_images", "epochs_trained"} <= set(known.columns):
        trained = known["epochs_trained"].astype(float)
        per_epoch = known["num_images"].astype(float) / trained.where(trained > 0)
    frame["images"] = frame["epoch"] * frame["trial_id"].map(per_epoch).astype(float)
    frame["pairs"] = frame["images"] * frame["trial_id"].map(dict(pairs)).astype(float)
    keys = ["objective", "config", "epoch"]
    groups = frame.groupby(keys, sort=False)
    table = groups[["images", "pairs", "seconds"]].mean()
    scores = groups[metric]
    table["mean"], table["num_seeds"] = scores.mean(), scores.count()
    num = table["num_seeds"].to_numpy(dtype=float)
    variance = scores.var().groupby(level=["objective", "config"]).transform("mean")
    half = half_width(variance / num, num - 1)
    table["low"] = (table["mean"] - half).clip(lower=limits[0])
    table["high"] = (table["mean"] + half).clip(upper=limits[1])
    order = {name: i for i, name in enumerate(dict.fromkeys(trials["objective"]))}
    curves = table.reset_index()[list(_FORMULAS)]
    ranks = curves.assign(objective=curves["objective"].map(order))
    return curves.loc[ranks.sort_values(keys, kind="stable").index].reset_index(drop=True)


def pairs_of_views(trial: Mapping[Any, Any]) -> float:
    """Pairs of views of an image that a trial compares: t (V - 1) - t (t - 1) / 2 for t target
    views of V (ECPP Table 1); NaN where the catalog does not know.
    """
    views = COMPONENT["views"].get(str(trial.get("views")))
    if views is None:
        return float("nan")
    given = {name: trial.get(name) for name in ("num_views", "num_global_views")}
    known = {name: int(value) for name, value in given.items() if not pd.isna(value)}
    num = known.get("num_views", 2) if views.name != "two" else 2
    num_targets = {"all": num, "first": 1, "global": known.get("num_global_views", 2)}
    targets = num_targets[views.targets]
    return targets * (num - 1) - targets * (targets - 1) / 2


def learning_figures(learning: pd.DataFrame, data: StudyData) -> list[Figure]:
    """The metric against each measure of effort that orders the objectives in another way than
    those before it: not where all curves are stretched alike, within a tenth.
    """
    if learning.empty or learning.groupby("objective")["epoch"].nunique().max() < 2:
        return []
    drawn: dict[str, NDArray[np.float64]] = {}
    for axis in EFFORTS:
        values = charts.float_column(learning, axis)
        ratios = [values / np.maximum(other, 1e-12) for other in drawn.values()]
        positive = [ratio[np.isfinite(ratio) & (ratio > 0)] for ratio in ratios]
        is_new = not any(len(each) and each.max() <= 1.1 * each.min() for each in positive)
        if np.isfinite(values).all() and is_new:
            drawn[axis] = values
    return [learning_figure(learning, data, axis=axis) for axis in drawn]


def learning_figure(learning: pd.DataFrame, data: StudyData, *, axis: str) -> Figure:
    """The metric against one of `EFFORTS`, a line an objective."""
    frame = charts.columns(learning, x=axis, y="mean", low="low", high="high", num="num_seeds")
    few = frame["num"] < LEAST_SEEDS
    frame.loc[few, ["low", "high"]] = np.nan
    frame = charts.by_objective_order(frame.dropna(subset=["x", "y"]), data)
    short, called = EFFORTS[axis]
    title, names = data.metric_title, {"objective": "objective", "x": called}
    tips = charts.tips(**names, y=f"mean {title}", **charts.END_TIPS, num="seeds")
    form = "~s" if axis != "epoch" else "d"
    x = alt.X("x:Q", title=called, axis=alt.Axis(format=form, tickCount=6, grid=False))
    drawn, note = charts.curves(frame, data, x, title, tips)
    over = "Bands are 95 % intervals over the seeds."
    bands = f"Bands need {LEAST_SEEDS} seeds." if few.all() else over
    return Figure(
        name=f"learning-{short}",
        title=f"Learning curves against {short}",
        caption=f"Mean {data.metric} of the best configuration of each objective. {bands}{note}",
        chart=charts.layers(drawn),
        data=learning,
    )


LEARNING = Statistic(
    name="learning",
    table=learning,
    figures=lambda context: learning_figures(context.compute(learning), context.data),
    formulas={"learning curves": _FORMULAS},
)
