"""The difference of two objectives' means, everywhere or in a region: which draws carry it, which
test, and verdicts that do not hang on what a failed trial counts as.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from scipy import special

from clsweep.analysis import CONFIDENCE, resample
from clsweep.analysis.comparison import evidence
from clsweep.analysis.comparison.evidence import Evidence
from clsweep.analysis.comparison.noise import Term, sample_term, term
from clsweep.analysis.comparison.pairing import Pairing, Side
from clsweep.analysis.noise import copies
from clsweep.analysis.reasons import Note, Reason, note, noted
from clsweep.analysis.regions import Regions, cut
from clsweep.analysis.sweep import Array, Sweep
from clsweep.errors import nearest

STATS = ("mean", "std", "within")
# fewer pairs could not be told apart by flipping signs, 2^-9, once several bins are looked at
PER_BIN = 10


@dataclass(frozen=True, kw_only=True)
class Options:
    """The options of a comparison."""

    stat: str = "mean"
    within: float = 1.0

    def __post_init__(self) -> None:
        for name, value, valid, expected in [
            ("stat", self.stat, self.stat in STATS, f"one of {', '.join(STATS)}"),
            ("within", self.within, self.within >= 0, ">= 0"),
        ]:
            if not valid:
                raise ValueError(
                    f"{name}: expected {expected}, got {value!r}.{nearest(str(value), STATS)}"
                )


def regions_of(by: str, sweeps: Sequence[Sweep]) -> Regions:
    """The regions of a hyperparameter along which objectives are compared: bins of some 10
    configurations or more.
    """
    return cut(by, sweeps, per_bin=PER_BIN)


def split(pairing: Pairing, regions: Regions | None) -> list[tuple[str, Pairing]]:
    """The regions of a pairing in which both sides have a score, each with its label; all of it
    where there are none.
    """
    if not len(pairing.a.scores) or not len(pairing.b.scores):
        return []
    if regions is None:
        return [("", pairing)]
    at_a, at_b = (regions.place(side.settings[regions.param]) for side in (pairing.a, pairing.b))
    rows = [
        (label, np.flatnonzero(at_a == k), np.flatnonzero(at_b == k))
        for k, label in enumerate(regions.named)
    ]
    return [
        (label, pairing.at(rows_a, rows_b))
        for label, rows_a, rows_b in rows
        if len(rows_a) and len(rows_b)
    ]


def mean_difference(
    part: Pairing, whole: Pairing, num_parts: int, rng: np.random.Generator
) -> tuple[Evidence, float, list[Note]]:
    """Evidence for mean(a) - mean(b) in one of `num_parts` regions, the repeats behind it, and
    notes.

    Repeats: seeds of a grid, settings of a sample.
    """
    terms = _terms(part, whole)
    found = evidence.mean_effect(terms, rng)
    repeats = float(min(np.isfinite(term.table).sum(axis=1).mean() for term in terms))
    notes = [
        note(Reason.SEED_SHIFT, chance=each.doubts[1].chance)
        for each in terms
        if each.doubts[1].chance > 0.5
    ]
    if len(terms) > 1:
        return found, repeats, notes
    shift, units = terms[0].doubts[1], evidence.units_of(terms[0])
    p, p_min = evidence.sign_flips(units, rng)
    alpha = 1.0 - CONFIDENCE
    if (
        p_min * num_parts > alpha
        and part is not whole
        and part.fixed
        and np.isfinite(found.p)
        and found.p_min < p_min
    ):
        return found, repeats, [*notes, note(Reason.FEW_FLIPS, pairs=len(units))]
    # Where the seeds shift all settings, pairs cannot be flipped one by one: the test of t instead.
    t = abs(found.estimate) / np.sqrt(shift.variance or np.inf)
    p += shift.chance * (2.0 * float(special.stdtr(shift.freedom, -t)) - p)
    p_min *= 1.0 - shift.chance
    if p_min > alpha:
        unit = "pairs" if part.fixed else "settings"
        notes.append(note(Reason.P_FLOOR, draws=len(units), unit=unit, p_min=p_min))
    return replace(found, p=p, p_min=p_min), repeats, notes


def _terms(part: Pairing, whole: Pairing) -> list[Term]:
    """The independent tables whose means add up to the difference: one where scores are paired."""
    sides, everywhere = _both(part), _both(whole)
    if part.paired and not part.fixed:
        means = [resample.row_means(side) for side in sides]
        by_seed = sides[0] - sides[1] if part.crossed else None
        return [sample_term(means[0] - means[1], np.hstack(sides), by_seed)]
    if part.crossed and not _copied_apart(everywhere):
        some, every = (a - b for a, b in (sides, everywhere))
        return [term(some, np.hstack(sides), every, np.hstack(everywhere))]
    if part.fixed:
        return [
            term(sign * side, side, sign * every, every)
            for sign, side, every in zip((1.0, -1.0), sides, everywhere, strict=True)
        ]
    return [_term_alone(part.a, 1.0), _term_alone(part.b, -1.0)]


def _term_alone(side: Side, sign: float) -> Term:
    """Of a sample of settings that are not paired."""
    return side.once(
        ("term", sign), lambda: sample_term(sign * resample.row_means(side.scores), side.scores)
    )


def _both(pairing: Pairing) -> tuple[Array, Array]:
    return pairing.a.scores, pairing.b.scores


def _copied_apart(sides: tuple[Array, Array]) -> bool:
    """Whether a hyperparameter is inert on one side alone: its rows there are copies, their
    differences are not.

    Each side then has its own noise, in as many rows as differ.
    """
    joint, *apart = (len(np.unique(copies(x))) for x in (np.hstack(sides), *sides))
    return 2 * min(apart) <= joint


def gated(
    sweeps: Sequence[Sweep], table: Callable[[Sequence[Sweep]], pd.DataFrame], keys: Sequence[str]
) -> pd.DataFrame:
    """`table` of the sweeps, whose rows are known by `keys`; where failed trials count in the
    scores, a winner is one only if it also is with the failed trials left out.

    An objective that crashes where it is bad looks better, and more robust, without its failures.
    Counted as the worst score, failures that have other causes make it look worse. So each interval
    is the union of both, and a winner that only one of both finds is none
    (`Reason.FAILURES_DECIDE`).
    """
    found = table(sweeps)
    counted = {s.objective: s.num_failed for s in sweeps if np.isfinite(s.failed_level)}
    if not any(counted.values()):
        return found
    without = table([sweep.measured for sweep in sweeps])
    others = {tuple(row[key] for key in keys): row for row in without.to_dict("records")}
    rows = []
    records: list[dict[str, Any]] = [
        {str(k): v for k, v in r.items()} for r in found.to_dict("records")
    ]
    for row in records:
        involved = (row["a"], row["b"]) if "a" in row else tuple(counted)
        other = others.get(tuple(row[key] for key in keys))
        if any(counted.get(name) for name in involved):
            low, high = (other["low"], other["high"]) if other else (np.nan, np.nan)
            row |= {"low": np.fmin(row["low"], low), "high": np.fmax(row["high"], high)}
            if row["winner"] != (other["winner"] if other else ""):
                why = note(Reason.FAILURES_DECIDE)
                row |= {"winner": "", "resolved": False, **noted(*row["note"], why=why)}
        rows.append(row)
    return pd.DataFrame(rows, columns=found.columns)
