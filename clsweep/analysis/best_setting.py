"""Objectives at their best settings: which setting that is, and how far two of them are apart there
without the luck of the pick.

Shape legend: n = configurations, S = seeds, F = fresh seeds, of `clsweep confirm`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

from clsweep.analysis import CONFIDENCE, TAIL, bootstrap
from clsweep.analysis.array_types import Array
from clsweep.analysis.bootstrap import noisy_tables
from clsweep.analysis.evidence import Evidence
from clsweep.analysis.image_intervals import image_parts, variance_of_difference
from clsweep.analysis.mean_tests import difference_parts
from clsweep.analysis.noise import noise_of
from clsweep.analysis.reasons import Note, Reason, note
from clsweep.analysis.score_table import EPSILON, best_level, rank_key, selection_bias, without_gaps
from clsweep.analysis.sweep import Sweep

ScoresAndParts = tuple[Array, Array | None]  # (n, S) and the parts of the images
PAIR = np.array([1.0, -1.0])
FEWEST_FRESH = 2  # seeds: one has no noise to compare with


@dataclass(frozen=True, eq=False)
class BestSetting:
    """The setting that an objective is named with.

    Attributes:
        row: of it in the sweep.
        first: that of the study's seeds alone.
        preferred: the one with the best mean over the fresh seeds that all share.
        lead: its lead over the first and the ends of the interval, larger is better; NaN without.
        seeds: (F,) labels of all fresh seeds with a score of it; none of a pick by the study's own.
        fresh: (F,) its scores on them, larger is better.
    """

    row: int
    first: int
    preferred: int
    lead: tuple[float, float, float] = (np.nan, np.nan, np.nan)
    seeds: tuple[Any, ...] = ()
    fresh: Array = field(default_factory=lambda: np.empty(0))


def best_setting(sweep: Sweep) -> BestSetting | None:
    """The best setting; None while no configuration may be named (`nameable_rows`).

    It has the best mean over the study's seeds. Fresh seeds overturn it where another that ran on
    them is better there: the differences at each seed have a t-interval, at 95 % over all that ran
    again (Bonferroni), above 0. A lead within the noise overturns nothing. Ties: `rank_key`.
    """
    sweep = sweep.measured
    may = nameable_rows(sweep)
    if not may.any():
        return None
    means = np.where(may, sweep.means, -np.inf)
    near = np.flatnonzero(means >= means.max() - 1e-9 * abs(means.max()))

    def place(row: int) -> Any:
        scores = sweep.scores[row]
        return rank_key(sweep.configs[row], scores[np.isfinite(scores)].tolist(), "max")

    first = min(near.tolist(), key=place)
    rows, fresh = _fresh(sweep, np.flatnonzero(may).tolist())
    if sweep.configs[first] not in sweep.fresh or not rows:
        return BestSetting(first, first, first)
    best = max(range(len(rows)), key=lambda at: (fresh[at].mean(), sweep.means[rows[at]], -at))
    lead, at = (np.nan, np.nan, np.nan), best
    if first in rows and rows[best] != first:
        at = rows.index(first)
        lead = _lead(fresh[best] - fresh[at], len(rows) - 1, sweep, [rows[best], first])
        at = best if lead[1] > 0 else at
    # What only some ran on has no part in the choice, but in the level of what is chosen.
    scores = {s: sweep.sign * x for s, x in sweep.fresh[sweep.configs[rows[at]]].items()}
    seeds = sorted(seed for seed, score in scores.items() if np.isfinite(score))
    fresh = np.array([scores[seed] for seed in seeds])
    return BestSetting(rows[at], first, rows[best], lead, tuple(seeds), fresh)


def lead_of_incomplete(sweep: Sweep, best: int) -> tuple[float, list[Note]]:
    """By how much the highest mean is above the best one only as seeds of it are missing, with a
    note; 0 where it is not. In a race these were left out: on those that it ran on it is no better.
    """
    counts = sweep.counts
    if sweep.num_skipped:
        return 0.0, []
    means = np.where((counts > 0) & ~sweep.failed.any(axis=1), sweep.means, -np.inf)
    top = int(means.argmax())
    more = float(means[top] - sweep.means[best])
    if counts[top] == counts[best] or more <= 1e-9 * abs(sweep.means[best]):
        return 0.0, []
    seeds, most = int(counts[top]), int(counts[best])
    return more, [note(Reason.HIGHER_ON_FEWER, at=sweep.label(top), seeds=seeds, most=most)]


def _lead(apart: Array, tries: int, sweep: Sweep, rows: list[int]) -> tuple[float, float, float]:
    """Of differences at each seed (F,), with the interval of one of so many tries; without noise it
    has none.
    """
    num, tail = len(apart), TAIL / tries
    lead, se = float(apart.mean()), float(apart.std(ddof=1)) / len(apart) ** 0.5
    is_noisy = se > EPSILON * max(1.0, abs(lead))
    half = -float(special.stdtrit(num - 1, tail)) * se if is_noisy else np.nan
    if images := sweep.images:
        variance = float(images.rows(rows).variance(PAIR))
        half = float(np.hypot(half, special.stdtrit(images.num - 1, tail) * variance**0.5))
    return lead, lead - half, lead + half


def nameable_rows(sweep: Sweep) -> NDArray[np.bool_]:
    """(n,) bool, which configurations may be named the best: those with a score on every planned
    seed; where no plan is known, on as many as any has. A mean of fewer is more often high by
    chance.
    """
    sweep = sweep.measured
    return sweep.alive & (sweep.counts == (sweep.planned_seeds or sweep.counts.max()))


def _fresh(sweep: Sweep, rows: list[int]) -> tuple[list[int], Array]:
    """Those of `rows` with a score on each of the fresh seeds that they share, and these scores,
    larger is better. Where they share fewer than two, of those with the most seeds.
    """
    ran = [row for row in rows if len(sweep.fresh.get(sweep.configs[row], ())) >= FEWEST_FRESH]
    of = {row: sweep.fresh[sweep.configs[row]] for row in ran}
    most = max(map(len, of.values()), default=0)
    for group in (ran, [row for row in ran if len(of[row]) == most]):
        shared = sorted(set.intersection(*(set(of[row]) for row in group))) if group else []
        if len(shared) >= FEWEST_FRESH:
            table = sweep.sign * np.array([[of[row][s] for s in shared] for row in group])
            is_complete = np.asarray(np.isfinite(table).all(axis=1))  # of the others a seed failed
            rows = [row for row, has_all in zip(group, is_complete, strict=True) if has_all]
            return rows, table[is_complete]
    return [], np.empty((0, 0))


def tuned_level(sweep: Sweep, best: BestSetting) -> float:
    """The level of an objective when tuned, larger is better: as `difference` has it. NaN where one
    seed picks and scores.
    """
    if len(best.fresh):
        return float(best.fresh.mean())
    if len(sweep.configs) > 1 and not sweep.measured.has_repeats:
        return np.nan
    return float(best_level(*_table(sweep)))


def _table(sweep: Sweep) -> ScoresAndParts:
    """The scores of what may be named, whose gaps of failed seeds are closed."""
    may = nameable_rows(sweep)
    scores = without_gaps(sweep.measured.scores[may])
    return scores, image_parts(sweep.measured.images, may)


def tuned_difference(a: Sweep, b: Sweep) -> tuple[dict[str, Any], Note | None, list[Note]]:
    """a - b, both at their best settings: the columns of `compare`, why there is no interval, and
    notes.

    Where the settings of both ran again on two or more common fresh seeds, the levels are the means
    over these, which took no part in the picking, and the differences at each seed have a
    t-interval. What the images of the study owe to the picking is still in them, so the interval
    reaches to the difference without it (`selection_bias`).

    On the study's seeds each level is cross-fitted (`cross_fit_folds`). The interval is t SE about
    the estimate, SE from bootstrap tables of new noise around shrunken means
    (`noisy_tables`). Where a setting that lacks seeds scores higher than the one named, it
    reaches to the difference with that one too.
    """
    pick_a, pick_b = best_setting(a), best_setting(b)
    notes = [each.of(x.objective) for x in (a, b) for each in x.measured.failures]
    if pick_a is None or pick_b is None:
        lost = a if pick_a is None else b
        return {}, why_no_best(lost).of(lost.objective), notes
    picked = (a, pick_a), (b, pick_b)
    missed = [lead_of_incomplete(x.measured, p.row) for x, p in picked]
    notes += [n.of(x.objective) for x, (_, of) in zip((a, b), missed, strict=True) for n in of]
    at = {"at_a": a.label(pick_a.row), "at_b": b.label(pick_b.row)}
    sides = _table(a), _table(b)
    tables = sides[0][0], sides[1][0]
    complete = all(np.isfinite(x.measured.scores[nameable_rows(x)]).all() for x in (a, b))
    by_seed = complete and np.array_equal(a.seeds, b.seeds)  # else a column is no seed
    shared = sorted({*pick_a.seeds} & {*pick_b.seeds})
    evidence, bias, num_pairs = Evidence(np.nan), 0.0, len(shared)
    if num_pairs >= FEWEST_FRESH:
        notes = [note(Reason.ON_FRESH, seeds=num_pairs), *notes]
        held = [p.fresh[np.isin(p.seeds, shared)] for p in (pick_a, pick_b)]
        bias = selection_bias(*sides[0]) - selection_bias(*sides[1])
        evidence, num = Evidence.of_values(held[0] - held[1]), num_pairs
        values = float(held[0].mean()), float(held[1].mean())
    else:
        aside = tuple(x.objective for x, p in picked if p.seeds)
        notes += [note(Reason.FRESH_ASIDE, of=aside)] if aside else []
        num = min(int(np.isfinite(table).sum(axis=1).max()) for table in tables)
        values = float(best_level(*sides[0])), float(best_level(*sides[1]))
        if by_seed and all(len(x) == 1 for x in tables):
            evidence, num_pairs = Evidence.of_values(tables[0][0] - tables[1][0]), num
        else:
            evidence = _by_noise(values[0] - values[1], tables, by_seed=by_seed)
    of_a, of_b = (x.images and x.images.rows([p.row]) for x, p in picked)
    of_images = variance_of_difference(of_a, of_b, np.ones(1), np.ones(1))
    evidence = evidence.over_images(*of_images, too_good=bias)
    for more in (-missed[0][0], missed[1][0]):  # either side may have a better setting
        evidence = evidence.over_images(0.0, 1.0, too_good=more)
    nothing = Reason.SAME_SCORES if abs(evidence.estimate) < EPSILON else Reason.NO_NOISE
    silent = None if np.isfinite(evidence.se) else note(nothing)
    why = note(Reason.ONE_SEED) if num < 2 else silent
    pairs: dict[str, Any] = {"num_pairs": num_pairs} if num_pairs else {}
    pairs |= {"fresh_seeds": len(shared) if len(shared) >= FEWEST_FRESH else 0}
    pairs |= {"num_seeds": num, "value_a": a.sign * values[0], "value_b": a.sign * values[1]}
    return evidence.with_needs(float(num)) | {"fixed": True} | at | pairs, why, notes


def why_no_best(sweep: Sweep) -> Note:
    """Why an objective has no best setting."""
    if not sweep.measured.alive.any():
        return sweep.no_score or note(Reason.NO_SCORE)
    return note(Reason.NO_WHOLE_CONFIG, seeds=sweep.planned_seeds)


def _by_noise(estimate: float, tables: tuple[Array, Array], *, by_seed: bool) -> Evidence:
    """Of the study's tables: under new noise, beside how far a seed's effects on both are apart.
    What it gives to both cancels.
    """
    by_seed &= not any(noise_of(table).is_uneven for table in tables)  # a shift is in their own
    noises = [noise_of(table, by_seed=by_seed) for table in tables]
    freedom = min((noise.freedom for noise in noises if noise.freedom), default=0.0)
    if not freedom or any((noise.counts < 2).all() for noise in noises):
        return Evidence(estimate)
    draws = []
    for stream, (table, noise) in enumerate(zip(tables, noises, strict=True)):
        rng = np.random.default_rng([bootstrap.DRAWS_SEED, stream])
        still = noise.blocks.without(table) if noise.blocks else table
        draws.append(np.concatenate([best_level(x) for x in noisy_tables(still, rng)]))
    num = min(map(len, draws))
    apart = draws[0][:num] - draws[1][:num]
    # Draws carry the doubt of the noise level, as t does against z: it counts once.
    half = float(np.quantile(np.abs(apart - apart.mean()), CONFIDENCE))
    se = half / float(special.stdtrit(freedom, (1 + CONFIDENCE) / 2))
    parts = [(se**2, freedom)]
    if by_seed and all(noise.blocks for noise in noises):
        evenly = (np.full(len(table), 1.0 / len(table)) for table in tables)
        seeds = difference_parts(noises[0], noises[1], *evenly)[0]
        # of a single level the seeds' mean square holds a part of the residual already
        rest = 1.0 - 2.0 / sum(map(len, tables))
        parts = [seeds, (rest * se**2, freedom)]
    return Evidence.of_parts(estimate, parts)
