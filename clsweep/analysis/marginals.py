"""The level of an objective at each value of each swept hyperparameter, averaged over the others: one row a value."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats

from clsweep.analysis import resample
from clsweep.analysis.sweep import Sweep, text_of

Array = NDArray[np.float64]

# Every column, in order. m_i is the mean of configuration i over its finished seeds, in the metric's own sign.
COLUMNS = {
    "objective": "name",
    "param": "the swept hyperparameter",
    "position": "the value; the centre of a bin on the hyperparameter's axis (log where it is); none for a category",
    "label": 'the value or the bin as text, "0.1" or "0.05..0.08"',
    "value_low": "smallest value in the bin",
    "value_high": "largest value in the bin",
    "num_configs": "configurations with a score",
    "mean": "mean of m_i over them",
    "low": "t interval of the mean. A whole grid: from the seed noise, s_w sqrt(sum 1/S_i) / num_configs, the settings "
    "being the space. Otherwise: from the spread of m_i, the configurations being a sample of it",
    "high": "",
    "note": "what was not measured and why",
}
MAX_BINS = 8
MAX_VALUES = 16  # a number that takes at most so many values, each twice on average, is not cut into bins


def marginals(sweeps: Sequence[Sweep], *, confidence: float = 0.95) -> pd.DataFrame:
    """One row per objective, swept hyperparameter and value (or bin of equal count, at most 8) with these `COLUMNS`.

    The mean is over the settings of the other hyperparameters that have a score. Where configurations of a grid were
    lost, values rest on different settings, and the note says so. Adaptive samples (tpe, gp) have no band.

    Raises ValueError for a confidence outside (0, 1).
    """
    if not 0 < confidence < 1:
        raise ValueError(f"confidence: expected between 0 and 1, got {confidence!r}")
    rows = [row for sweep in sweeps for name in sweep.params for row in _rows(sweep, name, confidence)]
    return pd.DataFrame(rows, columns=list(COLUMNS))


def _rows(sweep: Sweep, name: str, confidence: float) -> list[dict[str, Any]]:
    values = sweep.settings[name]
    groups, num_groups = _groups(sweep, name)
    alive, means = sweep.alive, sweep.sign * sweep.means
    counts = np.bincount(groups[alive], minlength=num_groups)
    sums = np.bincount(groups[alive], weights=means[alive], minlength=num_groups)
    centres = np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)
    half, notes = _half_widths(sweep, groups, counts, centres, confidence)
    if sweep.is_grid and len(set(counts)) > 1:
        notes.append("unbalanced: the values rest on different settings of the others")
    first = np.unique(groups, return_index=True)[1]
    is_number = sweep.scales[name] != "category"
    if is_number:
        axis, numbers = sweep.axis(name), pd.to_numeric(values).to_numpy(dtype=float, na_value=np.nan)
        lows, highs, places = _edges(numbers, groups, num_groups, axis)
        places = np.where(lows == highs, lows, np.exp2(places) if sweep.scales[name] == "log" else places)
    rows = []
    for group in range(num_groups):
        row: dict[str, Any] = {"objective": sweep.objective, "param": name, "label": text_of(values.iat[first[group]])}
        row |= dict.fromkeys(("position", "value_low", "value_high"), np.nan)
        if is_number:
            row |= {"position": places[group], "value_low": lows[group], "value_high": highs[group]}
            if lows[group] < highs[group]:
                row["label"] = f"{text_of(float(lows[group]))}..{text_of(float(highs[group]))}"
        row |= {"num_configs": int(counts[group]), "mean": centres[group]}
        row |= {"low": centres[group] - half[group], "high": centres[group] + half[group]}
        rows.append(
            row | {"note": "; ".join([*notes, *(["no configuration with a score"] if not counts[group] else [])])}
        )
    return rows


def _groups(sweep: Sweep, name: str) -> tuple[NDArray[np.intp], int]:
    """(n,) the value or bin of each configuration, numbers in ascending order, and how many there are."""
    values = sweep.settings[name]
    if sweep.scales[name] == "category":
        codes, uniques = values.factorize(use_na_sentinel=False)
        return np.asarray(codes), len(uniques)
    numbers = pd.to_numeric(values).to_numpy(dtype=float, na_value=np.nan)
    uniques, codes = np.unique(numbers, return_inverse=True)
    if sweep.samplers == ("grid",) or len(uniques) <= min(MAX_VALUES, len(numbers) / 2):
        return np.asarray(codes), len(uniques)
    # Configurations without a score go to the bin of their value, so that the bins hold equally many with one.
    bins = max(1, min(MAX_BINS, int(sweep.alive.sum()) // 2, len(uniques)))
    scored = np.sort(numbers[sweep.alive]) if sweep.alive.any() else np.sort(numbers)
    cuts = np.unique(scored[np.arange(1, bins) * len(scored) // bins])
    found, codes = np.unique(np.searchsorted(cuts, numbers, side="right"), return_inverse=True)
    return np.asarray(codes), len(found)


def _edges(numbers: Array, groups: NDArray[np.intp], num_groups: int, axis: Array) -> tuple[Array, Array, Array]:
    """Smallest and largest value of each group, and the mean of its places on the axis."""
    low, high = np.full(num_groups, np.inf), np.full(num_groups, -np.inf)
    np.minimum.at(low, groups, numbers)
    np.maximum.at(high, groups, numbers)
    place = np.bincount(groups, weights=axis, minlength=num_groups) / np.bincount(groups, minlength=num_groups)
    return low, high, place


def _half_widths(
    sweep: Sweep, groups: NDArray[np.intp], counts: NDArray[np.intp], centres: Array, confidence: float
) -> tuple[Array, list[str]]:
    """Half width of the interval of each group's mean, NaN where there is none, and notes."""
    none, level = np.full(len(counts), np.nan), 0.5 + confidence / 2.0
    if sweep.not_measured:
        return none, [sweep.not_measured]
    if not sweep.alive.any():
        return none, []
    num = np.maximum(counts, 1)
    if sweep.is_grid:
        if not sweep.has_repeats:
            return none, ["one seed: no interval"]
        seeds = np.isfinite(sweep.scores[sweep.alive]).sum(axis=1)
        noise, freedom = resample.noise_variance(sweep.scores[sweep.alive]), int((seeds - 1).sum())
        spread = np.sqrt(noise * np.bincount(groups[sweep.alive], weights=1.0 / seeds, minlength=len(counts))) / num
        return np.where(counts > 0, stats.t.ppf(level, freedom) * spread, np.nan), []
    off = np.square(sweep.sign * sweep.means[sweep.alive] - centres[groups[sweep.alive]])
    squares = np.bincount(groups[sweep.alive], weights=off, minlength=len(counts))
    freedom_each = np.maximum(counts - 1, 1)
    spread = np.sqrt(squares / freedom_each / num)
    return np.where(counts > 1, stats.t.ppf(level, freedom_each) * spread, np.nan), []
