"""P-values of several tests at once."""

from __future__ import annotations

import numpy as np

from clsweep.analysis.array_types import Array


def holm(p: Array) -> Array:
    """Holm's step-down adjustment of (m,) p-values: the i-th smallest becomes max_{j <= i} min(1,
    (m - j + 1) p_(j)).

    The chance that any of the true null hypotheses has an adjusted p-value <= alpha is at most
    alpha, however the tests depend on each other. NaN stays NaN and counts in no m. Holm 1979,
    Scandinavian Journal of Statistics 6.
    """
    adjusted = np.full(len(p), np.nan)
    known = np.flatnonzero(np.isfinite(p))
    order = known[np.argsort(p[known], kind="stable")]
    steps = np.minimum(1.0, p[order] * np.arange(len(order), 0, -1))
    adjusted[order] = np.maximum.accumulate(steps)
    return adjusted


def holm_steps(p: Array, alpha: float) -> Array:
    """(m,) how many of the p-values were left at the step that decided on each: m - j + 1 of the
    j-th smallest, and from the first that is not rejected on as many as were left there.

    An interval of level 1 - alpha / steps leaves out the null value where Holm rejects it. NaN
    stays NaN.
    """
    steps = np.full(len(p), np.nan)
    known = np.flatnonzero(np.isfinite(p))
    order = known[np.argsort(p[known], kind="stable")]
    left = np.arange(len(order), 0.0, -1)
    stops = np.flatnonzero(p[order] * left > alpha)
    steps[order] = np.maximum(left, left[stops[0]]) if len(stops) else left
    return steps
