"""Tests of a difference of spreads or shares, by bootstrap tables of both sides.

Shape legend: C = rows (settings), S = draws of each row (seeds), D = draws of other images.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from scipy import special

from clsweep.analysis import TAIL, bootstrap
from clsweep.analysis.array_types import Array
from clsweep.analysis.bootstrap import redrawn_tables, tail_p
from clsweep.analysis.evidence import Evidence

# scores drawn for one comparison; it sets the number of resamples, fewer for a large table
_DRAWN_SCORES = 1_000_000
CHUNK = 500_000  # of them held at once
FEWEST_RESAMPLES = 30
FEW_BEYOND = 5  # resamples beyond 0: with fewer p is that of a normal distribution of their SD
# Resamples that are too few for percentiles: their spread and a t quantile instead.
_FEW_RESAMPLES = 400
Measures = tuple[Callable[[Array, bool], Array], Callable[[Array, bool], Array]]


def spread_effect(
    a: Array,
    b: Array,
    measures: Measures,
    *,
    paired: bool,
    fixed: bool,
    rng: np.random.Generator,
    moves: tuple[Array, Array] | None = None,
) -> Evidence:
    """of_a(a) - of_b(b) of two tables (C, S), with a percentile interval of bootstrap tables.

    measures: of_a and of_b, each (tables (..., C, S), whether they are redrawn rows) -> (...);
        minus infinity on both sides gives a difference that could be anything, and a resample like
        that widens the interval both ways.
    fixed: new noise around shrunken means (`redrawn_tables`). Otherwise rows are drawn with
        replacement, the same for both sides if paired, and the percentiles are widened for their
        number (Hesterberg 2015). Below 400 resamples the interval is estimate -+ t SD of these.
    moves: (C, D) of each side, by how much the means of other images differ: each resample has one.
    """
    num = int(
        np.clip(_DRAWN_SCORES // (a.size + b.size), FEWEST_RESAMPLES, bootstrap.NUM_RESAMPLES)
    )
    with np.errstate(invalid="ignore"):
        of_a, of_b = measures
        estimate = float(of_a(a, False) - of_b(b, False))
        if any(np.isfinite(side).sum(axis=1).max() < 2 for side in (a, b)):
            return Evidence(estimate)
        tables = _redrawn(a, b, num, paired=paired, fixed=fixed, moves=moves, rng=rng)
        parts = [of_a(x, not fixed) - of_b(y, not fixed) for x, y in tables]
    draws = np.concatenate(parts)
    tail = TAIL
    if not fixed:
        n = min(len(a), len(b))
        tail = float(special.ndtr(np.sqrt(n / (n - 1)) * special.stdtrit(n - 1, tail)))
    known = np.isfinite(draws).all()
    se = float(draws.std(ddof=1)) if known else np.nan
    is_cut = num < min(_FEW_RESAMPLES, bootstrap.NUM_RESAMPLES)
    if is_cut and known and np.isfinite(estimate):
        reach = float(special.stdtrit(num - 1, 1.0 - tail)) * se
        low, high = estimate - reach, estimate + reach
        p = float(2.0 * special.stdtr(num - 1, -abs(estimate) / se)) if se else np.nan
        return Evidence(estimate, low, high, p, 0.0, se, np.inf)
    is_open = np.isnan(draws)
    low_draws, high_draws = np.where(is_open, -np.inf, draws), np.where(is_open, np.inf, draws)
    # The nearest draw outwards, not a point between two, which infinite ones do not have.
    low = float(np.quantile(low_draws, tail, method="lower"))
    high = float(np.quantile(high_draws, 1.0 - tail, method="higher"))
    p, p_min = tail_p(low_draws, high_draws)
    if p <= FEW_BEYOND * p_min and se > 0:  # so few draws beyond 0 do not tell its size
        p, p_min = min(p, float(2.0 * special.ndtr(-abs(estimate) / se))), 0.0
    return Evidence(estimate, low, high, p, p_min, se, np.inf)


def _redrawn(
    a: Array,
    b: Array,
    num: int,
    *,
    paired: bool,
    fixed: bool,
    moves: tuple[Array, Array] | None,
    rng: np.random.Generator,
) -> Iterator[tuple[Array, Array]]:
    """Bootstrap tables of both sides, a chunk of `num` resamples at a time (see `spread_effect`);
    copies of a row share their noise.
    """
    step = max(1, CHUNK // (a.size + b.size))
    for start in range(0, num, step):
        size = min(step, num - start)
        if fixed:
            drawn = [redrawn_tables(side, rng)(size) for side in (a, b)]
            rows_a, rows_b = np.arange(len(a)), np.arange(len(b))
        else:
            rows_a = rng.integers(0, len(a), (size, len(a)))
            rows_b = rows_a if paired else rng.integers(0, len(b), (size, len(b)))
            drawn = [a[rows_a], b[rows_b]]
        if moves:
            images = rng.integers(0, moves[0].shape[1], (size, 1))
            for tables, move, rows in zip(drawn, moves, (rows_a, rows_b), strict=True):
                tables += move[rows, images][..., None]
        yield drawn[0], drawn[1]
