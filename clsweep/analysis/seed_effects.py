"""Seed effects: how one seed shifts the scores of all configurations alike.

Shape legend: n = configurations, S = seeds, S_i = scores of one configuration.

By the order of the data or the split a seed may move all configurations. That cancels in what
compares configurations, and stays in the levels: a mean over hundreds of configurations is no surer
than a few seeds.

"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

from clsweep.analysis.array_types import Array
from clsweep.analysis.noise import Noise, half_width, noise_of
from clsweep.analysis.score_table import drop_nan_columns

# Significance at which seeds are seen to shift all rows alike. What is said of a level is hardly
# wider for a shift that is none, and much too sure without one that is.
SHIFT_LEVEL = 0.25
CLEAR = 1e-3  # at which a point estimate is another one for a shift
MOST_SEEDS = 500
_ROUNDING = 1e-20  # of the largest square: what is left of equal scores


@dataclass(frozen=True)
class TwoWay:
    """x_is = m_i + b_s + e_is by least squares, of a table that may have gaps (Henderson 1953,
    method 3): how seeds shift all rows alike.

    Attributes:
        squares, freedom: of b beside m;  E squares = freedom s_e^2 + spread s_b^2.
        others, others_freedom: of e.
        effects: (S,) b_s, of sum zero.
        num_seeds: that b rests on.
        design, sums: of the equations of b,  design b = sums.
    """

    squares: float
    freedom: float
    others: float
    others_freedom: float
    spread: float
    effects: Array
    num_seeds: int
    design: Array
    sums: Array

    @property
    def noise(self) -> float:
        """s_e^2."""
        return self.others / self.others_freedom

    @property
    def variance(self) -> float:
        """s_b^2, at least 0."""
        return max(0.0, (self.squares - self.freedom * self.noise) / self.spread)

    @property
    def p(self) -> float:
        """Of no shift, by  F = MS_b / MS_e; 0 where nothing else differs between the seeds."""
        between = self.squares / self.freedom
        if not self.noise > 1e-12 * between:
            return 0.0
        return float(special.fdtrc(self.freedom, self.others_freedom, between / self.noise))

    @property
    def likely(self) -> Array:
        """(S,) b_s as expected given the scores,  (design + s_e^2 / s_b^2)^-1 sums  (BLUP;
        Henderson 1975): the effects, shrunk the more the less is seen of them, to 0 for none.
        """
        shrunk = self.variance * self.design + self.noise * np.eye(len(self.sums))
        effects = np.linalg.pinv(shrunk, hermitian=True) @ (self.variance * self.sums)
        return np.asarray(effects - effects.mean())

    @property
    def own_freedom(self) -> float:
        """Degrees of freedom of s_b^2: S - 1, and up to one more the less sure the shift is, as one
        is seen where its variance looks large.
        """
        return self.num_seeds - 1.0 + min(1.0, self.p / SHIFT_LEVEL)

    @property
    def half_width(self) -> float:
        """Of a level's interval by the shifts alone: t sqrt(s_b^2 / S)."""
        return float(half_width(self.variance / self.num_seeds, self.own_freedom))

    def without(self, table: Array) -> Array:
        """The table less the effects, its residuals enlarged to the noise that is left:
        (n - 1) (S - 1) degrees of freedom are not n (S - 1).
        """
        num, even = len(table), table - self.effects
        counts = np.maximum(np.isfinite(even).sum(axis=1, keepdims=True), 1)
        means = np.nansum(even, axis=1, keepdims=True) / counts
        return np.asarray(means + (even - means) * np.sqrt(num / (num - 1)))


def two_way(table: Array) -> TwoWay | None:
    """The layout of a table (n, S), NaN = no score; None where nothing is left for e, or so many
    seeds hardly shift a level.
    """
    if table.shape[1] > MOST_SEEDS:
        return None
    table = table[np.isfinite(table).sum(axis=1) > 1]  # others say nothing of b
    present = np.isfinite(table)
    counts = present.sum(axis=1)
    means = np.where(present, table, 0.0).sum(axis=1) / counts
    left = np.where(present, table - means[:, None], 0.0)
    design = np.diag(present.sum(axis=0)) - (present / counts[:, None]).T @ present
    inverse, sums = np.linalg.pinv(design, hermitian=True), left.sum(axis=0)
    freedom = float(np.round(np.trace(inverse @ design)))
    others_freedom = float((counts - 1).sum()) - freedom
    if freedom < 1 or others_freedom < 1:
        return None
    effects = inverse @ sums
    squares = float(sums @ effects)
    others = max(0.0, float(np.square(left).sum()) - squares)
    parts = squares, freedom, others, others_freedom, float(np.trace(design))
    return TwoWay(*parts, effects, table.shape[1], design, sums)


