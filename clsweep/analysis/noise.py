"""Seed noise of a table of scores: its variance, who shares it, and how far that is to be doubted.

Shape legend: n = configurations, S = seeds, S_i = scores of one configuration, d_i = S_i - 1.

The model is x_is = theta_i + e_is with one variance. Against it stands, by its posterior chance,
that a configuration has more noise of its own. Noise is then drawn from that model with this
chance, so that an interval grows as steadily as the doubt. A test of evenness would leave the
narrow interval in just those tables in which it has no power. Where all rows have seeds enough and
their noise differs beyond doubt, each has its own, also where that is less than others have.

Copies: deterministic training repeats its scores to the last digit wherever the parameters that
differ are inert. They carry one draw of the noise. What a seed does to all: see `seed_effects`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

from clsweep.analysis import CONFIDENCE
from clsweep.analysis.array_types import Array, Codes

# How much larger the variance of a part is, if it is.
UNEVEN = np.array([4.0, 9.0, 20.0, 45.0, 100.0])
# Where the noise looks just even, the doubt may widen a 95 % interval by this much, and is no
# likelier than this before the scores are seen: the cost of the doubt where it is unfounded.
WIDER, MOST = 1.02, 0.4
# So many configurations are expected to stand out, and the worst tenth, or ten of many, so many
# times likelier: where training fails halfway, scores scatter.
OUTLIERS, WORST, MOST_WORST = 4.0, 3.0, 10.0
NEVER = 1e-3  # a chance that moves no interval
# Each row has noise of its own from so many degrees of freedom on, where Bartlett's test of even
# noise gives no more than this.
OWN_FREEDOM, OWN_LEVEL = 4, 1e-4


@dataclass(frozen=True, eq=False)
class Noise:
    """The noise of a table (n, S): of each row, of sums of their means, and as it may be drawn.

    Attributes:
        left: (n, S) x_is - m_i, NaN = no score.
        means: (n,) m_i.
        silent: (n,) rows without noise, which say nothing of the others'.
        freedoms, squares: (n,) d_i and sum_s (x_is - m_i)^2; 0 of silent rows.
        freedom, pooled: sum_i d_i, and sum_is (x_is - m_i)^2 over it; NaN without a repeat.
        total: the sum of all squares in one go: a difference's chances hang on its last digit.
    """

    left: Array
    means: Array
    silent: NDArray[np.bool_]
    freedoms: Array
    squares: Array
    freedom: int
    pooled: float
    total: float

    @property
    def variance(self) -> float:
        """total / freedom; 0 without a repeat."""
        return self.total / max(self.freedom, 1)

    @cached_property
    def residuals(self) -> Array:
        """(x_is - m_i) / sqrt(1 - 1 / S_i) of the rows with a repeat. Where each has its own noise,
        as large as with that of all.
        """
        present = np.isfinite(self.left)
        counts = present.sum(axis=1)[:, None]
        repeated = present & (counts > 1)
        scaled = self.left / np.sqrt(1.0 - 1.0 / np.maximum(counts, 2))
        if self.is_uneven:
            scaled *= np.sqrt(self.pooled / np.where(self.own > 0, self.own, self.pooled))[:, None]
        return np.asarray(scaled[repeated])

    @cached_property
    def is_uneven(self) -> bool:
        """True where the noise of the rows differs beyond doubt (Bartlett's test); of rows without
        any nothing is known.
        """
        has_noise = self.squares > 0
        freedoms, num = self.freedoms[has_noise], int(has_noise.sum())
        if num < 2 or freedoms.min() < OWN_FREEDOM:
            return False
        logs = freedoms @ np.log(self.squares[has_noise] / freedoms)
        total = freedoms.sum()
        test = total * np.log(self.squares.sum() / total) - logs
        test /= 1.0 + ((1.0 / freedoms).sum() - 1.0 / total) / (3.0 * (num - 1))
        return bool(special.chdtrc(num - 1, test) < OWN_LEVEL)

    @cached_property
    def chance(self) -> Array:
        """(n,) that a configuration has noise of its own, more than the others."""
        num = len(self.means)
        if self.is_uneven:
            return np.where((self.squares > 0) | self.silent, 1.0, 0.0)
        worst = max(1, num // 10)
        likelier = np.full(num, min(1.0, OUTLIERS / num))
        likelier[self.means.argsort(kind="stable")[:worst]] = WORST * min(1.0, MOST_WORST / worst)
        others = np.maximum(self.squares.sum() - self.squares, 0.0)
        others_freedom = self.freedom - self.freedoms
        chance = chance_of_own_variance(
            self.squares, self.freedoms, others, others_freedom, UNEVEN, WIDER, MOST
        )
        with np.errstate(divide="ignore"):
            chance = special.expit(special.logit(chance) + np.log(likelier))
        return np.where(self.silent, 1.0, chance)

    @property
    def doubt(self) -> Array:
        """(n,) that chance, 0 where it is a half or less."""
        return np.where(self.chance > 0.5, self.chance, 0.0)

    @cached_property
    def own(self) -> Array:
        """(n,) the variance of each row where it has noise of its own, not below the pooled unless
        the noise is uneven beyond doubt.
        """
        own = self.squares / np.maximum(self.freedoms, 1.0)
        if not self.is_uneven:
            own = np.maximum(own, self.pooled)
        return np.where(self.silent, 0.0, own)

    @cached_property
    def own_freedom(self) -> Array:
        """(n,) the degrees of freedom of that: one more than d_i, as noise is seen where it looks
        large.
        """
        return self.freedoms + (not self.is_uneven)

    def of_sum(self, squares: Array) -> tuple[float, float]:
        """Variance of sum_i w_i m_i and its degrees of freedom (Satterthwaite), of squares =
        w_i^2 / S_i (n,). Exact for even normal noise: a doubt below a half is let pass.
        """
        variance, freedom = self._of(*(part.sum() for part in self._parts(squares)))
        return float(variance), float(freedom)

    def of_each(self, squares: Array) -> tuple[Array, Array]:
        """(n,) variances of w_i m_i, each alone, and (n,) degrees of freedom."""
        return self._of(*self._parts(squares))

    def _parts(self, squares: Array) -> tuple[Array, Array, Array]:
        """(n,) variances by the noise of all, by its own, the square of that over its freedom."""
        even = self.pooled * squares * (1.0 - self.doubt)
        own = squares * self.doubt * self.own
        return even, own, own**2 / self.own_freedom

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
    left = values - means[:, None]
    silent = np.zeros(len(values), dtype=bool) if silent is None else silent
    freedoms = np.where(silent, 0.0, counts - 1.0)
    squares = np.where(silent, 0.0, np.nansum(np.square(left), axis=1))
    freedom, total = int(freedoms.sum()), float(np.square(left[np.isfinite(left)]).sum())
    pooled = float(squares.sum()) / freedom if freedom else np.nan
    return Noise(left, means, silent, freedoms, squares, freedom, pooled, total)


def half_width(variance: Any, freedom: Any) -> Any:
    """Of a t-interval, of variances and their degrees of freedom."""
    return special.stdtrit(freedom, (1.0 + CONFIDENCE) / 2.0) * np.sqrt(variance)


def chance_of_own_variance(
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
    is_known = (freedom >= 1) & (others_freedom >= 1) & (squares > 0)
    d, e = np.where(is_known, freedom, 1.0), np.where(is_known, others_freedom, 1.0)
    q, r = np.where(is_known, squares, d), np.where(is_known, others, e)
    reach = wider * special.stdtrit(d + e, 0.975)
    even, own = 2.0 * special.stdtr(d + e, -reach), 2.0 * special.stdtr(d, -reach)
    share = np.minimum((0.05 - even) / (own - even), 1.0)  # of many degrees d never so wide
    prior = special.logit(share) - _log_factor(d, d, e, e, ratios)
    odds = np.minimum(prior, special.logit(most)) + _log_factor(q, d, r, e, ratios)
    sure = r <= 1e-20 * q  # the others have no noise at all
    return np.where(is_known, np.where(sure, 1.0, special.expit(odds)), 0.0)


def _log_factor(q: Array, d: Array, r: Array, e: Array, ratios: Array) -> Array:
    more = ratios[:, None]
    logs = (d + e) / 2.0 * (np.log(q + r) - np.log(q / more + r)) - d / 2.0 * np.log(more)
    return np.asarray(special.logsumexp(logs, axis=0) - np.log(len(ratios)))


def copies(scores: Array) -> Codes:
    """(n,) number of the group of copies of each configuration; without any, each has its own.

    A copy has the scores of another one at all seeds, of which there are two or more, and which
    differ: what is the same at every seed, as the score of a collapse, carries no noise. One that
    lacks some seeds is a copy where the seeds that it has fit a single group.

    Scores of few digits are equal by chance. So nothing counts as a copy unless most configurations
    that have one seed's score in common have all in common.
    """
    groups = np.arange(len(scores))
    present = np.isfinite(scores)
    in_order = np.sort(scores[present])
    if scores.shape[1] < 2 or (in_order[1:] > in_order[:-1]).all():
        return groups  # no score is there twice
    low = np.where(present, scores, np.inf).min(axis=1)
    noisy = np.where(present, scores, -np.inf).max(axis=1) > low
    whole = np.flatnonzero(present.all(axis=1) & noisy)
    if len(whole) < 2:
        return groups
    different, codes = np.unique(scores[whole], axis=0, return_inverse=True)
    codes = codes.ravel()
    tied = np.mean(
        [_pairs(np.unique(column, return_inverse=True)[1]) for column in scores[whole].T]
    )
    if not _pairs(codes) or 2 * _pairs(codes) < tied:
        return groups
    firsts = np.unique(codes, return_index=True)[1]
    groups[whole] = whole[firsts][codes]
    for row in np.flatnonzero(~present.all(axis=1) & (present.sum(axis=1) > 1) & noisy):
        fits = np.flatnonzero((different[:, present[row]] == scores[row, present[row]]).all(axis=1))
        if len(fits) == 1:
            groups[row] = whole[firsts[fits[0]]]
    return groups


def _pairs(codes: Codes) -> int:
    """Pairs of equal codes."""
    counts = np.bincount(codes)
    return int((counts * (counts - 1) // 2).sum())
