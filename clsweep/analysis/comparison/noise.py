"""How noisy a table of scores is: one variance for all of it, and how far that is to be doubted.

Shape legend: C = rows (settings), S = draws of each row (seeds), U = units, whose noise may differ.
Tables hold NaN where there is no score, and no row without one.

The model is x_cs = theta_c + e_cs with one variance s^2. Two others are weighed against it, each by
its posterior chance q: a unit has more noise of its own, or a part of e_cs is common to all rows of
a seed. Draws then come from the other model with chance q (`evidence.mean_effect`), so that an
interval grows as steadily as the doubt. A test of evenness would leave the narrow interval in just
those tables in which it has no power.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import special

from clsweep.analysis import resample
from clsweep.analysis.regions import Codes, rounded
from clsweep.analysis.sweep import Array

# Rows that are judged, and drawn, one by one; of more of them one alone matters little.
MANY = 500
# Where the noise looks just even, each doubt may widen a 95 % interval by this much, and is no
# likelier than this before the scores are seen: the cost of the doubt where it is unfounded.
WIDER, MOST = 1.02, 0.3
UNEVEN = (4.0, 9.0, 20.0, 45.0, 100.0)  # how much larger the variance of a unit is, if it is
COMMON = (0.3, 0.5, 0.7)  # which part of the variance is common to the rows of a seed, if one is


@dataclass(frozen=True, kw_only=True)
class Noise:
    """Residuals r_cs = (x_cs - m_c) / sqrt(1 - 1 / S_c) of a table; sum of (x_cs - m_c)^2 and
    degrees of freedom.
    """

    pool: Array
    squares: float
    freedom: int

    @property
    def variance(self) -> float:
        return self.squares / max(self.freedom, 1)


@dataclass(frozen=True, kw_only=True)
class Doubt:
    """Another model of the noise.

    Attributes:
        chance: (U,) that it holds.
        variance: (U,) of a score of the unit, or (1,) of the whole mean, under it.
        freedom: degrees of freedom of that variance.
    """

    chance: Array
    variance: Array
    freedom: Array


NO_DOUBT = Doubt(chance=np.zeros(1), variance=np.zeros(1), freedom=np.ones(1))


@dataclass(frozen=True, kw_only=True)
class Term:
    """A table whose weighted mean is a part of an effect.

    Attributes:
        table, weights: (C, S); the weights add up to 1, and are 0 where there is no score.
        noise: the even noise.
        uneven: the doubt that units have noise of their own: the rows, or all of them as one.
        shift: the doubt that seeds shift all rows.
        rounding: a standard error that may be rounding alone.
    """

    table: Array
    weights: Array
    noise: Noise
    uneven: Doubt = NO_DOUBT
    shift: Doubt = NO_DOUBT
    rounding: float

    @property
    def estimate(self) -> float:
        return float(np.nansum(self.table * self.weights))

    @property
    def by_unit(self) -> Array:
        """(U, scores of one) the weights."""
        return self.weights.reshape(len(self.uneven.chance), -1)

    @property
    def error(self) -> tuple[float, float]:
        """Variance of the mean, and its degrees of freedom (Welch-Satterthwaite); models are mixed
        by their chances.
        """
        squares, own = np.square(self.by_unit).sum(axis=1), self.uneven
        even = float((squares * (1.0 - own.chance)).sum() * self.noise.variance)
        apart = squares * own.chance * own.variance
        variance = even + float(apart.sum())
        loss = even**2 / self.noise.freedom + float((apart**2 / own.freedom).sum())
        chance = float(self.shift.chance[0])
        loss = (1.0 - chance) * loss / variance**2 if variance else 0.0
        loss += chance / float(self.shift.freedom[0])
        variance = (1.0 - chance) * variance + chance * float(self.shift.variance[0])
        return variance, 1.0 / loss if loss else np.inf


def noise_of(table: Array) -> Noise:
    """The noise of a table; freedom 0 where no row has two draws."""
    present = np.isfinite(table)
    counts = present.sum(axis=1)
    repeated = present & (counts > 1)[:, None]
    left = table - resample.row_means(table)[:, None]
    scaled = left / np.sqrt(1.0 - 1.0 / np.maximum(counts, 2))[:, None]
    squares = float(np.square(left[repeated]).sum())
    return Noise(pool=scaled[repeated], squares=squares, freedom=int((counts - 1).sum()))


def copies(scores: Array) -> Codes:
    """(C,) numbers of the rows, equal for exact copies that vary over the seeds: they carry one
    draw of the noise.

    An inert hyperparameter of deterministic training makes them. Rows without noise are all
    different.
    """
    keys = np.where(np.isfinite(scores), rounded(scores), np.inf)
    codes = np.unique(keys, axis=0, return_inverse=True)[1].reshape(-1).astype(np.int64)
    varied = np.nanmax(scores, axis=1) > np.nanmin(scores, axis=1)
    codes[~varied] = len(codes) + np.arange(int((~varied).sum()))
    return np.unique(codes, return_inverse=True)[1].astype(np.int64)


def sample_term(values: Array, scores: Array) -> Term:
    """The mean of a sample of settings, whose values (C,) are its draws; `scores` are theirs."""
    firsts, parts = _once(scores)
    table = values[firsts][None]
    return Term(table=table, weights=parts[None], noise=noise_of(table), rounding=_rounding(scores))


def term(part: Array, scores: Array, whole: Array, all_scores: Array) -> Term:
    """The mean of a part of the whole table of a grid; `scores` are those that its rows are made
    of, by which copies are known.
    """
    firsts, parts = _once(scores)
    table, everywhere = part[firsts], whole[_once(all_scores)[0]]
    present, noise = np.isfinite(table), noise_of(everywhere)
    weights = np.where(present, (parts / present.sum(axis=1))[:, None], 0.0)
    return Term(
        table=table,
        weights=weights,
        noise=noise,
        uneven=_uneven(table, noise, is_whole=len(part) == len(whole)),
        shift=_shift(everywhere, weights) if len(table) > 1 else NO_DOUBT,
        rounding=_rounding(scores),
    )


def _once(scores: Array) -> tuple[Codes, Array]:
    """First row of each set of copies, and which part of all rows they are."""
    _, firsts, counts = np.unique(copies(scores), return_index=True, return_counts=True)
    return firsts, counts / len(scores)


def _rounding(scores: Array) -> float:
    return 1e-13 * float(np.nanmax(np.abs(scores)))


def _uneven(table: Array, noise: Noise, *, is_whole: bool) -> Doubt:
    """That a row of the whole table, or a part of it, has more noise than the others."""
    if is_whole and len(table) > MANY:
        return NO_DOUBT
    squares = np.nansum(np.square(table - resample.row_means(table)[:, None]), axis=1)
    freedom = np.isfinite(table).sum(axis=1) - 1.0
    if not is_whole:
        squares, freedom = squares.sum(keepdims=True), freedom.sum(keepdims=True)
    others = np.maximum(noise.squares - squares, 0.0)
    chance = chance_of(squares, freedom, others, noise.freedom - freedom, np.array(UNEVEN))
    own = squares / np.maximum(freedom, 1.0)
    return Doubt(
        chance=chance,
        variance=np.maximum(own, noise.variance),
        freedom=np.maximum(freedom, 1.0),
    )


def _shift(table: Array, weights: Array) -> Doubt:
    """That a part of the noise is common to all rows of a seed, of variance s_b^2: a two-way layout
    with gaps.

    Its mean square, over that of the rest, is F with S - 1 degrees of freedom where there is none.
    The mean then varies by  s_b^2 sum_s (sum_c w_cs)^2 + s_e^2 sum_cs w_cs^2,  with s_b^2 from
    E[SS_b] = (S - 1) s_e^2 + tr(A) s_b^2  (Henderson 1953, method 3). Seeds of one row say nothing.
    """
    table = table[:, np.isfinite(table).sum(axis=0) > 1]
    table = table[np.isfinite(table).sum(axis=1) > 1]
    if min(table.shape) < 2 or table.shape[1] > MANY:
        return NO_DOUBT
    present = np.isfinite(table)
    counts = present.sum(axis=1)
    left = np.where(present, table - resample.row_means(table)[:, None], 0.0)
    design = np.diag(present.sum(axis=0)) - (present / counts[:, None]).T @ present
    inverse = np.linalg.pinv(design, hermitian=True)
    freedom = float(np.round(np.trace(inverse @ design)))
    others_freedom = float((counts - 1).sum()) - freedom
    if freedom < 1 or others_freedom < 1:
        return NO_DOUBT
    squares = float(left.sum(axis=0) @ inverse @ left.sum(axis=0))
    others = max(0.0, float(np.square(left).sum()) - squares)
    spread = float(np.trace(design))
    ratios = 1.0 + spread / freedom * np.array(COMMON) / (1.0 - np.array(COMMON))
    chance = chance_of(*np.array([[squares], [freedom], [others], [others_freedom]]), ratios)
    rest = others / others_freedom
    common = max(0.0, (squares - freedom * rest) / spread)
    variance = common * np.square(weights.sum(axis=0)).sum() + rest * np.square(weights).sum()
    return Doubt(chance=chance, variance=np.array([variance]), freedom=np.array([freedom]))


def chance_of(
    squares: Array, freedom: Array, others: Array, others_freedom: Array, ratios: Array
) -> Array:
    """Posterior chance that the variance behind `squares` is one of `ratios` times that behind
    `others`, and not the same; sums of squares and degrees of freedom are (U,).

    Bayes factor: the mean over the ratios r of  r^(-d/2) [(Q + R) / (Q / r + R)]^((d + e)/2),  Q
    and R the sums, d and e their degrees of freedom. The prior is such that where both variances
    look the same a 95 % interval of t with d + e degrees of freedom grows by 2 % when it is mixed
    with one with d; at most 0.3.
    """
    told = (freedom >= 1) & (others_freedom >= 1) & (squares > 0)
    d, e = np.where(told, freedom, 1.0), np.where(told, others_freedom, 1.0)
    q, r = np.where(told, squares, d), np.where(told, others, e)
    reach = WIDER * special.stdtrit(d + e, 0.975)
    even, own = 2.0 * special.stdtr(d + e, -reach), 2.0 * special.stdtr(d, -reach)
    prior = special.logit((0.05 - even) / (own - even)) - _log_factor(d, d, e, e, ratios)
    odds = np.minimum(prior, special.logit(MOST)) + _log_factor(q, d, r, e, ratios)
    sure = r <= 1e-20 * q  # the others have no noise at all
    return np.where(told, np.where(sure, 1.0, special.expit(odds)), 0.0)


def _log_factor(q: Array, d: Array, r: Array, e: Array, ratios: Array) -> Array:
    more = ratios[:, None]
    logs = (d + e) / 2.0 * (np.log(q + r) - np.log(q / more + r)) - d / 2.0 * np.log(more)
    return np.asarray(special.logsumexp(logs, axis=0) - np.log(len(ratios)))
