"""Shifts that a seed gives to all configurations alike: by the order of the data, the split.

They cancel in what compares configurations, and stay in the levels: a mean over hundreds of
configurations is no surer than a few seeds.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import special

from clsweep.analysis import CONFIDENCE

Array = NDArray[np.float64]

# Significance at which seeds are seen to shift all rows alike. Two seeds leave a t of one degree
# of freedom, thirteen standard errors: too much to pay by mistake.
LEVELS = {2: 0.03}
LEVEL = 0.05
MOST_SEEDS = 500
ROUNDING = 1e-20  # of the largest square: what is left of equal scores


@dataclass(frozen=True, kw_only=True)
class SeedShift:
    """What the F test of a two-way table says.

    Attributes:
        p: of no shift; 0 where nothing else differs between the seeds.
        effects: (S,) of each seed, of sum zero.
        variance: of one seed's shift, at least 0.
        num_seeds: that it rests on, S.
    """

    p: float
    effects: Array
    variance: float
    num_seeds: int

    @property
    def half_width(self) -> float:
        """Of a level's interval by the shifts alone: t sqrt(variance / S), S degrees of freedom.

        One degree more than the seeds have, as shifts are seen where their variance looks large.
        """
        t = special.stdtrit(self.num_seeds, (1.0 + CONFIDENCE) / 2.0)
        return float(t * np.sqrt(self.variance / self.num_seeds))

    def without(self, table: Array) -> Array:
        """The table less the effects, its residuals enlarged to the noise that is left:
        (n - 1) (S - 1) degrees of freedom are not n (S - 1).
        """
        num = len(table)
        even = table - self.effects
        means = np.nanmean(even, axis=1, keepdims=True)
        return np.asarray(means + (even - means) * np.sqrt(num / (num - 1)))


@dataclass(frozen=True, kw_only=True)
class TwoWay:
    """x_is = m_i + b_s + e_is by least squares, of a table that may have gaps (Henderson 1953,
    method 3).

    Attributes:
        squares, freedom: of b beside m;  E squares = freedom s_e^2 + spread s_b^2.
        others, others_freedom: of e.
        effects: (S,) b_s.
    """

    squares: float
    freedom: float
    others: float
    others_freedom: float
    spread: float
    effects: Array

    @property
    def variance(self) -> float:
        """s_b^2, at least 0."""
        noise = self.others / self.others_freedom
        return max(0.0, (self.squares - self.freedom * noise) / self.spread)


def two_way(table: Array) -> TwoWay | None:
    """The layout of a table (n, S), NaN = no score, of which each row has one; None where nothing
    is left for e, or so many seeds hardly shift a level.
    """
    if table.shape[1] > MOST_SEEDS:
        return None
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
    squares = float(sums @ inverse @ sums)
    return TwoWay(
        squares=squares,
        freedom=freedom,
        others=max(0.0, float(np.square(left).sum()) - squares),
        others_freedom=others_freedom,
        spread=float(np.trace(design)),
        effects=inverse @ sums,
    )


def seed_shift(table: Array) -> SeedShift | None:
    """The shifts of the columns (seeds) of a table (n, S), NaN = no score; None where none is seen
    by  F = MS_b / MS_e  of `two_way`.

    Seeds that half of the rows or fewer have are left as they are.
    """
    known = np.isfinite(table)
    common = known.sum(axis=0) > len(table) / 2
    values = table[(known & common).sum(axis=1) > 1][:, common]
    if min(values.shape) < 2 or not (found := two_way(values)):
        return None
    between, noise = found.squares / found.freedom, found.others / found.others_freedom
    if between <= ROUNDING * float(np.nanmax(np.square(values))):
        return None
    freedom = found.freedom, found.others_freedom
    p = float(special.fdtrc(*freedom, between / noise)) if noise > 1e-12 * between else 0.0
    if p > LEVELS.get(values.shape[1], LEVEL):
        return None
    effects = np.zeros(table.shape[1])
    effects[common] = found.effects - found.effects.mean()
    return SeedShift(p=p, effects=effects, variance=found.variance, num_seeds=values.shape[1])
