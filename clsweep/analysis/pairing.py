"""Two objectives side by side: which of their configurations and seeds belong together, and the regions of a setting.

Shape legend: C = settings, S = seeds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from clsweep.analysis.sweep import Array, Sweep, text_of

Codes = NDArray[np.int64]

MANTISSA_BITS = 40  # floats match when equal to about 12 significant digits
MAX_BINS = 6
BIN_SETTINGS = 10  # fewer in a bin could not be told apart by flipping signs, 2^-9, once several bins are looked at


@dataclass(frozen=True, kw_only=True, eq=False)
class Side:
    """One objective's part of a comparison: scores (C, S), larger is better, and the settings of the C rows."""

    scores: Array
    settings: pd.DataFrame


@dataclass(frozen=True, kw_only=True, eq=False)
class Pairing:
    """Two objectives made comparable.

    Attributes:
        a, b: the two sides. Paired: the same settings and seeds, and a cell has a score on both sides or on neither.
        paired: whether row i and seed s of one side belong to those of the other.
        fixed: the settings are all there are (a grid), so that the uncertainty is the seeds'; otherwise a sample.
        notes: what was averaged and left out.
    """

    a: Side
    b: Side
    paired: bool
    fixed: bool
    notes: tuple[str, ...]

    def at(self, rows_a: Codes, rows_b: Codes) -> Pairing:
        """The part of it in one region, given by the row numbers of each side."""
        parts = [
            Side(scores=side.scores[rows], settings=side.settings.iloc[rows])
            for side, rows in ((self.a, rows_a), (self.b, rows_b))
        ]
        return Pairing(a=parts[0], b=parts[1], paired=self.paired, fixed=self.fixed, notes=self.notes)


@dataclass(frozen=True, kw_only=True)
class Region:
    """A value or a bin of one hyperparameter; `low` and `high` are NaN for a category."""

    label: str
    low: float
    high: float


def pair(a: Sweep, b: Sweep) -> Pairing:
    """Pairs two objectives over the settings of the hyperparameters that both sweep, and over their common seeds.

    Configurations that share such a setting (they differ in a hyperparameter of one objective only) are averaged seed
    by seed. Unpaired where fewer than half of the smaller side's settings have a partner: then each side keeps its own
    configurations and seeds.
    """
    shared = [name for name in a.params if name in b.params]
    fixed = a.is_grid and b.is_grid
    codes_a, codes_b = _matching_codes(a.settings[shared], b.settings[shared])
    common = np.intersect1d(codes_a, codes_b)
    num_a, num_b = len(np.unique(codes_a)), len(np.unique(codes_b))
    lone = not a.params and not b.params
    if not (lone or shared) or 2 * len(common) < min(num_a, num_b):
        why = "few of their settings match" if shared else "they sweep no hyperparameter in common"
        return Pairing(
            a=Side(scores=a.scores[a.alive], settings=a.settings.loc[a.alive]),
            b=Side(scores=b.scores[b.alive], settings=b.settings.loc[b.alive]),
            paired=False,
            fixed=fixed,
            notes=(f"unpaired, {why}: {a.alive.sum()} against {b.alive.sum()} configurations", *_lost(a), *_lost(b)),
        )
    notes = [*_averaged(a, shared), *_averaged(b, shared)]
    if num_a != len(common) or num_b != len(common):
        notes.append(f"over the {len(common)} settings of both, of {num_a} and {num_b}")
    scores_a, scores_b = _averages(a.scores, codes_a, common), _averages(b.scores, codes_b, common)
    scores_a, scores_b, seed_notes = _common_seeds(a, b, scores_a, scores_b)
    both = np.isfinite(scores_a) & np.isfinite(scores_b)
    if missing := int((~both).sum()):
        notes.append(f"{missing} of {both.size} pairs lack a score on one side and are left out")
    kept = both.any(axis=1)
    settings = a.settings[shared].iloc[_first(codes_a, common)[kept]].reset_index(drop=True)
    return Pairing(
        a=Side(scores=np.where(both, scores_a, np.nan)[kept], settings=settings),
        b=Side(scores=np.where(both, scores_b, np.nan)[kept], settings=settings),
        paired=True,
        fixed=fixed or len(common) == 1,
        notes=(*notes, *seed_notes),
    )


