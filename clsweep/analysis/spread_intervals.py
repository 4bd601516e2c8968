"""Bootstrap intervals of the spread statistics: mean, SD, SD*, regret, shares, worst tenth."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from clsweep.analysis.array_types import Array
from clsweep.analysis.bootstrap import percentile_interval, resampled, shrunk_means
from clsweep.analysis.score_table import best_level, row_means, selection_bias, worst_tenth
from clsweep.analysis.spread import interquartile_mean, nearness, spread_of_means, spread_statistics

# What cannot be below 0, and the most that it can be.
_UPPER_LIMITS = dict.fromkeys(("sd", "sd_star", "regret"), np.inf)
_UPPER_LIMITS |= dict.fromkeys(("share", "tolerance_area"), 1.0)


def spread_intervals(
    values: Array, *, population: bool, within: float, parts: Array | None = None
) -> dict[str, tuple[float, float]]:
    """Intervals of `spread_statistics`; empty when no configuration has two scores.

    sd, sd_star, share and worst_10 have percentile intervals; those of mean, regret, tolerance_area
    and iqm are moved onto the estimate, that of iqm less what one more draw of noise adds to it.
    Regret and area are resampled with the best level as cross-fitting gives it, unclipped: clipped
    at zero regret, a nearly flat response would leave no spread to read an interval from. In a
    sample of the space L is the best of the configurations tried, and the tail of worst_10 rests on
    a tenth of these.

    Coverage is measured in STATISTICS.md. In a table of many thousand configurations the interval
    of worst_10 is narrower than its bias: the tenth is picked on S - 1 noisy seeds (0.01 points at
    noise 0.3 in a range of 5).
    """
    if np.isfinite(values).sum(axis=-1).max() < 2:
        return {}
    num = len(values)

    # The tables drawn have the luck of the images still, which `parts` take out of the point.
    lucky = selection_bias(values, parts)
    unlucky = worst_tenth(values, parts) - worst_tenth(values)

    def measure(drawn: Array, tried: Array) -> dict[str, Array]:
        means, tried_means = row_means(drawn), row_means(tried)
        free = best_level(tried, clipped=False) - lucky
        best = np.clip(free, tried_means.mean(axis=-1), tried_means.max(axis=-1))
        near = nearness(means, free, within=within, most=np.inf)
        near["share"] = nearness(means, best, within=within)["share"]
        return spread_of_means(drawn) | near | {"worst_10": worst_tenth(drawn) + unlucky}

    statistics = spread_statistics(values, within=within, parts=parts)
    point = {name: float(x) for name, x in statistics.items()}
    free = best_level(values, parts, clipped=False)
    point["regret"] = float(nearness(row_means(values), free, within=within)["regret"])
    draws = resampled(values, measure, population=population)
    moved = {name: point[name] for name in ("mean", "regret", "tolerance_area", "iqm")}
    moved["iqm"] -= float(draws["iqm"].mean() - interquartile_mean(shrunk_means(values)))
    ends = {}
    for name, drawn in draws.items():
        rests_on = max(2, num // 10) if name == "worst_10" else num
        at, centre = point[name], moved.get(name)
        ends[name] = percentile_interval(
            drawn, rests_on, population=population, estimate=at, centre=centre
        )
    ends["iqm"] = min(ends["iqm"][0], point["iqm"]), max(ends["iqm"][1], point["iqm"])
    # Nine tenths of the images often pick another one than the worst, which lies lower.
    low, high = ends["worst_10"]
    ends["worst_10"] = low - max(0.0, float(unlucky)), high
    low, high = np.sqrt(np.maximum(0.0, ends.pop("variance")))
    return ends | limited(ends) | {"sd_star": (float(low), float(high))}


def limited(bounds: Mapping[str, tuple[float, float]]) -> dict[str, tuple[float, float]]:
    """The intervals that end at 0, and at 1 of shares."""
    ends = {n: np.clip(bounds[n], 0.0, most) for n, most in _UPPER_LIMITS.items() if n in bounds}
    return {name: (float(low), float(high)) for name, (low, high) in ends.items()}
