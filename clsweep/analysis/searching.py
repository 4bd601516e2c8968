"""What a search for good settings did: its history, what stopping early saved."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from clsweep.analysis.recommend import level_of
from clsweep.analysis.sweep import STATUSES, Sweep
from clsweep.analysis.tuned import whole

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
    "saved": "1 - epochs / planned_epochs",
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


def history(sweeps: Sequence[Sweep], trials: pd.DataFrame, metric: str) -> pd.DataFrame:
    """One row per configuration with the columns of `HISTORY_COLUMNS`, in the order of the plan.

    trials: objective, config, status and `metric` of every trial that ended.
    """
    rank = trials["status"].map({state: i for i, state in enumerate(STATUSES)})
    groups = [trials["objective"], trials["config"]]
    worst = rank.groupby(groups).max().to_dict()
    seen = trials[metric].astype(float).groupby(groups).mean().to_dict()
    frames = []
    for sweep in sweeps:
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
            "state": [STATUSES[worst[key]] for key in keys],
        }
        frames.append(pd.DataFrame(columns))
    return pd.concat(frames, ignore_index=True)[list(HISTORY_COLUMNS)]


def saved(trials: pd.DataFrame, epochs: pd.Series[float]) -> pd.DataFrame:
    """One row per objective of which trials were stopped, with the columns of `SAVED_COLUMNS`.

    trials: objective, status and epochs_trained; wall_time_s and workers where recorded.
    epochs: that each of these trials would have trained.
    """
    frame = trials.assign(planned=epochs.to_numpy(dtype=float))
    frame = frame[frame["epochs_trained"].notna() & np.isfinite(frame["planned"])]
    time = frame["wall_time_s"] if "wall_time_s" in frame else pd.Series(np.nan, frame.index)
    workers = frame["workers"].fillna(1) if "workers" in frame else 1
    frame["hours"] = time * workers / 3600
    trained = frame["epochs_trained"].astype(float)
    left = (frame["planned"] - trained).clip(lower=0).where(frame["status"] == "stopped", 0.0)
    frame["saved_hours"] = (frame["hours"] / trained.where(trained > 0) * left).where(left > 0, 0.0)
    rows = []
    for name, group in frame.groupby("objective", sort=False):
        num_stopped = int((group["status"] == "stopped").sum())
        if not num_stopped:
            continue
        spent, planned = float(group["epochs_trained"].sum()), float(group["planned"].sum())
        row = {
            "objective": name,
            "stopped": num_stopped,
            "trials": len(group),
            "epochs": spent,
            "planned_epochs": planned,
            "saved": 1 - spent / planned,
        }
        if group["hours"].notna().all():
            row |= group[["hours", "saved_hours"]].sum().to_dict()
        rows.append(row)
    return pd.DataFrame(rows, columns=list(SAVED_COLUMNS))


def top(sweeps: Sequence[Sweep], num: int) -> pd.DataFrame:
    """The best `num` configurations of each objective that may be named (`tuned.whole`), with the
    columns of `TOP_COLUMNS`.
    """
    rows = []
    for sweep in sweeps:
        measured = sweep.measured
        means = np.where(whole(measured), measured.means, -np.inf)
        order = np.argsort(-means, kind="stable")[: min(num, int(np.isfinite(means).sum()))]
        for rank, i in enumerate(order.tolist(), 1):
            scores = sweep.sign * measured.scores[i]
            seeds = tuple(scores[np.isfinite(scores)].tolist())
            row = {"objective": sweep.objective, "rank": rank, "seeds": seeds}
            rows.append(row | level_of(measured, i))
    return pd.DataFrame(rows, columns=list(TOP_COLUMNS))
