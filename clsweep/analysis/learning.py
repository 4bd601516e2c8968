"""Learning curves: the metric at every scored epoch, against four measures of effort."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd

from clsweep.analysis.noise import half_width

COLUMNS = {
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


def learning_curves(
    epochs: pd.DataFrame,
    trials: pd.DataFrame,
    *,
    metric: str,
    pairs: Mapping[str, float],
    limits: tuple[float, float],
) -> pd.DataFrame:
    """One row per objective, configuration and epoch that was scored, with the columns of
    `COLUMNS`.

    Args:
        epochs: one row per trial and epoch: trial_id, epoch, time_s and `metric`, which is missing
            where the encoder was not scored.
        trials: the trials to draw: trial_id, objective, config, and where recorded num_images and
            epochs_trained.
        pairs: trial_id -> pairs of views of an image; a trial that is not named has none.
        limits: the values that the metric can take; intervals end there.
    """
    if epochs.empty or metric not in epochs or trials.empty:
        return pd.DataFrame(columns=list(COLUMNS))
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
    found = table.reset_index()[list(COLUMNS)]
    ranks = found.assign(objective=found["objective"].map(order))
    return found.loc[ranks.sort_values(keys, kind="stable").index].reset_index(drop=True)
