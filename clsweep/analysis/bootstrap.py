"""Spread statistics of a (configurations x seeds) table of scores, and their bootstrap intervals.

Shape legend: n = configurations, S = seeds, B = resamples. `values` is (..., n, S), larger is
better, NaN = no score, and every configuration has at least one score. Everything is in the units
of the scores (percent points).

The model is x_is = theta_i + e_is, e_is independent. Its variance is one for all configurations,
or one for each where that is seen (`noise_of`). A shift that one seed gives to all configurations
is to be taken out before (`seed_shift`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

from clsweep.analysis import CONFIDENCE
from clsweep.analysis.noise import copies, noise_of

Array = NDArray[np.float64]

# The tolerance area reaches this many times `within` down from the best: 10 points for 1.
AREA_WIDTHS = 10.0
EPSILON = 1e-13  # of the largest score: what rounding may make of equal ones
NUM_RESAMPLES = 2000  # of a small table: 50 lie beyond each end of an interval
# What cannot be below 0, and the most that it can be.
MOST = {"sd": np.inf, "sd_star": np.inf, "regret": np.inf, "share": 1.0, "tolerance_area": 1.0}
DRAWS_SEED = 0  # of every draw: the same trials give the same numbers
_DRAWN_SCORES = 1_000_000  # scores drawn for one table; it sets the number of resamples of a large one
CHUNK_SCORES = 400_000  # scores held at once
FEWEST = 24  # resamples of the largest tables
# Where scores are missing: parts that the scores of a row are left out in, and rounds of it.
MOST_BLOCKS, MOST_FOLDS, FOLD_CELLS = 30, 60, 20_000
FOLDED = 40_000  # cells of the folds that are looked at together
TINY = np.finfo(np.float64).tiny
_FEW_RESAMPLES = 200  # resamples that are too few for percentiles: their standard deviation instead


def rounding(scores: Array) -> Array:
    """By how much equal levels may differ, over the last axis (..., n) -> (...): a configuration
    exactly `within` away is within, on any scale of the scores.
    """
    return np.asarray(EPSILON * np.nanmax(np.abs(scores), axis=-1))


def _is_complete(values: Array) -> bool:
    """Whether no score is missing."""
    return bool(np.isfinite(values.sum()))


def row_means(values: Array) -> Array:
    """Mean over the seeds present: m_i = sum_s x_is / S_i. (..., n, S) -> (..., n)."""
    if _is_complete(values):
        return np.asarray(values.sum(axis=-1) / values.shape[-1])
    return np.asarray(np.nansum(values, axis=-1) / np.isfinite(values).sum(axis=-1))


def noise_variance(values: Array) -> Array:
    """Pooled within-configuration variance: s_w^2 = sum_is (x_is - m_i)^2 / sum_i (S_i - 1). NaN
    without a repeat.
    """
    counts = np.isfinite(values).sum(axis=-1)
    freedom = (counts - 1).sum(axis=-1)
    squares = np.square(values - row_means(values)[..., None])
    total = (
        squares.sum(axis=(-2, -1)) if _is_complete(values) else np.nansum(squares, axis=(-2, -1))
    )
    return np.where(freedom > 0, total / np.maximum(freedom, 1), np.nan)


def mean_seeds(values: Array) -> Array:
    """Harmonic mean of seeds per configuration: S = n / sum_i (1 / S_i), so that mean_i Var(m_i) =
    s_w^2 / S.
    """
    return np.asarray(1.0 / np.mean(1.0 / np.isfinite(values).sum(axis=-1), axis=-1))


def tail_level(
    values: Array, num: int, *, parts: Array | None = None, clipped: bool = True
) -> Array:
    """Level of the `num` worst configurations, cross-fitted over seeds, and over `parts` of the
    images where they are known (`folds`).

    tail_level = mean_s mean_{i in W(s)} x_is,  W(s) = the `num` configurations with the lowest mean
    without seed s.

    Picking and scoring on the same noise exaggerates an extreme; a left-out seed took no part in
    the picking. Where scores are missing, each configuration leaves out one of its own (`folds`),
    and the table is to be `packed`. Without any repeat: the plain value, the
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
    if _is_complete(values) and parts is None:
        picked = _lowest(values.sum(axis=-1)[..., None] - values, num)
        level = np.take_along_axis(values, picked, axis=-2).mean(axis=(-2, -1))
    else:
        levels = []
        for looks, scores in folds(values, parts):
            picked = _lowest(looks[..., None], num)[..., 0]
            levels.append(np.take_along_axis(scores, picked, axis=-1).mean(axis=-1))
        level = np.concatenate(levels).mean(axis=0)
        if parts is not None:  # which add up to 0 but for rounding, where each fold picks the same
            level = np.where(np.abs(level - plain) <= rounding(means), plain, level)
    return np.asarray(np.clip(level, plain, means.mean(axis=-1)) if clipped else level)


def best_level(values: Array, parts: Array | None = None, *, clipped: bool = True) -> Array:
    """Cross-fitted level of the best configuration: mean_s x_{i(s),s}, i(s) = argmax_i of the mean
    without seed s; with `parts` of the images as `tail_level`.
    """
    turned = None if parts is None else -parts
    return np.asarray(-tail_level(-values, 1, parts=turned, clipped=clipped))


def luck(values: Array, parts: Array | None) -> float:
    """By how much the level of the best is too good for new images, as these helped to pick it."""
    return float(best_level(values) - best_level(values, parts)) if parts is not None else 0.0


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


