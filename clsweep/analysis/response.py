"""How the level answers to one hyperparameter: its marginal table, the usable band, and the slope per doubling."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats

from clsweep.analysis import resample
from clsweep.analysis.regions import cut
from clsweep.analysis.sweep import Array, Sweep


@dataclass(frozen=True, kw_only=True, eq=False)
class Response:
    """A table of scores whose rows are configurations, or the values or bins of one hyperparameter.

    Attributes:
        param: that hyperparameter; empty where rows are configurations.
        label: text of a row.
        low, high: (rows,) edges of a row's values in units of the hyperparameter, equal for a single value; NaN for a
            category or a missing value. Empty where rows are configurations.
        scores: (rows, repeats), larger is better, NaN = none.
        sampled: whether the configurations are a sample of the space.
        notes: what the table is made of.
    """

    param: str
    label: Callable[[int], str]
    low: Array
    high: Array
    scores: Array
    sampled: bool
    notes: tuple[str, ...] = ()

    @classmethod
    def of_configs(cls, sweep: Sweep) -> Response:
        """The table with one row a configuration and one column a seed."""
        none = np.empty(0)
        return cls(param="", label=sweep.label, low=none, high=none, scores=sweep.scores, sampled=not sweep.is_grid)

    @cached_property
    def alive(self) -> NDArray[np.bool_]:
        """(rows,) bool, rows with a score."""
        return np.asarray(np.isfinite(self.scores).any(axis=1))


def respond(sweep: Sweep, param: str) -> Response:
    """Averages over the other swept hyperparameters at each value of `param`, one row a value or bin.

    On a grid the noise is the seeds: a column is a seed, and a missing seed stands at its configuration's mean, else
    the average would be over other settings. In a qmc or random design the noise is the configurations that share a
    value, whose other hyperparameters differ: a column is one of them. Its numbers may be cut by rank into bins
    (`regions.cut`). A configuration that failed on every seed is left out of its average.
    """
    regions = cut(param, [sweep])
    levels = regions.place(sweep.settings[param])
    notes = [f"{param} cut by rank into {regions.num_bins} bins of equal count"] if regions.is_binned else []
    counts = np.bincount(levels, minlength=len(regions))
    if sweep.samplers == ("grid",):
        table = _average(sweep, levels, len(regions))
        if len(set(counts)) > 1:
            notes.append(f"unbalanced: values of {param} rest on different settings of the others")
    else:
        table = np.full((len(counts), counts.max()), np.nan)
        order = np.argsort(levels, kind="stable")
        starts = np.cumsum(counts) - counts
        table[levels[order], np.arange(len(levels)) - starts[levels[order]]] = sweep.means[order]
        notes.append(f"noise is the configurations that share a {'bin' if regions.is_binned else 'value'}")
    if lost := int((~sweep.alive).sum()):
        notes.append(f"{lost} configurations failed on every seed and are left out of the averages over {param}")
    return Response(
        param=param,
        label=regions.named.__getitem__,
        low=regions.low,
        high=regions.high,
        scores=table,
        sampled=not sweep.is_grid,
        notes=tuple(notes),
    )


@dataclass(frozen=True, kw_only=True)
class Band:
    low: float
    high: float
    touches_end: bool


def band(table: Response, *, within: float) -> Band:
    """The run of neighbouring values around the best one whose level is >= L - within, in units of the hyperparameter.

    L is the cross-fitted level of the best value. A value without a score ends the run; a setting that has no value
    (a missing one) is not on the axis.
    """
    rows = np.flatnonzero(np.isfinite(table.low))
    rows = rows[np.argsort(table.low[rows], kind="stable")]
    scores = table.scores[rows]
    alive = np.isfinite(scores).any(axis=1)
    if not alive.any():
        return Band(low=np.nan, high=np.nan, touches_end=False)
    means = np.full(len(rows), -np.inf)
    means[alive] = resample.row_means(scores[alive])
    good = means >= float(resample.best_level(scores[alive])) - within - resample.EPSILON
    first = last = int(means.argmax())
    while first > 0 and good[first - 1]:
        first -= 1
    while last + 1 < len(rows) and good[last + 1]:
        last += 1
    low, high = float(table.low[rows[first]]), float(table.high[rows[last]])
    return Band(low=low, high=high, touches_end=first == 0 or last == len(rows) - 1)


@dataclass(frozen=True, kw_only=True)
class Slope:
    value: float = np.nan
    low: float = np.nan
    high: float = np.nan


def slope(sweep: Sweep, table: Response, *, confidence: float) -> Slope:
    """Least-squares slope of the level (larger is better) on log2(value), and its t-interval; NaN unless all positive.

    b = sum_k c_k m_k,  c_k = (x_k - mean x) / sum_k (x_k - mean x)^2

    On a grid over the rows of the table, with Var(b) = s_w^2 sum_k c_k^2 / S_k: exact for normal noise. In a sample of
    the space over its configurations, with the jackknife-like HC3 variance sum_k (c_k e_k / (1 - h_k))^2, e the
    residuals and h the leverages, which holds for a curve that is not a line too (Long and Ervin 2000). From the rest
    of a curve a grid's slope is not disturbed: it is the line through these values.
    """
    if table.sampled:
        position = pd.to_numeric(sweep.settings[table.param]).to_numpy(dtype=float, na_value=np.nan)
        means, scores = sweep.means, sweep.scores
    else:
        position, scores = table.low, table.scores
        means = np.full(len(scores), np.nan)
        means[table.alive] = resample.row_means(scores[table.alive])
    if not (position[np.isfinite(position)] > 0).all():
        return Slope()
    used = np.isfinite(position) & np.isfinite(means)
    x, y, scores = np.log2(position[used]), means[used], scores[used]
    if len(y) < 2 or np.ptp(x) == 0:
        return Slope()
    centred = x - x.mean()
    weights = centred / np.square(centred).sum()
    value = float(weights @ y)
    if table.sampled:
        freedom = len(y) - 2
        leverage = 1.0 / len(y) + weights * centred
        residuals = y - y.mean() - value * centred
        variance = float(np.square(weights * residuals / np.maximum(1.0 - leverage, resample.EPSILON)).sum())
    else:
        counts = np.isfinite(scores).sum(axis=1)
        freedom = int((counts - 1).sum())
        variance = float(resample.noise_variance(scores) * (np.square(weights) / counts).sum())
    if freedom < 1:
        return Slope(value=value)
    half = float(stats.t.ppf((1 + confidence) / 2, freedom)) * variance**0.5
    return Slope(value=value, low=value - half, high=value + half)


def _average(sweep: Sweep, levels: NDArray[Any], num: int) -> Array:
    """(levels, S) mean over the configurations of each level, NaN for a seed that none of them has."""
    present = np.isfinite(sweep.scores)
    filled = pd.DataFrame(np.where(present, sweep.scores, sweep.means[:, None])).groupby(levels).mean()
    seen = pd.DataFrame(present).groupby(levels).any()
    rows = range(num)
    return np.where(seen.reindex(rows).to_numpy(dtype=bool), filled.reindex(rows).to_numpy(), np.nan)
