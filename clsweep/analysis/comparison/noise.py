"""How noisy a table of scores is: one variance for all of it, and how far that is to be doubted.

Shape legend: C = rows (settings), S = draws of each row (seeds), U = units: rows,
or parts of the table. Tables hold NaN where there is no score, and no row without one.

The model is x_cs = theta_c + e_cs with one variance s^2. Two others are weighed against it, each by
its posterior chance q: a unit has more noise of its own, or a part of e_cs is common to all rows of
a seed. Draws then come from the other model with chance q (`evidence.mean_effect`), so that an
interval grows as steadily as the doubt. A test of evenness would leave the narrow interval in just
those tables in which it has no power.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from clsweep.analysis import resample
from clsweep.analysis.noise import UNEVEN, Codes, Noise, chance_of, copies, noise_of, two_way
from clsweep.analysis.sweep import Array

# Where the noise looks just even, each doubt may widen a 95 % interval by this much. Before the
# scores are seen it has no more than this chance times its squared degrees of freedom, or a half.
WIDER, MOST = 1.02, 0.075
COMMON = (0.3, 0.5, 0.7)  # which part of the variance is common to the rows of a seed, if one is


@dataclass(frozen=True, kw_only=True)
class Doubt:
    """Another model of the noise: the chance that it holds, the variance of the mean under it, and
    that variance's degrees of freedom.
    """

    chance: float
    variance: float
    freedom: float


NO_DOUBT = Doubt(chance=0.0, variance=0.0, freedom=1.0)


@dataclass(frozen=True, kw_only=True)
class Term:
    """A table whose weighted mean is a part of an effect.

    Attributes:
        table, weights: (C, S); the weights add up to 1, and are 0 where there is no score.
        noise: the even noise, of all rows.
        variance, freedom: of the mean, without a doubt.
        doubts: that this part of the table has noise of its own, that seeds shift all rows.
        rounding: a standard error that may be rounding alone.
    """

    table: Array
    weights: Array
    noise: Noise
    variance: float
    freedom: float
    doubts: tuple[Doubt, Doubt] = (NO_DOUBT, NO_DOUBT)
    rounding: float

    @property
    def estimate(self) -> float:
        return float(np.nansum(self.table * self.weights))

    @property
    def error(self) -> tuple[float, float]:
        """Variance of the mean, and its degrees of freedom: those of the models, mixed by their
        chances.
        """
        variance, loss = self.variance, 1.0 / max(self.freedom, 1.0)
        for doubt in self.doubts:
            variance += doubt.chance * (doubt.variance - variance)
            loss += doubt.chance * (1.0 / doubt.freedom - loss)
        return variance, 1.0 / loss


def sample_term(values: Array, scores: Array, crossed: Array | None = None) -> Term:
    """The mean of a sample of settings, whose values (C,) are its draws; `scores` are theirs.

    crossed: (C, S) what the values are means of, by seed, where seeds may shift all settings.
    """
    firsts, parts = _once(scores)
    table, weights = values[firsts][None], parts[None]
    noise = noise_of(table)
    variance, shift = noise.variance * float(np.square(weights).sum()), NO_DOUBT
    if crossed is not None and len(firsts) > 1:
        by_seed = crossed[firsts]
        here = np.isfinite(by_seed)
        shares = np.where(here, (parts / here.sum(axis=1))[:, None], 0.0)
        shift = _shift(by_seed, shares, variance)
    return Term(
        table=table,
        weights=weights,
        noise=noise,
        variance=variance,
        freedom=noise.freedom,
        doubts=(NO_DOUBT, shift),
        rounding=_rounding(scores),
    )


def term(part: Array, scores: Array, whole: Array, all_scores: Array) -> Term:
    """The mean of a part of the whole table of a grid; `scores` are those that its rows are made
    of, by which copies are known.

    The whole: its variance is  v = sum_c v_c,  v_c = s_c^2 sum_s w_cs^2  of each row's own s_c^2,
    which of a complete table is the pooled one. Its degrees of freedom are Satterthwaite's with an
    unbiased s_c^4,  v^2 / sum_c v_c^2 / (S_c + 1),  at most sum_c (S_c - 1). A part: the pooled
    variance, and the doubt that its rows have more noise than the others.
    """
    firsts, parts = _once(scores)
    table, everywhere = part[firsts], whole[_once(all_scores)[0]]
    present, noise = np.isfinite(table), noise_of(everywhere)
    weights = np.where(present, (parts / present.sum(axis=1))[:, None], 0.0)
    shift = _shift(everywhere, weights) if len(table) > 1 else NO_DOUBT
    own = noise_of(table)
    weight = np.square(weights).sum(axis=1)
    variance, uneven = noise.variance * float(weight.sum()), NO_DOUBT
    left = float(noise.freedom)
    if len(part) < len(whole):
        uneven = _apart(own, noise, float(weight.sum()))
    elif noise.squares.any():
        known = own.freedoms > 0
        rows = weight * np.where(known, own.squares / np.maximum(own.freedoms, 1.0), noise.variance)
        variance = float(rows.sum())
        loss = np.square(rows) / np.where(known, own.freedoms + 2.0, noise.freedom)
        left = min(left, variance**2 / float(loss.sum()))
    return Term(
        table=table,
        weights=weights,
        noise=noise,
        variance=variance,
        freedom=left,
        doubts=(uneven, shift),
        rounding=_rounding(scores),
    )


def _apart(part: Noise, whole: Noise, weight: float) -> Doubt:
    """That a part of a table has more noise than the others, not below the pooled."""
    squares = part.squares.sum(keepdims=True)
    freedom = part.freedoms.sum(keepdims=True)
    others = np.maximum(whole.total - squares, 0.0)
    chance = chance_of(
        squares, freedom, others, whole.freedom - freedom, UNEVEN, *_doubted(freedom)
    )
    own_freedom = max(float(freedom[0]), 1.0)
    variance = max(float(squares[0]) / own_freedom, whole.variance)
    return Doubt(chance=float(chance[0]), variance=variance * weight, freedom=own_freedom)


def _once(scores: Array) -> tuple[Codes, Array]:
    """First row of each set of copies, and which part of all rows they are."""
    _, firsts, counts = np.unique(copies(scores), return_index=True, return_counts=True)
    return firsts, counts / len(scores)


def _rounding(scores: Array) -> float:
    return float(resample.rounding(scores.reshape(-1)))


def _shift(table: Array, weights: Array, without: float | None = None) -> Doubt:
    """That a part of the noise is common to all rows of a seed, of variance s_b^2 (`two_way`).

    Its mean square, over that of the rest, is F with S - 1 degrees of freedom where there is none.
    The mean then varies by  s_b^2 sum_s (sum_c w_cs)^2 + s_e^2 sum_cs w_cs^2.  Seeds of one row say
    nothing.

    without: what takes the place of the second term, of a sample of settings.
    """
    table = table[:, np.isfinite(table).sum(axis=0) > 1]
    table = table[np.isfinite(table).sum(axis=1) > 1]
    if min(table.shape) < 2 or not (found := two_way(table)):
        return NO_DOUBT
    ratios = 1.0 + found.spread / found.freedom * np.array(COMMON) / (1.0 - np.array(COMMON))
    parts = found.squares, found.freedom, found.others, found.others_freedom
    q, d, r, e = (np.array([x]) for x in parts)
    chance = chance_of(q, d, r, e, ratios, *_doubted(d))
    alone = found.noise * np.square(weights).sum()
    common = found.variance * np.square(weights.sum(axis=0)).sum()
    variance = common + (alone if without is None else without)
    return Doubt(chance=float(chance[0]), variance=float(variance), freedom=found.freedom)


def _doubted(freedom: Array) -> tuple[float, Array]:
    """What a doubt may cost, and its chance before the scores are seen."""
    return WIDER, np.minimum(MOST * np.square(freedom), 0.5)
