"""Gain by tuning: the expected score of the best of k random tries, over the default setting."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import special

from clsweep.analysis import CONFIDENCE, TAIL
from clsweep.analysis.array_types import Array
from clsweep.analysis.bootstrap import FEW_RESAMPLES, noisy_tables
from clsweep.analysis.image_intervals import image_parts
from clsweep.analysis.noise import half_width
from clsweep.analysis.reasons import Note, Reason, note, noted, with_notes
from clsweep.analysis.response import Response
from clsweep.analysis.robustness import including, statistic_intervals
from clsweep.analysis.score_table import (
    EPSILON,
    best_level,
    cross_fit_folds,
    drop_nan_columns,
    rounding,
    row_means,
    without_gaps,
    without_seeds,
)
from clsweep.analysis.sweep import Sweep
from clsweep.display.numbers import setting

BEST_OF_K_COLUMNS = with_notes("objective k expected low high")
COST_COLUMNS = with_notes(
    "objective best_level k_within k_low k_high default_at default tunability tunability_low "
    "tunability_high"
)
EVERY_K = 16  # up to here each k is listed, then steps of 12 %
NEAR = 0.05  # of an axis: how far from the default a sampled configuration may be
ONE_SEED = (note(Reason.ONE_SEED), note(Reason.PICKED))


def expected_best_of_k(sweeps: Sequence[Sweep]) -> pd.DataFrame:
    """Expected score of the configuration that looks best among k tried at random; the columns of
    `BEST_OF_K_COLUMNS`.

    The order statistics of a sample without replacement (Dodge et al. 2019, Show Your Work) score
    the pick on the noise that made it the pick, and so rise with k even where all are equally good.
    Here the tries are ranked by their mean over the other seeds, and scored at the seed left out,
    for each seed in turn, and so over parts of the images. Ties share their scores. Where noise has
    the curve fall, isotonic regression levels it. A configuration without a score at that seed is
    ranked but does not count there. One seed: the plain estimator, which the note calls optimistic.

    k is 1, 2, ... n on a roughly logarithmic list. Intervals: a grid is the whole space, and new
    noise is drawn; of any other design configurations are drawn again (`noisy_tables`), and k above
    n / 2 has none. Samples that do not cover the space evenly have one row without k, and the note.
    """
    rows: list[dict[str, Any]] = []
    for sweep in sweeps:
        if why := sweep.nothing:
            rows.append({"objective": sweep.objective, **noted(why=why)})
            continue
        ks = _list_of_k(len(sweep.configs))
        point, low, high = _expected(sweep, ks)
        if sweep.num_failed and np.isfinite(sweep.failed_level):
            _, *others = _expected(sweep.measured, ks)
            low, high = np.minimum(low, others[0]), np.maximum(high, others[1])
        low = np.where(ks <= sweep.unknown.sum(), np.nan, low)  # all k tries may be of these
        low, high = sweep.limited(sweep.turned(low, high))
        notes = (*(() if sweep.has_repeats else ONE_SEED), *sweep.missing)
        notes += tuple(sweep.lost(Reason.LOST_TRIES))
        start = {"objective": sweep.objective} | noted(*notes)
        one_decides = noted(*notes, why=note(Reason.ONE_DECIDES))
        is_open = _one_decides(sweep, ks) & sweep.has_repeats
        columns = {"k": ks.tolist(), "expected": sweep.sign * point, "low": low, "high": high}
        for decides, *cells in zip(is_open, *columns.values(), strict=True):
            causes = one_decides if decides else {}
            rows.append(start | dict(zip(columns, cells, strict=True)) | causes)
    return pd.DataFrame(rows, columns=list(BEST_OF_K_COLUMNS))


def _expected(given: Sweep, ks: NDArray[np.int64]) -> tuple[Array, Array, Array]:
    """(K,) the curve, larger is better, and the ends of its interval, with the seeds' shift."""
    sweep = given.by_level()
    weights = _weights(len(sweep.configs), ks)
    point = _rising_curve(sweep, weights)
    # What a seed gives to all is added below.
    draws, num = _draws(sweep, weights), len(sweep.configs)
    half = _half_width(draws)
    if len(draws) and not sweep.is_grid:  # with the t of so many
        half = half_width(draws.var(axis=0) * num / max(num - 1, 1), num - 1)
        half[_one_decides(sweep, ks)] = np.nan
    if sweep.alive.any():
        half = np.hypot(half, half_width(*sweep.noise.of_seeds))
    half = np.hypot(half, _of_images(sweep, lambda tables: _curves(tables, weights)))
    low, high = point - half, point + half
    # The best of one is the mean, whose interval stands in another table too.
    mean = statistic_intervals(given, Response.of_configs(given), within=1.0).get("mean")
    if mean and not _one_decides(sweep, 1):
        low[0], high[0] = including(mean, point[0])
    return point, low, high


