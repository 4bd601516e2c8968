"""Spread statistics of a (configurations x seeds) table of scores: SD, SD*, regret, the share near
the best. Their intervals are in `spread_intervals`.

"""

from __future__ import annotations

import numpy as np

from clsweep.analysis.array_types import Array
from clsweep.analysis.score_table import (
    best_level,
    mean_seeds,
    noise_variance,
    rounding,
    row_means,
    worst_tenth,
)

# The tolerance area reaches this many times `within` down from the best: 10 points for 1.
AREA_WIDTHS = 10.0


def interquartile_mean(means: Array) -> Array:
    """Mean of the middle half, (..., n) -> (...): n / 4 values are cut on each side, the last of
    them by its part.

    sum_i w_i x_(i) / (n / 2),  w_i = min(1, max(0, min(i, n + 1 - i) - n / 4)),  x_(i) the i-th
    smallest. scipy.stats.trim_mean(x, 0.25) where 4 divides n. (Agarwal et al. 2021,
    arXiv:2108.13264.)
    """
    num = means.shape[-1]
    place = np.arange(1, num + 1)
    weights = np.clip(np.minimum(place, num + 1 - place) - num / 4, 0.0, 1.0)
    return np.asarray((np.sort(means, axis=-1) * weights).sum(axis=-1) / weights.sum())


def spread_of_means(values: Array) -> dict[str, Array]:
    """Spread statistics that need no best configuration.

    mean     = mean_i m_i
    sd       = sqrt( sum_i (m_i - mean)^2 / (n - 1) ); NaN for one configuration
    variance = sd^2 - s_w^2 / S, S = harmonic mean of seeds; NaN without a repeat, below 0 by chance
    iqm      = interquartile_mean(m)
    """
    means = row_means(values)
    sd = means.std(axis=-1, ddof=1) if means.shape[-1] > 1 else np.full(means.shape[:-1], np.nan)
    return {
        "mean": means.mean(axis=-1),
        "sd": sd,
        "variance": np.square(sd) - noise_variance(values) / mean_seeds(values),
        "iqm": interquartile_mean(means),
    }


def nearness(means: Array, best: Array, *, within: float, most: float = 1.0) -> dict[str, Array]:
    """Nearness of the configurations to the `best` level L (...); means is (..., n).

    regret         = mean_i (L - m_i)
    share          = #{i: m_i >= L - within} / n
    tolerance_area = 1/D int_0^D T(delta) d delta = mean_i min(1, max(0, 1 - (L - m_i) / D)),
                     D = 10 within, T(delta) = the share for within = delta.
                     The share itself where within = 0

    most: what one configuration may add to the area. Without a limit, noise above L makes up for
    the noise below it.
    """
    below, slack = best[..., None] - means, rounding(means)[..., None]
    near = below <= within + slack
    reached = np.clip(1.0 - below / (AREA_WIDTHS * within), 0.0, most) if within else near
    return {
        "regret": best - means.mean(axis=-1),
        "share": near.mean(axis=-1),
        "tolerance_area": reached.mean(axis=-1),
    }


def spread_statistics(
    values: Array, *, within: float, parts: Array | None = None
) -> dict[str, Array]:
    """`spread`, `nearness` and worst_10 over the last two axes of `values`, and sd_star =
    sqrt(max(0, variance)).
    """
    values_of = spread_of_means(values)
    values_of |= nearness(row_means(values), best_level(values, parts), within=within)
    values_of["sd_star"] = np.sqrt(np.maximum(0.0, values_of["variance"]))
    return values_of | {"worst_10": worst_tenth(values, parts)}
