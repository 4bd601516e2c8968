"""Noise of a table of scores: seeds are blocks, what is left has a variance of its own.

Shape legend: n = configurations, S = seeds, S_i = scores of one configuration, d_i = the degrees of
freedom that its residuals have: (S - 1) (n - 1) / n of a complete table.

The model is x_is = m_i + b_s + e_is: a randomised complete block design with random blocks. A sum
over configurations, sum_i w_i m_i, varies by

    (sum_i w_i)^2 s_b^2 / S + sum_i w_i^2 s_e^2 / S
        = (sum_i w_i)^2 / (n S) MS_b + [sum_i w_i^2 - (sum_i w_i)^2 / n] / S MS_e,

both terms at least 0. So the mean over all configurations goes by the seeds alone, with S - 1
degrees of freedom, a difference by the residual alone, with (n - 1) (S - 1), and a single level by
both. The half width of its interval is the root of the sum of the squares of both terms' own
(square and add: Howe 1974; Zou and Donner 2008), as Satterthwaite's degrees of freedom cover too
little where one of them is 1.

The residual variance is one for all, but a configuration may have more. How likely that is is a
posterior chance, and noise is drawn from the model with this chance: a test of evenness would leave
the narrow interval in just those tables in which it has no power. Where each row has seeds enough
and their noise differs by the test of Brown and Forsythe, each goes by its own seeds.

Copies: deterministic training repeats its scores to the last digit wherever the parameters that
differ are inert. They carry one draw of the noise.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

from clsweep.analysis import CONFIDENCE
from clsweep.analysis.array_types import Array, Codes
from clsweep.analysis.score_table import SeedBlocks, seed_blocks

# How much larger the variance of a part is, if it is.
UNEVEN = np.array([4.0, 9.0, 20.0, 45.0, 100.0])
# Where the noise looks just even, the doubt may widen a 95 % interval by this much, and is no
# likelier than this before the scores are seen: the cost of the doubt where it is unfounded.
WIDER, MOST = 1.02, 0.4
# So many configurations are expected to stand out, and the worst tenth, or ten of many, so many
# times likelier: where training fails halfway, scores scatter.
OUTLIERS, WORST, MOST_WORST = 4.0, 3.0, 10.0
NEVER = 1e-3  # a chance that moves no interval
# Each row has noise of its own from so many degrees of freedom on, where the test of even noise
# gives no more than this.
OWN_FREEDOM, OWN_LEVEL = 3.0, 1e-3
Parts = list[tuple[float, float]]  # independent variances, each with its degrees of freedom


@dataclass(frozen=True, eq=False)
class Noise:
    """The noise of a table (n, S): of each row, of sums of their means, and as it may be drawn.

    Attributes:
        values, left: (n, S) the scores, NaN = none, and x_is - m_i - b_s.
        means: (n,) m_i, by least squares.
        silent: (n,) rows without noise, which say nothing of the others'.
        freedoms, squares: (n,) d_i and the sum of the squared residuals; 0 of silent rows.
        blocks: the seeds; None where a column is no seed, or none is in two rows.
    """

    values: Array
    left: Array
    means: Array
    silent: NDArray[np.bool_]
    freedoms: Array
    squares: Array
    blocks: SeedBlocks | None

    @cached_property
    def counts(self) -> NDArray[np.intp]:
        """(n,) scores of each row."""
        return np.asarray(np.isfinite(self.values).sum(axis=1))

    @cached_property
    def groups(self) -> Codes:
        """(n,) group of copies of each row."""
        return copies(self.values)

    @cached_property
    def freedom(self) -> float:
        """sum_i d_i; of copies those of one row."""
        own = float(self.freedoms.sum())
        return own * len(np.unique(self.groups)) / len(self.groups) if own > 1e-9 else 0.0

    @cached_property
    def pooled(self) -> float:
        """s_e^2, the residual variance; NaN where nothing is left of it."""
        return float(self.squares.sum()) / own if (own := self.freedoms.sum()) > 1e-9 else np.nan

    @cached_property
    def residuals(self) -> Array:
        """Residuals of the rows with a repeat, enlarged to the noise's variance. Where each has its
        own noise, as large as with that of all.
        """
        present = np.isfinite(self.left)
        shares = np.where(self.freedoms > 0, self.freedoms, 1.0) / self.counts
        scaled = self.left / np.sqrt(shares)[:, None]
        if self.is_uneven:
            scaled *= np.sqrt(self.pooled / np.where(self.own > 0, self.own, self.pooled))[:, None]
        return np.asarray(scaled[present & (self.counts > 1)[:, None]])

    @cached_property
    def is_uneven(self) -> bool:
        """True where the noise of the rows differs, by the distances to each row's median (Brown
        and Forsythe 1974), which heavy tails alone do not set off.
        """
        rows = (self.squares > 0) & (self.freedoms >= OWN_FREEDOM)
        if rows.sum() < 2 or (self.squares > 0).sum() > rows.sum():
            return False
        values = self.values[rows]
        distances = np.abs(values - np.nanmedian(values, axis=1, keepdims=True))
        counts, means = self.counts[rows], np.nanmean(distances, axis=1)
        between = float(counts @ np.square(means - np.nanmean(distances)))
        within = float(np.nansum(np.square(distances - means[:, None])))
        first, second = len(counts) - 1.0, float(counts.sum() - len(counts))
        if not within > 0:
            return between > 0
        p = special.fdtrc(first, second, between / first / (within / second))
        return bool(p < OWN_LEVEL)

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
        others_freedom = self.freedoms.sum() - self.freedoms
        chance = chance_of_own_variance(self.squares, self.freedoms, others, others_freedom)
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
        own = self.squares / np.where(self.freedoms > 0, self.freedoms, 1.0)
        if not self.is_uneven:
            own = np.maximum(own, self.pooled)
        return np.where(self.silent, 0.0, own)

    @cached_property
    def own_freedom(self) -> Array:
        """(n,) the degrees of freedom of that: one more than d_i, as noise is seen where it looks
        large.
        """
        return self.freedoms + (not self.is_uneven)

    def of_sum(self, weights: Array) -> tuple[float, float]:
        """Variance of sum_i w_i m_i by the residual alone, and its degrees of freedom
        (Satterthwaite 1946). Exact for even normal noise: a doubt below a half is let pass.
        """
        merged = np.bincount(self.groups, weights, len(weights))
        each = self._parts(np.square(merged) / self.counts)
        variance, freedom = self._of(*(part.sum() for part in each))
        if self.blocks and not np.isfinite(self.values).all():  # what the effects are unsure of
            held = np.where(np.isfinite(self.values), (weights / self.counts)[:, None], 0.0)
            unsure = held.sum(axis=0)
            variance = variance + self.pooled * float(unsure @ self.blocks.inverse @ unsure)
        return float(variance), float(freedom)

    def of_each(self, squares: Array) -> tuple[Array, Array]:
        """(n,) variances of w_i m_i by the residual, each alone, of w_i^2 / S_i (n,), and (n,)
        degrees of freedom.
        """
        return self._of(*self._parts(squares))

    def parts(self, weights: Array) -> Parts:
        """The terms of the variance of sum_i w_i m_i: by the seeds, and by what is left. Where each
        row has its own noise: of the sums at each seed.
        """
        used = np.flatnonzero(weights)
        at = weights[used] @ self.values[used]
        if self.is_uneven and np.isfinite(at).all():
            return [(float(at.var(ddof=1)) / len(at), len(at) - 1.0)]
        variance, freedom = self.of_sum(weights)
        shared = float(weights[~self.silent].sum())
        if not self.blocks or abs(shared) < 1e-9:
            return [(variance, freedom)]
        by_seeds = shared**2 * self.blocks.of_mean
        even = float(np.square(weights[~self.silent]) @ (1.0 / self.counts[~self.silent]))
        rest = max(0.0, 1.0 - shared**2 / (self.blocks.rows * self.blocks.num_seeds * even))
        by_rest = [(variance * rest, freedom)] if rest > 1e-9 and variance > 0 else []
        return [(by_seeds, self.blocks.freedom), *by_rest]

    @property
    def of_seeds(self) -> tuple[float, float]:
        """The variance of a level that all rows share alike, by the seeds, and its degrees of
        freedom.
        """
        return (self.blocks.of_mean, self.blocks.freedom) if self.blocks else (0.0, 1.0)

    @cached_property
    def half_widths(self) -> Array:
        """(n,) of the interval of each mean; NaN without noise to go by."""
        return self.over(1.0 / self.counts)

    def over(self, squares: Array, known: float = 0.0) -> Array:
        """(n,) half widths of intervals of sums of each row's scores, whose squared weights add up
        to `squares`, beside a known variance. Where each row has its own noise it goes by its own
        seeds, with what they do to all.
        """
        if self.is_uneven:
            whole = self.values - np.nanmean(self.values, axis=1, keepdims=True)
            own = np.nansum(np.square(whole), axis=1) / np.maximum(self.counts - 1, 1)
            is_known = own > 0  # nothing is known of the noise of equal scores
            variance = np.where(is_known, own, self.pooled) * squares
            freedom = np.where(is_known, self.counts - 1.0, self.freedom)
        else:
            variance, freedom = self.of_each(squares)
            if self.blocks:
                variance = variance * (1.0 - 1.0 / max(self.blocks.rows, 1.0))
        if known:
            freedom = freedom * np.square(1.0 + known / np.where(variance > 0, variance, np.nan))
            variance = variance + known
        is_known = freedom > 0
        half = np.where(is_known, half_width(variance, np.where(is_known, freedom, 1.0)), np.nan)
        if self.blocks and not self.is_uneven:
            by_seeds = squares * self.blocks.mean_square / self.blocks.rows
            half = np.hypot(np.nan_to_num(half), half_width(by_seeds, self.blocks.freedom))
        return np.where(self.silent, 0.0, half)

    def _parts(self, squares: Array) -> tuple[Array, Array, Array]:
        """(n,) variances by the noise of all, by its own, the square of that over its freedom."""
        even = self.pooled * squares * (1.0 - self.doubt)
        own = squares * self.doubt * self.own
        return even, own, own**2 / self.own_freedom

    def _of(self, even: Any, own: Any, own_loss: Any) -> tuple[Array, Array]:
        variance, loss = np.asarray(even + own), even**2 / max(self.freedom, 1.0) + own_loss
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


def noise_of(
    values: Array, silent: NDArray[np.bool_] | None = None, *, by_seed: bool = False
) -> Noise:
    """The noise of a table (n, S), NaN = no score, of which each row has a score.

    silent: (n,) rows without noise, which say nothing of the others' (`Sweep.silent`).
    by_seed: columns are seeds, the blocks of the design.
    """
    counts = np.isfinite(values).sum(axis=1)
    silent = np.zeros(len(values), dtype=bool) if silent is None else silent
    blocks = seed_blocks(values[~silent]) if by_seed and not silent.all() else None
    even = values - np.where(silent[:, None], 0.0, blocks.effects) if blocks else values
    means = np.nansum(even, axis=1) / counts
    left = even - means[:, None]
    freedoms = counts - 1.0
    if blocks:  # less what the effects take of it, sum_s var(b_s - mean b) over the row's seeds
        has = np.isfinite(values).astype(float)
        shared = ((has @ blocks.inverse) * has).sum(axis=1) / counts
        freedoms -= has @ np.diag(blocks.inverse) - shared
    freedoms = np.where(silent | (freedoms < 1e-9), 0.0, freedoms)
    squares = np.where(silent, 0.0, np.nansum(np.square(left), axis=1))
    return Noise(values, left, means, silent, freedoms, squares, blocks)


def half_width(variance: Any, freedom: Any) -> Any:
    """Of a t-interval, of variances and their degrees of freedom."""
    return special.stdtrit(freedom, (1.0 + CONFIDENCE) / 2.0) * np.sqrt(variance)


def square_and_add(parts: Iterable[tuple[float, float]]) -> float:
    """Half width of the interval of a sum of independent parts: the root of the sum of the squares
    of their own (Howe 1974; Zou and Donner 2008).
    """
    return float(np.sqrt(sum(half_width(*part) ** 2 for part in parts)))


def satterthwaite(parts: Iterable[tuple[float, float]]) -> tuple[float, float]:
    """Variance and degrees of freedom of a sum of independent parts of one kind (Welch 1947;
    Satterthwaite 1946); 0 of none.
    """
    known = [(variance, freedom) for variance, freedom in parts if variance > 0 and freedom > 0]
    variance = sum(each for each, _ in known)
    return variance, variance**2 / sum(v**2 / df for v, df in known) if known else 0.0


def chance_of_own_variance(
    squares: Array, freedom: Array, others: Array, others_freedom: Array
) -> Array:
    """Posterior chance that the variance behind `squares` is one of `UNEVEN` times that behind
    `others`, and not the same; sums of squares and degrees of freedom are (U,).

    Bayes factor: the mean over the ratios r of  r^(-d/2) [(Q + R) / (Q / r + R)]^((d + e)/2),  Q
    and R the sums, d and e their degrees of freedom. The prior is such that where both variances
    look the same a 95 % interval of t with d + e degrees of freedom grows by `WIDER` when it is
    mixed with one with d; at most `MOST`.
    """
    is_known = (freedom > 0) & (others_freedom >= 1) & (squares > 0)
    d, e = np.where(is_known, freedom, 1.0), np.where(is_known, others_freedom, 1.0)
    q, r = np.where(is_known, squares, d), np.where(is_known, others, e)
    reach = WIDER * special.stdtrit(d + e, 0.975)
    even, own = 2.0 * special.stdtr(d + e, -reach), 2.0 * special.stdtr(d, -reach)
    share = np.minimum((0.05 - even) / (own - even), 1.0)  # of many degrees d never so wide
    prior = special.logit(share) - _log_factor(d, d, e, e)
    odds = np.minimum(prior, special.logit(MOST)) + _log_factor(q, d, r, e)
    sure = r <= 1e-20 * q  # the others have no noise at all
    return np.where(is_known, np.where(sure, 1.0, special.expit(odds)), 0.0)


def _log_factor(q: Array, d: Array, r: Array, e: Array) -> Array:
    more = UNEVEN[:, None]
    logs = (d + e) / 2.0 * (np.log(q + r) - np.log(q / more + r)) - d / 2.0 * np.log(more)
    return np.asarray(special.logsumexp(logs, axis=0) - np.log(len(UNEVEN)))


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
    columns = (np.unique(column, return_inverse=True)[1] for column in scores[whole].T)
    tied = np.mean([_pairs(column) for column in columns])
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