def _one_decides(sweep: Sweep, k: Any) -> Any:
    """True for more tries than half of a sample's settings, where the best of them decides."""
    return (not sweep.is_grid) & (2 * k > len(sweep.configs))


def cost_of_tuning(
    sweeps: Sequence[Sweep],
    *,
    defaults: Mapping[str, Mapping[str, Any]] | None = None,
    within: float = 1.0,
) -> pd.DataFrame:
    """Random tries to come within `within` of the best level, and the gain over the default (Probst
    et al. 2019): one row per objective with the columns of `COST_COLUMNS`.

    defaults: objective -> hyperparameter -> default value. Where no configuration has these
        (numbers to 12 digits), the nearest stands for it, if each number is within half a grid step
        (or, off a grid, 5 % of the axis) and each category the same; the note says so.
    within: in units of the metric. Between the listed k the curve is read off linearly and k_within
        rounded up.

    Raises ValueError for a `within` below 0.
    """
    if not within >= 0:
        raise ValueError(f"within: expected >= 0, got {within!r}")
    rows = [_cost(x, (defaults or {}).get(x.objective), within) for x in sweeps]
    return pd.DataFrame(rows, columns=list(COST_COLUMNS))


def _cost(given: Sweep, defaults: Mapping[str, Any] | None, within: float) -> dict[str, Any]:
    sweep = given.by_level()
    row: dict[str, Any] = {"objective": sweep.objective, "default_at": ""}
    default, lookup = find_default(sweep, defaults)
    notes: tuple[Note, ...] = () if lookup is None else (lookup,)
    if default is not None:
        row |= {"default_at": sweep.label(default), "default": sweep.sign * sweep.means[default]}
        if not sweep.alive[default]:
            notes += (note(Reason.DEFAULT_WITHOUT_SCORE),)
    if why := sweep.nothing:
        return {**row, **noted(*notes, why=why)}
    if len(sweep.configs) == 1:
        row["best_level"] = sweep.sign * sweep.means[0]
        return {**row, **noted(*notes, why=sweep.too_few or note(Reason.ONE_CONFIG))}
    if not sweep.has_repeats:
        notes = (*ONE_SEED, *notes)

    ks = _list_of_k(len(sweep.configs))
    weights = _weights(len(sweep.configs), ks)
    point = _rising_curve(sweep, weights)
    draws = _draws(sweep, weights)
    parts = image_parts(given.images, given.alive)
    level = float(best_level(without_gaps(given.scores[given.alive]), parts))
    row["k_within"] = _first_k(ks, point, within)
    if not sweep.is_raced:  # its best ones stand at the level of all seeds
        row["best_level"] = sweep.sign * level
    if len(draws):
        drawn = [_first_k(ks, curve, within) for curve in draws if np.isfinite(curve).all()]
        low, high = np.quantile(drawn, [TAIL, (1 + CONFIDENCE) / 2])
        row["k_low"] = int(min(low, row["k_within"]))
        row["k_high"] = int(np.ceil(max(high, row["k_within"])))
    if default is not None and sweep.alive[default]:
        gain = level - float(sweep.means[default])

        def gains(tables: Array) -> Array:
            return best_levels(tables) - row_means(tables[:, default])

        drawn_gains = [np.empty(0)]
        if sweep.has_repeats:
            still = without_seeds(sweep.scores, sweep.silent)
            drawn_gains += map(gains, noisy_tables(drop_nan_columns(still)))
        half = float(_half_width(np.concatenate(drawn_gains)))
        half = 0.0 if half <= float(rounding(sweep.means[sweep.alive])) else half
        half = float(np.hypot(half, _of_images(sweep, gains)))
        row |= {"tunability": gain, "tunability_low": gain - half, "tunability_high": gain + half}
    return {**row, **noted(*notes, *sweep.missing)}


