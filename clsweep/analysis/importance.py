"""Importance of hyperparameters to a search: the surrogate through whatever it tried, where that
predicts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd

from clsweep.analysis import CONFIDENCE, TAIL, bootstrap, sensitivity
from clsweep.analysis.array_types import Array
from clsweep.analysis.best_setting import best_setting
from clsweep.analysis.reasons import Note, Reason, note, noted, with_notes
from clsweep.analysis.sobol import main_effects
from clsweep.analysis.surrogate import Space, Surrogate, ends_of
from clsweep.analysis.sweep import Sweep, in_threads

IMPORTANCE_COLUMNS = with_notes(
    "objective param importance low high null resolved usable_low usable_high r2 num_configs"
)
POINTS = 17  # along a continuous parameter
_CACHE_SIZE = 64  # sweeps whose surrogate is asked for again
_Rows = list[dict[str, Any]]


@dataclass(frozen=True, eq=False)
class Curve:
    """The level along one hyperparameter, E[f | x], larger is better.

    Attributes:
        values: (points,) in its own units, or names of a category.
        draws: (points, P) levels.
    """

    values: Sequence[Any]
    draws: Array

    @property
    def ends(self) -> Array:
        """(2, points) of the interval of each level."""
        low, middle, high = np.quantile(self.draws, [TAIL, 0.5, 1.0 - TAIL], axis=1)
        widen = sensitivity.WIDEN
        return np.stack([middle - widen * (middle - low), middle + widen * (high - middle)])

    def usable(self, within: float) -> tuple[Any, Any]:
        """Ends of the values around the best that are surely within so much of the best level."""
        best = int(self.draws.mean(axis=1).argmax())
        near = (self.draws >= self.draws.max(axis=0) - within).mean(axis=1) >= CONFIDENCE
        if not near[best] or isinstance(self.values[0], str):
            return np.nan, np.nan
        last = best + int((~np.append(near, False)[best:]).argmax()) - 1
        first = best - int((~np.append(near[best::-1], False)).argmax()) + 1
        return self.values[first], self.values[last]


def importance(sweeps: Sequence[Sweep], *, within: float) -> pd.DataFrame:
    """One row per objective and swept hyperparameter with these `IMPORTANCE_COLUMNS`, the largest
    first; one that says why where the surrogate predicts too little (the gate of `sensitivity`).

    Unlike shares among what was tried (fANOVA, PED-ANOVA), these are of the space; where the search
    hardly looked they rest on the smoothness of the surrogate. Configurations of which a trial was
    stopped count nowhere.

    within: how far below the best level still counts as usable, in units of the metric.
    """
    tables = in_threads(lambda sweep: _importances(sweep, within), sweeps)
    return pd.DataFrame([row for rows in tables for row in rows], columns=list(IMPORTANCE_COLUMNS))


def _importances(sweep: Sweep, within: float) -> _Rows:
    rows, known, _ = read_surrogate(sweep.of_space)
    out, best = [], best_setting(sweep)
    for row in sorted(rows, key=lambda row: -np.nan_to_num(row.get("total", 0.0))):
        if row["order"] > 1:
            continue
        curve = known.get(row["term"]) if row["resolved"] else None
        low, high = curve.usable(within) if curve else (np.nan, np.nan)
        names = {"importance": "total", "low": "total_low", "high": "total_high"}
        if best and _is_outside(low, high, sweep.settings.iloc[best.row].get(row["term"])):
            at = replace(sweep, params=(row["term"],)).label(best.row)
            row = row | {"note": (*row["note"], note(Reason.BEST_NOT_USABLE, at=at))}
        out.append(
            row | {mine: row[name] for mine, name in names.items()}
            | {"param": row["term"], "usable_low": low, "usable_high": high}
        )  # fmt: skip
    return out


def _is_outside(low: float, high: float, value: Any) -> bool:
    """True for a value beyond the run of usable ones, where there is one."""
    if np.isnan(low) or pd.isna(value):
        return False
    slack = 1e-9 * max(abs(low), abs(high))
    return not low - slack <= float(value) <= high + slack


@lru_cache(_CACHE_SIZE)
def read_surrogate(sweep: Sweep) -> tuple[_Rows, dict[str, Curve], tuple[Note, ...]]:
    """The rows of `sensitivity.sensitivity_rows` with what a search cannot know, the curve of each
    hyperparameter, none where the surrogate predicts too little, and the notes.
    """
    rows, model = sensitivity.sensitivity_rows(sweep, searched=True)
    cautions = [note(Reason.TRIED_WHERE_GOOD, r2=rows[0]["r2"])] if model else []
    if sweep.num_stopped:
        figures = {"stopped": sweep.num_stopped, "trials": sweep.num_trials}
        cautions.append(note(Reason.FULL_LENGTH, **figures))
    notes = tuple(dict.fromkeys((*rows[0]["note"], *cautions)))
    rows = [row | noted(*notes) | {"reason": row["reason"]} for row in rows]
    return rows, _curves(sweep, *model) if model else {}, notes


def _curves(sweep: Sweep, fitted: Surrogate, space: Space) -> dict[str, Curve]:
    places = [np.linspace(0, 1, POINTS)[:, None] if x is None else x for x in space.levels]
    rng = np.random.default_rng(bootstrap.DRAWS_SEED)
    drawn = main_effects(fitted, space, places, rng)
    curves = {}
    for name, at, draws in zip(space.names, places, drawn, strict=True):
        if sweep.scales[name] == "category":
            values = np.unique(sweep.settings.loc[sweep.alive, name].astype(str)).tolist()
        else:
            low, high = ends_of(sweep, name)
            on_axis = low + (high - low) * at[:, 0]
            values = (np.exp2(on_axis) if sweep.scales[name] == "log" else on_axis).tolist()
        curves[name] = Curve(values, draws)
    return curves