def regions(by: str, sweeps: Sequence[Sweep]) -> tuple[list[Region], Any]:
    """The values or bins of one swept hyperparameter, and a function from a column of its values to region numbers.

    A value of a grid or of a category is a region. Numbers that hardly repeat are cut by rank into 2 to 6 bins of about
    equal count, of some 10 configurations each.
    """
    columns = [sweep.settings[by] for sweep in sweeps]
    values = pd.concat(columns, ignore_index=True)
    numeric = pd.api.types.is_numeric_dtype(values) and not pd.api.types.is_bool_dtype(values)
    crowded = any(
        2 * column.nunique() > len(column) and s.samplers != ("grid",)
        for s, column in zip(sweeps, columns, strict=True)
    )
    if numeric and crowded and values.notna().all():
        ordered = np.sort(_rounded(values))
        num_bins = int(np.clip(min(map(len, columns)) // BIN_SETTINGS, 2, MAX_BINS))
        starts = np.unique(ordered[np.arange(1, num_bins) * len(ordered) // num_bins])
        starts = starts[starts > ordered[0]]
        codes = np.searchsorted(starts, ordered, side="right")
        bins = [ordered[codes == code] for code in range(len(starts) + 1)]
        found = [Region(label=_span(by, part[0], part[-1]), low=part[0], high=part[-1]) for part in bins]
        return found, lambda column: np.searchsorted(starts, _rounded(column), side="right")
    if numeric:
        levels = np.unique(_rounded(values))  # NaN, where an objective lacks the setting, comes last
        found = [Region(label=f"{by}={text_of(float(level))}", low=float(level), high=float(level)) for level in levels]
        return found, lambda column: np.searchsorted(levels, _rounded(column))
    names = list(dict.fromkeys(values.map(str)))
    found = [Region(label=f"{by}={name}", low=np.nan, high=np.nan) for name in names]
    return found, lambda column: column.map(str).map({name: code for code, name in enumerate(names)}).to_numpy()


def _span(by: str, low: float, high: float) -> str:
    return f"{by}={text_of(float(low))}" if low == high else f"{by}={text_of(float(low))}..{text_of(float(high))}"


def _rounded(column: pd.Series[Any]) -> Array:
    """Numbers rounded to about 12 significant digits."""
    mantissa, exponent = np.frexp(pd.to_numeric(column).to_numpy(dtype=float, na_value=np.nan))
    return np.asarray(np.ldexp(np.round(np.ldexp(mantissa, MANTISSA_BITS)), exponent - MANTISSA_BITS))


def _matching_codes(a: pd.DataFrame, b: pd.DataFrame) -> tuple[Codes, Codes]:
    """A number per row, equal where all settings are equal; a missing value equals a missing value."""
    codes = np.zeros(len(a) + len(b), dtype=np.int64)
    for name in a.columns:
        column = pd.concat([a[name], b[name]], ignore_index=True)
        numeric = all(pd.api.types.is_numeric_dtype(side[name]) for side in (a, b))
        keys = pd.Series(_rounded(column)) if numeric else column.map(str)
        level, uniques = pd.factorize(keys, use_na_sentinel=False)
        codes = pd.factorize(codes * len(uniques) + level)[0].astype(np.int64)
    return codes[: len(a)], codes[len(a) :]


def _first(codes: Codes, common: Codes) -> Codes:
    """Row at which each of the common codes first appears."""
    uniques, rows = np.unique(codes, return_index=True)
    return rows[np.searchsorted(uniques, common)]


def _averages(scores: Array, codes: Codes, common: Codes) -> Array:
    """Scores (C, S) of the common settings: the average over the configurations of each, seed by seed.

    cell_s = mean_k m_k + mean over the k present at s of (x_ks - m_k), m_k = mean of configuration k over its seeds,
    so that a missing score does not let the other configurations stand for the average. A configuration without any
    score is left out.
    """
    present = np.isfinite(scores)
    alive = present.any(axis=1)
    kept = alive & np.isin(codes, common)
    rows, filled, present = np.searchsorted(common, codes[kept]), scores[kept], present[kept]
    means = np.where(present, filled, 0.0).sum(axis=1) / present.sum(axis=1)
    level, size = np.zeros(len(common)), np.zeros(len(common))
    np.add.at(level, rows, means)
    np.add.at(size, rows, 1.0)
    noise, num = np.zeros((len(common), scores.shape[1])), np.zeros((len(common), scores.shape[1]))
    np.add.at(noise, rows, np.where(present, filled - means[:, None], 0.0))
    np.add.at(num, rows, present.astype(float))
    cells = (level / np.maximum(size, 1))[:, None] + noise / np.maximum(num, 1)
    return np.where(num > 0, cells, np.nan)


def _common_seeds(a: Sweep, b: Sweep, scores_a: Array, scores_b: Array) -> tuple[Array, Array, list[str]]:
    """The seeds of both, by number; by position where none is in both."""
    common, at_a, at_b = np.intersect1d(a.seeds, b.seeds, return_indices=True)
    if not len(common):
        num = min(len(a.seeds), len(b.seeds))
        return scores_a[:, :num], scores_b[:, :num], ["no seed in common: paired by their order"]
    alone = {
        sweep.objective: ", ".join(str(seed) for seed in sweep.seeds if seed not in common)
        for sweep in (a, b)
        if len(sweep.seeds) > len(common)
    }
    notes = [f"seeds only in {name} are left out: {seeds}" for name, seeds in alone.items()]
    return scores_a[:, at_a], scores_b[:, at_b], notes


def _averaged(sweep: Sweep, shared: list[str]) -> list[str]:
    further = [name for name in sweep.params if name not in shared]
    notes = [f"{sweep.objective} is averaged over its {', '.join(further)}"] if further else []
    return notes + (list(_lost(sweep)) if further else [])


def _lost(sweep: Sweep) -> tuple[str, ...]:
    lost = int((~sweep.alive).sum())
    return (f"{sweep.objective}: {lost} configurations without any score are left out",) if lost else ()
