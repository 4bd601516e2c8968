"""Which configuration to take: the best one, and the one whose neighbours are good too."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from clsweep.analysis.array_types import Array
from clsweep.analysis.best_setting import (
    BestSetting,
    best_setting,
    lead_of_incomplete,
    nameable_rows,
    tuned_level,
    why_no_best,
)
from clsweep.analysis.reasons import Note, Reason, note, noted, with_notes
from clsweep.analysis.score_table import noise_variance, without_seeds
from clsweep.analysis.sweep import ANYWHERE, Sweep

_Rows = NDArray[np.int64]

RECOMMEND_COLUMNS = with_notes(
    "objective kind config at score low high num_seeds when_tuned preferred_at over_first "
    "over_first_low over_first_high neighbourhood_worst num_neighbours"
)
RADIUS = 0.2  # of each axis (log where it is log), root mean square over them
APART = 100.0  # between categories, in axes: farther than any neighbour
TIE_TOLERANCE = 1e-9  # of a mean: what rounding makes of a tie
_MANY = 10_000
EDGE = 0.05  # of an axis: how near its end a sampled configuration is at the edge


@dataclass(frozen=True)
class Neighbourhoods:
    """worst: (n,) level of the worst around each configuration, larger is better; NaN where it
    cannot be told. counts: (n,) neighbours; eligible: (n,) bool, whether enough of them are known
    to call a place robust.
    """

    worst: Array
    counts: _Rows
    eligible: NDArray[np.bool_]

    def of(self, row: int, sign: float) -> dict[str, Any]:
        """The columns of one configuration."""
        worst = sign * self.worst[row] if self.counts[row] else np.nan
        return {"neighbourhood_worst": worst, "num_neighbours": int(self.counts[row])}


def recommend(sweeps: Sequence[Sweep]) -> pd.DataFrame:
    """Two rows per objective, "best" and "robust", with the columns of `RECOMMEND_COLUMNS`.

    The best (`best_setting`) may stand next to a cliff. The robust one has the best worst case when
    each numeric hyperparameter is off by a step; categories are chosen, and not missed by a little.
    The lowest of several noisy means is too low, and the more so the more neighbours there are. So
    each mean is first shrunk towards its neighbourhood's, by the part of what it deviates from it
    that seed noise explains (empirical Bayes). A configuration is eligible with at least d
    neighbours, as in the corner of a grid of d numeric hyperparameters. Of more than 10,000 sampled
    configurations the nearest are found approximately (up to twice as far).

    Both are picked among the configurations that may be named (`best_setting.nameable_rows`): a
    mean over the seeds that did not fail would hide the failures.

    Samples that do not cover the space evenly (`Sweep.not_measured`) have no robust one. One seed:
    no interval, and nothing is shrunk.
    """
    rows = [row for sweep in sweeps for row in _rows(sweep.measured, sweep)]
    return pd.DataFrame(rows, columns=list(RECOMMEND_COLUMNS))


def _rows(sweep: Sweep, counted: Sweep) -> list[dict[str, Any]]:
    """Of a sweep without its failed trials; of those that are `counted` neighbours hold some."""
    start = {"objective": sweep.objective, "at": "", "preferred_at": ""}
    chosen, complete = best_setting(sweep), nameable_rows(sweep)
    if chosen is None:
        nothing = noted(*sweep.failures, why=why_no_best(sweep))
        return [{**start, "kind": kind, **nothing} for kind in ("best", "robust")]
    best = chosen.row
    row = {**start, "kind": "best", **config_level(sweep, best)}
    row["when_tuned"] = sweep.sign * tuned_level(sweep, chosen)
    if chosen.preferred != chosen.first:
        row |= {"preferred_at": sweep.label(chosen.preferred)}
        row |= zip(("over_first", "over_first_low", "over_first_high"), chosen.lead, strict=True)
    picked = [note(Reason.PICKED)] if len(sweep.configs) > 1 else []
    picked += ties(sweep, chosen)
    if best != chosen.first:
        picked = [note(Reason.OVERTURNED, at=sweep.label(chosen.first))]
    if sweep.fresh and not chosen.seeds:
        picked.append(note(Reason.FRESH_OF_OTHERS))
    failed = (sweep if sweep.not_measured else counted).failures
    notes = [*picked, *failed, *_cautions(sweep, best), *lead_of_incomplete(sweep, best)[1]]
    no_robust = {**start, "kind": "robust"}
    if why := sweep.not_measured:
        return [{**row, **noted(*notes)}, {**no_robust, **noted(why=why)}]
    around = neighbourhoods(sweep, counted.failed_level)
    row |= around.of(best, sweep.sign)
    if around.counts[best] and np.isnan(around.worst[best]):
        notes.append(note(Reason.NEIGHBOUR_FAILED))
    rows = [{**row, **noted(*notes)}]
    if not around.eligible.any():
        cause = Reason.NO_NEIGHBOURHOOD if sweep.params else Reason.NOTHING_SWEPT
        if (around.counts > 0).any() and sweep.num_failed:
            cause = Reason.NEIGHBOURS_FAILED
        too_few = None if sweep.params else sweep.too_few
        return [*rows, {**no_robust, **noted(why=too_few or note(cause))}]
    eligible = around.eligible & complete if (around.eligible & complete).any() else around.eligible
    worst = np.where(eligible, around.worst, -np.inf)
    # Of equals, the better one.
    robust = int(np.where(worst == worst.max(), sweep.means, -np.inf).argmax())
    notes = [note(Reason.SAME_AS_BEST)] if robust == best else []
    notes += [*failed, *_cautions(sweep, robust)]
    row = {**no_robust, **config_level(sweep, robust), **around.of(robust, sweep.sign)}
    return [*rows, {**row, **noted(*notes)}]


def config_level(sweep: Sweep, row: int) -> dict[str, Any]:
    """Mean of one configuration and its t-interval, with the noise of all where that is even."""
    values = {name: column[row] for name, column in config_levels(sweep).items()}
    return {"config": sweep.configs[row], "at": sweep.label(row), **values}


def config_levels(sweep: Sweep) -> dict[str, Array]:
    """(n,) score, low, high and num_seeds of every configuration, as `config_level` has them."""
    half = np.full(len(sweep.configs), np.nan)
    if sweep.has_repeats:
        half[sweep.alive] = sweep.noise.half_widths
    if images := sweep.images:
        half = np.hypot(half, images.half_width(images.of_each))
    score = sweep.sign * sweep.means
    low, high = sweep.limited((score - half, score + half))
    return {"score": score, "low": low, "high": high, "num_seeds": sweep.counts}


def _cautions(sweep: Sweep, row: int) -> list[Note]:
    """Cautions before taking it: edges of the swept range, failed seeds, a single seed."""
    edges = tuple(name for name in sweep.params if _is_at_edge(sweep, row, name))
    notes = [note(Reason.AT_EDGE, params=edges)] if edges else []
    counts = sweep.counts
    own, most = int(counts[row]), int(counts.max())
    if sweep.num_skipped:
        notes.append(note(Reason.RACED, fewest=int(counts[counts > 0].min()), most=most))
    if most < len(sweep.seeds):
        notes.append(note(Reason.NO_WHOLE_CONFIG, seeds=len(sweep.seeds)))
    if failed := int(sweep.failed[row].sum()):
        notes.append(note(Reason.SEEDS_FAILED, failed=failed, seeds=failed + own))
    if own < most:
        notes.append(note(Reason.FEWER_SEEDS, seeds=own, most=most))
    if not sweep.has_repeats:
        picked = [note(Reason.PICKED)] if len(sweep.configs) > 1 else []  # one alone is no choice
        notes += [note(Reason.ONE_SEED), *picked]
    return notes


def _is_at_edge(sweep: Sweep, row: int, name: str) -> bool:
    """True at an end of the swept range beyond which there are values."""
    if sweep.scales[name] == "category":
        return False
    margin = 1e-9 if sweep.samplers == ("grid",) else EDGE
    axis, values = sweep.axis(name), pd.to_numeric(sweep.settings[name])
    ends = sweep.bounds.get(name, (values.min(), values.max()))
    low, high = np.log2(ends) if sweep.scales[name] == "log" else ends
    apart = axis[row] - low, high - axis[row]
    last = sweep.possible.get(name, ANYWHERE)
    return any(
        distance <= margin * (high - low) and end != most
        for distance, end, most in zip(apart, ends, last, strict=True)
    )


def ties(sweep: Sweep, best: BestSetting) -> list[Note]:
    """The settings that are as good as the best by their means; none where fresh seeds chose it."""
    mean = sweep.means[best.row]
    near = nameable_rows(sweep) & (np.abs(sweep.means - mean) <= TIE_TOLERANCE * abs(mean))
    others = [sweep.label(row) for row in np.flatnonzero(near).tolist() if row != best.row]
    if not others or best.row != best.first:
        return []
    more = [f"{len(others) - 1} more"] if len(others) > 1 else []
    return [note(Reason.TIED, at=" and ".join([others[0], *more]))]


def neighbourhoods(sweep: Sweep, failed_level: float = np.nan) -> Neighbourhoods:
    """The worst level around each configuration; one that failed on every seed counts at
    `failed_level`, or rules out its neighbourhood where that is NaN.
    """
    numeric = [name for name in sweep.params if sweep.scales[name] != "category"]
    near = _nearest(sweep, numeric)
    itself = np.arange(len(near))[:, None]
    lost = ~sweep.alive & sweep.failed.any(axis=1)
    known = sweep.alive | lost  # a neighbour that has not ended says nothing
    near = np.where(known[near], near, itself)
    counts = (near != itself).sum(axis=1)
    ruled_out = ~sweep.alive | np.isnan(failed_level) & lost[near].any(axis=1)
    others = np.where(lost, -np.inf if np.isnan(failed_level) else failed_level, np.inf)
    levels = np.where(sweep.alive, _shrunk(sweep, np.where(lost[near], itself, near)), others)
    lowest = np.minimum(levels, levels[near].min(axis=1, initial=np.inf))
    own = sweep.settings[numeric].notna().sum(axis=1).to_numpy()  # what is nested, not all have
    eligible = ~ruled_out & (counts >= np.maximum(1, own))
    return Neighbourhoods(np.where(ruled_out, np.nan, lowest), counts, eligible)


def _shrunk(sweep: Sweep, near: _Rows) -> Array:
    """(n,) means shrunk towards those of `near`, which holds the row itself for none."""
    values = without_seeds(sweep.scores[sweep.alive], sweep.silent[sweep.alive])
    itself = np.arange(len(near))[:, None]
    means = np.where(sweep.alive, sweep.means, 0.0)
    counted = near != itself
    sizes = 1 + counted.sum(axis=1)
    around = (means + np.where(counted, means[near], 0.0).sum(axis=1)) / sizes
    used = sweep.alive & (sizes > 1)
    square = float(np.square(means - around)[used].mean()) if used.any() else 0.0
    if not sweep.has_repeats or square == 0.0:
        return means
    shares = (1 - 1 / sizes) / np.maximum(sweep.counts, 1)
    noise = float(noise_variance(values)) * float(shares[used].mean())
    return around + max(0.0, 1 - noise / square) * (means - around)


def _nearest(sweep: Sweep, numeric: list[str]) -> _Rows:
    """(n, 2 d) rows one step away in one numeric hyperparameter of a grid; of a sample the nearest
    on the unit cube, within `RADIUS`. The row itself for none.
    """
    num, dims, is_grid = len(sweep.configs), len(numeric), sweep.samplers == ("grid",)
    itself = np.arange(num)[:, None]
    if not dims or num == 1:
        return np.repeat(itself, 2 * dims, axis=1)
    categories = (sweep.settings[name] for name in sweep.params if name not in numeric)
    places = [APART * pd.factorize(each, use_na_sentinel=False)[0] for each in categories]
    for name in numeric:
        axis = sweep.axis(name)
        low, high = np.nanmin(axis), np.nanmax(axis)
        place = (axis - low) / (high - low) if high > low else np.zeros(num)
        if is_grid:
            place = np.unique(axis, return_inverse=True)[1].astype(float)
        places.append(np.where(np.isnan(axis), -APART, place))
    tree = cKDTree(np.stack(places, axis=1).astype(float))
    reach = 1.0 if is_grid else RADIUS * np.sqrt(dims) * (1 + 1e-9)
    how = {"p": 1} if is_grid else {"eps": 1.0 if num > _MANY else 0.0}
    distance, rows = tree.query(tree.data, k=min(2 * dims + 1, num), workers=-1, **how)
    is_near = (distance > 0) & (distance <= reach)
    return np.asarray(np.where(is_near, rows, itself), dtype=np.int64)