def _of_images(sweep: Sweep, statistic: Callable[[Array], Array]) -> Any:
    """Half width of the interval of a statistic of tables by the images alone; 0 where they are not
    known.
    """
    if (images := sweep.images) is None:
        return 0.0
    variances = images.variance_of(lambda each: {"": statistic(each)}, without_gaps(sweep.scores))
    return images.half_width(variances.get("", 0.0))


def _first_k(ks: NDArray[np.int64], curve: Array, within: float) -> int:
    """Smallest k at which a curve over the listed k reaches its last value less `within`."""
    target = curve[-1] - within - float(rounding(curve))
    at = int((curve >= target).argmax())
    if at == 0:
        return int(ks[0])
    part = (target - curve[at - 1]) / (curve[at] - curve[at - 1])
    return int(np.ceil(ks[at - 1] + part * (ks[at] - ks[at - 1]) - 1e-6))


def _list_of_k(num: int) -> NDArray[np.int64]:
    steps = np.geomspace(1, num, 2 + int(np.log(num) / np.log(1.12)))
    every = np.arange(1, min(EVERY_K, num) + 1)
    return np.unique(np.concatenate([every, np.round(steps)])).astype(np.int64)


def _weights(num: int, ks: NDArray[np.int64]) -> Array:
    """(num, K): probability C(r - 1, k - 1) / C(num, k) that rank r, 1 = worst, is the best of k of
    `num`.
    """
    logs = special.gammaln(np.arange(num + 1) + 1.0)  # log r!
    ranks = np.arange(num)[:, None]
    others = ranks - (ks - 1)
    ways = logs[num - ks] - logs[num] + logs[ks] - logs[ks - 1]
    return np.where(others >= 0, np.exp(logs[ranks] - logs[np.maximum(others, 0)] + ways), 0.0)


def _crossfit(
    tables: Array, ranked: Callable[[Array], Callable[[Array], Array]], parts: Array | None = None
) -> Array:
    """A weighted mean of the scores of resamples (B, n, S) by how the configurations look (B, n) on
    other seeds: `ranked` of the looks gives the weighted sum of any values (B, n).

    Summed over the folds of `cross_fit_folds`, then divided by the weight of those that have a
    score: given that the pick has one.
    """
    scored: Any = 0.0
    weight: Any = 0.0
    for fold in cross_fit_folds(tables, parts):
        for looks, scores in zip(*fold, strict=True):
            counted, total = np.isfinite(scores), ranked(looks)
            scored = scored + total(np.where(counted, scores, 0.0))
            weight = weight + total(counted.astype(float))
    return np.where(weight > 0, scored / np.where(weight > 0, weight, 1.0), np.nan)


def _rising_curve(sweep: Sweep, weights: Array) -> Array:
    """(K,) the expected score of the best of k, which more tries never lower: the isotonic
    regression of `_curve` between the mean and the best level (Barlow et al. 1972,
    Statistical Inference under Order Restrictions).
    """
    from scipy.optimize import isotonic_regression  # slow to import

    point = _curve(without_gaps(sweep.scores), weights, image_parts(sweep.images))
    if not np.isfinite(point).all() or not sweep.has_repeats:
        return point
    levels = without_gaps(sweep.scores[sweep.alive])
    best = float(best_level(levels, image_parts(sweep.images, sweep.alive)))
    # as they are but for gaps in the folds and ties
    point[[0, -1]] = row_means(levels).mean(), best
    return np.clip(isotonic_regression(point).x, point[0], best)


def _curve(scores: Array, weights: Array, parts: Array | None) -> Array:
    """Expected score of the best of k, (n, S) -> (K,), ties broken at random."""

    def ranked(looks: Array) -> Callable[[Array], Array]:
        order = np.argsort(looks[0])
        looks = looks[0, order]
        slack = EPSILON * np.abs(looks[np.isfinite(looks)]).max(initial=0.0)
        runs = np.append(0, np.cumsum(looks[1:] > looks[:-1] + slack))
        return lambda values: (
            (np.bincount(runs, values[0, order]) / np.bincount(runs))[runs] @ weights
        )

    return _crossfit(scores[None], ranked, parts)


def _curves(tables: Array, weights: Array) -> Array:
    """The same for resamples, (B, n, S) -> (B, K): ties as they fall."""

    def ranked(looks: Array) -> Callable[[Array], Array]:
        order = np.argsort(looks, axis=-1)
        return lambda values: np.take_along_axis(values, order, axis=-1) @ weights

    return _crossfit(tables, ranked)


