"""Spread statistics of a (configurations x seeds) table of scores, and their bootstrap intervals.

Shape legend: n = configurations, S = seeds, B = resamples. `values` is (..., n, S), larger is
better, NaN = no score, and every configuration has at least one score. Everything is in the units
of the scores (percent points).

The model is x_is = theta_i + e_is, e_is independent. Its variance is one for all configurations,
or one for each where that is seen (`noise_of`). What a seed gives to all configurations is to be
taken out before (`score_table.without_seeds`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from scipy import special

from clsweep.analysis import CONFIDENCE
from clsweep.analysis.array_types import Array
from clsweep.analysis.noise import copies, noise_of
from clsweep.analysis.score_table import row_means
from clsweep.analysis.spread import spread_of_means

NUM_RESAMPLES = 2000  # of a small table: 50 lie beyond each end of an interval
DRAWS_SEED = 0  # of every draw: the same trials give the same numbers
# scores drawn for one table; it sets the number of resamples of a large one
_DRAWN_SCORES = 1_000_000
CHUNK_SCORES = 400_000  # scores held at once
FEWEST = 24  # resamples of the largest tables
FEW_RESAMPLES = 200  # resamples that are too few for percentiles: their standard deviation instead


def num_resamples(values: Array) -> int:
    """Number of resamples of this table: of more than 500 scores fewer than `NUM_RESAMPLES`, so
    many that a million scores are drawn, and 24 at least.
    """
    return int(min(NUM_RESAMPLES, max(FEWEST, _DRAWN_SCORES // values.size)))


def resampled(
    values: Array, measure: Callable[[Array, Array], dict[str, Array]], *, population: bool
) -> dict[str, Array]:
    """`measure` of every resample: of (b, n, S) drawn tables and those of the configurations as
    tried, in the order of their means.

    x*_is = centre_i + g r / sqrt(1 - 1 / S_j),  r = x_jt - m_j drawn with replacement, g^2 = df /
    chi2(df)

    The observed means already hold noise of variance s_w^2 / S, so the centres are the means shrunk
    to the spread SD* (`shrunk_means`). g, one a resample, carries the uncertainty of the noise
    level itself (df = sum_i (S_i - 1)), as t does against z.

    population: whether the configurations are a sample of the space. They are then drawn with
        replacement too (with their pattern of missing seeds), inflated by sqrt(n / (n - 1)). The
        level of the best stays that of the configurations tried: the best one would be missing from
        every third resample.
    """
    rng = np.random.default_rng(DRAWS_SEED)
    values = values[row_means(values).argsort(kind="stable")]  # whatever their numbers are
    present, middle, num = np.isfinite(values), row_means(values).mean(), len(values)
    draw, centred = noise_tables(values, rng), shrunk_means(values) - middle
    every, step, parts = num_resamples(values), max(1, CHUNK_SCORES // values.size), []
    for start in range(0, every, step):
        noise = draw(min(step, every - start))
        noise += middle
        drawn = tried = noise + centred[:, None]
        if not present.all():
            tried[:, ~present] = np.nan
        if population:
            rows = rng.integers(0, num, (len(noise), num), dtype=np.int32)
            drawn = noise + (np.sqrt(num / max(num - 1, 1)) * centred)[rows][..., None]
            if not present.all():
                drawn[~present[rows]] = np.nan
        parts.append(measure(drawn, tried))
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def percentile_interval(
    drawn: Array, num: int, *, population: bool, estimate: float, centre: float | None = None
) -> tuple[float, float]:
    """Interval from the resamples of one statistic that rests on `num` configurations: their
    percentiles; of fewer than 200  estimate -+ t_{B-1} SD.

    population: widens the percentiles for that number (Hesterberg 2015, expanded percentile):
    alpha'/2 = Phi( sqrt(n / (n - 1)) t_{alpha/2, n-1} ). centre: the percentiles are shifted so
    that the mean of the resamples falls there: for statistics whose value on the shrunk centres is
    not their value on the table.
    """
    if len(drawn) < 2 or not np.isfinite(drawn).all():
        return np.nan, np.nan
    tail = (1.0 - CONFIDENCE) / 2.0
    if len(drawn) < FEW_RESAMPLES:
        half = float(special.stdtrit(len(drawn) - 1, 1.0 - tail) * drawn.std(ddof=1))
        middle = estimate if centre is None else centre
        return middle - half, middle + half
    if population and num > 1:
        tail = float(special.ndtr(np.sqrt(num / (num - 1)) * special.stdtrit(num - 1, tail)))
    low, high = np.quantile(drawn, [tail, 1.0 - tail])
    shift = 0.0 if centre is None else centre - drawn.mean()
    return float(low + shift), float(high + shift)


def tail_p(low_draws: Array, high_draws: Array) -> tuple[float, float]:
    """Two-sided p-value of resamples: 2 (1 + the smaller count beyond 0) / (B + 1), and the
    smallest it could be.

    A draw that could be anything is given as a low and a high one, so that it counts against both
    directions.
    """
    num = len(low_draws)
    beyond = min(int((low_draws <= 0).sum()), int((high_draws >= 0).sum()))
    return min(1.0, 2.0 * (1 + beyond) / (num + 1)), 2.0 / (num + 1)


def shrunk_means(values: Array) -> Array:
    """(n,) the means shrunk to the spread that is not noise: mean + (sd_star / sd) (m_i - mean)."""
    means = row_means(values)
    spread = spread_of_means(values)
    variance, sd = float(spread["variance"]), float(spread["sd"])
    share = max(0.0, variance) ** 0.5 / sd if len(values) > 1 and sd > 0 else 0.0
    return np.asarray(means.mean() + share * (means - means.mean()))


def noise_tables(values: Array, rng: np.random.Generator) -> Callable[[int], Array]:
    """Draws `size` tables (size, n, S) of the noise of the scores; copies of a row share theirs."""
    codes = copies(np.sort(values, axis=1))
    first, groups = np.unique(codes, return_index=True, return_inverse=True)[1:]
    noise = noise_of(values[first])
    pool = np.sort(noise.residuals)  # in any order of the table
    if size := float(np.sqrt(np.square(pool).mean())):
        pool = pool / size  # of mean square 1

    def draw(num: int) -> Array:
        # The longer axis is the last in memory, which numpy sums and searches several times faster.
        shape = (num, *sorted((len(first), values.shape[1])))
        drawn: Array = pool[rng.integers(0, pool.size, shape, dtype=np.int32)]
        if len(first) >= values.shape[1]:
            drawn = drawn.swapaxes(-1, -2)
        drawn *= noise.draw(num, rng)[..., None]
        return drawn[:, groups] if len(first) < len(values) else drawn

    return draw


def redrawn_tables(table: Array, rng: np.random.Generator) -> Callable[[int], Array]:
    """Draws `size` tables (size, n, S) of shrunken means and new noise: the means hold noise
    already. What has no score in (n, S) keeps none.
    """
    alive = np.isfinite(table).any(axis=1)
    middle, noise = shrunk_means(table[alive])[:, None], noise_tables(table[alive], rng)

    def draw(num: int) -> Array:
        drawn = np.full((num, *table.shape), np.nan)
        drawn[:, alive] = middle + noise(num)
        drawn[:, ~np.isfinite(table)] = np.nan
        return drawn

    return draw


def in_resample_order(values: Array) -> Array:
    """In the memory order of the resamples, which is faster."""
    return np.asarray(values, order="C" if len(values) < values.shape[1] else "F")


def noisy_tables(
    table: Array, rng: np.random.Generator | None = None, *, redraw: bool = False
) -> Iterator[Array]:
    """Resampled tables, in chunks of (B, n, S), of a packed one (n, S).

    The configurations as they are, under new noise (`redrawn_tables`). redraw:
    configurations drawn again with the scores they have instead: rows are independent, and hold
    effect and noise alike.
    """
    rng = rng or np.random.default_rng(DRAWS_SEED)
    draw, num, left = (redrawn_tables(table, rng), len(table), num_resamples(table))
    for start in range(0, left, step := max(1, CHUNK_SCORES // table.size)):
        size = min(step, left - start)
        yield table[rng.integers(0, num, (size, num))] if redraw else draw(size)
