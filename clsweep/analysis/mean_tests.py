"""Tests of a difference of means: its noise, its interval, its p-value.

Shape legend: C = rows (settings), S = draws of each row (seeds), B = resamples. Tables hold NaN
where there is no score, and no row without one. A grid's settings are rows, the seeds their draws.
A sample of settings is one row, whose draws are the setting means.

The model is that of `analysis.noise`: one variance, and by its posterior chance more noise of its
own in a part of the table. Where a seed seems to shift all rows, the seeds are the draws.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy import special

from clsweep.analysis import CONFIDENCE, TAIL, bootstrap, score_table
from clsweep.analysis.array_types import Array, Codes
from clsweep.analysis.bootstrap import tail_p
from clsweep.analysis.evidence import Evidence
from clsweep.analysis.image_intervals import variance_of_difference
from clsweep.analysis.noise import UNEVEN, Noise, chance_of_own_variance, copies, noise_of
from clsweep.analysis.pairing import Pairing
from clsweep.analysis.reasons import Note, Reason, note
from clsweep.analysis.score_table import row_means
from clsweep.analysis.seed_effects import seed_shift

# Where the noise looks just even, the doubt may widen a 95 % interval by this much. Before the
# scores are seen it has no more than this chance times its squared degrees of freedom, or a half.
_WIDER, _MOST = 1.02, 0.075
MAX_EXACT = 16  # units whose sign flips are enumerated, 2^16
NUM_FLIPS = 9_999
_MANY_UNITS = 500  # units above which a sum of random signs or draws is taken at its normal limit
# residuals below which normal noise of their variance is drawn: their own tails are cut short
_FEW_RESIDUALS = 50
MAX_RESAMPLES = 20_000
# scores drawn for one comparison; it sets the number of resamples, fewer for a large table
_DRAWN_SCORES = 1_000_000
CHUNK = 500_000


@dataclass(frozen=True)
class HeteroscedasticAlternative:
    """Another model of the noise: the chance that it holds, the variance of the mean under it, and
    that variance's degrees of freedom.
    """

    chance: float
    variance: float
    freedom: float


NO_ALTERNATIVE = HeteroscedasticAlternative(0.0, 0.0, 1.0)


@dataclass(frozen=True)
class MeanTerm:
    """A table whose weighted mean is a part of an effect.

    Attributes:
        table, weights: (C, S); the weights add up to 1, and are 0 where there is no score.
        noise: the even noise, of all rows.
        variance, freedom: of the mean, without a doubt.
        doubt: that this part of the table has noise of its own.
        shift_p: of no shift, where a seed seems to shift all rows; NaN where none does.
        rounding: a standard error that may be rounding alone.
    """

    table: Array
    weights: Array
    noise: Noise
    variance: float
    freedom: float
    rounding: float
    doubt: HeteroscedasticAlternative = NO_ALTERNATIVE
    shift_p: float = np.nan

    @property
    def estimate(self) -> float:
        return float(np.nansum(self.table * self.weights))

    @property
    def is_normal(self) -> bool:
        """True where normal noise stands for the residuals: few do not show their tails, and of
        seeds that shift all rows there are few.
        """
        return len(self.noise.residuals) < _FEW_RESIDUALS or bool(np.isfinite(self.shift_p))

    @property
    def pool(self) -> Array:
        """The residuals, as large as the variance of the mean says."""
        even = self.noise.variance * float(np.square(self.weights).sum())
        return np.asarray(self.noise.residuals * ((self.variance / even) ** 0.5 if even else 0.0))

    @property
    def error(self) -> tuple[float, float]:
        """Variance of the mean, and its degrees of freedom: those of both models, mixed by their
        chances.
        """
        chance, loss = self.doubt.chance, 1.0 / max(self.freedom, 1.0)
        variance = self.variance + chance * (self.doubt.variance - self.variance)
        return variance, 1.0 / (loss + chance * (1.0 / self.doubt.freedom - loss))

    def shifted_by(self, table: Array, shares: Array, alone: float | None = None) -> MeanTerm:
        """The same where a seed seems to shift all rows of the whole table, by s_b^2 (`TwoWay`):
        the mean then varies by  s_b^2 sum_s (sum_c w_cs)^2 + s_e^2 sum_cs w_cs^2,  w `shares` of
        its scores.

        alone: what takes the place of the second term, of a sample of settings.
        """
        if min(table.shape) < 2 or not (shift := seed_shift(table)):
            return self
        common = shift.variance * float(np.square(shares.sum(axis=0)).sum())
        if alone is None:
            alone = shift.noise * float(np.square(shares).sum())
        shifted = replace(self, variance=common + alone, freedom=shift.own_freedom)
        return replace(shifted, doubt=NO_ALTERNATIVE, shift_p=shift.p)


def sample_mean_term(
    values: Array, scores: Array, crossed: tuple[Array, Array] | None = None
) -> MeanTerm:
    """The mean of a sample of settings, whose values (C,) are its draws; `scores` are theirs.

    crossed: (C, S) what the values are means of, by seed, where seeds may shift all settings; the
        same of the whole sample, which shows that.
    """
    rounding = float(score_table.rounding(scores.reshape(-1)))
    firsts, parts = _once(scores)
    table, weights = values[firsts][None], parts[None]
    noise = noise_of(table)
    variance = noise.variance * float(np.square(weights).sum())
    term = MeanTerm(table, weights, noise, variance, noise.freedom, rounding)
    if crossed is None:
        return term
    by_seed, everywhere = crossed[0][firsts], crossed[1]
    here = np.isfinite(by_seed)
    shares = np.where(here, (parts / here.sum(axis=1))[:, None], 0.0)
    return term.shifted_by(everywhere, shares, variance)


def mean_term(
    part: Array, scores: Array, whole: Array, all_scores: Array, *, with_shift: bool = True
) -> MeanTerm:
    """The mean of a part of the whole table of a grid; `scores` are those that its rows are made
    of, by which copies are known.

    The whole: its variance is  v = sum_c v_c,  v_c = s_c^2 sum_s w_cs^2  of each row's own s_c^2,
    which of a complete table is the pooled one. Its degrees of freedom are Satterthwaite's with an
    unbiased s_c^4,  v^2 / sum_c v_c^2 / (S_c + 1),  at most sum_c (S_c - 1). A part: the pooled
    variance, and the doubt that its rows have more noise than the others, unless noise is uneven
    beyond doubt.
    """
    rounding = float(score_table.rounding(scores.reshape(-1)))
    firsts, parts = _once(scores)
    table, everywhere = part[firsts], whole[_once(all_scores)[0]]
    present, noise = np.isfinite(table), noise_of(everywhere)
    weights = np.where(present, (parts / present.sum(axis=1))[:, None], 0.0)
    own = noise_of(table)
    weight = np.square(weights).sum(axis=1)
    variance, uneven = noise.variance * float(weight.sum()), NO_ALTERNATIVE
    left = float(noise.freedom)
    if len(part) < len(whole) and not noise.is_uneven:
        squares, freedom = float(own.squares.sum()), float(own.freedoms.sum())
        others = max(noise.total - squares, 0.0)
        chance = _chance(squares, freedom, others, noise.freedom - freedom)
        apart = max(squares / max(freedom, 1.0), noise.variance)  # not below the pooled
        uneven = HeteroscedasticAlternative(chance, apart * float(weight.sum()), max(freedom, 1.0))
    elif noise.squares.any():
        known = own.freedoms > 0
        rows = weight * np.where(known, own.squares / np.maximum(own.freedoms, 1.0), noise.variance)
        variance = float(rows.sum())
        loss = np.square(rows) / np.where(known, own.freedoms + 2.0, noise.freedom)
        left = min(left, variance**2 / float(loss.sum()))
    term = MeanTerm(table, weights, noise, variance, left, rounding, uneven)
    return term.shifted_by(everywhere, weights) if len(table) > 1 and with_shift else term


def _once(scores: Array) -> tuple[Codes, Array]:
    """First row of each set of copies, and which part of all rows they are."""
    _, firsts, counts = np.unique(copies(scores), return_index=True, return_counts=True)
    return firsts, counts / len(scores)


def _chance(squares: float, freedom: float, others: float, rest: float) -> float:
    """`chance_of` a single part, with what the doubt may cost here."""
    q, d, r, e = (np.array([each]) for each in (squares, freedom, others, rest))
    most = min(_MOST * freedom**2, 0.5)
    return float(chance_of_own_variance(q, d, r, e, UNEVEN, _WIDER, most)[0])


def mean_difference(
    part: Pairing, whole: Pairing, num_parts: int, rng: np.random.Generator
) -> tuple[Evidence, float, list[Note]]:
    """Evidence for mean(a) - mean(b) in one of `num_parts` regions, the repeats behind it, and
    notes.

    Repeats: seeds of a grid, settings of a sample.
    """
    effect, repeats, notes = _over_seeds(part, whole, num_parts, rng)
    weights = (np.full(len(s.scores), 1.0 / len(s.scores)) for s in (part.a, part.b))
    of_images = variance_of_difference(part.a.images, part.b.images, *weights)
    return effect.over_images(*of_images), repeats, notes


def _over_seeds(
    part: Pairing, whole: Pairing, num_parts: int, rng: np.random.Generator
) -> tuple[Evidence, float, list[Note]]:
    """`mean_difference` for these images alone."""
    terms = _terms(part, whole)
    effect = mean_effect(terms, rng)
    repeats = float(min(np.isfinite(term.table).sum(axis=1).mean() for term in terms))
    shifts = [x.shift_p for x in terms if np.isfinite(x.shift_p)]
    for variance, freedom, p in whole.shifts:
        effect = effect.over_shift(variance, freedom)
        shifts.append(p)
    notes = [note(Reason.SEED_SHIFT, p=min(shifts))] if shifts else []  # the clearer of two sides
    if len(terms) > 1 or notes:  # pairs whose seed shifts them all cannot be flipped one by one
        return effect, repeats, notes
    units = units_of(terms[0])
    p, p_min = sign_flips(units, rng)
    alpha = 1.0 - CONFIDENCE
    # So many pairs are all that a region has, or one setting of each.
    is_part = part.fixed and (part is not whole or len(part.a.scores) == 1)
    if is_part and p_min * num_parts > alpha and np.isfinite(effect.p) and effect.p_min < p_min:
        return effect, repeats, [*notes, note(Reason.FEW_FLIPS, pairs=len(units))]
    if p_min > alpha:
        unit = ("pair" if part.fixed else "setting") + "s" * (len(units) > 1)
        notes.append(note(Reason.P_FLOOR, draws=len(units), unit=unit, p_min=p_min))
    return replace(effect, p=p, p_min=p_min), repeats, notes


def _terms(part: Pairing, whole: Pairing) -> list[MeanTerm]:
    """The independent tables whose means add up to the difference: one where scores are paired."""
    sides, everywhere = ((pairing.a.scores, pairing.b.scores) for pairing in (part, whole))
    means = [row_means(side) for side in sides]
    if part.paired and not part.fixed:
        crossed = None
        if part.crossed:
            own = _once(np.hstack(everywhere))[0]
            crossed = sides[0] - sides[1], (everywhere[0] - everywhere[1])[own]
        return [sample_mean_term(means[0] - means[1], np.hstack(sides), crossed)]
    if part.crossed:
        # Where a hyperparameter is inert on one side alone, its rows there are copies, their
        # differences are not: each side then has its own noise, in as many rows as differ.
        tables = (np.hstack(everywhere), *everywhere)
        joint, *apart = (len(np.unique(copies(table))) for table in tables)
        if 2 * min(apart) > joint:
            some, every = (a - b for a, b in (sides, everywhere))
            return [mean_term(some, np.hstack(sides), every, np.hstack(everywhere))]
    if part.fixed:
        (a, b), (all_a, all_b) = sides, everywhere
        is_own = part.paired  # else `Pairing.shifts` has them
        return [
            mean_term(a, a, all_a, all_a, with_shift=is_own),
            mean_term(-b, b, -all_b, all_b, with_shift=is_own),
        ]
    return [sample_mean_term(means[0], sides[0]), sample_mean_term(-means[1], sides[1])]


def sign_flips(units: Array, rng: np.random.Generator) -> tuple[float, float]:
    """Two-sided p-value of sum_u d_u when each d_u is as likely as -d_u, and the smallest p it
    could give.

    p = #{flips: |sum_u e_u d_u| >= |sum_u d_u|} / 2^n over all e in {-1, 1}^n up to n = 16; else
    over 9,999 random ones with p = (count + 1) / (9,999 + 1) (Phipson & Smyth 2010). Above 500
    units that sum is normal with variance sum_u d_u^2, and p = 2 Phi(-|z|), not below 1 / 10,000.
    """
    num, total = len(units), abs(float(units.sum()))
    # Sums that are equal but for rounding count as equal.
    reach = total - 1e-9 * float(np.abs(units).sum())
    if num <= MAX_EXACT:
        sums = np.zeros(1)
        for unit in units:
            sums = np.concatenate([sums + unit, sums - unit])
        return float((np.abs(sums) >= reach).mean()), float(min(1.0, 2.0 / len(sums)))
    floor = 1.0 / (NUM_FLIPS + 1)
    if num > _MANY_UNITS:
        spread = float(np.sqrt(np.square(units).sum()))
        return (max(floor, float(2.0 * special.ndtr(-total / spread))) if spread else 1.0), floor
    count, step = 0, max(1, CHUNK // num)
    for start in range(0, NUM_FLIPS, step):
        shape = min(step, NUM_FLIPS - start), num
        sums = units.sum() - 2.0 * (rng.integers(0, 2, shape, dtype=np.int8).astype(float) @ units)
        count += int((np.abs(sums) >= reach).sum())
    return (count + 1) * floor, floor


def mean_effect(terms: Sequence[MeanTerm], rng: np.random.Generator) -> Evidence:
    """The sum over independent tables of their means, sum_cs w_cs x_cs, with a BCa interval.
    Paired: one table, of differences; unpaired: the scores of one side, and minus those of the
    other.

    A resample is  sum over tables of g sum_cs w_cs r*_cs,  r* drawn from the residuals, g^2 = df /
    chi2(df): g carries the uncertainty of the noise level, as t does against z. Where normal noise
    stands for them (`MeanTerm.is_normal`) a single table has the interval of t. Where another model
    of the noise may hold (`HeteroscedasticAlternative`), so many resamples are of t with its
    variance and degrees of freedom. BCa (Efron 1987) with acceleration  kappa_3 / (6 kappa_2^1.5)
    of the mean. p is the resamples' two-sided tail beyond zero. Without any repeat: the estimate
    alone.
    """
    estimate = sum(term.estimate for term in terms)
    if any(term.noise.freedom == 0 for term in terms):
        return Evidence(estimate)
    variances, freedoms = np.array([term.error for term in terms]).T
    se = float(np.sqrt(variances.sum()))
    if se <= max(term.rounding for term in terms):  # nothing is known of the size of the noise
        return Evidence(estimate)
    freedom = float(1.0 / np.sum(np.square(variances / se**2) / freedoms))
    if len(terms) == 1 and terms[0].is_normal and not terms[0].doubt.chance:
        return Evidence.of_t(estimate, se, freedom)
    third = sum(
        float(np.mean((term.pool / se) ** 3) * (term.weights**3).sum())
        for term in terms
        if not term.is_normal
    )
    size = max(t.weights.size for t in terms)
    num = int(np.clip(_DRAWN_SCORES // size, bootstrap.NUM_RESAMPLES, MAX_RESAMPLES))
    draws = estimate + np.sum([_mean_draws(term, num, rng) for term in terms], axis=0)
    z = special.ndtri([TAIL, (1.0 + CONFIDENCE) / 2.0])
    bias = special.ndtri((draws < estimate).mean())
    levels = special.ndtr(bias + (bias + z) / (1.0 - third / 6.0 * (bias + z)))
    low, high = np.quantile(draws, levels)
    return Evidence(estimate, float(low), float(high), *tail_p(draws, draws), se, freedom)


def units_of(term: MeanTerm) -> Array:
    """The parts of sum_cs w_cs d_cs whose signs `sign_flips` flips: w_cs (mean + r_cs), r_cs as in
    `Noise`.

    That is d_cs without how its setting differs from the mean of all: under "the mean is zero"
    settings may still differ, and their differences, flipped along, would hide it. The single score
    of a row has no r_cs and stays d_cs, so that without repeats the test is that of "no difference
    at any row".
    """
    table, present = term.table, np.isfinite(term.table)
    counts, means = present.sum(axis=1, keepdims=True), row_means(table)[:, None]
    inflated = term.estimate + (table - means) / np.sqrt(1.0 - 1.0 / np.maximum(counts, 2))
    return (term.weights * np.where(counts > 1, inflated, table))[present]


def _mean_draws(term: MeanTerm, num: int, rng: np.random.Generator) -> Array:
    pool, weights = term.pool, term.weights[term.weights > 0]
    if term.is_normal or len(weights) > _MANY_UNITS:
        drawn = rng.normal(0.0, np.sqrt(term.variance), num)
    else:
        step = max(1, CHUNK // len(weights))
        parts = [
            pool[rng.integers(0, len(pool), (min(step, num - start), len(weights)))] @ weights
            for start in range(0, num, step)
        ]
        drawn = np.concatenate(parts)
    drawn *= np.sqrt(term.freedom / rng.chisquare(term.freedom, num))
    if doubt := term.doubt.chance and term.doubt:
        other = rng.standard_t(doubt.freedom, num) * np.sqrt(doubt.variance)
        drawn = np.where(rng.random(num) < doubt.chance, other, drawn)
    return np.asarray(drawn)
