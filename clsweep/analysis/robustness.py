"""Robustness: spread of an objective's metric over its hyperparameters, with intervals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from clsweep.analysis.array_types import Array
from clsweep.analysis.best_setting import best_setting, lead_of_incomplete, tuned_level, why_no_best
from clsweep.analysis.bootstrap import in_resample_order
from clsweep.analysis.image_intervals import image_parts, spread_of, spread_without, widened
from clsweep.analysis.nested import branch_note, conditional
from clsweep.analysis.noise import half_width, square_and_add
from clsweep.analysis.reasons import Note, Reason, note, noted, with_notes
from clsweep.analysis.response import Response, band, respond, slope
from clsweep.analysis.score_table import (
    adjusted_for_seeds,
    best_level,
    drop_nan_columns,
    row_means,
    without_gaps,
)
from clsweep.analysis.spread import interquartile_mean, nearness, spread_statistics
from clsweep.analysis.spread_intervals import limited, spread_intervals
from clsweep.analysis.sweep import WORST, Sweep, check_by, in_threads

ROBUSTNESS_COLUMNS = with_notes(
    "objective num_configs num_seeds num_failed mean mean_low mean_high sd sd_low sd_high sd_star "
    "sd_star_low sd_star_high range best best_level best_at worst worst_at regret regret_low "
    "regret_high share_within share_low share_high tolerance_area tolerance_area_low "
    "tolerance_area_high iqm iqm_low iqm_high worst_10 worst_10_low worst_10_high band_param "
    "band_low band_high band_ratio slope slope_low slope_high band_sure_low band_sure_high "
    "band_end band_bins level_noise noise_of"
)
STATISTICS = ("mean", "sd", "sd_star", "regret", "share", "tolerance_area", "iqm", "worst_10")
_LEVELS = ("mean", "iqm", "worst_10")  # in the metric's own sign
_TEXT = ("best_at", "worst_at", "band_param", "band_end", "noise_of")
Bounds = dict[str, tuple[float, float]]  # of each statistic; larger is better
FITTED = ("regret", "share_within", "tolerance_area", "worst_10")  # against the best one
# Fewer random settings may all miss a part of more than 5 % of the space, by the rule of three, 3/n
# (Hanley and Lippman-Hand 1983). Samples of 20 or 40 with a setting on a cliff are covered in 95 to
# 100 % (mean, SD*, worst_10), those that miss it hardly ever.
FEW_SAMPLED = 60

FEW_SETTINGS = 20  # of fewer the worst tenth is the worst setting


def robustness(
    sweeps: Sequence[Sweep], *, by: str | None = None, within: float = 1.0
) -> pd.DataFrame:
    """One row per objective with the columns of `ROBUSTNESS_COLUMNS`.

    Levels and the slope are in the metric's own sign; spreads, regret and shares read the same
    whether "max" or "min" is best. With "min", worst_10 is the level of the highest tenth.

    Args:
        sweeps: from `read_sweeps`. Of a race all but the best is by the seeds that all
            configurations ran on (`Sweep.of_space`).
        by: the marginal effect of one hyperparameter: every statistic is over its values, each the
            average over the other swept ones (`respond`). Without any other it is that of by=None.
        within: how far below the best still counts as good, in units of the metric.

    What has run of an unfinished grid counts as a sample of the space. Where the samples say
    nothing of the space (tpe, gp, a mixture, stopped trials) there are counts and the best only.
    One seed: no interval and no sd_star. Coverage: see `spread_intervals`.

    Raises ValueError for a `within` out of range, a `by` that no objective sweeps.
    """
    if not 0 <= within < np.inf:
        raise ValueError(f"within: expected a number >= 0, got {within!r}")
    check_by(by, sweeps)
    rows = in_threads(lambda sweep: _row(sweep, by, within), sweeps)
    return pd.DataFrame(rows, columns=list(ROBUSTNESS_COLUMNS))


def _row(all_seeds: Sweep, by: str | None, within: float) -> dict[str, Any]:
    """The row of one objective: the best by all seeds, the rest by what speaks for the space."""
    sweep = all_seeds.of_space
    row: dict[str, Any] = {**dict.fromkeys(ROBUSTNESS_COLUMNS, np.nan), **dict.fromkeys(_TEXT, "")}
    row |= {"objective": sweep.objective, "num_configs": len(sweep.configs)}
    row |= {"num_seeds": len(sweep.seeds), "num_failed": sweep.num_failed}
    notes = list(sweep.missing)
    if by is not None and by not in sweep.params:
        return row | noted(*notes, why=note(Reason.NOT_SWEPT, param=by))
    if by is not None:
        notes += branch_note(sweep, by)
        sweep, all_seeds = conditional(sweep, by), conditional(all_seeds, by)
    table, why = Response.of_configs(sweep), sweep.nothing
    if why:
        row |= _extremes(table, all_seeds, notes, with_worst=False)
        return row | noted(*notes, why=why)
    table = _table(sweep, by)
    why = sweep.too_few or note(Reason.ONE_CONFIG) if len(table.scores) == 1 else None
    notes += table.notes
    is_bounded = _measure(row, table, notes, by, within, sweep)
    row |= _extremes(table, all_seeds, notes, with_worst=True)
    param = by or (sweep.params[0] if len(sweep.params) == 1 else "")
    if param and sweep.scales[param] != "category":
        response = table if table.param else respond(sweep, param)
        row |= _band(sweep, response, notes, within, with_interval=is_bounded)
    return row | noted(*notes, why=why)


def _table(sweep: Sweep, by: str | None) -> Response:
    """The levels that the statistics are of: configurations, or the values of `by`."""
    is_whole = by is None or len(sweep.params) == 1
    return Response.of_configs(sweep) if is_whole else respond(sweep, by or "")


def _measure(
    row: dict[str, Any],
    table: Response,
    notes: list[Note],
    by: str | None,
    within: float,
    sweep: Sweep,
) -> bool:
    """Puts the statistics and intervals of a table into `row`, adds to `notes`; whether there are
    intervals.
    """
    values, num = table.scores[table.alive], len(table.scores)
    values = in_resample_order(drop_nan_columns(values) if table.param else without_gaps(values))
    row["mean"] = sweep.sign * float(row_means(values).mean())
    if num == 1:
        return False
    if not table.param:
        notes += sweep.lost(Reason.LEFT_OUT)
    if len(values) == 1:
        notes.append(note(Reason.ONE_CONFIG_FINISHED))
    population = table.sampled and not table.param
    parts = image_parts(table.images, table.alive)
    point = spread_statistics(values, within=within, parts=parts)
    still = drop_nan_columns(table.still[table.alive])
    point["sd_star"] = spread_statistics(still, within=within)["sd_star"]
    point["sd_star"] = spread_without(point["sd_star"], spread_of(table.images, table.alive))
    bounds = statistic_intervals(sweep, table, within)
    if not bounds:
        alone = Reason.ONE_PER_VALUE if table.sampled and table.param else Reason.ONE_SEED
        notes += [note(alone), note(Reason.NOT_CORRECTED)]
        notes.append(note(Reason.PESSIMISTIC, columns=FITTED))
    elif population and sweep.samplers != ("qmc",) and len(values) < FEW_SAMPLED:
        percent = round(300 / len(values))
        notes.append(note(Reason.UNSEEN, settings=len(values), percent=percent))
    if bounds and np.isfinite(sweep.failed_level) and sweep.failed.any():
        without = statistic_intervals(sweep.measured, _table(sweep.measured, by), within)
        for name, (low, high) in without.items():  # they hold whatever failed trials count as
            mine = bounds[name]
            bounds[name] = float(np.minimum(mine[0], low)), float(np.maximum(mine[1], high))
    rows = np.flatnonzero(table.alive)[row_means(table.scores[table.alive]).argsort()]
    worst = table.failing[rows[: max(1, len(rows) // 10)]]
    if sweep.failed_as == WORST and (table.unknown.any() or worst.any()):
        notes.append(note(Reason.WORST_UNKNOWN, lost=int(sweep.failing.sum())))
        bounds = bounds and _opened(bounds, values, table, within)
    if bounds and not population:  # the best of a grid is always near itself
        for name in ("share", "tolerance_area"):
            low, high = (max(end, 1.0 / len(values)) for end in bounds[name])
            bounds[name] = low, high
    for name, ends in bounds.items():  # percentiles may lie beside what chance made small
        bounds[name] = including(ends, point[name])
    level = float(best_level(values, parts))
    lost = level - point["worst_10"]
    if lost <= within and point["share"] < 1 and num < FEW_SETTINGS:
        notes.append(note(Reason.NOISY_SHARE))
    row["best_level"] = sweep.sign * level
    row |= _columns(point, bounds, sweep)
    return bool(bounds)


def including(ends: Any, point: Any) -> Any:
    """The ends of an interval, the point in between; an open end stays open."""
    return np.minimum(ends[0], point), np.maximum(ends[1], point)


def _columns(point: Mapping[str, Any], bounds: Mapping[str, Any], sweep: Sweep) -> dict[str, Any]:
    """The statistics and their intervals by column, levels in the metric's own sign."""
    row: dict[str, Any] = {}
    for key in STATISTICS:
        factor = sweep.sign if key in _LEVELS else 1.0
        row["share_within" if key == "share" else key] = factor * float(point[key])
        if key in bounds:
            ends = bounds[key]
            if key in _LEVELS:
                ends = sweep.limited(sweep.turned(*ends))
            row[f"{key}_low"], row[f"{key}_high"] = ends
    return row


