"""The tolerance curve: the share of the space that lies within delta points of the best."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from clsweep.analysis.array_types import Array
from clsweep.analysis.bootstrap import in_resample_order, percentile_interval, resampled
from clsweep.analysis.image_intervals import image_parts, widened
from clsweep.analysis.reasons import Reason, note, noted, with_notes
from clsweep.analysis.response import Response
from clsweep.analysis.robustness import including, shrunk_to_spread, statistic_intervals
from clsweep.analysis.score_table import (
    best_level,
    drop_nan_columns,
    rounding,
    row_means,
    selection_bias,
    without_gaps,
)
from clsweep.analysis.spread import AREA_WIDTHS
from clsweep.analysis.sweep import Sweep

TOLERANCE_COLUMNS = with_notes("objective delta share low high")
STEPS = 50


def tolerance_curve(sweeps: Sequence[Sweep], *, within: float = 1.0) -> pd.DataFrame:
    """One row per objective and delta with the columns of `TOLERANCE_COLUMNS`; one row without a
    delta where nothing is measured. Intervals are those of share_within in `robustness`.

    within: in units of the metric. The largest of the 51 deltas from 0, which all objectives share,
        is ten times that. Where every configuration of every objective is nearer to its best it is
        the next of 1, 2 and 5 times a power of ten.

    Raises ValueError for a `within` out of range.
    """
    if not 0 < within < np.inf:
        raise ValueError(f"within: expected a number > 0, got {within!r}")
    alone = note(Reason.ONE_CONFIG)
    missing = [x.nothing or (x.too_few or alone if len(x.configs) == 1 else None) for x in sweeps]
    gaps = [_gaps(x).max() for x, why in zip(sweeps, missing, strict=True) if not why]
    gap, reach = max(gaps, default=0.0), AREA_WIDTHS * within
    if 0 < gap < reach:
        power = 10.0 ** np.floor(np.log10(gap))
        steps = (step * power for step in (1, 2, 5, 10) if step * power >= gap * (1 - 1e-12))
        reach = float(min(reach, next(steps)))
    deltas = np.linspace(0.0, reach, STEPS + 1)
    rows: list[dict[str, Any]] = []
    for sweep, why in zip(sweeps, missing, strict=True):
        if why:
            rows.append({"objective": sweep.objective, **noted(why=why)})
        else:
            rows += _curve(sweep, deltas)
    return pd.DataFrame(rows, columns=list(TOLERANCE_COLUMNS))


def _curve(sweep: Sweep, deltas: Array) -> list[dict[str, Any]]:
    """The rows of one objective."""
    gaps = _gaps(sweep)
    at = deltas + float(rounding(sweep.means[sweep.alive]))
    share = _shares(gaps[None], at)[0]
    bounds = np.full((2, len(deltas)), np.nan)
    notes = [*sweep.lost(Reason.LEFT_OUT), *sweep.missing]
    if sweep.has_repeats:
        bounds = _share_bounds(sweep, at)
        if sweep.measured.has_repeats and sweep.failed.any():  # as those of `robustness`
            low, high = _share_bounds(sweep.measured, at)
            bounds = np.array([np.minimum(bounds[0], low), np.maximum(bounds[1], high)])
        if (unknown := sweep.unknown[sweep.alive]).any():  # they may be any further off
            near = _shares(gaps[None, unknown], at)[0]
            bounds[0] = np.maximum(0.0, bounds[0] - near * unknown.mean())
        if sweep.is_grid:
            bounds[0] = np.maximum(bounds[0], 1.0 / len(gaps))
        bounds = np.array(including(bounds, share))
    else:
        notes += [note(Reason.ONE_SEED), note(Reason.PESSIMISTIC, columns=("share",))]
    table = np.stack([deltas, share, *bounds], axis=1).tolist()
    names = ("delta", "share", "low", "high")
    return [
        {"objective": sweep.objective, **dict(zip(names, cells, strict=True)), **noted(*notes)}
        for cells in table
    ]


def _share_bounds(sweep: Sweep, deltas: Array) -> Array:
    """(2, deltas) ends of the intervals of the shares, as `_intervals` has that of share."""
    population = not sweep.is_grid
    table = Response.of_configs(sweep)
    values = in_resample_order(drop_nan_columns(table.still[table.alive]))
    lucky = selection_bias(values, image_parts(sweep.images, sweep.alive))

    def measure(drawn: Array, full: Array) -> dict[str, Array]:
        means = row_means(full)
        free = best_level(full, clipped=False) - lucky
        best = np.clip(free, means.mean(axis=-1), means.max(axis=-1))
        return {"share": _shares(best[:, None] - row_means(drawn), deltas)}

    def near(each: Array) -> dict[str, Array]:
        gaps = best_level(each)[..., None] - row_means(each)
        return {"share": _shares(np.atleast_2d(gaps), deltas)}

    drawn = resampled(values, measure, population=population)["share"]
    share = _shares(_gaps(sweep)[None], deltas)[0]
    pairs = [
        percentile_interval(column, len(values), population=population, estimate=at)
        for column, at in zip(drawn.T, share, strict=True)
    ]
    low, high = np.array(pairs).T
    if images := sweep.images:
        variances = images.rows(sweep.alive).variance_of(near, values)
        low, high = widened(low, high, images.half_width(variances.get("share", 0.0)))
        sd_star = statistic_intervals(sweep, table, 1.0)["sd_star"]
        high = np.maximum(high, near(shrunk_to_spread(values, sd_star[0]))["share"][0])
    return np.clip([low, high], 0.0, 1.0)


def _gaps(sweep: Sweep) -> Array:
    """(n,) L - m_i of the configurations with a score."""
    values = without_gaps(sweep.scores[sweep.alive])
    best = best_level(values, image_parts(sweep.images, sweep.alive))
    return np.asarray(best - row_means(values))


def _shares(gaps: Array, deltas: Array) -> Array:
    """(B, n) gaps -> (B, deltas) share of each row's gaps that are at most delta."""
    inside = [np.searchsorted(row, deltas, side="right") for row in np.sort(gaps, axis=-1)]
    return np.array(inside) / gaps.shape[-1]