def spread(values: Array) -> dict[str, Array]:
    """What needs no best configuration.

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
    """How far the configurations are from the `best` level L (...); means is (..., n).

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


def worst_tenth(values: Array, parts: Array | None = None) -> Array:
    """tail_level of max(1, n // 10) configurations."""
    return tail_level(values, max(1, values.shape[-2] // 10), parts=parts)


def statistics(values: Array, *, within: float, parts: Array | None = None) -> dict[str, Array]:
    """`spread`, `nearness` and worst_10 over the last two axes of `values`, and sd_star =
    sqrt(max(0, variance)).
    """
    found = spread(values)
    found |= nearness(row_means(values), best_level(values, parts), within=within)
    found["sd_star"] = np.sqrt(np.maximum(0.0, found["variance"]))
    return found | {"worst_10": worst_tenth(values, parts)}


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

    The observed means already hold noise of variance s_w^2 / S; adding resampled noise to them
    would count it twice. So the centres are the means shrunk to  mean + (sd_star / sd) (m_i -
    mean),  whose spread is SD*. g, one a resample, carries the uncertainty of the noise level
    itself (df = sum_i (S_i - 1)), as t does against z.

    population: whether the configurations are a sample of the space. They are then drawn with
        replacement too (with their pattern of missing seeds), inflated by sqrt(n / (n - 1)). The
        level of the best stays that of the configurations tried: drawn with replacement, the best
        one would be missing from every third resample. Those of a grid stay fixed.
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
    if len(drawn) < _FEW_RESAMPLES:
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


def intervals(
    values: Array, *, population: bool, within: float, parts: Array | None = None
) -> dict[str, tuple[float, float]]:
    """Intervals of `statistics`; empty when no configuration has two scores.

    sd, sd_star, share and worst_10 have percentile intervals; those of mean, regret, tolerance_area
    and iqm are moved onto the estimate, that of iqm less what one more draw of noise adds to it:
    the trimming of noisy means is biased at a cliff. Regret and area are resampled with the best
    level as cross-fitting gives it, unclipped: clipped at zero regret, a nearly flat response would
    leave no spread to read an interval from. In a sample of the space the tail of worst_10 rests on
    a tenth of the configurations.

    What they cover, and where it is not 95 %, is measured in STATISTICS.md. In a sample, L is the
    best of the configurations tried, not of all that could be. In a table of many thousand
    configurations the interval of worst_10 is narrower than its bias: the tenth is picked on S - 1
    noisy seeds, so it is not quite the worst (0.01 points at noise 0.3 in a range of 5).
    """
    if np.isfinite(values).sum(axis=-1).max() < 2:
        return {}
    num = len(values)

    # The tables drawn have the luck of the images still, which `parts` take out of the point.
    lucky = luck(values, parts)
    unlucky = worst_tenth(values, parts) - worst_tenth(values)

    def measure(drawn: Array, tried: Array) -> dict[str, Array]:
        means, tried_means = row_means(drawn), row_means(tried)
        free = best_level(tried, clipped=False) - lucky
        best = np.clip(free, tried_means.mean(axis=-1), tried_means.max(axis=-1))
        near = nearness(means, free, within=within, most=np.inf)
        near["share"] = nearness(means, best, within=within)["share"]
        return spread(drawn) | near | {"worst_10": worst_tenth(drawn) + unlucky}

    found = statistics(values, within=within, parts=parts)
    point = {name: float(x) for name, x in found.items()}
    free = best_level(values, parts, clipped=False)
    point["regret"] = float(nearness(row_means(values), free, within=within)["regret"])
    draws = resampled(values, measure, population=population)
    moved = {name: point[name] for name in ("mean", "regret", "tolerance_area", "iqm")}
    moved["iqm"] -= float(draws["iqm"].mean() - interquartile_mean(shrunk_means(values)))
    ends = {}
    for name, drawn in draws.items():
        rests_on = max(2, num // 10) if name == "worst_10" else num
        at, centre = point[name], moved.get(name)
        ends[name] = percentile_interval(drawn, rests_on, population=population, estimate=at, centre=centre)
    ends["iqm"] = min(ends["iqm"][0], point["iqm"]), max(ends["iqm"][1], point["iqm"])
    # Nine tenths of the images often pick another one than the worst, which lies lower.
    low, high = ends["worst_10"]
    ends["worst_10"] = low - max(0.0, float(unlucky)), high
    low, high = np.sqrt(np.maximum(0.0, ends.pop("variance")))
    return ends | limited(ends) | {"sd_star": (float(low), float(high))}


def limited(bounds: Mapping[str, tuple[float, float]]) -> dict[str, tuple[float, float]]:
    """The intervals that end at 0, and at 1 of shares."""
    ends = {name: np.clip(bounds[name], 0.0, most) for name, most in MOST.items() if name in bounds}
    return {name: (float(low), float(high)) for name, (low, high) in ends.items()}


def shrunk_means(values: Array) -> Array:
    """(n,) the means shrunk to the spread that is not noise: mean + (sd_star / sd) (m_i - mean)."""
    means = row_means(values)
    found = spread(values)
    variance, sd = float(found["variance"]), float(found["sd"])
    kept = max(0.0, variance) ** 0.5 / sd if len(values) > 1 and sd > 0 else 0.0
    return np.asarray(means.mean() + kept * (means - means.mean()))


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


def packed(values: Array) -> Array:
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


def folds(values: Array, parts: Array | None = None) -> Iterator[tuple[Array, Array]]:
    """How every configuration looks without some of its scores, and the mean of these: (f, ..., n)
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
    if _is_complete(values) and values.shape[-1] > 1:
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