def statistic_intervals(sweep: Sweep, table: Response, within: float) -> Bounds:
    """The intervals of a table's statistics. Seeds are blocks: what one gives to all rows is taken
    out, and widens the intervals of levels by its own (`square_and_add`). On a grid that of the
    mean is by the seeds alone (`Noise.parts`).
    """
    values = in_resample_order(drop_nan_columns(table.still[table.alive]))
    images = table.images and table.images.rows(table.alive)
    parts, population = image_parts(images), table.sampled and not table.param
    bounds = spread_intervals(values, population=population, within=within, parts=parts)
    if bounds and (noise := table.noise):
        more = float(half_width(*noise.of_seeds))
        bounds |= {name: widened(*bounds[name], more) for name in _LEVELS}
        if not population:
            evenly, weights = table.alive / int(table.alive.sum()), table.weights
            by_noise = weights.parts(sweep, evenly) if weights else noise.parts(evenly[table.alive])
            half = square_and_add(part for part in by_noise if part[1] > 0)
            mean = float(row_means(values).mean())
            bounds["mean"] = mean - half, mean + half
    if bounds and images:
        low, high = spread_without(bounds["sd_star"], images.spread)
        bounds["sd_star"] = float(low), float(high)
        moved = images.variance_of(lambda each: spread_statistics(each, within=within), values)
        for name, variance in ((name, moved[name]) for name in bounds if name in moved):
            bounds[name] = widened(*bounds[name], images.half_width(variance))
        near = spread_statistics(shrunk_to_spread(values, bounds["sd_star"][0]), within=within)
        for name in ("share", "tolerance_area"):
            bounds[name] = bounds[name][0], max(bounds[name][1], float(near[name]))
        bounds |= limited(bounds)
    return bounds


