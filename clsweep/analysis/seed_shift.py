"""Shifts that a seed gives to all configurations alike: by the order of the data, the split.

They cancel in what compares configurations, and stay in the levels: a mean over hundreds of
configurations is no surer than a few seeds.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import special

Array = NDArray[np.float64]

# Significance at which seeds are seen to shift all rows alike. Two seeds leave a t of one degree
# of freedom, thirteen standard errors: too much to pay by mistake.
LEVELS = {2: 0.03}
LEVEL = 0.05
NUM_SWEEPS = 30  # of the least squares with missing scores
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

    def half_width(self, confidence: float) -> float:
        """Of a level's interval by the shifts alone: t sqrt(variance / S), S degrees of freedom.

        One degree more than the seeds have, as shifts are seen where their variance looks large.
        """
        t = special.stdtrit(self.num_seeds, (1.0 + confidence) / 2.0)
        return float(t * np.sqrt(self.variance / self.num_seeds))

    def without(self, table: Array) -> Array:
        """The table less the effects, its residuals enlarged to the noise that is left:
        (n - 1) (S - 1) degrees of freedom are not n (S - 1).
        """
        num = len(table)
        even = table - self.effects
        means = np.nanmean(even, axis=1, keepdims=True)
        return np.asarray(means + (even - means) * np.sqrt(num / (num - 1)))


def seed_shift(table: Array) -> SeedShift | None:
    """The shifts of the columns (seeds) of a table (n, S), NaN = no score; None where none is seen.

        x_is = m_i + b_s + e_is by least squares,  F = MS_seed / MS_e,
        variance = max(0, MS_seed - MS_e) (S - 1) / (N - n),  N scores: / n where none is missing

    Seeds that half of the rows or fewer have are left as they are.
    """
    known = np.isfinite(table)
    common = known.sum(axis=0) > len(table) / 2
    rows = (known & common).sum(axis=1) > 1
    values = table[rows][:, common]
    num, seeds = values.shape
    if num < 2 or seeds < 2:
        return None
    here = np.isfinite(values)
    off = _centred(np.where(here, values, 0.0), here, axis=1)
    rest, shifts = off, np.zeros(seeds)
    for _ in range(1 if here.all() else NUM_SWEEPS):
        step = rest.sum(axis=0) / here.sum(axis=0)
        shifts += step
        rest = _centred(np.where(here, rest - step, 0.0), here, axis=1)
    spare = int(here.sum()) - num
    freedom = seeds - 1, spare - (seeds - 1)
    squares = float(np.square(rest).sum())
    between = (float(np.square(off).sum()) - squares) / freedom[0]
    if freedom[1] < 1 or between <= ROUNDING * float(np.square(values[here]).max()):
        return None
    noise = squares / freedom[1]
    p = float(special.fdtrc(*freedom, between / noise)) if noise > 1e-12 * between else 0.0
    if p > LEVELS.get(seeds, LEVEL):
        return None
    effects = np.zeros(table.shape[1])
    effects[common] = shifts - shifts.mean()
    variance = max(0.0, between - noise) * freedom[0] / spare
    return SeedShift(p=p, effects=effects, variance=variance, num_seeds=seeds)


def _centred(values: Array, here: NDArray[np.bool_], axis: int) -> Array:
    """The values less their means along an axis, 0 where there is none."""
    means = values.sum(axis=axis, keepdims=True) / here.sum(axis=axis, keepdims=True)
    return np.asarray(np.where(here, values - means, 0.0))
