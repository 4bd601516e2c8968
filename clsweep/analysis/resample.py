"""Spread statistics of a (configurations x seeds) table of scores, and their bootstrap intervals.

Shape legend: n = configurations, S = seeds, B = resamples. `values` is (..., n, S), larger is better, NaN = no score,
and every configuration has at least one score. Everything is in the units of the scores (percent points).

The model is x_is = theta_i + e_is with one noise variance s^2. Seeds are taken as noise that is independent between
configurations: a shift that one seed gives to *all* configurations leaves SD unchanged but counts as noise, so SD*
is then too small by at most s_shift^2 / S in variance.
"""

import numpy as np
from numpy.typing import NDArray
from scipy import stats

Array = NDArray[np.float64]


def row_means(values: Array) -> Array:
    """Mean over the seeds present: m_i = sum_s x_is / S_i. (..., n, S) -> (..., n)."""
    return np.asarray(np.nansum(values, axis=-1) / np.isfinite(values).sum(axis=-1))


def noise_variance(values: Array) -> Array:
    """Pooled within-configuration variance: s_w^2 = sum_is (x_is - m_i)^2 / sum_i (S_i - 1). NaN without a repeat."""
    present = np.isfinite(values)
    residuals = np.where(present, values - row_means(values)[..., None], 0.0)
    freedom = (present.sum(axis=-1) - 1).sum(axis=-1)
    total = np.square(residuals).sum(axis=(-2, -1))
    return np.where(freedom > 0, total / np.maximum(freedom, 1), np.nan)


def mean_seeds(values: Array) -> Array:
    """Harmonic mean of seeds per configuration: S = n / sum_i (1 / S_i), so that mean_i Var(m_i) = s_w^2 / S."""
    return np.asarray(1.0 / np.mean(1.0 / np.isfinite(values).sum(axis=-1), axis=-1))


def tail_level(values: Array, num: int) -> Array:
    """Level of the `num` worst configurations, cross-fitted over seeds.

    tail_level = mean_s mean_{i in W(s)} x_is,  W(s) = the `num` configurations with the lowest mean without seed s.

    Picking and scoring on the same noise exaggerates an extreme; a left-out seed took no part in the picking. Only
    configurations with a score at s and another one elsewhere compete at s. The result is kept between the plain value
    (mean of the `num` lowest m_i), which is too extreme, and the mean of all m_i. Without any repeat: the plain value.
    """
    present = np.isfinite(values)
    filled = np.where(present, values, 0.0)
    others = present.sum(axis=-1, keepdims=True) - 1
    without = (filled.sum(axis=-1, keepdims=True) - filled) / np.maximum(others, 1)
    competes = present & (others > 0)
    picked = np.argpartition(np.where(competes, without, np.inf), num - 1, axis=-2)[..., :num, :]
    counted = np.take_along_axis(competes, picked, axis=-2)
    folds = counted.any(axis=-2)
    scores = np.where(counted, np.take_along_axis(filled, picked, axis=-2), 0.0).sum(axis=-2)
    scores /= np.maximum(counted.sum(axis=-2), 1)
    crossed = scores.sum(axis=-1) / np.maximum(folds.sum(axis=-1), 1)
    plain = np.partition(row_means(values), num - 1, axis=-1)[..., :num].mean(axis=-1)
    clipped = np.clip(crossed, plain, row_means(values).mean(axis=-1))
    return np.asarray(np.where(folds.any(axis=-1), clipped, plain))


def best_level(values: Array) -> Array:
    """Cross-fitted level of the best configuration: mean_s x_{i(s),s}, i(s) = argmax_i of the mean without seed s."""
    return np.asarray(-tail_level(-values, 1))


