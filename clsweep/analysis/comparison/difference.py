"""The difference of two objectives' means, everywhere or in a region: which draws carry it, and
which test.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy import stats

from clsweep.analysis import resample
from clsweep.analysis.comparison import evidence
from clsweep.analysis.comparison.evidence import Evidence
from clsweep.analysis.comparison.pairing import Pairing
from clsweep.analysis.reasons import Note, Reason, note
from clsweep.analysis.regions import Regions, cut
from clsweep.analysis.sweep import Array, Sweep
from clsweep.errors import nearest

STATS = ("mean", "std", "within")
# fewer pairs could not be told apart by flipping signs, 2^-9, once several bins are looked at
PER_BIN = 10
SHIFT_LEVEL = 0.01  # significance at which the seeds are seen to shift all settings alike


@dataclass(frozen=True, kw_only=True)
class Options:
    """The options of a comparison."""

    stat: str = "mean"
    within: float = 1.0
    confidence: float = 0.95
    num_resamples: int = 2000
    seed: int = 0

    def __post_init__(self) -> None:
        for name, value, valid, expected in [
            ("stat", self.stat, self.stat in STATS, f"one of {', '.join(STATS)}"),
            ("within", self.within, self.within >= 0, ">= 0"),
            ("confidence", self.confidence, 0 < self.confidence < 1, "between 0 and 1"),
            ("num_resamples", self.num_resamples, self.num_resamples >= 1, ">= 1"),
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


def split(pairing: Pairing, by: str | None, sweeps: Sequence[Sweep]) -> list[tuple[str, Pairing]]:
    """The regions of a pairing in which both sides have a score, each with its label; `sweeps` fix
    the regions.
    """
    if not len(pairing.a.scores) or not len(pairing.b.scores):
        return []
    if by is None:
        return [("", pairing)]
    found = regions_of(by, sweeps)
    at_a, at_b = found.place(pairing.a.settings[by]), found.place(pairing.b.settings[by])
    rows = [
        (label, np.flatnonzero(at_a == k), np.flatnonzero(at_b == k))
        for k, label in enumerate(found.named)
    ]
    return [
        (label, pairing.at(rows_a, rows_b))
        for label, rows_a, rows_b in rows
        if len(rows_a) and len(rows_b)
    ]


def mean_difference(
    part: Pairing, whole: Pairing, num_parts: int, options: Options, rng: np.random.Generator
) -> tuple[Evidence, float, list[Note]]:
    """Evidence for mean(a) - mean(b) in one of `num_parts` regions, the repeats behind it, and
    notes.

    Repeats: seeds of a grid, settings of a sample.
    """
    notes: list[Note] = []
    if part.paired:
        tables, noises = _differences(part, whole, notes)
    elif part.fixed:
        tables = [part.a.scores, -part.b.scores]
        noises = [evidence.noise_of(whole.a.scores), evidence.noise_of(whole.b.scores)]
    else:
        tables = [resample.row_means(part.a.scores)[None], -resample.row_means(part.b.scores)[None]]
        noises = [evidence.noise_of(table) for table in tables]
    found = evidence.mean_effect(
        tables, noises, confidence=options.confidence, num_resamples=options.num_resamples, rng=rng
    )
    repeats = float(min(np.isfinite(table).sum(axis=1).mean() for table in tables))
    if not part.paired:
        return found, repeats, notes
    units = evidence.units_of(tables[0])
    p, p_min = evidence.sign_flips(units, rng)
    alpha = 1.0 - options.confidence
    if (
        p_min * num_parts > alpha
        and part is not whole
        and part.fixed
        and np.isfinite(found.p)
        and found.p_min < p_min
    ):
        return found, repeats, [*notes, note(Reason.FEW_FLIPS, pairs=len(units))]
    if p_min > alpha:
        unit = "pairs" if part.fixed else "settings"
        notes.append(note(Reason.P_FLOOR, draws=len(units), unit=unit, p_min=p_min))
    return replace(found, p=p, p_min=p_min), repeats, notes


def _differences(
    part: Pairing, whole: Pairing, notes: list[Note]
) -> tuple[list[Array], list[evidence.Noise]]:
    """The table whose mean is the difference of a pairing, and its noise; appends to `notes`."""
    table, everywhere = part.a.scores - part.b.scores, whole.a.scores - whole.b.scores
    if not part.fixed:
        means = resample.row_means(table)[None]
        return [means], [evidence.noise_of(means)]
    p = _shift_p(everywhere)
    if p < SHIFT_LEVEL:
        seeds = np.isfinite(table).any(axis=0)
        shifts = table[:, seeds].T
        means = resample.row_means(shifts)[None]
        notes.append(note(Reason.SEED_SHIFT, p=p, draws=means.size))
        return [means], [evidence.noise_of(means)]
    return [table], [evidence.noise_of(everywhere)]


def _shift_p(table: Array) -> float:
    """p-value of the F test that the columns (seeds) of the complete rows differ; 1 where it cannot
    be made.
    """
    rows = table[np.isfinite(table).all(axis=1)]
    num, seeds = rows.shape
    if num < 2 or seeds < 2:
        return 1.0
    columns = rows.mean(axis=0) - rows.mean()
    left = rows - rows.mean(axis=1, keepdims=True) - columns
    noise = np.square(left).sum() / ((num - 1) * (seeds - 1))
    if noise <= 0:
        return 1.0
    return float(
        stats.f.sf(
            num * np.square(columns).sum() / (seeds - 1) / noise, seeds - 1, (num - 1) * (seeds - 1)
        )
    )