def shrunk_to_spread(values: Array, sd_star: float) -> Array:
    """A table whose settings are spread by no more than `sd_star`, without noise: what images add
    to a spread makes equal settings look far apart.
    """
    means = row_means(values)
    sd = means.std(ddof=1) if len(means) > 1 else 0.0
    share = min(1.0, sd_star / sd) if sd > 0 else 0.0
    return np.asarray(means.mean() + share * (means - means.mean()))[:, None]


def _opened(bounds: Bounds, values: Array, table: Response, within: float) -> Bounds:
    """Intervals that hold however low the unknown rows are: NaN where no end does.

    That of worst_10 has no lower one either where most trials of a row in it failed.
    """
    unknown = table.unknown[table.alive]
    means = row_means(values)
    best = best_level(values, image_parts(table.images, table.alive))
    low: dict[str, Any] = {name: ends[0] for name, ends in bounds.items()}
    high = {name: ends[1] for name, ends in bounds.items()}
    low["worst_10"] = np.nan
    if unknown.any():
        low["mean"] = np.nan
        high |= dict.fromkeys(("sd", "sd_star", "regret"), np.nan)
        sunk = interquartile_mean(np.where(unknown, means.min() - 1.0, means))
        is_trimmed = unknown.sum() <= len(means) / 4
        low["iqm"] += sunk - interquartile_mean(means) if is_trimmed else np.nan
        near = nearness(means[unknown], best, within=within)
        for name in ("share", "tolerance_area"):
            low[name] = max(0.0, low[name] - float(near[name]) * unknown.mean())
    return {name: (low[name], high[name]) for name in bounds}


