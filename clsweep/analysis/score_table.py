"""Levels of (configurations x seeds) tables of scores: means, noise, what each seed adds to all
alike, and the best and the worst, picked on other scores than they are scored on.

Shape legend: n = configurations, S = seeds, S_i = scores of one configuration. `values` is (..., n,
S), larger is better, NaN = no score, and every configuration has at least one score.

Seeds are blocks: by the order of the data or the split a seed may move all configurations. That
cancels in what compares configurations, and stays in the levels: a mean over hundreds of
configurations is no surer than a few seeds. No test decides whether seeds shift. They are the
blocks of every design, as in a randomised complete block design (Montgomery 2017, Design and
Analysis of Experiments, chapter 4).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clsweep.analysis.array_types import Array

EPSILON = 1e-13  # of the largest score: what rounding may make of equal ones


def rounding(scores: Array) -> Array:
    """By how much equal levels may differ, over the last axis (..., n) -> (...): a configuration
    exactly `within` away is within, on any scale of the scores.
    """
    return np.asarray(EPSILON * np.nanmax(np.abs(scores), axis=-1))


def is_complete(values: Array) -> bool:
    """True where no score is missing."""
    return bool(np.isfinite(values.sum()))


def row_means(values: Array) -> Array:
    """Mean over the seeds present: m_i = sum_s x_is / S_i. (..., n, S) -> (..., n)."""
    if is_complete(values):
        return np.asarray(values.sum(axis=-1) / values.shape[-1])
    return np.asarray(np.nansum(values, axis=-1) / np.isfinite(values).sum(axis=-1))


def noise_variance(values: Array) -> Array:
    """Pooled within-configuration variance: s_w^2 = sum_is (x_is - m_i)^2 / sum_i (S_i - 1). NaN
    without a repeat.
    """
    counts = np.isfinite(values).sum(axis=-1)
    freedom = (counts - 1).sum(axis=-1)
    squares = np.square(values - row_means(values)[..., None])
    total = squares.sum(axis=(-2, -1)) if is_complete(values) else np.nansum(squares, axis=(-2, -1))
    return np.where(freedom > 0, total / np.maximum(freedom, 1), np.nan)


def mean_seeds(values: Array) -> Array:
    """Harmonic mean of seeds per configuration: S = n / sum_i (1 / S_i), so that mean_i Var(m_i) =
    s_w^2 / S.
    """
    return np.asarray(1.0 / np.mean(1.0 / np.isfinite(values).sum(axis=-1), axis=-1))


def drop_nan_columns(values: Array) -> Array:
    """A table (n, S) with gaps as (n, max S_i): each row's scores come first, and a column means
    nothing.

    Seeds are noise, so which of them a configuration has does not matter. The scores of a row stand
    in an order that looks random but depends on its rank alone: neither the names nor the order of
    seeds and configurations move a result. A table of complete and empty rows stays as it is.
    """
    present = np.isfinite(values)
    if (present.all(axis=-1) | ~present.any(axis=-1)).all():
        return values
    counts = present.sum(axis=-1)
    ordered = np.sort(values, axis=-1)[:, : counts.max()]  # NaN last
    level = np.where(present, values, 0.0).sum(axis=-1) / np.maximum(counts, 1)
    ranks = np.random.default_rng(0).random(ordered.shape)[level.argsort().argsort()]
    ranks[np.arange(ordered.shape[1]) >= counts[:, None]] = 2.0
    return np.asarray(np.take_along_axis(ordered, ranks.argsort(axis=-1), axis=-1))


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


# Where scores are missing: parts that the scores of a row are left out in, and rounds of it.
MOST_BLOCKS, MOST_FOLDS, FOLD_CELLS = 30, 60, 20_000
FOLDED = 40_000  # cells of the folds that are looked at together
TINY = np.finfo(np.float64).tiny


def tail_level(
    values: Array, num: int, *, parts: Array | None = None, clipped: bool = True
) -> Array:
    """Level of the `num` worst configurations, cross-fitted over seeds, and over `parts` of the
    images where they are known (`cross_fit_folds`).

    tail_level = mean_s mean_{i in W(s)} x_is,  W(s) = the `num` configurations with the lowest mean
    without seed s.

    Picking and scoring on the same noise exaggerates an extreme; a left-out seed took no part in
    the picking. A table with missing scores is that of `drop_nan_columns`. Without any repeat: the
    mean of the `num` lowest m_i.

    clipped: keep it between the plain value, which is too extreme, and the mean of all m_i.
    """
    means = row_means(values)
    if num == 1:
        plain = means.min(axis=-1)
    else:
        plain = np.partition(means, num - 1, axis=-1)[..., :num].mean(axis=-1)
    if values.shape[-1] == 1:
        return np.asarray(plain)
    if num == 1 and values.ndim == 2:
        level = _level_of_lowest(values, parts)
    elif is_complete(values) and parts is None:
        picked = _lowest(values.sum(axis=-1)[..., None] - values, num)
        level = np.take_along_axis(values, picked, axis=-2).mean(axis=(-2, -1))
    else:
        levels = []
        for looks, scores in cross_fit_folds(values, parts):
            picked = _lowest(looks[..., None], num)[..., 0]
            levels.append(np.take_along_axis(scores, picked, axis=-1).mean(axis=-1))
        level = np.concatenate(levels).mean(axis=0)
    if parts is not None:  # which add up to 0 but for rounding, where each fold picks the same
        level = np.where(np.abs(level - plain) <= rounding(means), plain, level)
    return np.asarray(np.clip(level, plain, means.mean(axis=-1)) if clipped else level)


def _level_of_lowest(values: Array, parts: Array | None) -> Array:
    """`tail_level` of one configuration of a table (n, S): of those that look alike the mean, which
    does not hang on their order. Resamples have no such ties.
    """
    levels = []
    for looks, scores in cross_fit_folds(values, parts):
        slack = EPSILON * np.abs(looks, where=np.isfinite(looks), out=np.zeros_like(looks)).max()
        lowest = looks <= looks.min(axis=-1, keepdims=True) + slack
        levels.append(np.where(lowest, scores, 0.0).sum(axis=-1) / lowest.sum(axis=-1))
    return np.asarray(np.concatenate(levels).mean())


def best_level(values: Array, parts: Array | None = None, *, clipped: bool = True) -> Array:
    """Cross-fitted level of the best configuration: mean_s x_{i(s),s}, i(s) = argmax_i of the mean
    without seed s; with `parts` of the images as `tail_level`.
    """
    turned = None if parts is None else -parts
    return np.asarray(-tail_level(-values, 1, parts=turned, clipped=clipped))


def selection_bias(values: Array, parts: Array | None) -> float:
    """By how much the level of the best is too good for new images, as these helped to pick it."""
    return float(best_level(values) - best_level(values, parts)) if parts is not None else 0.0


def worst_tenth(values: Array, parts: Array | None = None) -> Array:
    """tail_level of max(1, n // 10) configurations."""
    return tail_level(values, max(1, values.shape[-2] // 10), parts=parts)


def cross_fit_folds(values: Array, parts: Array | None = None) -> Iterator[tuple[Array, Array]]:
    """Looks of all configurations without some of their scores, and means of these: (f, ..., n)
    each, of as many folds at once as do not fill the processor's cache.

    Of a complete table (..., n, S) fold s leaves out seed s. Of a packed one with gaps, fold f
    leaves out score f mod S_i of row i; of more than 30 scores, every 30th. Means of unequal
    numbers of scores look like their shrunken level,

        mean + (m - mean) / (1 + s_w^2 / (t^2 number)),  t^2 = `variance` of `spread`,

    else the rows with the fewest would be picked for their noise. A row with one score has none to
    leave out: it looks like, and counts at, its shrunken level. Where no row has two: one fold, of
    the means. A row without a score looks worst, and counts NaN.

    parts: (n, K) by how much the mean over each part of the scored images differs. Then each fold
    leaves out one part too, for each in turn: neither its seed nor its images took part in the
    picking.
    """
    alone = parts is None or np.isfinite(values).sum(axis=-1).max() < 2
    for looks, scores, slope in _folds_of_seeds(values):
        if parts is None or alone:
            yield looks, scores
            continue
        for part in parts.T:
            yield looks - slope * part / (parts.shape[1] - 1), scores + part


def _folds_of_seeds(values: Array) -> Iterator[tuple[Array, Array, Any]]:
    """`folds` without parts, and by how much a look moves where the level does."""
    if is_complete(values) and values.shape[-1] > 1:
        total = values.sum(axis=-1)
        for s in range(values.shape[-1]):
            left_out = values[None, ..., s]
            yield (total - left_out) / (values.shape[-1] - 1), left_out, 1.0
        return
    here = np.isfinite(values)
    assert (here[..., 1:] <= here[..., :-1]).all()  # packed
    counts = here.sum(axis=-1)
    sums, sizes = _blocks(np.where(here, values, 0.0)), _blocks(here.astype(np.int64))
    total, lost, single = sums.sum(axis=-1), counts == 0, counts == 1
    means = total / np.maximum(counts, 1)
    if counts.max() < 2:
        yield np.where(lost, -np.inf, means)[None], np.where(lost, np.nan, means)[None], 1.0
        return
    alive, num = ~lost, np.maximum((~lost).sum(axis=-1), 1)
    centre = (np.where(alive, means, 0.0).sum(axis=-1) / num)[..., None]
    off = np.where(here, values - means[..., None], 0.0)
    freedom = np.maximum(np.maximum(counts - 1, 0).sum(axis=-1), 1)
    noise = np.maximum(np.square(off).sum(axis=(-2, -1)) / freedom, TINY)
    spread_of = np.where(alive, np.square(means - centre), 0.0).sum(axis=-1)
    of_means = noise * np.where(alive, 1.0 / np.maximum(counts, 1), 0.0).sum(axis=-1) / num
    true = np.maximum(spread_of / np.maximum(num - 1, 1) - of_means, 1e-6 * noise)
    ratio = (noise / true)[..., None]

    def shrunk(levels: Array, sizes: NDArray[np.int64]) -> Array:
        return np.asarray(centre + (levels - centre) / (1.0 + ratio / np.maximum(sizes, 1)))

    alone, blocks = shrunk(means, counts), np.clip(counts, 1, MOST_BLOCKS)
    # so many that each block of a row is left out as often as its others, within reason
    num_folds = math.lcm(*np.unique(blocks).tolist())
    if num_folds > MOST_FOLDS or num_folds * blocks.shape[-1] > FOLD_CELLS:
        num_folds = int(blocks.max())
    every, at_once = np.arange(num_folds), max(1, FOLDED // blocks.size)
    for fold in np.split(every, every[at_once::at_once]):
        at = fold % blocks[..., None]
        left_out, size = (
            np.moveaxis(np.take_along_axis(x, at, axis=-1), -1, 0) for x in (sums, sizes)
        )
        others = np.maximum(counts - size, 1)
        looks = np.where(single, alone, shrunk((total - left_out) / others, others))
        scores = np.where(single, alone, left_out / np.maximum(size, 1))
        slope = 1.0 / (1.0 + ratio / np.where(single, counts, others))
        yield np.where(lost, -np.inf, looks), np.where(lost, np.nan, scores), slope


def _blocks(scores: NDArray[Any]) -> NDArray[Any]:
    """(..., n, K) summed into at most `MOST_BLOCKS` columns: score j joins column j mod that."""
    num = scores.shape[-1]
    if num <= MOST_BLOCKS:
        return scores
    padded = np.pad(scores, [(0, 0)] * (scores.ndim - 1) + [(0, -num % MOST_BLOCKS)])
    return np.asarray(padded.reshape(*scores.shape[:-1], -1, MOST_BLOCKS).sum(axis=-2))


def _lowest(values: Array, num: int) -> NDArray[np.intp]:
    """Indices of the `num` lowest along the second last axis."""
    if num == 1:
        return np.asarray(values.argmin(axis=-2))[..., None, :]
    return np.asarray(np.argpartition(values, num - 1, axis=-2)[..., :num, :])


RankKey = tuple[int, float, int]  # of a configuration among others; the best has the lowest


def rank_key(config: int, scores: Iterable[float], mode: str) -> RankKey:
    """Where a configuration stands: more seeds first, then the better mean, then the one planned
    first.

    Args:
        config: its number.
        scores: the metric on the seeds that have finished, at least one, in any order.
        mode: "max" or "min" is best.
    """
    known = list(scores)
    mean = math.fsum(known) / len(known)  # the same in whatever order the seeds stand
    return -len(known), -mean if mode == "max" else mean, config
