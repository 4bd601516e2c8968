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
