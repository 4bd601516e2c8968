"""Levels of the best and of the worst configurations, picked on other scores than they are scored
on.

Shape legend: n = configurations, S = seeds. `values` is (..., n, S), larger is better, NaN = no
score.

"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clsweep.analysis.array_types import Array
from clsweep.analysis.score_table import EPSILON, is_complete, rounding, row_means

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