def _band(
    sweep: Sweep, table: Response, notes: list[Note], within: float, *, with_interval: bool
) -> dict[str, Any]:
    """The usable band of a numeric hyperparameter, and the slope along it."""
    if table.alive.sum() < 2:
        return {}
    value, *ends = slope(sweep, table)
    row: dict[str, Any] = {"band_param": table.param, "slope": sweep.sign * value}
    if with_interval and not (table.unknown | table.failing).any():
        row["slope_low"], row["slope_high"] = sweep.turned(*ends)
    failing = np.flatnonzero(table.failing & table.alive).tolist()
    if values := tuple(table.label(at) for at in failing):
        notes.append(note(Reason.FAILING_VALUES, values=values))
    if not table.balanced:
        return row
    row |= (columns := band(table, within=within))
    if "level_noise" in columns:
        row["noise_of"] = "seeds" if sweep.samplers == ("grid",) else "configurations"
    if table.binned:
        row["band_bins"] = int(np.isfinite(table.low).sum())
    if columns.get("band_low", 0.0) > 0 and not (table.binned and columns.get("band_end")):
        row["band_ratio"] = columns["band_high"] / columns["band_low"]
    return row


def _extremes(
    table: Response, sweep: Sweep, notes: list[Note], *, with_worst: bool
) -> dict[str, Any]:
    """Best and worst row of a table, in the metric's own sign; of configurations the best is the
    pick of `best_setting`, and where there is none `notes` says why.
    """
    alive: NDArray[np.intp] = np.flatnonzero(table.alive)
    if not len(alive):
        return {}
    scores = table.scores[alive]
    means = row_means(scores if table.param else adjusted_for_seeds(scores))
    top, low = int(alive[means.argmax()]), int(alive[means.argmin()])
    picked = None if table.param else best_setting(sweep)
    row: dict[str, Any] = {}
    if table.param or picked:
        top = picked.row if picked else top
        of_table = float(np.nanmean(table.scores[top]))
        row = {"best": sweep.sign * float(sweep.measured.means[top] if picked else of_table)}
        if picked and picked.row != picked.first:
            notes.append(note(Reason.BY_STUDY_SEEDS, at=sweep.label(picked.first)))
        if picked:
            notes += lead_of_incomplete(sweep.measured, picked.row)[1]
        row["best_at"] = table.label(top)
    elif sweep.measured.alive.any():
        notes.append(why_no_best(sweep).of("best"))
    if with_worst and len(alive) > 1:
        row["worst_at"] = table.label(low)
        if not table.unknown.any():
            row["worst"] = sweep.sign * float(means.min())
            best = sweep.sign * of_table if sweep.raced and row else row.get("best", np.nan)
            row["range"] = abs(best - row["worst"])
    if sweep.raced and picked:  # whose further seeds are of the best ones
        row["best_level"] = sweep.sign * tuned_level(sweep, picked)
    return row
