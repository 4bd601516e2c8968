"""Levels along each hyperparameter, with their intervals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from clsweep.analysis.array_types import Array, Codes
from clsweep.analysis.importance import read_surrogate
from clsweep.analysis.marginal_weights import MarginalWeights, marginal_weights
from clsweep.analysis.nested import branch_note, conditional
from clsweep.analysis.noise import half_width, square_and_add
from clsweep.analysis.reasons import Note, Reason, note, noted, with_notes
from clsweep.analysis.regions import cut, means_by
from clsweep.analysis.sweep import Sweep
from clsweep.display.numbers import setting

MARGINAL_COLUMNS = with_notes(
    "objective param position label value_low value_high num_configs mean low high"
)
_MAX_BINS = 8


def marginal_levels(sweeps: Sequence[Sweep]) -> pd.DataFrame:
    """One row per objective, swept hyperparameter and value (or bin of equal count, at most 8) with
    these `MARGINAL_COLUMNS`.

    The mean is over the settings of the other hyperparameters that have a score; of a grid that
    lost configurations, the least-squares mean (`marginal_weights`). One that is
    nested in others is looked at where it is swept alone. Of samples that favour good
    configurations (tpe, gp) it is the surrogate's, E[f | x]; one row without a mean where that
    predicts too little.
    """
    rows = [
        row
        for sweep in sweeps
        for name in sweep.params
        for row in (_searched if sweep.not_measured else _rows)(sweep, name)
    ]
    return pd.DataFrame(rows, columns=list(MARGINAL_COLUMNS))


def _rows(whole: Sweep, name: str) -> list[dict[str, Any]]:
    sweep = conditional(whole, name)
    regions = cut(name, [sweep], max_bins=_MAX_BINS, scored=True)
    groups, num = regions.place(sweep.settings[name]), len(regions)
    notes = [*branch_note(whole, name)]
    weights = None
    if sweep.is_grid:
        # Other averages would differ by what they rest on.
        weights = marginal_weights(sweep, name, groups, num)
        notes += weights.notes
    counts = np.bincount(groups[sweep.alive], minlength=num)
    means = sweep.sign * sweep.means[sweep.alive]
    centres = means_by(groups[sweep.alive], means, num)
    if weights is not None:
        centres = np.where(counts > 0, weights.table @ means, np.nan)
    half, noise_notes = _half_widths(sweep, groups[sweep.alive], counts, centres, weights)
    if images := sweep.images:
        seen = images.rows(sweep.alive).averaged(groups[sweep.alive], num)
        half = np.hypot(half, images.half_width(seen.of_each))
    ends = np.array(sweep.turned(sweep.sign * centres - half, sweep.sign * centres + half))
    ends[0 if sweep.sign > 0 else 1, np.bincount(groups, sweep.unknown, num) > 0] = np.nan
    if sweep.seeds_apart:
        ends[:] = np.nan
    low, high = sweep.limited(ends)
    places = regions.low
    if sweep.scales[name] != "category":  # of a bin the centre of its configurations on the axis
        centre = np.bincount(groups, sweep.axis(name), num) / np.bincount(groups, minlength=num)
        centre = np.exp2(centre) if sweep.scales[name] == "log" else centre
        places = np.where(regions.low == regions.high, regions.low, centre)
    columns = {
        "position": places,
        "label": regions.labels,
        "value_low": regions.low,
        "value_high": regions.high,
        "num_configs": counts.tolist(),
        "mean": centres,
        "low": low,
        "high": high,
    }
    start, empty = {"objective": sweep.objective, "param": name}, note(Reason.NO_SCORE)
    notes = [*noise_notes, *notes, *sweep.missing]
    return [
        start
        | dict(zip(columns, cells, strict=True))
        | noted(*notes, why=None if count else sweep.no_score or empty)
        for *cells, count in zip(*columns.values(), counts, strict=True)
    ]


def _searched(sweep: Sweep, name: str) -> list[dict[str, Any]]:
    """The level along one hyperparameter by the surrogate."""
    rows, curves, notes = read_surrogate(sweep)
    start = {"objective": sweep.objective, "param": name, "label": ""}
    if name not in curves:
        return [start | noted(*notes) | {"reason": rows[0]["reason"] or Reason.NO_SCORE}]
    curve, is_named = curves[name], sweep.scales[name] == "category"
    low, high = sweep.limited(sweep.turned(*curve.ends))
    out = []
    for at, mean, *ends in zip(curve.values, curve.draws.mean(axis=1), low, high, strict=True):
        place = np.nan if is_named else at
        row = {"position": place, "value_low": place, "value_high": place, "label": setting(at)}
        row |= {"mean": sweep.sign * mean, "low": ends[0], "high": ends[1]}
        row |= {"num_configs": int(sweep.alive.sum())}
        out.append(start | row | noted(*notes))
    return out


def _half_widths(
    sweep: Sweep, groups: Codes, counts: Codes, centres: Array, weights: MarginalWeights | None
) -> tuple[Array, list[Note]]:
    """Half width of the interval of each group's mean, NaN where there is none, and notes; groups
    are those of the configurations with a score, weights theirs on a grid.
    """
    half = np.full(len(counts), np.nan)
    if not len(groups):
        return half, []
    num = np.maximum(counts, 1)
    if weights is None:
        off = np.square(sweep.sign * sweep.means[sweep.alive] - centres[groups])
        squares = np.bincount(groups, weights=off, minlength=len(counts))
        freedoms = np.maximum(counts - 1, 1)
        return np.where(counts > 1, half_width(squares / freedoms / num, freedoms), np.nan), []
    if not sweep.has_repeats:
        return half, [note(Reason.ONE_SEED)]
    for k in np.flatnonzero(counts):
        half[k] = square_and_add(weights.parts(sweep, np.eye(len(counts))[k]))
    return half, []
