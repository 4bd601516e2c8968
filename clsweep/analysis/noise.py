"""Seed noise of a table of scores: one variance for all of it, and how far that is to be doubted.

Shape legend: n = configurations, S_i = scores of one of them, d_i = S_i - 1.

The model is x_is = theta_i + e_is with one variance. Against it stands, by its posterior chance,
that a configuration has more noise of its own. Noise is then drawn from that model with this
chance, so that an interval grows as steadily as the doubt. A test of evenness would leave the
narrow interval in just those tables in which it has no power.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

from clsweep.analysis.reasons import Note, Reason, note

Array = NDArray[np.float64]

# How much larger the variance of a part is, if it is.
UNEVEN = np.array([4.0, 9.0, 20.0, 45.0, 100.0])
# Where the noise looks just even, the doubt may widen a 95 % interval by this much, and is no
# likelier than this before the scores are seen: the cost of the doubt where it is unfounded.
WIDER, MOST = 1.02, 0.4
# So many configurations are expected to stand out, and the worst tenth, or ten of many, so many
# times likelier: where training fails halfway, scores scatter.
OUTLIERS, WORST, MOST_WORST = 4.0, 3.0, 10.0
NEVER = 1e-3  # a chance that moves no interval
# A factor of noise that is missed this often is said, from so much on, where the worst tenth is one
# of so few configurations.
MISSED, LEAST_SAID, FEW = 0.2, 3.0, 20


@dataclass(frozen=True, kw_only=True)
class Noise:
    """The noise of the scores of each configuration.

    Attributes:
        pooled, freedom: sum_is (x_is - m_i)^2 / freedom,  freedom = sum_i d_i; NaN without a
            repeat.
        chance: (n,) that a configuration has more noise of its own.
        own, own_freedom: (n,) its variance then, as known from so many degrees of freedom: one more
            than it has, as noise is seen where it looks large.
    """

    pooled: float
    freedom: int
    chance: Array
    own: Array
    own_freedom: Array

    def of_sum(self, squares: Array) -> tuple[float, float]:
        """Variance of sum_i w_i m_i and its degrees of freedom (Satterthwaite), of squares =
        w_i^2 / S_i (n,). Exact for even normal noise: a doubt below a half is let pass.
        """
        even, own = self._parts(squares)
        variance, freedom = self._of(even.sum(), own.sum(), (own**2 / self.own_freedom).sum())
        return float(variance), float(freedom)

    def of_each(self, squares: Array) -> tuple[Array, Array]:
        """(n,) variances of w_i m_i, each alone, and (n,) degrees of freedom."""
        even, own = self._parts(squares)
        return self._of(even, own, own**2 / self.own_freedom)

    def _parts(self, squares: Array) -> tuple[Array, Array]:
        """(n,) variances by the noise of all, and by that of its own."""
        chance = np.where(self.chance > 0.5, self.chance, 0.0)
        return self.pooled * squares * (1.0 - chance), squares * chance * self.own

    def _of(self, even: Any, own: Any, own_loss: Any) -> tuple[Array, Array]:
        variance, loss = np.asarray(even + own), even**2 / max(self.freedom, 1) + own_loss
        known = np.where(loss > 0, loss, 1.0)
        return variance, np.where(loss > 0, variance**2 / known, float(self.freedom))

    def draw(self, size: int, rng: np.random.Generator) -> Array:
        """(size, n) standard deviations as they may be, given what was seen: sqrt(df variance /
        chi2(df)), one draw for all configurations whose noise is not their own.
        """
        even = np.sqrt(self.freedom * self.pooled / rng.chisquare(self.freedom, (size, 1)))
        drawn = np.broadcast_to(even, (size, len(self.chance))).copy()
        rows = np.flatnonzero(self.chance > NEVER)
        own = self.own_freedom[rows] * self.own[rows]
        own = np.sqrt(own / rng.chisquare(self.own_freedom[rows], (size, len(rows))))
        mine = rng.random(own.shape) < self.chance[rows]
        drawn[:, rows] = np.where(mine, own, drawn[:, rows])
        return drawn


def noise_of(values: Array, silent: NDArray[np.bool_] | None = None) -> Noise:
    """The noise of a table (n, S), NaN = no score, of which each row has a score.

    silent: (n,) rows without noise, which say nothing of the others' (`Sweep.silent`).
    """
    counts = np.isfinite(values).sum(axis=1)
    means = np.nansum(values, axis=1) / counts
    squares = np.nansum(np.square(values - means[:, None]), axis=1)
    freedom = counts - 1.0
    if silent is not None:
        freedom[silent], squares[silent] = 0.0, 0.0
    total, num = float(freedom.sum()), len(values)
    pooled = float(squares.sum()) / total if total else np.nan
    likelier = np.full(num, min(1.0, OUTLIERS / num))
    worst = max(1, num // 10)
    likelier[means.argsort(kind="stable")[:worst]] = WORST * min(1.0, MOST_WORST / worst)
    others = np.maximum(squares.sum() - squares, 0.0)
    chance = chance_of(squares, freedom, others, total - freedom, UNEVEN, WIDER, MOST)
    with np.errstate(divide="ignore"):
        chance = special.expit(special.logit(chance) + np.log(likelier))
    own = np.maximum(squares / np.maximum(freedom, 1.0), pooled)
    if silent is not None:
        chance[silent], own[silent] = 1.0, 0.0
    return Noise(
        pooled=pooled,
        freedom=int(total),
        chance=chance,
        own=own,
        own_freedom=freedom + 1.0,
    )


def blindness(values: Array) -> tuple[Note, ...]:
    """A note on how much more noise the worst of few configurations (n, S) may have unseen."""
    freedom = np.isfinite(values).sum(axis=1) - 1
    noise = noise_of(values)
    if len(values) >= FEW or not noise.pooled > 0:
        return ()
    least = int(freedom[freedom > 0].min())
    factor = unseen(least, noise.freedom - least)
    if not LEAST_SAID <= factor < np.inf:
        return ()
    return (
        note(Reason.UNEVEN_UNSEEN, settings=len(values), seeds=least + 1, factor=round(factor)),
    )


def unseen(freedom: int, others: int) -> float:
    """The factor of noise of the worst configuration at which its chance to have noise of its own
    stays below a half in `MISSED` of all tables; degrees of freedom of it and of the others.

    Seen is a ratio of mean squares above F_0; with a factor f the ratio is f^2 F, so
    f = sqrt(F_0 / F^-1(MISSED)).
    """
    if not others:
        return np.inf
    ratios = np.geomspace(0.1, 1e6, 1000)
    ones = np.ones(len(ratios))
    sums = ratios * freedom, ones * freedom, ones * others, ones * others
    seen = chance_of(*sums, UNEVEN, WIDER, MOST) > 1.0 / (1.0 + WORST)
    return float(np.sqrt(ratios[seen.argmax()] / special.fdtri(freedom, others, MISSED)))


def chance_of(
    squares: Array,
    freedom: Array,
    others: Array,
    others_freedom: Array,
    ratios: Array,
    wider: float,
    most: Array | float,
) -> Array:
    """Posterior chance that the variance behind `squares` is one of `ratios` times that behind
    `others`, and not the same; sums of squares and degrees of freedom are (U,).

    Bayes factor: the mean over the ratios r of  r^(-d/2) [(Q + R) / (Q / r + R)]^((d + e)/2),  Q
    and R the sums, d and e their degrees of freedom. The prior is such that where both variances
    look the same a 95 % interval of t with d + e degrees of freedom grows by `wider` when it is
    mixed with one with d; at most `most`.
    """
    told = (freedom >= 1) & (others_freedom >= 1) & (squares > 0)
    d, e = np.where(told, freedom, 1.0), np.where(told, others_freedom, 1.0)
    q, r = np.where(told, squares, d), np.where(told, others, e)
    reach = wider * special.stdtrit(d + e, 0.975)
    even, own = 2.0 * special.stdtr(d + e, -reach), 2.0 * special.stdtr(d, -reach)
    prior = special.logit((0.05 - even) / (own - even)) - _log_factor(d, d, e, e, ratios)
    odds = np.minimum(prior, special.logit(most)) + _log_factor(q, d, r, e, ratios)
    sure = r <= 1e-20 * q  # the others have no noise at all
    return np.where(told, np.where(sure, 1.0, special.expit(odds)), 0.0)


def _log_factor(q: Array, d: Array, r: Array, e: Array, ratios: Array) -> Array:
    more = ratios[:, None]
    logs = (d + e) / 2.0 * (np.log(q + r) - np.log(q / more + r)) - d / 2.0 * np.log(more)
    return np.asarray(special.logsumexp(logs, axis=0) - np.log(len(ratios)))
