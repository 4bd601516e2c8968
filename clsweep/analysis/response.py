"""The level as a response to one hyperparameter: its marginal table, the usable band, and the slope
per doubling.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import sparse, special

from clsweep.analysis import CONFIDENCE
from clsweep.analysis.array_types import Array, Codes
from clsweep.analysis.image_intervals import ImageEffects, image_parts
from clsweep.analysis.marginal_weights import MarginalWeights, marginal_weights
from clsweep.analysis.noise import Noise, square_and_add
from clsweep.analysis.reasons import Note, Reason, note
from clsweep.analysis.regions import cut, numbers_in
from clsweep.analysis.score_table import (
    SeedBlocks,
    adjusted_for_seeds,
    best_level,
    drop_nan_columns,
    mean_seeds,
    noise_variance,
    rounding,
    row_means,
)
from clsweep.analysis.sweep import Sweep


@dataclass(frozen=True, eq=False)
class Response:
    """A table of scores whose rows are configurations, or the values or bins of one hyperparameter.

    Attributes:
        param: that hyperparameter; empty where rows are configurations.
        label: text of a row.
        low, high: (rows,) edges of a row's values in units of the hyperparameter, equal for a
            single value; NaN for a category or a missing value. Empty where rows are
            configurations.
        middle: (rows,) median of a row's values.
        scores: (rows, repeats), larger is better, NaN = none.
        sampled: whether the configurations are a sample of the space.
        failing: (rows,) bool, more than half of the trials failed.
        unknown: (rows,) bool, rows with a configuration that is `Sweep.unknown`.
        binned: whether a row is a bin.
        balanced: whether all rows rest on the same settings of the other hyperparameters, or a fair
            sample of them.
        notes: what the table is made of.
        images: those that the rows are scored on.
        noise: of the configurations with a score; None where their spread is the noise.
        blocks: the seeds as all configurations show them; None where none can be told.
        weights: of the configurations that a row is made of; of a grid alone.
    """

    param: str
    label: Callable[[int], str]
    low: Array
    high: Array
    middle: Array
    scores: Array
    sampled: bool
    failing: NDArray[np.bool_]
    unknown: NDArray[np.bool_]
    binned: bool = False
    balanced: bool = True
    notes: tuple[Note, ...] = ()
    images: ImageEffects | None = None
    noise: Noise | None = None
    blocks: SeedBlocks | None = None
    weights: MarginalWeights | None = None

    @classmethod
    def of_configs(cls, sweep: Sweep) -> Response:
        """The table with one row a configuration and one column a seed."""
        none = np.empty(0)
        arrays = sweep.scores, not sweep.is_grid, sweep.failing, sweep.unknown
        noise = sweep.noise if sweep.alive.any() else None
        table = cls("", sweep.label, none, none, none, *arrays, images=sweep.images, noise=noise)
        return replace(table, blocks=noise.blocks if noise else None)

    @cached_property
    def alive(self) -> NDArray[np.bool_]:
        """(rows,) bool, rows with a score."""
        return np.asarray(np.isfinite(self.scores).any(axis=1))

    @cached_property
    def still(self) -> Array:
        """(rows, repeats) the scores without what a seed gives to all."""
        if not self.blocks:
            return self.scores
        moves = self.alive.copy()
        if self.noise and not self.param:
            moves[self.alive] = ~self.noise.silent
        scores = self.scores.copy()
        scores[moves] = self.blocks.without(self.scores[moves])
        return scores


def _by_value(means: Array, levels: Codes, num: int) -> Array:
    """(num, most of a value): the configurations of each value, behind them NaN."""
    counts = np.bincount(levels, minlength=num)
    table = np.full((num, counts.max()), np.nan)
    order = np.argsort(levels, kind="stable")
    starts = np.cumsum(counts) - counts
    table[levels[order], np.arange(len(levels)) - starts[levels[order]]] = means[order]
    return table


def respond(sweep: Sweep, param: str) -> Response:
    """Averages over the other swept hyperparameters at each value of `param`, one row a value or
    bin.

    On a grid the noise is the seeds (`_average`). Where configurations have no score, the levels
    are least-squares means (`marginal_weights`). In a qmc or random design the noise is the
    configurations that share a value, whose other hyperparameters differ: a column is one of them.
    Its numbers may be cut by rank into bins (`regions.cut`).
    """
    regions = cut(param, [sweep])
    levels = regions.place(sweep.settings[param])
    num, blocks, weights = len(regions), None, None
    notes: list[Note] = []
    if regions.is_binned:
        notes.append(note(Reason.BINNED, param=param, bins=len(regions.starts)))
    if sweep.samplers == ("grid",):
        weights = marginal_weights(sweep, param, levels, num)
        notes += weights.notes
        scores = sweep.scores[sweep.alive]
        table = _average(adjusted_for_seeds(scores), weights.table)
        # seen best by all configurations, which all values share
        blocks = sweep.noise.blocks if num > 1 else None
        if blocks and not np.isfinite(scores).all():  # a column is no seed
            still = _average(scores - blocks.effects, weights.table)
            effects = (table - still)[np.isfinite(table).any(axis=1)]
            blocks = replace(blocks, effects=effects)
    else:
        table = _by_value(sweep.means, levels, num)
        notes.append(note(Reason.NOISE_OF_CONFIGS, unit="bin" if regions.is_binned else "value"))
    notes += sweep.lost(Reason.LEFT_OUT)
    images, middle = sweep.images, regions.low
    if regions.is_binned:
        values = pd.Series(numbers_in(sweep.settings[param]))
        middle = np.asarray(values.groupby(levels).median().reindex(range(num)), dtype=np.float64)
    num_failed, num_measured, unknown = (
        np.bincount(levels, each, num)
        for each in (sweep.failed.sum(axis=1), sweep.num_measured, sweep.unknown)
    )
    return Response(
        param,
        regions.named.__getitem__,
        regions.low,
        regions.high,
        middle,
        table,
        not sweep.is_grid,
        failing=num_failed > num_measured,
        unknown=unknown > 0,
        binned=regions.is_binned,
        balanced=weights is None or weights.balanced,
        notes=tuple(notes),
        images=images and images.rows(sweep.alive).averaged(levels[sweep.alive], num),
        noise=None if weights is None else sweep.noise,
        blocks=blocks,
        weights=weights,
    )


def band(table: Response, *, within: float) -> dict[str, Any]:
    """The run of neighbouring values around the best one whose level is >= L - within: of the
    columns of `robustness` band_low, band_high and band_end by the means alone, level_noise where
    there is a repeat, and the ends of the part that is shown to be within, where any is.

    L is the cross-fitted level of the best value. A value without a score, or with more failed
    trials than scores, ends the run; a missing one is not on the axis. A value k is shown to be
    within where m_k - w_k >= max m - within, with

        w_k = t sqrt(s_w^2 (1 / S_k + 1 / min S) + v_k),  t = t quantile of 1 - (1 - confidence) /
        (values - 1), v_k that of m_k - max m over new images,

    at once for all values (multiple comparisons with the best, Hsu 1981, with Bonferroni's t). Of
    an outer bin the median counts, not the edge, towards which the level may be much lower.
    """
    rows = np.flatnonzero(np.isfinite(table.low))
    rows = rows[np.argsort(table.low[rows], kind="stable")]
    usable = table.alive[rows] & ~table.failing[rows]
    if usable.sum() < 2:
        return {}
    scores = table.scores[rows][usable]
    means = np.full(len(rows), -np.inf)
    means[usable] = row_means(scores)
    slack = float(rounding(means[usable]))
    best = int(means.argmax())
    level = float(best_level(scores, image_parts(table.images, rows[usable])))
    first, last = _run(means >= level - within - slack, best)
    end = ("", "low", "high", "both")[(first == 0) + 2 * (last == len(rows) - 1)]
    columns: dict[str, Any] = {"band_low": float(table.low[rows[first]]), "band_end": end}
    columns["band_high"] = float(table.high[rows[last]])
    counts = np.isfinite(scores).sum(axis=1)
    freedom = int((counts - 1).sum())
    if not freedom:
        return columns
    variance = float(noise_variance(table.still[rows][usable]))
    columns["level_noise"] = float(np.sqrt(variance / mean_seeds(scores)))
    tail = (1 - CONFIDENCE) / (len(scores) - 1)
    left = 1.0 - 1.0 / int(table.alive.sum()) if table.blocks else 1.0  # by the seeds' effects
    quantile = float(special.stdtrit(freedom * left, 1 - tail))
    spread = variance * (1 / counts + 1 / counts.min())
    if table.images:
        images = table.images.rows(rows[usable])
        spread = spread + [images.against(row).max() for row in range(len(scores))]
    means[usable] -= quantile * np.sqrt(spread)
    top = float(row_means(scores).max())
    shown = means >= top - within - slack
    if shown[best]:
        sure = (float(table.middle[rows[at]]) for at in _run(shown, best))
        columns["band_sure_low"], columns["band_sure_high"] = sure
    return columns


def _run(good: NDArray[np.bool_], start: int) -> tuple[int, int]:
    """First and last of the run of true values that holds `start`."""
    first = last = start
    while first > 0 and good[first - 1]:
        first -= 1
    while last + 1 < len(good) and good[last + 1]:
        last += 1
    return first, last


def slope(sweep: Sweep, table: Response) -> tuple[float, float, float]:
    """Least-squares slope of the level (larger is better) on log2(value), and the ends of its
    t-interval; NaN unless all are positive and they span a doubling.

    b = sum_k c_k m_k,  c_k = (x_k - mean x) / sum_k (x_k - mean x)^2

    On a grid over the rows of the table, with the residual's variance (`Noise.of_sum`). In a
    sample over its configurations, with the HC3 variance sum_k (c_k e_k / (1 - h_k))^2, e the
    residuals and h the leverages, which holds for a curve that is not a line too (Long and Ervin
    2000).
    """
    if table.sampled:
        position = pd.to_numeric(sweep.settings[table.param]).to_numpy(dtype=float, na_value=np.nan)
        means, scores = sweep.means, sweep.scores
    else:
        position, scores = table.low, table.scores
        means = np.full(len(scores), np.nan)
        means[table.alive] = row_means(scores[table.alive])
    if not (position[np.isfinite(position)] > 0).all():
        return np.nan, np.nan, np.nan
    used = np.isfinite(position) & np.isfinite(means)
    x, y, scores = np.log2(position[used]), means[used], scores[used]
    if len(y) < 2 or np.ptp(x) < 1.0 - 1e-9:
        return np.nan, np.nan, np.nan
    centred = x - x.mean()
    weights = centred / np.square(centred).sum()
    value = float(weights @ y)
    if table.sampled:
        freedom = len(y) - 2.0
        leverage = 1.0 / len(y) + weights * centred
        residuals = y - y.mean() - value * centred
        variance = float(np.square(weights * residuals / np.maximum(1.0 - leverage, 1e-9)).sum())
        parts = [(variance, freedom)]
    else:
        of_rows = np.zeros(len(used))
        of_rows[used] = weights
        of_levels = table.weights
        parts = of_levels.parts(sweep, of_rows) if of_levels else sweep.noise.parts(of_rows)
    if not parts or min(freedom for _, freedom in parts) < 1:
        return value, np.nan, np.nan
    half = square_and_add(parts)
    if images := sweep.images if table.sampled else table.images:
        half = float(np.hypot(half, images.half_width(images.rows(used).variance(weights))))
    return value, value - half, value + half


def _average(scores: Array, weights: sparse.csr_array) -> Array:
    """(num, columns) averages over the configurations (n, S) by weights (num, n); NaN for none.

    Of a complete table a column is a seed. Else it is made of one score of each configuration
    (`score_table.drop_nan_columns`): the columns of a level vary about its mean, sum_i w_i m_i, as
    much as the scores say of that mean,  s_w^2 sum_i w_i^2 / S_i.
    """
    table = drop_nan_columns(scores)
    present = np.isfinite(table)
    counts, means = present.sum(axis=1), row_means(table)
    off = weights @ np.where(present, table - means[:, None], 0.0)
    squares = weights.power(2)
    columns = (weights.astype(bool).astype(np.int64).multiply(counts[None])).max(axis=1).toarray()
    columns = np.asarray(columns).ravel().astype(np.int64)
    spare = squares @ (counts - 1.0)
    columns[spare <= 0] = np.minimum(columns[spare <= 0], 1)
    parts = squares @ (1.0 / counts)
    scale = np.sqrt((columns - 1) * columns * parts / np.where(spare > 0, spare, 1.0))
    averages = (weights @ means)[:, None] + scale[:, None] * off
    return np.where(np.arange(table.shape[1]) < columns[:, None], averages, np.nan)
