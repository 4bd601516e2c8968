"""Tests of a difference of means: its interval and its p-value.

Shape legend: C = rows (settings), S = draws of each row (seeds). Tables hold NaN where there is no
score, and no row without one. A grid's settings are the space, and the seeds their draws. Those of
a sample are draws of the space.
"""

from __future__ import annotations

import numpy as np

from clsweep.analysis.array_types import Array, Codes
from clsweep.analysis.evidence import Evidence
from clsweep.analysis.image_intervals import variance_of_difference
from clsweep.analysis.noise import Noise, Parts, copies, noise_of, satterthwaite
from clsweep.analysis.pairing import Pairing
from clsweep.analysis.score_table import adjusted_for_seeds, row_means


def mean_difference(part: Pairing, whole: Pairing) -> tuple[Evidence, float]:
    """Evidence for mean(a) - mean(b) in a region `part` of the `whole`, and the repeats behind it:
    seeds of a grid, settings of a sample.

    On a grid the seeds are blocks (`noise`). Everywhere, the differences at each seed decide, with
    S - 1 degrees of freedom. A region goes by them and by the residual of the whole. Where each
    side has seeds of its own their variances add up (`satterthwaite`). Of a sample the settings are
    the draws, beside what the seeds do to all.
    """
    estimate, parts = _of_grid(part, whole) if part.fixed else _of_sample(part, whole)
    effect = Evidence.of_parts(estimate, [each for each in parts if each[1] > 0])
    sides = part.a, part.b
    counts = [np.isfinite(side.scores).sum(axis=1).mean() for side in sides]
    repeats = min(counts) if part.fixed else min(len(side.scores) for side in sides)
    weights = (np.full(len(s.scores), 1.0 / len(s.scores)) for s in sides)
    of_images = variance_of_difference(part.a.images, part.b.images, *weights)
    return effect.over_images(*of_images), float(repeats)


def mean_levels(part: Pairing, whole: Pairing) -> list[float]:
    """The mean of each side in a region, whose difference `mean_difference` is of: the
    least-squares mean of a grid.
    """
    if not part.fixed:
        return [float(row_means(side.scores).mean()) for side in (part.a, part.b)]
    sides = zip(_noises(whole), part.rows, strict=True)
    return [float(noise.means[rows].mean()) for noise, rows in sides]


def _of_grid(part: Pairing, whole: Pairing) -> tuple[float, Parts]:
    """The difference, and the parts of its variance."""
    if part.crossed:
        noise = noise_of(whole.a.scores - whole.b.scores, by_seed=True)
        weights = _weights(part.rows[0], len(noise.means))
        return float(weights @ noise.means), noise.parts(weights)
    noises = _noises(whole)
    weights_of = [_weights(at, len(x.means)) for at, x in zip(part.rows, noises, strict=True)]
    estimate, other = (float(w @ x.means) for w, x in zip(weights_of, noises, strict=True))
    if whole.same_seeds:
        return estimate - other, difference_parts(*noises, *weights_of)
    parts = [x.of_sum(w) for w, x in zip(weights_of, noises, strict=True)]
    return estimate - other, [satterthwaite(parts)]


def _noises(whole: Pairing) -> tuple[Noise, Noise]:
    """Of both sides; where their cells are paired each less its own seeds' effects."""
    sides = whole.a.scores, whole.b.scores
    if whole.crossed:
        return noise_of(sides[0], by_seed=True), noise_of(sides[1], by_seed=True)
    if whole.same_seeds:
        return noises_of_one_run(*sides)
    return noise_of(sides[0]), noise_of(sides[1])


def noises_of_one_run(a: Array, b: Array) -> tuple[Noise, Noise]:
    """The noise of tables of the same seeds. Where scores are missing, less what a seed gives to
    both: a side that lacks the best seed is none the worse for it.
    """
    even = adjusted_for_seeds(np.concatenate([a, b]))
    return noise_of(even[: len(a)], by_seed=True), noise_of(even[len(a) :], by_seed=True)


def difference_parts(a: Noise, b: Noise, of_a: Array, of_b: Array) -> Parts:
    """The parts of the variance of  sum_i v_i m_i - sum_j w_j m_j  of tables of the same seeds, of
    weights (n,) that add up to 1 each: of how far a seed's effects on both are apart, so that what
    it gives to both cancels, and of what is left.
    """
    each = a.parts(of_a), b.parts(of_b)
    rest = satterthwaite(part for parts in each for part in parts[1:])
    shared = a.blocks.has & b.blocks.has if a.blocks and b.blocks else np.zeros(1, dtype=bool)
    if not a.blocks or not b.blocks or (num := int(shared.sum())) < 2:
        return [satterthwaite(parts[0] for parts in each), rest]
    apart = (a.blocks.effects - b.blocks.effects)[shared]
    return [(float(apart.var(ddof=1)) / num, num - 1.0), *([rest] if rest[0] else [])]


def _weights(rows: Codes, num: int) -> Array:
    weights = np.zeros(num)
    weights[rows] = 1.0 / len(rows)
    return weights


def _of_sample(part: Pairing, whole: Pairing) -> tuple[float, Parts]:
    """The same of settings that are draws; copies among them are one."""
    sides = part.a.scores, part.b.scores
    if not part.paired:
        means = [row_means(side) for side in sides]
        own = satterthwaite(_of_draws(*x) for x in zip(means, sides, strict=True))
        noises = _noises(whole)
        evenly = [np.full(len(x.means), 1.0 / len(x.means)) for x in noises]
        by_seeds = satterthwaite(x.of_seeds for x in noises)
        if whole.same_seeds:
            by_seeds = difference_parts(*noises, *evenly)[0]
        return float(means[0].mean() - means[1].mean()), [own, by_seeds]
    apart = row_means(sides[0]) - row_means(sides[1])
    parts = [_of_draws(apart, np.hstack(sides))]
    if part.crossed and len(whole.a.scores) > 1:
        noise = noise_of(whole.a.scores - whole.b.scores, by_seed=True)
        parts.append(noise.of_seeds)
    return float(apart.mean()), parts


def _of_draws(values: Array, scores: Array) -> tuple[float, float]:
    """Variance of the mean of values (C,) that are draws, copies once, and degrees of freedom."""
    _, firsts, counts = np.unique(copies(scores), return_index=True, return_counts=True)
    shares, freedom = counts / len(values), len(firsts) - 1.0
    if not freedom:
        return 0.0, 0.0
    return float(values[firsts].var(ddof=1) * np.square(shares).sum()), freedom
