"""From the default to the best setting, one hyperparameter at a time, the largest gain first
(Fawcett and Hoos 2016): between settings that were measured, or else by a surrogate (Biedenkapp et
al. 2017).

Shape legend: n = configurations, d = swept parameters, S = seeds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from clsweep.analysis import MIN_SAMPLED, TAIL, bootstrap
from clsweep.analysis.anova import grid_of
from clsweep.analysis.array_types import Array, Codes
from clsweep.analysis.cross_fit import cross_fitted
from clsweep.analysis.nested import nested_as_factor
from clsweep.analysis.reasons import Note, Reason, note, noted, with_notes
from clsweep.analysis.score_table import noise_variance, row_means, without_gaps, without_seeds
from clsweep.analysis.sensitivity import WIDEN, noise_level, unmeasurable
from clsweep.analysis.sobol import NUM_REFITS
from clsweep.analysis.surrogate import Surrogate, cross_validate, fit, off_axis, read_space, refits
from clsweep.analysis.sweep import Sweep
from clsweep.analysis.tuning import ONE_SEED, find_default
from clsweep.display.numbers import setting_column

ABLATION_COLUMNS = with_notes("objective step param before after gain low high method")
ALL = "all"  # in place of a hyperparameter: the whole path
NUM_DRAWS = 40  # functions of each refit of the surrogate
Path = list[int]  # parameters that change, by number, the largest gain first
# Of all seeds; the row that it ends at; estimates and ends of the gains (3, d + 1), and of all.
Walk = tuple[Path, int, Array]


def ablation(
    sweeps: Sequence[Sweep], *, defaults: Mapping[str, Mapping[str, Any]] | None = None
) -> pd.DataFrame:
    """The columns of `ABLATION_COLUMNS`: of each objective its path as all seeds have it, a row for
    each hyperparameter that changes and one of all; one that says why where there is none.

    defaults: objective -> hyperparameter -> default value. Where they are not known, or not tried
        in a grid, the path begins at the first setting.
    """
    rows = [row for x in sweeps for row in _ablation(x.measured, (defaults or {}).get(x.objective))]
    return pd.DataFrame(rows, columns=list(ABLATION_COLUMNS))


def _ablation(given: Sweep, defaults: Mapping[str, Any] | None) -> list[dict[str, Any]]:
    common: dict[str, Any] = {"objective": given.objective}
    notes = [*given.failures, *filter(None, [given.too_few])]
    if why := unmeasurable(given, searched=True):
        return [common | noted(*notes, why=why)]
    sweep = given.at(np.flatnonzero(given.alive))
    start, lookup = find_default(sweep, defaults)
    whole, nested = nested_as_factor(sweep)
    grid, num = grid_of(whole), len(sweep.configs)
    if start is None and (grid is not None or {*sweep.params} - {*(defaults or {})}):
        start = int(sweep.configs.argmin())
        lookup = note(Reason.FROM_FIRST, at=sweep.label(start))
    notes += [lookup] if lookup and start is not None else []
    if grid is not None:
        table, order = grid
        sweep, start, common["method"] = whole.at(order), int(order.argsort()[start]), "grid"
        notes += [*nested, *(() if given.has_repeats else ONE_SEED)]
        walk: Walk | Note = _by_grid(sweep, table.shape[:-1], start)
    else:
        if start is None:
            sweep, start = _with(sweep, defaults or {}), num
        if off := off_axis(sweep):
            notes.append(note(Reason.OFF_AXIS, params=off))
            sweep = replace(sweep, params=tuple(n for n in sweep.params if n not in off))
        common["method"], walk = "surrogate", _by_surrogate(sweep, start, num)
        notes += [] if given.has_repeats else [note(Reason.PICKED)]
    if isinstance(walk, Note):
        return [common | noted(*notes, why=walk)]
    path, target, gains = walk
    rows = []
    for step, param in enumerate([*path, -1], 1):
        name, values = ALL, {start: "", target: ""}
        if param >= 0:
            name = sweep.params[param]
            values = dict(enumerate(setting_column(sweep.settings[name].tolist())))
        row = {"step": step, "param": name, "before": values[start], "after": values[target]}
        row |= dict(zip(("gain", "low", "high"), gains[:, param].tolist(), strict=True))
        rows.append(common | row | noted(*notes))
    return rows


def _by_grid(sweep: Sweep, shape: tuple[int, ...], start: int) -> Walk:
    """On each fold of the seeds the path of the others is measured; rows are in grid order."""

    def gains(looks: Array, scores: Array) -> Array:
        ends = _greedy(looks[..., 0, :], shape, start)[:2]
        before, after = (np.take_along_axis(scores[..., 0, :], at, axis=-1) for at in ends)
        return np.append(after - before, (after - before).sum(axis=-1, keepdims=True), axis=-1)

    estimate, half = cross_fitted(sweep.scores[None], gains)
    place, num = _greedy(sweep.means, shape, start)[2], len(shape)
    path = [int(p) for p in place.argsort() if place[p] < num]
    return path, int(sweep.means.argmax()), np.stack([estimate, estimate - half, estimate + half])


def _greedy(looks: Array, shape: tuple[int, ...], start: int) -> tuple[Codes, Codes, Codes]:
    """Cells before and after each parameter changes, and its place on the path to what looks best,
    (..., d) each, of the cells of a grid (..., n): d where it stays.
    """
    codes, num = np.indices(shape).reshape(len(shape), -1).T, len(shape)
    strides = np.cumprod((1, *shape[:0:-1]))[::-1]
    moves = (codes[looks.argmax(axis=-1)] - codes[start]) * strides
    here, is_left = np.full((*looks.shape[:-1], 1), start), moves != 0
    before = after = np.broadcast_to(here, moves.shape)
    place = np.full(moves.shape, num)
    for step in range(num):
        reached = here + np.where(is_left, moves, 0)
        gains = np.where(is_left, np.take_along_axis(looks, reached, axis=-1), -np.inf)
        chosen = (np.arange(num) == gains.argmax(axis=-1)[..., None]) & is_left
        before, after = np.where(chosen, here, before), np.where(chosen, reached, after)
        here = here + np.where(chosen, moves, 0).sum(axis=-1, keepdims=True)
        place, is_left = np.where(chosen, step, place), is_left & ~chosen
    return before, after, place


def _with(sweep: Sweep, values: Mapping[str, Any]) -> Sweep:
    """The sweep and a setting that was not tried, behind the others."""
    setting = pd.DataFrame([{str(name): values[str(name)] for name in sweep.settings}])
    scores = np.full((1, sweep.scores.shape[1]), np.nanmean(sweep.scores))  # to be in the space
    return replace(
        sweep,
        settings=pd.concat([sweep.settings, setting], ignore_index=True),
        scores=np.vstack([sweep.scores, scores]),
        configs=np.append(sweep.configs, -1),
        failed=np.vstack([sweep.failed, np.zeros_like(scores, dtype=bool)]),
    )


def _by_surrogate(sweep: Sweep, start: int, num: int) -> Walk | Note:
    """One half of the seeds picks the path, a surrogate of the other half measures it, and the
    other way round; with one seed it is the same one. The first `num` rows were tried.
    """
    if not sweep.params or num < MIN_SAMPLED:
        few = note(Reason.FEW_FOR_SURROGATE, configs=num, least=MIN_SAMPLED)
        return few if sweep.params else note(Reason.NOTHING_SWEPT)
    rng, (space, inputs) = np.random.default_rng(bootstrap.DRAWS_SEED), read_space(sweep)
    table = without_gaps(sweep.scores[:num])
    variance = np.nan_to_num(noise_variance(without_seeds(sweep.scores[:num])))

    def data(columns: slice) -> tuple[Array, Array, Array]:
        counts = np.isfinite(table[:, columns]).sum(axis=1)
        rows = rng.permutation(np.flatnonzero(counts))
        return inputs[rows], row_means(table[rows, columns]), variance / counts[rows]

    models = []
    for columns in (slice(None), slice(0, None, 2), slice(1, None, 2))[: 1 + 2 * sweep.has_repeats]:
        at, means, noise = data(columns)
        models.append(fit(at, space.owner, means, noise))
    r2 = cross_validate(models[0], *data(slice(None)), rng)
    if r2 < noise_level(num):
        return note(Reason.SURROGATE_WEAK_ONE_SEED, r2=r2)
    ends = []
    for picks, measures in ((models[-2:][0], models[-1]), (models[-1], models[-2:][0])):
        own, _, points = _path(picks, inputs, start, num)
        refitted = [
            (each, *each.paths(points, NUM_DRAWS, rng))
            for each in refits(measures, NUM_REFITS, rng)
        ]
        drawn = [each.kernel(points, centres) @ weights for each, centres, weights in refitted]
        levels = measures.scale * np.concatenate(drawn, axis=1)
        gains = np.zeros((len(sweep.params) + 1, levels.shape[1]))
        gains[[sweep.params.index(space.names[p]) for p in own]] = np.diff(levels, axis=0)
        gains[-1] = levels[-1] - levels[0]
        low, middle, high = np.quantile(gains, [TAIL, 0.5, 1 - TAIL], axis=1)
        ends.append([middle, middle - WIDEN * (middle - low), middle + WIDEN * (high - middle)])
    path, target, _ = _path(models[0], inputs, start, num)
    return [sweep.params.index(space.names[p]) for p in path], target, np.mean(ends, axis=0)


def _path(model: Surrogate, inputs: Array, start: int, num: int) -> tuple[Path, int, Array]:
    """The path of a surrogate to the best of the first `num` inputs, its end, and its points."""
    target = int(model.predict(inputs[:num]).argmax())
    differs = inputs[target] != inputs[start]
    left, path, points = np.unique(model.owner[differs]).tolist(), Path(), [inputs[start]]
    while left:
        tried = [np.where(model.owner == p, inputs[target], points[-1]) for p in left]
        best = int(model.predict(np.array(tried)).argmax())
        points.append(tried[best])
        path.append(left.pop(best))
    return path, target, np.array(points)
