"""Which hyperparameter an objective's metric depends on, and whether that can be said at all: one
row per effect.

A whole grid is decomposed exactly (`anova`). Any other even sample goes through a surrogate
(`surrogate`, `sobol`), which must first show that it predicts configurations it has not seen. Below
that gate nothing is ranked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from clsweep.analysis import MIN_SAMPLED, TAIL, bootstrap
from clsweep.analysis.anova import anova, grid_of
from clsweep.analysis.array_types import Array, Codes
from clsweep.analysis.nested import nested_as_factor
from clsweep.analysis.noise import copies
from clsweep.analysis.reasons import Note, Reason, note, noted, with_notes
from clsweep.analysis.score_table import noise_variance, without_seeds
from clsweep.analysis.sobol import draws, inert_totals
from clsweep.analysis.surrogate import Space, Surrogate, cross_validate, fit, off_axis, read_space
from clsweep.analysis.sweep import Sweep, in_threads

SENSITIVITY_COLUMNS = with_notes(
    "objective method term order first first_low first_high total total_low total_high null "
    "resolved r2 r2_ceiling num_configs cell effect effect_low effect_high opposite needs_seeds "
    "needs_low needs_high needs_configs"
)
# no kernel is quite right: the draws' own quantiles covered 88-100 % (strong noise and kinks least)
WIDEN = 1.15
SHARE_OF_CEILING = 0.5
Model = tuple[Surrogate, Space]


def sensitivity(sweeps: Sequence[Sweep]) -> pd.DataFrame:
    """One row per objective and term with these `SENSITIVITY_COLUMNS`; one row with a note where
    nothing can be told.

    A hyperparameter is measured over the values that were tried, each equally likely (a continuous
    one: uniform on its axis, between the ends that the study declares, or else about the smallest
    and the largest that were tried). A surrogate must predict: r2 >= max(half its ceiling,
    noise_level(n)).

    Coverage is measured in STATISTICS.md; of 740 inert parameters none was resolved. Where some
    parameters interact strongly and another that bends as much does not, the kernel deals out some
    of their interaction to it.
    """
    tables = in_threads(lambda sweep: sensitivity_rows(sweep)[0], sweeps)
    return pd.DataFrame([row for rows in tables for row in rows], columns=list(SENSITIVITY_COLUMNS))


def noise_level(num_configs: int) -> float:
    """The cross-validated R2 that pure noise stays below in 95 % of cases and more: 2 / sqrt(n).

    Of pure noise, the 95 % quantile of R2 was at most 0.36 at n = 16, 0.14 at 32, 0.05 at 64 and
    0.04 at 128 (2 to 8 parameters, 1 or 3 seeds, 40-200 repeats each), and the 99 % quantile
    reached the level at n = 16 alone.
    """
    return 2.0 / float(np.sqrt(num_configs))


_NEEDS = ("needs_seeds", "needs_configs")  # columns of what would resolve a row


def sensitivity_rows(
    sweep: Sweep, *, searched: bool = False
) -> tuple[list[dict[str, Any]], Model | None]:
    """The rows of one objective, and the surrogate that they are of, if there is one that predicts.

    searched: also where the samples favour good configurations.
    """
    num = int(sweep.alive.sum())
    texts = dict.fromkeys(("method", "term", "cell", "opposite"), "")
    common: dict[str, Any] = dict.fromkeys(SENSITIVITY_COLUMNS, np.nan) | texts
    common |= {"objective": sweep.objective, "num_configs": num, "order": 0, "resolved": False}
    if why := unmeasurable(sweep, searched=searched):
        return [{**common, **noted(why=why)}], None
    are_stopped = sweep.num_stopped and not sweep.failed[~sweep.alive].any()
    lost = sweep.lost(Reason.STOPPED_LEFT_OUT if are_stopped else Reason.LEFT_OUT)
    notes = [*sweep.failures, *lost]
    whole, nested = nested_as_factor(sweep)
    if nested and sweep.is_grid and grid_of(whole):
        sweep, notes = whole, [*nested, *notes]
    if off := off_axis(sweep):
        sweep = replace(sweep, params=tuple(name for name in sweep.params if name not in off))
        notes.append(note(Reason.OFF_AXIS, params=off))
    groups = copies(sweep.scores[sweep.alive])
    if repeated := len(groups) - len(np.unique(groups)):
        notes.append(note(Reason.COPIES, copies=repeated, configs=num))
    space, inputs = read_space(sweep)
    if gone := tuple(name for name in sweep.params if name not in space.names):
        notes.append(note(Reason.ONE_VALUE_SCORED, params=gone))
    means, silent = sweep.means[sweep.alive], sweep.silent[sweep.alive]
    scores, counts = sweep.scores[sweep.alive], sweep.counts[sweep.alive]
    # Variance of every mean, s_w^2 / S_i; 0 where all trials failed, and without a repeat: the
    # surrogate's nugget takes it.
    noise = np.zeros(num)
    if is_repeated := bool((counts[~silent] > 1).any()):
        # What a seed does to all moves no mean against another.
        still = without_seeds(scores[~silent])
        noise = np.where(silent, 0.0, noise_variance(still) / counts)
    if is_repeated and np.ptp(means) > 0:
        common["r2_ceiling"] = float(1.0 - noise.mean() / means.var(ddof=1))
    grid = grid_of(sweep) if sweep.is_grid else None
    model = None
    if grid is not None:
        common["method"], (cells, order) = "anova", grid
        terms, cautions = anova(cells, sweep.params, groups=groups[order], silent=silent[order])
        for row in terms:
            if "cell" in row:
                row |= _cell(sweep, str(row["term"]), row, order)
    else:
        common["method"] = "sobol"
        data = space, inputs, noise, groups
        common["r2"], terms, cautions, model = _from_surrogate(sweep, *data, common["r2_ceiling"])
    notes = [*cautions, *notes]
    if terms:
        return [{**common, **row, **noted(*notes)} for row in terms], model
    first, *rest = notes
    figures = dict(figure for each in rest for figure in each.figures)
    needs: dict[str, Any] = {n: figures[n] for n in _NEEDS if n in figures}
    return [{**common, **needs, **noted(*rest, why=first)}], None


def _cell(sweep: Sweep, term: str, row: dict[str, Any], order: Codes) -> dict[str, Any]:
    """The largest effect of a pair in the metric's own sign, its cell by name."""
    pair = replace(sweep, params=tuple(name for name in sweep.params if name in term.split(" x ")))
    at = int(np.flatnonzero(sweep.alive)[order[row["cell"]]])
    low, high = sweep.turned(row["effect_low"], row["effect_high"])
    columns = {"cell": pair.label(at), "effect": sweep.sign * row["effect"]}
    for name in pair.params:
        values = sweep.settings.loc[sweep.alive, name]
        if values.nunique(dropna=False) == 2:
            other = np.flatnonzero(sweep.alive & (sweep.settings[name] != values[at]))[0]
            columns["opposite"] = replace(sweep, params=(name,)).label(int(other))
    return columns | {"effect_low": low, "effect_high": high}


