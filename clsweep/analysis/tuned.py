"""Objectives at their best settings: which setting that is, and how far two of them are apart there
without the luck of the pick.

Shape legend: n = configurations, S = seeds, F = fresh seeds, of `clsweep confirm`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from clsweep.analysis import CONFIDENCE, resample
from clsweep.analysis.best import place_of
from clsweep.analysis.comparison.evidence import Evidence
from clsweep.analysis.images import apart, parts_of
from clsweep.analysis.noise import noise_of, seed_shift
from clsweep.analysis.reasons import Note, Reason, note
from clsweep.analysis.sweep import Array, Sweep
from clsweep.analysis.tuning import noisy_tables

Side = tuple[Array, Array | None]  # (n, S) and the parts of the images
FEWEST_FRESH = 2  # seeds: one has no noise to compare with


@dataclass(frozen=True, eq=False)
class Pick:
    """The setting that an objective is named with.

    Attributes:
        row: of it in the sweep.
        first: that of the study's seeds alone.
        rows: (n) of the table in the sweep.
        table: (n, S) what the pick rests on, larger is better: the fresh scores of the settings
            that ran again, on the seeds that they share, else all that may be picked.
        seeds: (S,) labels of its columns.
        is_fresh: which of both.
        parts: (n, K) `Images.parts` of the rows of the table; None where nobody knows them.
    """

    row: int
    first: int
    rows: tuple[int, ...]
    table: Array
    seeds: NDArray[Any]
    is_fresh: bool
    parts: Array | None


def pick(sweep: Sweep) -> Pick | None:
    """The best setting; None while no configuration may be named (`whole`).

    It has the best mean over the fresh seeds, once the one with the best mean over the study's
    seeds has run on fresh ones: that one was picked on its own noise. Ties: `analysis.best`.
    """
    sweep = sweep.measured
    may = whole(sweep)
    if not may.any():
        return None
    means = np.where(may, sweep.means, -np.inf)
    near = np.flatnonzero(means >= means.max() - 1e-9 * abs(means.max()))

    def place(row: int) -> Any:
        scores = sweep.scores[row]
        return place_of(sweep.configs[row], scores[np.isfinite(scores)].tolist(), "max")

    first = min(near.tolist(), key=place)
    all_rows = np.flatnonzero(may).tolist()
    rows, seeds, fresh = _fresh(sweep, all_rows)
    if sweep.configs[first] not in sweep.fresh or not rows:
        scores, parts = sweep.scores[may], parts_of(sweep.images, all_rows)
        return Pick(first, first, tuple(all_rows), scores, sweep.seeds, False, parts)
    best = max(range(len(rows)), key=lambda at: (fresh[at].mean(), sweep.means[rows[at]], -at))
    return Pick(rows[best], first, tuple(rows), fresh, seeds, True, parts_of(sweep.images, rows))


def whole(sweep: Sweep) -> NDArray[np.bool_]:
    """(n,) bool, which configurations may be named the best: those with a score on every planned
    seed; where no plan is known, on as many as any has. A mean of fewer is more often high by
    chance.
    """
    sweep = sweep.measured
    return sweep.alive & (sweep.counts == (sweep.planned_seeds or sweep.counts.max()))


def _fresh(sweep: Sweep, rows: list[int]) -> tuple[list[int], NDArray[Any], Array]:
    """Those of `rows` with a score on each of the fresh seeds that they share, these seeds, and the
    scores, larger is better. Where they share fewer than two, of those with the most seeds.
    """
    ran = [row for row in rows if len(sweep.fresh.get(sweep.configs[row], ())) >= FEWEST_FRESH]
    of = {row: sweep.fresh[sweep.configs[row]] for row in ran}
    most = max(map(len, of.values()), default=0)
    for group in (ran, [row for row in ran if len(of[row]) == most]):
        shared = sorted(set.intersection(*(set(of[row]) for row in group))) if group else []
        if len(shared) >= FEWEST_FRESH:
            table = sweep.sign * np.array([[of[row][s] for s in shared] for row in group])
            kept = np.atleast_1d(np.isfinite(table).all(axis=1))  # of the others a seed failed
            rows = [row for row, is_kept in zip(group, kept, strict=True) if is_kept]
            return rows, np.array(shared), table[kept]
    return [], np.empty(0), np.empty((0, 0))


def level(found: Pick) -> float:
    """The level of an objective when tuned, larger is better: as `difference` has it."""
    if found.is_fresh:
        return float(_held(found.table, found.parts)[0].mean())
    return float(resample.best_level(resample.packed(found.table), found.parts))


def difference(a: Sweep, b: Sweep) -> tuple[dict[str, Any], Note | None, list[Note]]:
    """a - b, both at their best settings: the columns of `comparison.table`, why there is no
    interval, and notes.

    Each level is cross-fitted: picked on all seeds but one and scored on that one, for each seed in
    turn, and so over parts of the images (`resample.folds`), so that none is too good. Where the
    settings of both ran again on two or more common fresh seeds, the same is done with these alone,
    and the differences at each seed have a t-interval (`_by_seed`). On the study's seeds the
    interval is t SE about the estimate, SE from bootstrap tables of new noise around shrunken means
    (`tuning.noisy_tables`).
    """
    pick_a, pick_b = pick(a), pick(b)
    notes = [each.of(x.objective) for x in (a, b) for each in x.measured.failures]
    if pick_a is None or pick_b is None:
        lost = a if pick_a is None else b
        return {}, no_whole(lost).of(lost.objective), notes
    at = {"at_a": a.label(pick_a.row), "at_b": b.label(pick_b.row)}
    raw = [x.measured.scores[whole(x)] for x in (a, b)]
    parts = [parts_of(x.measured.images, whole(x)) for x in (a, b)]
    tables = [resample.packed(scores) for scores in raw]  # which closes the gaps of failed seeds
    by_seed = np.array_equal(a.seeds, b.seeds)
    is_paired = by_seed and all(len(x) == 1 and np.isfinite(x).all() for x in raw)
    shared = sorted({*pick_a.seeds.tolist()} & {*pick_b.seeds.tolist()})
    if pick_a.is_fresh and pick_b.is_fresh and len(shared) >= FEWEST_FRESH:
        tables = [p.table[:, np.isin(p.seeds, shared)] for p in (pick_a, pick_b)]
        parts = [pick_a.parts, pick_b.parts]
        notes, is_paired = [note(Reason.ON_FRESH, seeds=len(shared)), *notes], True
    one, other = zip(tables, parts, strict=True)
    found, values = _by_seed(one, other) if is_paired else _by_noise(one, other, is_paired=by_seed)
    of_a, of_b = (x.images and x.images.rows([p.row]) for x, p in ((a, pick_a), (b, pick_b)))
    found = found.over_images(*apart(of_a, of_b, np.ones(1), np.ones(1)))
    num = min(int(np.isfinite(table).sum(axis=1).max()) for table in tables)
    silent = None if np.isfinite(found.se) else note(Reason.NO_NOISE)
    why = note(Reason.ONE_SEED) if num < 2 else silent
    pairs = {"num_pairs": num} if is_paired else {}
    return _row(found, values, a.sign, num) | at | pairs, why, notes


def no_whole(sweep: Sweep) -> Note:
    """Why an objective has no best setting."""
    if not sweep.measured.alive.any():
        return sweep.no_score or note(Reason.NO_SCORE)
    return note(Reason.NO_WHOLE_CONFIG, seeds=sweep.planned_seeds)


def _row(found: Evidence, values: tuple[float, float], sign: float, seeds: int) -> dict[str, Any]:
    names = ("estimate", "low", "high", "p", "detectable")
    row = {name: getattr(found, name) for name in names}
    row |= {"images": found.images_deciding(float(seeds)), "over_images": bool(found.images)}
    row |= {"value_a": sign * values[0], "value_b": sign * values[1], "num_seeds": seeds}
    row |= {"side": int(found.low > 0) - int(found.high < 0), "fixed": True}
    return row | {"needed": found.repeats_needed(float(seeds))}


def _evidence(estimate: float, se: float, freedom: float) -> Evidence:
    if not se > resample.EPSILON * max(1.0, abs(estimate)):
        return Evidence(estimate)
    half = float(stats.t.ppf((1 + CONFIDENCE) / 2, freedom)) * se
    p = float(2 * stats.t.sf(abs(estimate) / se, freedom))
    return Evidence(estimate, estimate - half, estimate + half, p, 0.0, se, freedom)


def _by_seed(a: Side, b: Side) -> tuple[Evidence, tuple[float, float]]:
    """Of complete tables (n, F) of the same seeds: the differences at each seed.

    SE^2 = s^2 / F where every fold picks the same settings. Else the picks of a fold hang on the
    scores of the others, and  SE^2 = s^2 (1 / F + 1 / (F - 1))  (Nadeau & Bengio 2003, Machine
    Learning 52): of 95 % intervals 87 to 93 % held the truth without, 94 to 97 % with it.
    """
    (held_a, num_a), (held_b, num_b) = _held(*a), _held(*b)
    apart, num = held_a - held_b, len(held_a)
    values = float(held_a.mean()), float(held_b.mean())
    if num < 2:
        return Evidence(float(apart.mean())), values
    inverse = 1.0 / num + (1.0 / (num - 1) if max(num_a, num_b) > 1 else 0.0)
    se = float(apart.std(ddof=1)) * inverse**0.5
    return _evidence(float(apart.mean()), se, num - 1), values


def _held(table: Array, parts: Array | None) -> tuple[Array, int]:
    """(F,) of a complete table: the score at each seed of the row that the other seeds, and other
    images, pick; and how many rows they pick.
    """
    looks, scores = zip(*resample.folds(table, parts), strict=True)
    picked = np.concatenate(looks).argmax(axis=-1)
    held = np.take_along_axis(np.concatenate(scores), picked[:, None], axis=-1)[:, 0]
    return held.reshape(table.shape[1], -1).mean(axis=1), len(np.unique(picked))


def _by_noise(a: Side, b: Side, *, is_paired: bool) -> tuple[Evidence, tuple[float, float]]:
    """Of the study's tables: under new noise. A shift that a seed gives to both cancels; of one
    objective's own the interval has its share.
    """
    level_a, level_b = (float(resample.best_level(*side)) for side in (a, b))
    estimate, values = level_a - level_b, (level_a, level_b)
    tables = a[0], b[0]
    freedom = min(noise_of(table).freedom for table in tables)
    if not freedom:
        return Evidence(estimate), values
    if is_paired and tables[0].shape[1] == tables[1].shape[1]:
        both = np.concatenate(tables)
        if shift := seed_shift(both):
            both, num = shift.without(both), len(tables[0])
            tables = both[:num], both[num:]
    draws, own = [], 0.0
    for stream, table in enumerate(tables):
        rng = np.random.default_rng([resample.SEED, stream])
        draws.append(np.concatenate([resample.best_level(x) for x in noisy_tables(table, rng)]))
        if shift := seed_shift(table):
            own += shift.variance / shift.num_seeds
    num = min(map(len, draws))
    apart = draws[0][:num] - draws[1][:num]
    # Draws carry the doubt of the noise level, as t does against z: it counts once.
    half = float(np.quantile(np.abs(apart - apart.mean()), CONFIDENCE))
    se = half / float(stats.t.ppf((1 + CONFIDENCE) / 2, freedom))
    return _evidence(estimate, float(np.hypot(se, own**0.5)), freedom), values