def remove_seed_effect(table: Array, level: float = SHIFT_LEVEL) -> Array:
    """The table without the shifts of its seeds, where any are seen at this significance."""
    shift = seed_shift(table)
    return shift.without(table) if shift and shift.p <= level else table


def impute_seed_effect(table: Array) -> Array:
    """The table (n, S) of seeds; where it has gaps, without their likely shifts: a row that lacks
    the best seed is none the worse for it.
    """
    layout = None if np.isfinite(table).all() else two_way(table)
    return table - layout.likely if layout else table


def without_gaps(table: Array) -> Array:
    """The table (n, S) by `impute_seed_effect`, its gaps closed by `drop_nan_columns`."""
    return drop_nan_columns(impute_seed_effect(table))


def seed_shift(table: Array) -> TwoWay | None:
    """The shifts of the columns (seeds) of a table (n, S), NaN = no score; None where none is seen,
    at a significance of `SHIFT_LEVEL`.

    Seeds that half of the rows or fewer have are left as they are.
    """
    known = np.isfinite(table)
    common = known.sum(axis=0) > len(table) / 2
    values = table[:, common]
    if not (layout := two_way(values)):
        return None
    if layout.squares / layout.freedom <= _ROUNDING * float(np.nanmax(np.square(values))):
        return None
    if layout.p > SHIFT_LEVEL:
        return None
    effects = np.zeros(table.shape[1])
    effects[common] = layout.effects - layout.effects.mean()
    return replace(layout, effects=effects)


def own_shift(a: Array, b: Array) -> tuple[float, float, float] | None:
    """Of tables (n, S) of the same seeds, where a seed does not seem to shift both alike: the
    variance of that in the difference of their levels, its degrees of freedom, and p of none.

    d_s, how far a seed's mean effects are apart, varies by  noise_a / n_a + noise_b / n_b  where
    neither has a shift of its own.
    """
    of_a, of_b = two_way(a), two_way(b)
    if not of_a or not of_b:
        return None
    num, parts = float(a.shape[1]), (of_a.noise / len(a), of_b.noise / len(b))
    noise, between = sum(parts), float(np.square(of_a.effects - of_b.effects).sum()) / (num - 1.0)
    loss = parts[0] ** 2 / of_a.others_freedom + parts[1] ** 2 / of_b.others_freedom
    p = float(special.fdtrc(num - 1.0, noise**2 / loss, between / noise)) if loss else 1.0
    if p > SHIFT_LEVEL:
        return None
    return (between - noise) / num, num - 1.0 + min(1.0, p / SHIFT_LEVEL), p


@dataclass(frozen=True)
class Levels:
    """Intervals of the means of rows: by their noise, and by what a seed does to all of them, where
    that seems so.

    Attributes:
        whole, noise: of the rows, with and without the shift.
    """

    whole: Noise
    noise: Noise
    counts: NDArray[np.intp]
    shift: TwoWay | None

    @classmethod
    def of(cls, table: Array, silent: NDArray[np.bool_]) -> Levels:
        whole, shift = noise_of(table, silent), seed_shift(table)
        still = noise_of(shift.without(table), silent) if shift else whole
        return cls(whole, still, np.isfinite(table).sum(axis=1), shift)

    @cached_property
    def half_widths(self) -> Array:
        """(n,) of the interval of each mean."""
        return self.over(1.0 / self.counts)

    def over(self, squares: Array, known: float = 0.0) -> Array:
        """(n,) half widths of intervals of sums of each row's scores, whose squared weights add up
        to `squares`, beside a known variance. Where each row has its own noise, a shift is a part
        of that: what noisy rows seem to share is none of the others.
        """
        noise = self.whole if self.whole.is_uneven else self.noise
        variance, freedom = noise.of_each(squares)
        if known:  # Satterthwaite
            freedom = freedom * np.square(1.0 + known / np.where(variance > 0, variance, np.nan))
        half = half_width(variance + known, freedom)
        return np.asarray(half if self.whole.is_uneven else self._shifted(half, squares))

    def half_width_of(self, weights: Array) -> float:
        """Of that of sum_i w_i m_i, of weights (n,) that add up to 1."""
        rows = weights > 0
        by_seed = weights[rows] @ self.whole.left[rows]
        if self.whole.is_uneven and np.isfinite(by_seed).all():
            num = len(by_seed)
            return float(half_width(by_seed.var(ddof=1) / num, num - 1))
        moments = self.noise.of_sum(np.square(weights) / self.counts)
        return float(self._shifted(half_width(*moments), 1.0 / self.counts[rows].min()))

    def _shifted(self, half: Any, squares: Any) -> Array:
        if shift := self.shift:  # of few degrees of freedom, so its own t counts
            half = np.hypot(half, half_width(shift.variance * squares, shift.own_freedom))
        return np.asarray(half)
