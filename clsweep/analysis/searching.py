"""What a search for good settings did: its history, what goes with a good score, what stopping
early saved.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from clsweep.analysis import CONFIDENCE, reasons, resample
from clsweep.analysis.holm import holm
from clsweep.analysis.reasons import Reason, note, noted
from clsweep.analysis.recommend import level_of
from clsweep.analysis.sweep import STATUSES, Array, Sweep

HISTORY_COLUMNS = {
    "objective": "name, in order of first appearance",
    "tried": "1 for the configuration that was planned first, 2 for the next, ...",
    "config": "its number within its objective",
    "score": "mean of the metric over its trials; of stopped ones where they stopped",
    "num_seeds": "seeds that finished",
    "best": "the best score so far among configurations with as many seeds as any has",
    "state": '"finished", "skipped", "stopped" or "failed": the worst of its seeds',
}
IMPORTANCE_COLUMNS = {
    "objective": "name",
    "param": "swept hyperparameter",
    "importance": "share of the variance of the scores' ranks between its values (numbers: five "
    "bins of equal count): eta^2 = H / (n - 1), H of Kruskal and Wallis (1952)",
    "null": "what one without any effect reaches in 95 % of 2,000 permutations of the scores",
    "p_holm": "chance of as much by permutation, Holm over the objective's hyperparameters",
    "resolved": "whether p_holm is below the level of significance",
    "num_configs": "configurations with a score",
    **reasons.COLUMNS,
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
NUM_BINS, MIN_CONFIGS, PERMUTATIONS = 5, 10, 2000


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


def importance(sweeps: Sequence[Sweep]) -> pd.DataFrame:
    """One row per objective and swept hyperparameter with the columns of `IMPORTANCE_COLUMNS`.

    Of a search only: it says which values went with good scores among those that were tried. An
    adaptive sampler tries good regions more often and its later tries are better, so this is no
    share of the variance over the space. Fewer than `MIN_CONFIGS` configurations: one row that
    says so.
    """
    rows = [row for sweep in sweeps for row in _importances(sweep.measured)]
    return pd.DataFrame(rows, columns=list(IMPORTANCE_COLUMNS))


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
    """The best `num` configurations of each objective, with the columns of `TOP_COLUMNS`."""
    rows = []
    for sweep in sweeps:
        measured = sweep.measured
        if not measured.alive.any():
            continue
        counts = measured.num_measured
        means = np.where(counts == counts.max(), measured.means, -np.inf)
        order = np.argsort(-means, kind="stable")[: min(num, int(np.isfinite(means).sum()))]
        for rank, i in enumerate(order.tolist(), 1):
            scores = sweep.sign * measured.scores[i]
            seeds = tuple(scores[np.isfinite(scores)].tolist())
            row = {"objective": sweep.objective, "rank": rank, "seeds": seeds}
            rows.append(row | level_of(measured, i))
    return pd.DataFrame(rows, columns=list(TOP_COLUMNS))


def _importances(sweep: Sweep) -> list[dict[str, Any]]:
    num = int(sweep.alive.sum())
    common = {"objective": sweep.objective, "num_configs": num, "resolved": False}
    ranks = np.asarray(pd.Series(sweep.means[sweep.alive]).rank(), dtype=np.float64)
    why = None
    if not sweep.params:
        why = note(Reason.NOTHING_SWEPT)
    elif num < MIN_CONFIGS:
        why = note(Reason.FEW_FOR_IMPORTANCE, configs=num, least=MIN_CONFIGS)
    elif np.ptp(ranks) == 0:
        why = note(Reason.EQUAL_SCORES)
    if why:
        return [{**common, "param": "", **noted(why=why)}]
    rng = np.random.default_rng(resample.SEED)
    drawn = np.asarray(rng.permuted(np.tile(ranks, (PERMUTATIONS, 1)), axis=1), dtype=np.float64)
    rows: list[dict[str, Any]] = []
    for name in sweep.params:
        groups = _groups(sweep, name)
        size, null = float(_shares(ranks[None], groups)[0]), _shares(drawn, groups)
        row = {"param": name, "importance": size, "null": float(np.quantile(null, CONFIDENCE))}
        row["p"] = (1 + int((null >= size - 1e-12).sum())) / (1 + PERMUTATIONS)
        rows.append(common | row | noted(note(Reason.OF_WHAT_WAS_TRIED)))
    for row, p in zip(rows, holm(np.array([row["p"] for row in rows])), strict=True):
        row |= {"p_holm": p, "resolved": bool(p <= 1.0 - CONFIDENCE)}
    return rows


def _groups(sweep: Sweep, name: str) -> Array:
    """(n alive,) the value of each configuration as a number: of numbers the fifth it lies in."""
    values = sweep.settings[name][sweep.alive]
    if sweep.scales[name] == "category" or values.nunique() <= NUM_BINS:
        return values.astype(str).factorize()[0].astype(float)
    ranks = values.astype(float).rank(method="average")
    bins = pd.qcut(ranks, NUM_BINS, labels=False, duplicates="drop")
    return np.asarray(bins.fillna(-1), dtype=float)


def _shares(ranks: Array, groups: Array) -> Array:
    """(R,) share of the variance of each row of ranks (R, n) that lies between the groups (n,)."""
    centred = ranks - ranks.mean(axis=1, keepdims=True)
    between = sum(
        centred[:, groups == group].sum(axis=1) ** 2 / (groups == group).sum()
        for group in np.unique(groups)
    )
    return np.asarray(between / (centred**2).sum(axis=1))