def best_levels(tables: Array) -> Array:
    """Cross-fitted level of the best of all, k = n. (B, n, S) -> (B,)."""

    def ranked(looks: Array) -> Callable[[Array], Array]:
        top = looks.argmax(axis=-1)[:, None]
        return lambda values: np.take_along_axis(values, top, axis=-1)[:, 0]

    return _crossfit(tables, ranked)


def _draws(sweep: Sweep, weights: Array) -> Array:
    """Bootstrap (B, K) of the curve less the seeds' shifts, larger is better; B = 0 of one seed."""
    if not sweep.has_repeats:
        return np.empty((0, weights.shape[1]))
    still = drop_nan_columns(without_seeds(sweep.scores, sweep.silent))
    tables = noisy_tables(still, redraw=not sweep.is_grid)
    return np.concatenate([_curves(chunk, weights) for chunk in tables])


def _half_width(draws: Array) -> Array:
    """Half the interval from resamples (B, ...): the distance from their mean that 95 % of them
    keep; of few t_{B-1} SD; NaN without any.

    About the estimate, not their percentiles: the resamples' own centre carries the noise of the
    observed means, from which a maximum makes a level that is too high.
    """
    if len(draws) < 2:
        return np.full(draws.shape[1:], np.nan)
    if len(draws) >= FEW_RESAMPLES:
        return np.asarray(np.quantile(np.abs(draws - draws.mean(axis=0)), CONFIDENCE, axis=0))
    return np.asarray(half_width(draws.var(axis=0, ddof=1), len(draws) - 1))


def find_default(
    sweep: Sweep, defaults: Mapping[str, Any] | None
) -> tuple[int | None, Note | None]:
    """Row of the default configuration or of the nearest that may stand for it, with a note."""
    if not sweep.params:
        return (0, None) if len(sweep.configs) == 1 else (None, note(Reason.NOTHING_SWEPT))
    missing = tuple(name for name in sweep.params if name not in (defaults or {}))
    if defaults is None or missing:
        return None, note(Reason.DEFAULT_UNKNOWN, params=missing)
    at = ", ".join(f"{name}={setting(defaults[name])}" for name in sweep.params)
    # (params, n), 1 = too far.
    steps = np.stack([_steps(sweep, name, defaults[name]) for name in sweep.params])
    if (exact := (steps <= 1e-9).all(axis=0)).any():
        return int(exact.argmax()), None
    near = (steps <= 1.0).all(axis=0)
    if not near.any():
        return None, note(Reason.DEFAULT_NOT_TRIED, at=at)
    row = int(np.where(near, steps.sum(axis=0), np.inf).argmin())
    return row, note(Reason.DEFAULT_NEAREST, at=at)


def _steps(sweep: Sweep, name: str, default: Any) -> Array:
    """(n,) distance from the default along one axis: 0 = the same, 1 = as far as one may be."""
    column = sweep.settings[name]
    same = column.isna().to_numpy() if pd.isna(default) else np.zeros(len(column), dtype=bool)
    if sweep.scales[name] == "category" or isinstance(default, str) or pd.isna(default):
        same |= np.array([setting(value) == setting(default) for value in column])
        return np.where(same, 0.0, np.inf)
    log = sweep.scales[name] == "log"
    if log and default <= 0:
        return np.full(len(column), np.inf)
    values, wanted = sweep.axis(name), float(np.log2(default)) if log else float(default)
    levels = np.unique(values[np.isfinite(values)])
    allowed = np.full(len(values), NEAR * (levels[-1] - levels[0]))
    if sweep.is_grid and len(levels) > 1:
        gaps = np.diff(levels) / 2
        at = np.clip(np.searchsorted(levels, values), 0, len(levels) - 1)
        up, down = np.append(gaps, gaps[-1]), np.insert(gaps, 0, gaps[0])
        allowed = np.where(wanted > values, up[at], down[at])
    same = np.isclose(values, wanted, rtol=1e-12, atol=0.0)
    distance = np.abs(values - wanted) / np.where(allowed > 0, allowed, np.inf)
    return np.where(same, 0.0, np.where(np.isfinite(distance), np.maximum(distance, 1e-6), np.inf))