def unmeasurable(sweep: Sweep, *, searched: bool) -> Note | None:
    """Why there is nothing to measure; None where there is."""
    if sweep.not_measured and not searched:
        return sweep.not_measured
    if sweep.seeds_apart:
        return sweep.seeds_apart
    if not sweep.params:
        return sweep.too_few or note(Reason.NOTHING_SWEPT)
    if sweep.alive.sum() < 2:
        return sweep.no_score or note(Reason.ONE_SCORED)
    scores = sweep.scores[np.isfinite(sweep.scores)]
    if np.ptp(scores) <= 1e-12 * np.abs(scores).max():
        return note(Reason.EQUAL_SCORES)
    means = sweep.means[sweep.alive]
    if np.ptp(means) <= 1e-12 * np.abs(means).max():
        return note(Reason.EQUAL_MEANS)
    if (off := off_axis(sweep)) == sweep.params:
        return note(Reason.OFF_AXIS, params=off)
    return None


def _from_surrogate(
    sweep: Sweep, space: Space, inputs: Array, noise: Array, groups: Codes, ceiling: float
) -> tuple[float, list[dict[str, Any]], list[Note], Model | None]:
    """R2, rows, notes and surrogate of a sampled sweep; no rows below the gate.

    groups: (n,) of copies, of which a random one stands for all: what is the same wherever an inert
        parameter moves, its noise included, would be taken for the response.
    """
    rng = np.random.default_rng(bootstrap.DRAWS_SEED)
    order = rng.permutation(np.lexsort(inputs.T))  # whatever the configurations' numbers are
    order = order[np.sort(np.unique(groups[order], return_index=True)[1])]
    num, means = len(order), sweep.means[sweep.alive]
    if num < MIN_SAMPLED:
        few = note(Reason.FEW_FOR_SURROGATE, configs=num, least=MIN_SAMPLED)
        return np.nan, [], [sweep.too_few or few], None  # of a grid that runs: what is to come
    inputs, means, noise = inputs[order], means[order], noise[order]
    fitted = fit(inputs, space.owner, means, noise)
    r2 = cross_validate(fitted, inputs, means, noise, rng)
    possible = 1.0 if np.isnan(ceiling) else ceiling
    if r2 < max(SHARE_OF_CEILING * possible, noise_level(num)):
        return r2, [], _below_gate(r2, ceiling, num, float(means.var(ddof=1)), sweep), None
    notes = [note(Reason.CEILING_UNKNOWN)] if np.isnan(ceiling) else []
    if len(space.names) == 1:  # its share is 1 whatever it does: the gate is the test
        rows = [{"term": space.names[0], "order": 1, "resolved": True}]
        return r2, rows, notes, (fitted, space)
    indices = draws(fitted, space, rng)
    inert = inert_totals(space, inputs, means, noise, fitted.theta, rng)
    nulls = {kind: float(np.quantile(values, 0.95)) for kind, values in inert.items()}
    rows = []
    for params, first, error, total in indices:
        null = max(nulls[space.is_category[param]] for param in params)
        term = " x ".join(space.names[param] for param in params)
        row: dict[str, Any] = {"term": term, "order": len(params), "null": null}
        row |= _interval("first", first, max(null, error), null)
        if total is None:
            row["resolved"] = row["first_low"] > 0
        else:
            row |= _interval("total", total, null, null)
            row["resolved"] = row["total_low"] > null
        rows.append(row)
    return r2, rows, notes, (fitted, space)


