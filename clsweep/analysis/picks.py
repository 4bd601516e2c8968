"""Which configuration a score without labels would have picked, and what that costs by the scores
with labels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from clsweep.analysis import CONFIDENCE, reasons
from clsweep.analysis.mechanism import config_means, rank_correlation
from clsweep.analysis.noise import noise_of
from clsweep.analysis.reasons import Note, Reason, note, noted
from clsweep.analysis.resample import best_level, packed, row_means
from clsweep.analysis.sweep import Array, Sweep

COLUMNS = {
    "objective": 'name, in order of first appearance; "all": the configurations of all objectives '
    "that are scored alike, pooled",
    "score": "the score without labels",
    "num_configs": "configurations with a mean of this score and of the metric",
    "config": "the one it picks: its best mean over the seeds",
    "of": "the objective that this configuration is of",
    "best": "level of the best configuration by the metric, picked on other seeds than it is "
    "scored on, and no worse than the pick; with one seed the best score",
    "picked": "the metric's mean of the configuration that the score picks",
    "regret": "what the pick loses: best - picked, turned so that a loss is positive; from 0 to "
    "the plain difference of the means",
    "low": "interval of the true regret, max_j theta_j - theta_p for the pick p: max_j of t-"
    "intervals of theta_j - theta_p, the lower ends corrected for all p and j (Bonferroni); the "
    "maximum is what keeps the upper one safe",
    "high": "",
    "rho": "Spearman's rank correlation of the score with the metric over the configurations, both "
    "turned so that better is higher",
    "rho_low": "its interval, as in the table of links",
    "rho_high": "",
    **reasons.COLUMNS,
}
ALL = "all"
_RHO = {"rho": "rho", "rho_low": "low", "rho_high": "high"}


@dataclass(frozen=True, kw_only=True)
class _Pool:
    """Configurations of one or several objectives: n with the metric on S seeds."""

    objective: str
    sign: float
    values_nS: Array  # larger is better
    scores: pd.DataFrame  # n rows: `objective`, `config`, and a mean of each score
    withheld: Note | None
    notes: tuple[Note, ...]


def picks(
    trials: pd.DataFrame,
    sweeps: Sequence[Sweep],
    *,
    metric: str,
    scores: Mapping[str, str],
    yardsticks: Mapping[str, str],
) -> pd.DataFrame:
    """A row for each objective and score without labels, then for all objectives together; the
    columns of `COLUMNS`.

    The regret is among the configurations that were tried, on grids and samples alike. Its interval
    is that of the seeds' noise and covers a pick that the same noise has favoured. With one seed
    there is none. A correlation needs 10 configurations and samples that cover the space evenly.
    Failed trials are left out.

    trials, metric: those that `sweeps` were read from; the metric in its own sign.
    scores: names of columns, which `trials` may lack -> "max" or "min", which is better.
    yardsticks: objectives with different ones are not pooled; those without one share one.
    """
    found = [name for name in scores if name in trials and trials[name].notna().any()]
    pools = [_pool(trials, sweep, metric, found) for sweep in sweeps]
    alike: dict[str, list[_Pool]] = {}
    for pool in pools:
        alike.setdefault(yardsticks.get(pool.objective, ""), []).append(pool)
    for yardstick, group in alike.items():
        if len(group) > 1:
            pools.append(_together(group, f"{ALL}, {yardstick}" if yardstick else ALL))
    rows = [
        _row(pool, name, 1.0 if scores[name] == "max" else -1.0)
        for pool in pools
        for name in found
        if pool.scores[name].notna().any()
    ]
    return pd.DataFrame(rows, columns=list(COLUMNS))


def _pool(trials: pd.DataFrame, sweep: Sweep, metric: str, names: Sequence[str]) -> _Pool:
    sweep = sweep.measured
    alive = sweep.alive
    means = config_means(trials, sweep, metric, names).reindex(sweep.configs[alive])
    scores = means.reindex(columns=list(names)).reset_index(drop=True)
    return _Pool(
        objective=sweep.objective,
        sign=sweep.sign,
        values_nS=sweep.scores[alive],
        scores=scores.assign(objective=sweep.objective, config=sweep.configs[alive]),
        withheld=sweep.not_measured,
        notes=tuple(n.of(sweep.objective) for n in sweep.missing),
    )


def _together(pools: Sequence[_Pool], name: str) -> _Pool:
    width = max(pool.values_nS.shape[1] for pool in pools)
    padded = np.full((sum(len(pool.values_nS) for pool in pools), width), np.nan)
    start = 0
    for pool in pools:
        num, num_seeds = pool.values_nS.shape
        padded[start : start + num, :num_seeds] = pool.values_nS
        start += num
    return _Pool(
        objective=name,
        sign=pools[0].sign,
        values_nS=padded,
        scores=pd.concat([pool.scores for pool in pools], ignore_index=True),
        withheld=next((pool.withheld for pool in pools if pool.withheld), None),
        notes=tuple(n for pool in pools for n in pool.notes),
    )


def _row(pool: _Pool, name: str, sign: float) -> dict[str, Any]:
    score = sign * pool.scores[name].to_numpy(dtype=float)
    known = np.isfinite(score)
    score, values = score[known], packed(pool.values_nS[known])
    row: dict[str, Any] = {
        "objective": pool.objective,
        "score": name,
        "num_configs": int(known.sum()),
    }
    if len(score) < 2:
        return row | noted(*pool.notes, why=note(Reason.ONE_SCORED))
    means, pick = row_means(values), int(score.argmax())
    place = pool.scores[known].iloc[pick]
    loss = float(best_level(values)) - means[pick]
    regret = float(np.clip(loss, 0.0, means.max() - means[pick]))
    low, high, why = _interval(values, pick)
    link = rank_correlation(np.column_stack([score, means]), pool.withheld)
    said = [*link["note"], *pool.notes]
    return (
        row
        | {"config": place["config"], "of": place["objective"], "regret": regret}
        | {"best": pool.sign * (means[pick] + regret), "picked": pool.sign * means[pick]}
        | {"low": min(low, regret), "high": max(high, regret)}
        | {name: link.get(of, np.nan) for name, of in _RHO.items()}
        | noted(*said, why=why)
    )


def _interval(values: Array, pick: int) -> tuple[float, float, Note | None]:
    """Of max_j theta_j - theta_p; NaN and the reason where the seeds show no noise."""
    counts = np.isfinite(values).sum(axis=1)
    noise = noise_of(values)
    if not noise.freedom:
        return np.nan, np.nan, note(Reason.ONE_SEED)
    if not noise.pooled > 0:
        return np.nan, np.nan, note(Reason.NO_NOISE)
    means = row_means(values)
    lead = np.delete(means - means[pick], pick)
    own = noise.doubt
    even, alone = (1 - own) * noise.pooled / counts, own * noise.own / counts
    variance = np.delete(even + even[pick] + alone + alone[pick], pick)
    loss = (even + even[pick]) ** 2 / noise.freedom
    loss += alone**2 / noise.own_freedom + alone[pick] ** 2 / noise.own_freedom[pick]
    freedom, error = variance**2 / np.delete(loss, pick), np.sqrt(variance)
    tail = (1 - CONFIDENCE) / 2
    low = np.max(lead - stats.t.isf(tail / (len(lead) * len(values)), freedom) * error)
    high = np.max(lead + stats.t.isf(tail, freedom) * error)
    return max(0.0, float(low)), max(0.0, float(high)), None