def statistics(values: Array, *, within: float, num_lost: int = 0, chance: float | None = None) -> dict[str, Array]:
    """The four interval-carrying statistics over the last two axes of `values`; leading axes are kept.

    sd       = sqrt( sum_i (m_i - mean)^2 / (n - 1) );                          NaN for one configuration
    sd_star  = sqrt( max(0, sd^2 - s_w^2 / S) ), S = harmonic mean of seeds;    NaN without a repeat
    share    = #{i: m_i >= best_level - within} / (n + num_lost)
    worst_10 = tail_level of max(1, N // 10) configurations, N = n, or n + num_lost with the lost ones at `chance`

    num_lost: configurations that failed on every seed. They are never within, and join worst_10 only through `chance`.
    """
    means = row_means(values)
    num = means.shape[-1]
    sd = means.std(axis=-1, ddof=1) if num > 1 else np.full(means.shape[:-1], np.nan)
    noise = noise_variance(values) / mean_seeds(values)
    near = means >= best_level(values)[..., None] - within - 1e-9  # a point exactly `within` away is within
    if chance is not None and num_lost:
        lost = np.full((*values.shape[:-2], num_lost, values.shape[-1]), chance)
        values = np.concatenate([values, lost], axis=-2)
    return {
        "sd": sd,
        "sd_star": np.sqrt(np.maximum(0.0, np.square(sd) - noise)),
        "share": near.sum(axis=-1) / (num + num_lost),
        "worst_10": tail_level(values, max(1, values.shape[-2] // 10)),
    }


def resample(values: Array, *, num_resamples: int, population: bool, rng: np.random.Generator) -> Array:
    """Bootstrap tables (B, n, S) of a table (n, S) that has at least one repeat.

    x*_is = centre_i + g r / sqrt(1 - 1 / S_j),  r = x_jt - m_j drawn with replacement, g^2 = df / chi2(df)

    The observed means already hold noise of variance s_w^2 / S; adding resampled noise to them would count it twice.
    So the centres are the means shrunk to  mean + (sd_star / sd) (m_i - mean),  whose spread is SD*. g, one a resample,
    carries the uncertainty of the noise level itself (df = sum_i (S_i - 1)), as t does against z.
    population=False: the configurations are the space (a grid) and stay fixed. population=True: they are a sample of it
    and are drawn with replacement too (with their pattern of missing seeds), inflated by sqrt(n / (n - 1)).
    """
    present = np.isfinite(values)
    counts = present.sum(axis=-1)
    means = row_means(values)
    num = len(values)
    pool = (values - means[:, None]) / np.sqrt(1.0 - 1.0 / np.maximum(counts, 2))[:, None]
    pool = pool[present & (counts > 1)[:, None]]
    freedom = int((counts - 1).sum())
    point = statistics(values, within=0.0)
    shrink = float(point["sd_star"] / point["sd"]) if num > 1 and point["sd"] > 0 else 0.0
    centred = shrink * (means - means.mean())
    if population:
        drawn = rng.integers(0, num, (num_resamples, num))
        centred, keep = centred[drawn] * np.sqrt(num / max(num - 1, 1)), present[drawn]
    else:
        keep = np.broadcast_to(present, (num_resamples, *present.shape))
    scale = np.sqrt(freedom / rng.chisquare(freedom, (num_resamples, 1, 1)))
    noise = pool[rng.integers(0, pool.size, keep.shape)] * scale
    return np.where(keep, means.mean() + centred[..., None] + noise, np.nan)


def intervals(
    values: Array,
    *,
    within: float,
    num_lost: int,
    chance: float | None,
    confidence: float,
    num_resamples: int,
    population: bool,
    seed: int,
) -> dict[str, tuple[float, float]]:
    """Percentile intervals of `statistics` over `resample`; empty when no configuration has two scores.

    population=True widens the percentiles for the number of configurations (Hesterberg 2015, expanded percentile):
    alpha'/2 = Phi( sqrt(n / (n - 1)) t_{alpha/2, n-1} ).
    """
    num = len(values)
    if np.isfinite(values).sum(axis=-1).max() < 2:
        return {}
    tables = resample(values, num_resamples=num_resamples, population=population, rng=np.random.default_rng(seed))
    tail = (1.0 - confidence) / 2.0
    if population and num > 1:
        tail = float(stats.norm.cdf(np.sqrt(num / (num - 1)) * stats.t.ppf(tail, num - 1)))
    drawn = statistics(tables, within=within, num_lost=num_lost, chance=chance)
    return {name: (float(np.quantile(x, tail)), float(np.quantile(x, 1.0 - tail))) for name, x in drawn.items()}
