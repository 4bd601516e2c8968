"""Seeds as blocks: how far each seed shifts the scores of all configurations alike.

Shape legend: n = configurations, S = seeds, S_i = scores of one configuration.

By the order of the data or the split a seed may move all configurations. That cancels in what
compares configurations, and stays in the levels: a mean over hundreds of configurations is no surer
than a few seeds. No test decides whether seeds shift. They are the blocks of every design, as in a
randomised complete block design (Montgomery 2017, Design and Analysis of Experiments, chapter 4).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from clsweep.analysis.array_types import Array
from clsweep.analysis.score_table import drop_nan_columns

MOST_SEEDS = 500  # so many hardly shift a level


@dataclass(frozen=True, eq=False)
class SeedBlocks:
    """b_s of x_is = m_i + b_s + e_is by least squares, of a table that may have gaps (Searle 1971,
    Linear Models, section 7.1).

    Attributes:
        effects: (S,) b_s, of sum zero; 0 of a seed that is no block.
        mean_square, freedom: of b beside m;  E mean_square = s_e^2 + rows s_b^2.
        rows: n of a complete table.
        num_seeds: that are blocks.
        inverse: (S, S) covariance of the effects over s_e^2.
    """

    effects: Array
    mean_square: float
    freedom: float
    rows: float
    num_seeds: int
    inverse: Array

    @property
    def has(self) -> NDArray[np.bool_]:
        """(S,) seeds that are blocks."""
        return np.asarray(np.diag(self.inverse) > 0)

    @property
    def of_mean(self) -> float:
        """Variance of a level that all rows share alike, by the seeds: mean_square / (rows S)."""
        return self.mean_square / (self.rows * self.num_seeds)

    def without(self, table: Array) -> Array:
        """The table less the effects, its residuals enlarged to the noise that is left: the effects
        take their degrees of freedom of sum_i (S_i - 1), so that (n - 1) (S - 1) are left.
        """
        even = table - self.effects
        counts = np.maximum(np.isfinite(even).sum(axis=1, keepdims=True), 1)
        means = np.nansum(even, axis=1, keepdims=True) / counts
        every = float((counts - 1).sum())
        left = every - self.freedom
        return np.asarray(means + (even - means) * np.sqrt(every / left if left > 0 else 1.0))


def seed_blocks(table: Array) -> SeedBlocks | None:
    """The blocks of a table (n, S) of seeds, NaN = no score; None where no seed can be told from
    the noise.

    Seeds that one row of several has are no blocks, nor are those that fewer than half have, where
    two others are: what they add to a mean is noise.
    """
    known = np.isfinite(table)
    num_rows = known.sum(axis=0)
    is_shared = num_rows >= min(2, len(table))
    is_usual = is_shared & (num_rows >= len(table) / 2)
    known &= is_usual if is_usual.sum() > 1 else is_shared
    known &= known.sum(axis=1, keepdims=True) > 1  # others say nothing of b
    is_block, has_two = known.any(axis=0), known.any(axis=1)
    if not 1 < is_block.sum() <= MOST_SEEDS:
        return None
    present = known[has_two][:, is_block]
    values = np.where(present, table[has_two][:, is_block], 0.0)
    counts = present.sum(axis=1)
    left = np.where(present, values - (values.sum(axis=1) / counts)[:, None], 0.0)
    design = np.diag(present.sum(axis=0)) - (present / counts[:, None]).T @ present
    inverse, sums = np.linalg.pinv(design, hermitian=True), left.sum(axis=0)
    freedom = float(np.round(np.trace(inverse @ design)))
    if freedom < 1:
        return None
    effects, whole = np.zeros(table.shape[1]), np.zeros((table.shape[1],) * 2)
    effects[is_block] = inverse @ sums
    whole[np.ix_(is_block, is_block)] = inverse
    rows, num_seeds = float(np.trace(design)) / freedom, int(is_block.sum())
    mean_square = max(0.0, float(sums @ effects[is_block]) / freedom)
    return SeedBlocks(effects, mean_square, freedom, rows, num_seeds, whole)


def num_unconnected(table: Array) -> int:
    """Parts of a table (n, S), NaN = no score, that share no seed. Only rows that have two seeds in
    common with others count: single seeds, and those of one row, are as if drawn.

    How far the seeds of parts are apart cannot be told from what sets their rows apart (connected
    data: Searle 1971, Linear Models, section 7.4).
    """
    known = np.isfinite(table)
    known = known[:, known.sum(axis=0) > 1]
    known = known[known.sum(axis=1) > 1]
    number, left = 0, known.any(axis=0)
    while left.any():
        part = np.arange(len(left)) == left.argmax()
        while (wider := known[known[:, part].any(axis=1)].any(axis=0)).sum() > part.sum():
            part = wider
        number, left = number + 1, left & ~part
    return number


def without_seeds(table: Array, silent: NDArray[np.bool_] | None = None) -> Array:
    """The table (n, S) without what each seed gives to all rows but the silent ones (n,)."""
    moves = np.ones(len(table), dtype=bool) if silent is None else ~silent
    blocks = seed_blocks(table[moves]) if moves.sum() > 1 else None
    if not blocks:
        return table
    still = table.copy()
    still[moves] = blocks.without(table[moves])
    return still


def adjusted_for_seeds(table: Array) -> Array:
    """The table (n, S) of seeds; where it has gaps, less the seeds' effects, so that the mean of a
    row is its least-squares mean: one that lacks the best seed is none the worse for it.
    """
    if len(table) < 2 or np.isfinite(table).all() or not (blocks := seed_blocks(table)):
        return table
    return np.asarray(table - blocks.effects)


def without_gaps(table: Array) -> Array:
    """The table (n, S) by `adjusted_for_seeds`, its gaps closed by `drop_nan_columns`."""
    return drop_nan_columns(adjusted_for_seeds(table))
