"""Means and noise of (configurations x seeds) tables of scores.

Shape legend: n = configurations, S = seeds. `values` is (..., n, S), NaN = no score, and every
configuration has at least one score.
"""

from __future__ import annotations

import numpy as np

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
