"""The tolerance curve: which share of the space lies within delta points of the best, for a row of
deltas.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from clsweep.analysis import reasons, resample
from clsweep.analysis.reasons import Note, Reason, note, noted
from clsweep.analysis.sweep import Sweep

COLUMNS = {
    "objective": "name, in order of first appearance",
    "delta": "how far below the best level L, in units of the metric",
    "share": "T(delta) = #{i: m_i >= L - delta} / number of configurations; L cross-fitted over "
    "seeds",
    "low": "interval of share, for this delta alone; where trials failed, it reaches to that "
    "without them",
    "high": "",
    **reasons.COLUMNS,
}
STEPS = 50


def tolerance_curve(
    sweeps: Sequence[Sweep],
    *,
    within: float = 1.0,
    upto: float | None = None,
) -> pd.DataFrame:
    """One row per objective and delta with the columns of `COLUMNS`; one row without a delta where
    nothing is measured. Intervals are percentiles of the resampled shares, as for share_within in
    `robustness`.

    Args:
        sweeps: from `read_sweeps`.
        within: how far below the best still counts as good, in units of the metric.
        upto: the largest delta. By default ten times `within`, or less where every configuration of
            every objective is nearer to its best: then the next of 1, 2 and 5 times a power of ten.
            All objectives share the 51 deltas from 0.

    Raises:
        ValueError: an option out of range.
    """
    if not 0 < within < np.inf:
        raise ValueError(f"within: expected a number > 0, got {within!r}")
    if upto is not None and not 0 < upto < np.inf:
        raise ValueError(f"upto: expected a number > 0, got {upto!r}")
    tables = [
        (sweep, resample.packed(sweep.scores[sweep.alive]), _missing(sweep)) for sweep in sweeps
    ]
    gaps = [_gaps(values).max() for _, values, missing in tables if not missing]
    most = resample.AREA_WIDTHS * within
    deltas = np.linspace(0.0, upto or _reach(max(gaps, default=0.0), most), STEPS + 1)
    rows: list[dict[str, Any]] = []
    for sweep, values, missing in tables:
        if missing:
            rows.append({"objective": sweep.objective, **noted(why=missing)})
        else:
            rows += _curve(sweep, values, deltas)
    return pd.DataFrame(rows, columns=list(COLUMNS))


def _missing(sweep: Sweep) -> Note | None:
    return sweep.nothing or (note(Reason.ONE_CONFIG) if len(sweep.configs) == 1 else None)


def _curve(sweep: Sweep, values: resample.Array, deltas: resample.Array) -> list[dict[str, Any]]:
    """The rows of one objective."""
    slack = float(resample.rounding(resample.row_means(values)))
    share = _shares(_gaps(values)[None], deltas + slack)[0]
    bounds = np.full((2, len(deltas)), np.nan)
    notes = [*sweep.lost(Reason.LEFT_OUT), *sweep.missing]
    if sweep.has_repeats:
        bounds = _bounds(sweep, values, deltas + slack)
        measured = sweep.without_failed()
        if measured.has_repeats and sweep.failed.any():  # as those of `robustness`
            rest = resample.packed(measured.scores[measured.alive])
            low, high = _bounds(measured, rest, deltas + slack)
            bounds = np.array([np.minimum(bounds[0], low), np.maximum(bounds[1], high)])
        if (unknown := sweep.unknown[sweep.alive]).any():  # they may be any further off
            near = _shares(_gaps(values)[None, unknown], deltas + slack)[0]
            bounds[0] = np.maximum(0.0, bounds[0] - near * unknown.mean())
    else:
        notes += [note(Reason.ONE_SEED), note(Reason.PESSIMISTIC, columns=("share",))]
    columns = deltas.tolist(), share.tolist(), bounds[0].tolist(), bounds[1].tolist()
    names = ("delta", "share", "low", "high")
    return [
        {"objective": sweep.objective, **dict(zip(names, cells, strict=True)), **noted(*notes)}
        for cells in zip(*columns, strict=True)
    ]


def _bounds(sweep: Sweep, values: resample.Array, deltas: resample.Array) -> resample.Array:
    """(2, deltas) ends of the intervals of the shares."""
    bootstrap = resample.Bootstrap(population=not sweep.is_grid)

    def measure(drawn: resample.Array, full: resample.Array) -> dict[str, resample.Array]:
        gaps = resample.best_level(full)[:, None] - resample.row_means(drawn)
        return {"share": _shares(gaps, deltas)}

    drawn = bootstrap.collect(values, measure)["share"]
    share = _shares(_gaps(values)[None], deltas)[0]
    pairs = [
        bootstrap.bounds(column, len(values), estimate=at)
        for column, at in zip(drawn.T, share, strict=True)
    ]
    return np.clip(np.array(pairs).T, 0.0, 1.0)


def _gaps(values: resample.Array) -> resample.Array:
    """(n,) L - m_i."""
    return np.asarray(resample.best_level(values) - resample.row_means(values))


def _shares(gaps: resample.Array, deltas: resample.Array) -> resample.Array:
    """(B, n) gaps -> (B, deltas) share of each row's gaps that are at most delta."""
    inside = [np.searchsorted(row, deltas, side="right") for row in np.sort(gaps, axis=-1)]
    return np.array(inside) / gaps.shape[-1]


def _reach(gap: float, most: float) -> float:
    """The next of 1, 2, 5 times a power of ten above the gap, `most` at most."""
    if not 0 < gap < most:
        return most
    power = 10.0 ** np.floor(np.log10(gap))
    return float(
        min(most, next(step * power for step in (1, 2, 5, 10) if step * power >= gap * (1 - 1e-12)))
    )
