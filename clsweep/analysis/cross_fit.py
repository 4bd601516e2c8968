"""Averages of what is picked on some seeds and measured on others, with their intervals.

Shape legend: K = tables of the same trials, such as two epochs, n = configurations, S = seeds, m =
statistics, B = resamples.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy import special

from clsweep.analysis import CONFIDENCE, bootstrap
from clsweep.analysis.array_types import Array
from clsweep.analysis.score_table import adjusted_for_seeds, cross_fit_folds, without_seeds

# Looks (..., K, n) of all configurations without a seed, and their scores (..., K, n) at it -> (m).
Measure = Callable[[Array, Array], Array]


def cross_fitted(tables: Array, measure: Measure) -> tuple[Array, Array]:
    """Estimates (m,) of a measure and half widths (m,) of their 95 % intervals, of (K, n, S).

    A trial has a score in all tables or in none (NaN), and every configuration has one. The
    estimate is the mean over the folds of `cross_fit_folds`: of picks by one seed less than there
    are. The half width is NaN without a repeat, else the larger one of two: t over the folds, and
    the 95 % quantile of the distance of `_resamples` from their mean, which pick otherwise also
    where all folds agree.
    """
    values = _folds(_packed(np.stack([adjusted_for_seeds(table) for table in tables])), measure)
    still = _packed(np.stack([without_seeds(table) for table in tables]))
    estimate, num = values.mean(axis=0), still.shape[-1]
    if num < 2:
        return estimate, np.full(estimate.shape, np.nan)
    drawn = _resamples(still, measure)
    apart = np.quantile(np.abs(drawn - drawn.mean(axis=0)), CONFIDENCE, axis=0)
    quantile = special.stdtrit(num - 1, (1 + CONFIDENCE) / 2)
    return estimate, np.fmax(quantile * values.std(axis=0, ddof=1) / np.sqrt(num), apart)


def _folds(tables: Array, measure: Measure) -> Array:
    """(F, ..., m), the measure of every fold of (..., K, n, S)."""
    return np.concatenate([measure(*fold) for fold in cross_fit_folds(tables)])


def _packed(tables: Array) -> Array:
    """(K, n, S) with the scores of each row first, where there are gaps."""
    present = np.isfinite(tables[0])
    order = (~present).argsort(axis=1, kind="stable")[None]
    return np.asarray(np.take_along_axis(tables, order, axis=-1)[..., : present.sum(axis=1).max()])


def _resamples(tables: Array, measure: Measure) -> Array:
    """(B, m) fold means of drawn tables: levels about the shrunken means, as far as noise leaves
    them open, and new scores about these, those of a trial in all tables together.
    """
    rng, present = np.random.default_rng(bootstrap.DRAWS_SEED), np.isfinite(tables[0])
    counts, size = present.sum(axis=1), bootstrap.num_resamples(tables)
    means = np.nansum(tables, axis=2) / counts
    centres = np.stack([bootstrap.shrunk_means(table) for table in tables])
    shrunk = np.ptp(centres, axis=1) / np.maximum(np.ptp(means, axis=1), np.finfo(float).tiny)
    left = (tables - means[..., None]) * np.sqrt(counts / np.maximum(counts - 1, 1))[:, None]
    pool, freedom = left[:, present & (counts > 1)[:, None]], (counts - 1).sum()
    noise = pool[:, rng.integers(0, pool.shape[1], (size, *present.shape))]
    unsure = pool[:, rng.integers(0, pool.shape[1], (size, len(counts)))] / np.sqrt(counts)
    noise += (unsure * np.sqrt(shrunk)[:, None, None])[..., None]
    noise *= np.sqrt(freedom / rng.chisquare(freedom, size))[:, None, None]
    drawn = np.where(present, centres[:, None, :, None] + noise, np.nan).swapaxes(0, 1)
    return np.asarray(_folds(drawn, measure).mean(axis=0))
