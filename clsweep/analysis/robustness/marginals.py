"""The level of an objective at each value of each swept hyperparameter, averaged over the others:
one row a value.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats

from clsweep.analysis import CONFIDENCE, reasons
from clsweep.analysis.noise import noise_of
from clsweep.analysis.reasons import Note, Reason, note, noted
from clsweep.analysis.regions import Codes, Regions, cut
from clsweep.analysis.robustness.response import shared_settings
from clsweep.analysis.sweep import Array, Sweep

# Every column, in order. m_i is the mean of configuration i over its seeds, of which failed ones
# count as the note says, in the metric's own sign.
COLUMNS = {
    "objective": "name",
    "param": "the swept hyperparameter",
    "position": "the value; the centre of a bin on the hyperparameter's axis (log where it is); "
    "none for a category",
    "label": 'the value or the bin as text, "0.1" or "0.05..0.08"',
    "value_low": "smallest value in the bin",
    "value_high": "largest value in the bin",
    "num_configs": "configurations with a score",
    "mean": "mean of m_i over them",
    "low": "t interval of the mean. A whole grid: from the seed noise, sqrt(sum s_i^2 / S_i) / "
    "num_configs, the settings being the space. Otherwise: from the spread of m_i, the "
    "configurations being a sample of it. It ends where the metric ends",
    "high": "",
    **reasons.COLUMNS,
}
MAX_BINS = 8


def marginals(sweeps: Sequence[Sweep]) -> pd.DataFrame:
    """One row per objective, swept hyperparameter and value (or bin of equal count, at most 8) with
    these `COLUMNS`.

    The mean is over the settings of the other hyperparameters that have a score; of a grid that
    lost configurations, over those at which every value has one, or the note says that values rest
    on different settings. Adaptive samples (tpe, gp) have no band.
    """
    rows = [row for sweep in sweeps for name in sweep.params for row in _rows(sweep, name)]
    return pd.DataFrame(rows, columns=list(COLUMNS))


def _rows(sweep: Sweep, name: str) -> list[dict[str, Any]]:
    regions = cut(name, [sweep], max_bins=MAX_BINS, scored=True)
    groups, num_groups = regions.place(sweep.settings[name]), len(regions)
    used, said = _used(sweep, name, groups)
    counts = np.bincount(groups[used], minlength=num_groups)
    sums = np.bincount(groups[used], weights=sweep.sign * sweep.means[used], minlength=num_groups)
    centres = np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)
    half, notes = _half_widths(sweep, used, groups, counts, centres)
    notes += [*said, *sweep.missing]
    places = _places(sweep, regions, groups)
    ends = np.array(sweep.turned(sweep.sign * centres - half, sweep.sign * centres + half))
    ends[0 if sweep.sign > 0 else 1, np.bincount(groups, sweep.unknown, num_groups) > 0] = np.nan
    ends = sweep.limited(ends)
    rows = []
    for group in range(num_groups):
        row = {
            "objective": sweep.objective,
            "param": name,
            "position": places[group],
            "label": regions.labels[group],
            "value_low": regions.low[group],
            "value_high": regions.high[group],
            "num_configs": int(counts[group]),
            "mean": centres[group],
            "low": ends[0, group],
            "high": ends[1, group],
        }
        rows.append(row | noted(*notes, why=None if counts[group] else note(Reason.NO_SCORE)))
    return rows


def _used(sweep: Sweep, name: str, groups: Codes) -> tuple[NDArray[np.bool_], list[Note]]:
    """(n,) bool, the configurations that are averaged, and notes.

    Of a grid those at settings of the others where every value has a score: other averages would
    differ by what they rest on.
    """
    if not sweep.is_grid or sweep.alive.all():
        return sweep.alive, []
    shared, found = shared_settings(sweep, name, groups)
    if found:
        return shared, [note(Reason.SHARED_SETTINGS, param=name, settings=found)]
    return sweep.alive, [note(Reason.UNBALANCED, param=name)]


def _places(sweep: Sweep, regions: Regions, groups: Codes) -> Array:
    """The value of each region, for a bin the centre of its configurations on the axis; NaN for a
    category.
    """
    if sweep.scales[regions.param] == "category":
        return regions.low
    num = len(regions)
    centre = np.bincount(groups, sweep.axis(regions.param), num) / np.bincount(
        groups, minlength=num
    )
    centre = np.exp2(centre) if sweep.scales[regions.param] == "log" else centre
    return np.where(regions.low == regions.high, regions.low, centre)


def _half_widths(
    sweep: Sweep,
    used: NDArray[np.bool_],
    groups: Codes,
    counts: Codes,
    centres: Array,
) -> tuple[Array, list[Note]]:
    """Half width of the interval of each group's mean, NaN where there is none, and notes."""
    none, level = np.full(len(counts), np.nan), 0.5 + CONFIDENCE / 2.0
    if sweep.not_measured:
        return none, [sweep.not_measured]
    if not used.any():
        return none, []
    num = np.maximum(counts, 1)
    if sweep.is_grid:
        if not sweep.has_repeats:
            return none, [note(Reason.ONE_SEED)]
        seeds = np.isfinite(sweep.scores).sum(axis=1)
        noise = noise_of(sweep.scores[sweep.alive], sweep.silent[sweep.alive])
        for k in np.flatnonzero(counts):
            rows = used & (groups == k)
            squares = np.where(rows, 1.0 / np.maximum(seeds, 1), 0.0) / counts[k] ** 2
            variance, freedom = noise.of_sum(squares[sweep.alive])
            none[k] = stats.t.ppf(level, freedom) * np.sqrt(variance)
        return none, []
    off = np.square(sweep.sign * sweep.means[used] - centres[groups[used]])
    squares = np.bincount(groups[used], weights=off, minlength=len(counts))
    freedom_each = np.maximum(counts - 1, 1)
    spread = np.sqrt(squares / freedom_each / num)
    return np.where(counts > 1, stats.t.ppf(level, freedom_each) * spread, np.nan), []