def _interval(column: str, drawn: Array, least: float, null: float) -> dict[str, float]:
    """Mean and equal-tailed interval of an index over its draws, WIDEN times as far from their
    median.

    Shares are squares: they are never drawn as 0, nor as 1 where the rest has none. So a lower end
    that is not above `least`, what no effect at all reaches, is 0, and an upper end that leaves
    less than `null` to the rest is 1.
    """
    low, middle, high = np.quantile(drawn, [TAIL, 0.5, 1.0 - TAIL])
    low, high = middle - WIDEN * (middle - low), middle + WIDEN * (high - middle)
    low, high = low if low > least else 0.0, high if high < 1.0 - null else 1.0
    mean = float(np.clip(drawn.mean(), 0.0, 1.0))
    return {column: mean, f"{column}_low": float(low), f"{column}_high": float(high)}


def _below_gate(r2: float, ceiling: float, num: int, variance: float, sweep: Sweep) -> list[Note]:
    if ceiling <= 0:
        return [note(Reason.NO_SPREAD_SEEN)]
    if np.isnan(ceiling):
        weak = note(Reason.SURROGATE_WEAK_ONE_SEED, r2=r2)
    else:
        weak = note(Reason.SURROGATE_WEAK, r2=r2, ceiling=ceiling)
    if np.isnan(ceiling) or ceiling >= 0.5:
        return [weak, note(Reason.NEEDS_CONFIGS, needs_configs=2 * num)]
    noise = float(noise_variance(without_seeds(sweep.scores[sweep.alive])))
    # Noise a quarter of the spread: a ceiling of 0.75.
    seeds = int(np.ceil(3.0 * noise / (ceiling * variance)))
    return [weak, note(Reason.NEEDS_SEEDS, needs_seeds=seeds)]
