"""Is one objective better, or more robust, than another: by how much, and how sure; and which one
wins where along a hyperparameter.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import combinations
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas as pd

from clsweep.analysis import CONFIDENCE, bootstrap
from clsweep.analysis.array_types import Array
from clsweep.analysis.best_setting import tuned_difference
from clsweep.analysis.evidence import Evidence
from clsweep.analysis.holm import holm
from clsweep.analysis.image_intervals import image_parts, spread_of, variances_of
from clsweep.analysis.mean_tests import mean_difference, mean_levels
from clsweep.analysis.nested import branch_note, conditional
from clsweep.analysis.pairing import PAIRS_PER_BIN, Pairing, Side, pair, unmatched
from clsweep.analysis.reasons import Note, Reason, note, noted, with_notes
from clsweep.analysis.regions import cut
from clsweep.analysis.score_table import (
    best_level,
    drop_nan_columns,
    mean_seeds,
    noise_variance,
    rounding,
    row_means,
    selection_bias,
    without_gaps,
    without_seeds,
)
from clsweep.analysis.spread import spread_statistics
from clsweep.analysis.spread_tests import Measures, spread_effect
from clsweep.analysis.sweep import (
    Sweep,
    as_far_as_levels,
    check_by,
    counted_alike,
    in_threads,
    no_further,
)
from clsweep.errors import nearest

_TUNED = "tuned"
STATS = ("mean", "std", "within", _TUNED)
COMPARISON_COLUMNS = with_notes(
    "a b region stat at_a at_b num_pairs num_seeds fresh_seeds value_a value_b estimate low high p "
    "p_min p_holm superiority detectable needs_seeds needs_configs needs_low needs_high winner "
    "resolved"
)
_TEXT = ("a", "b", "region", "stat", "at_a", "at_b", "winner")
FEWEST_SETTINGS, FEW_RANDOM = 3, 32  # for a spread, and that a sample of fewer is few
_ROUNDING = 1e-12  # of a level: less of a difference is none
LARGEST_P = 1.0 - CONFIDENCE + 1e-12
QUESTIONS = 3  # that a page asks of each pair: who is best when tuned, on average, most robust


def compare(
    sweeps: Sequence[Sweep],
    a: str | None = None,
    b: str | None = None,
    *,
    stat: str = "mean",
    by: str | None = None,
    within: float = 1.0,
    yardsticks: Mapping[str, str] = MappingProxyType({}),
) -> pd.DataFrame:
    """Objective `a` against `b`, or every pair in order of appearance: one row, or one per value or
    bin of `by`, with the columns of `COMPARISON_COLUMNS`.

    How configurations and seeds are paired: see `pairing.pair`. An objective of one setting that
    the other never tried is not compared.

    mean: mean_c mean_s d_cs, by t. On a grid the seeds are the draws: the differences at each seed
        decide, with S - 1 degrees of freedom (`mean_tests.mean_difference`). Of a sample (qmc is
        taken as random) the settings' mean differences are the draws too. One seed of a grid has
        neither interval nor p.
    std: SD* of a / SD* of b; within: difference of the shares within `within` points of each one's
        own best (`spread_tests.spread_effect`), for three settings and two seeds or more.
    tuned: a - b, each at its best setting (`best_setting.tuned_difference`).
    by: the residual noise of a grid is pooled over all its regions.
    yardsticks: objective -> how its scores are made. Two of different ones have no p-value, and so
        take none from others.

    Exact copies of a row count once. Failed trials that decide a verdict undo it
    (`robust_to_failures`).

    Raises ValueError for an unknown objective, a against itself, an option out of range, a `by`
    that neither sweeps.
    """
    if stat not in STATS:
        known = ", ".join(STATS)
        raise ValueError(f"stat: expected one of {known}, got {stat!r}.{nearest(stat, STATS)}")
    if not within >= 0:
        raise ValueError(f"within: expected >= 0, got {within!r}.")
    every, sweeps = sweeps, _chosen(sweeps, a, b)
    check_by(by, sweeps)
    if stat == _TUNED:
        if by is not None:
            raise ValueError(f"by: expected none of objectives that are tuned, got {by!r}")
        sweeps = [sweep.measured for sweep in sweeps]  # failed trials are no settings to pick

    def table(sweeps: Sequence[Sweep]) -> pd.DataFrame:
        pairs = combinations(sweeps, 2)
        rows_of_pairs = in_threads(lambda ab: _rows(ab[0], ab[1], stat, by, within), pairs)
        rows = [row for rows in rows_of_pairs for row in rows]
        for row in rows:  # what is not compared is no test beside the others
            if yardsticks.get(row["a"]) != yardsticks.get(row["b"]):
                row |= {"p": np.nan, "p_min": np.nan}
        is_swept = by is None and any(len(sweep.configs) > 1 for sweep in sweeps)
        return _table(rows, QUESTIONS if is_swept else 1)

    out = robust_to_failures(sweeps, table, ("a", "b", "region"))
    out = out if a in (None, sweeps[0].objective) else _turned(out)
    if stat == "within":
        return no_further(out, 1.0)
    return out if stat == "std" else as_far_as_levels(out, every)


def _turned(table: pd.DataFrame) -> pd.DataFrame:
    """The rows of b against a, for who asks in that order: the draws are the same."""
    sides = {f"{of}a": f"{of}b" for of in ("", "at_", "value_")}
    out = table.rename(columns=sides | {b: a for a, b in sides.items()})[table.columns]
    with np.errstate(divide="ignore"):
        for name, of in (("estimate", "estimate"), ("low", "high"), ("high", "low")):
            out[name] = np.where(table["stat"] == "std", 1.0 / table[of], 0.0 - table[of])
    return out.assign(superiority=1.0 - table["superiority"])


def _chosen(sweeps: Sequence[Sweep], a: str | None, b: str | None) -> Sequence[Sweep]:
    """Those that are asked for, in the order of the study, whatever theirs is."""
    if a is None and b is None:
        return sweeps
    if a is None or b is None:
        raise ValueError(
            f"compare: expected two objectives, or none for every pair; got {a or b!r} alone"
        )
    known = {sweep.objective: sweep for sweep in sweeps}
    for name in (a, b):
        if name not in known:
            others = f"Objectives: {', '.join(known)}"
            raise ValueError(f"no objective {name!r}.{nearest(name, known)} {others}")
    if a == b:
        raise ValueError(f"b: expected another objective than a, got {b!r} twice")
    return [sweep for sweep in sweeps if sweep.objective in (a, b)]


def robust_to_failures(
    sweeps: Sequence[Sweep], table: Callable[[Sequence[Sweep]], pd.DataFrame], keys: Sequence[str]
) -> pd.DataFrame:
    """`table` of the sweeps, whose rows are known by `keys`; where failed trials count in the
    scores, a winner is one only if it also is with the failed trials left out.

    An objective that crashes where it is bad looks better without its failures; counted as the
    worst score, failures that have other causes make it look worse. So each interval is the union
    of both, and a winner that only one of both finds is none (`Reason.FAILURES_DECIDE`).
    """
    counted_table = table(sweeps)
    counted = {s.objective for s in sweeps if np.isfinite(s.failed_level) and s.num_failed}
    if not counted:
        return counted_table
    without = table([sweep.measured for sweep in sweeps])
    others = {tuple(row[key] for key in keys): row for row in without.to_dict("records")}
    rows: list[dict[Any, Any]] = counted_table.to_dict("records")
    for row in rows:
        if "a" not in row or {row["a"], row["b"]} & counted:
            other = others.get(tuple(row[key] for key in keys)) or {"winner": ""}
            low, high = _ends_of_same_pair(row, other)
            row["low"], row["high"] = np.fmin(row["low"], low), np.fmax(row["high"], high)
            if row["winner"] != other["winner"]:
                why = note(Reason.FAILURES_DECIDE)
                row |= {"winner": "", "resolved": False, **noted(*row["note"], why=why)}
    return pd.DataFrame(rows, columns=counted_table.columns)


def _ends_of_same_pair(row: Mapping[Any, Any], other: Mapping[Any, Any]) -> tuple[float, float]:
    """The interval of the other row as one of this row's difference; NaN where it is of another
    pair, as the best of a region may be another one.
    """
    low, high = other.get("low", np.nan), other.get("high", np.nan)
    names = ("objective", "runner_up")
    first, second = ([each.get(name) for name in names] for each in (row, other))
    if first == second:
        return low, high
    return (-high, -low) if first == second[::-1] else (np.nan, np.nan)


def _rows(a: Sweep, b: Sweep, stat: str, by: str | None, within: float) -> list[dict[str, Any]]:
    """The rows of one pair of objectives, without what needs the other rows."""
    a, b = counted_alike(a, b)
    blank: dict[str, Any] = dict.fromkeys(COMPARISON_COLUMNS, np.nan) | dict.fromkeys(_TEXT, "")
    blank |= {"a": a.objective, "b": b.objective, "stat": stat, "num_pairs": 0, "num_seeds": 0}
    lone = [len(x.configs) == 1 and not (x.too_few or x.num_failed) for x in (a, b)]
    if stat == "mean" and by is None and all(lone):  # both senses are one
        a, b, stat = replace(a, fresh={}), replace(b, fresh={}), _TUNED
    if stat == _TUNED and not (a.seeds_apart or b.seeds_apart):
        row, why, notes = tuned_difference(a, b)
        return [blank | row | noted(*notes, why=why)]
    missing = [sweep.nothing.of(sweep.objective) for sweep in (a, b) if sweep.nothing]
    lacking = note(Reason.NOT_SWEPT, param=by)
    missing += [lacking.of(x.objective) for x in (a, b) if by is not None and by not in x.params]
    if not missing and (alone := unmatched(a, b)):
        missing = [alone]
    if missing:
        return [blank | noted(*missing, why=missing[0])]
    about_sides = [n.of(x.objective) for x in (a, b) for n in (*x.failures, *x.cut_short)]
    if by is not None:
        about_sides += [each.of(x.objective) for x in (a, b) for each in branch_note(x, by)]
        a, b = conditional(a, by), conditional(b, by)
    pairing = pair(a, b)
    parts = pairing.split(None if by is None else cut(by, (a, b), per_bin=PAIRS_PER_BIN))
    if not parts:
        no_pair = note(Reason.NO_PAIR, a=a.objective, b=b.objective)
        return [blank | noted(*pairing.notes, why=no_pair)]
    rows = []
    for label, part in parts.items():
        rng = np.random.default_rng(bootstrap.DRAWS_SEED)
        if stat == "mean":
            row, why, notes = _mean(part, pairing)
            row |= {f"value_{n}": x.sign * row[f"value_{n}"] for n, x in (("a", a), ("b", b))}
        else:
            row, why, notes = _spread(part, stat, within, rng)
        seeds = [int(np.isfinite(side.scores).sum(axis=1).max()) for side in (part.a, part.b)]
        row |= {"region": label, "num_pairs": part.num_pairs, "num_seeds": min(seeds)}
        row |= {"superiority": _superiority(part), "fixed": part.fixed}
        rows.append(blank | row | noted(*about_sides, *pairing.notes, *notes, why=why))
    return rows


def _mean(part: Pairing, whole: Pairing) -> tuple[dict[str, Any], Note | None, list[Note]]:
    evidence, repeats = mean_difference(part, whole)
    sides, why = (part.a.scores, part.b.scores), None
    if not np.isfinite(evidence.se):
        why = note(Reason.NO_NOISE if part.fixed else Reason.NO_NOISE_OF_SETTINGS)
        if part.paired and np.array_equal(*sides, equal_nan=True):
            why = note(Reason.SAME_SCORES)
        if part.fixed and max(np.isfinite(side).sum(axis=1).max() for side in sides) <= 1:
            why = note(Reason.ONE_SEED)
    row = evidence.with_needs(repeats, fixed=part.fixed) | {"p_min": evidence.p_min}
    value_a, value_b = mean_levels(part, whole)
    return row | {"value_a": value_a, "value_b": value_b}, why, []


def _spread(
    part: Pairing, stat: str, within: float, rng: np.random.Generator
) -> tuple[dict[str, Any], Note | None, list[Note]]:
    def still(side: Side) -> Array:
        still = without_seeds(side.scores, side.silent) if part.same_seeds else side.scores
        return drop_nan_columns(still)

    sides = still(part.a), still(part.b)
    fewest = min(map(len, sides))
    if fewest < FEWEST_SETTINGS:
        return {}, note(Reason.FEW_SETTINGS, least=FEWEST_SETTINGS, stat=stat), []
    if any(np.isfinite(side).sum(axis=1).max() < 2 for side in sides):
        return {}, note(Reason.ONE_SEED_NO_SPREAD, stat=stat), []

    def log_sd_star(tables: Array, redrawn: bool, *, of_images: float) -> Array:
        """log of sqrt( max(0, sd^2 - s_w^2 / S - v) ), v of the images; -inf for none."""
        num = tables.shape[-2]  # redrawn rows repeat, and vary by (n - 1) / n less
        variance = np.square(row_means(tables).std(axis=-1, ddof=1))
        variance = variance * (num / (num - 1) if redrawn else 1.0)
        variance -= noise_variance(tables) / mean_seeds(tables) + of_images
        with np.errstate(divide="ignore"):
            return np.asarray(0.5 * np.log(np.maximum(0.0, variance)))

    def share_within(tables: Array, _: bool, *, lucky: float) -> Array:
        means, best = row_means(tables), best_level(tables) - lucky
        reach = best - within - rounding(means)
        return np.asarray((means >= reach[..., None]).mean(axis=-1))

    def measure(side: Side, table: Array) -> Callable[[Array, bool], Array]:
        if stat == "std":
            return partial(log_sd_star, of_images=spread_of(side.images))
        return partial(share_within, lucky=selection_bias(table, image_parts(side.images)))

    measures: Measures = measure(part.a, sides[0]), measure(part.b, sides[1])
    effect = partial(spread_effect, *sides, measures, paired=part.paired, fixed=part.fixed, rng=rng)
    evidence = _spread_over_images(part, sides, measures, effect)
    values = [float(of(side, False)) for of, side in zip(measures, sides, strict=True)]
    if stat == "within":  # as `robustness` has it
        tables = [(without_gaps(x.scores), image_parts(x.images)) for x in (part.a, part.b)]
        values = [
            float(spread_statistics(x, within=within, parts=parts)["share"]) for x, parts in tables
        ]
    row = evidence.columns | {"p_min": evidence.p_min, "value_a": values[0], "value_b": values[1]}
    if stat == "within":
        estimate = values[0] - values[1]
        low, high = min(row["low"], estimate), max(row["high"], estimate)
        return row | {"estimate": estimate, "low": low, "high": high}, None, []
    notes = []
    if not part.fixed and fewest < FEW_RANDOM:
        notes.append(note(Reason.FEW_SAMPLED, settings=fewest))
    if np.isneginf(values).any():
        notes.append(note(Reason.SPREAD_WITHIN_NOISE))
    for name in ("estimate", "low", "high", "value_a", "value_b", "detectable"):
        row[name] = float(np.exp(row[name]))
    if part.fixed:  # the noise of an SD falls with the seeds as that of a mean does
        seeds = min(np.isfinite(side).sum(axis=1).mean() for side in sides)
        row["needed"] = evidence.repeats_needed(float(seeds))
    return row, None, notes


def _spread_over_images(
    part: Pairing, sides: tuple[Array, Array], measures: Measures, effect: Callable[..., Evidence]
) -> Evidence:
    """The effect for new images: wider by how its difference varies over them. Where the log of a
    spread of 0 makes that infinite, each resample has other images.
    """
    a, b = part.a.images, part.b.images
    evidence = effect()
    if a is None or b is None:
        return evidence

    def difference(tables: list[Array]) -> dict[str, Array]:
        with np.errstate(invalid="ignore"):
            return {"": measures[0](tables[0], False) - measures[1](tables[1], False)}

    moved = variances_of(difference, [(a, sides[0]), (b, sides[1])])
    if moved and np.isfinite(evidence.se):
        return evidence.over_images(moved[""], min(a.num, b.num) - 1.0)
    return effect(moves=(a.beyond_seeds, b.beyond_seeds))


def _superiority(part: Pairing) -> float:
    a, b = part.a.scores, part.b.scores
    if part.crossed:
        there = np.isfinite(a)
        a, b = a[there], b[there]
    else:
        a, b = row_means(a), row_means(b)
    if part.paired:
        return float((a > b).mean() + 0.5 * (a == b).mean())
    ranks = pd.Series(np.concatenate([a, b])).rank().to_numpy()[: len(a)]
    return float((ranks.sum() - len(a) * (len(a) + 1) / 2) / (len(a) * len(b)))


def _table(rows: list[dict[str, Any]], questions: int) -> pd.DataFrame:
    """Adds what needs all rows: p_holm, the winners, and what unresolved ones need."""
    adjusted = np.minimum(1.0, questions * holm(np.array([row["p"] for row in rows], dtype=float)))
    for row, p_holm in zip(rows, adjusted, strict=True):
        row["estimate"] = without_rounding(row["estimate"], abs(row["value_a"]))
        winner, side = "", row.get("side", 0)
        if side and p_holm <= LARGEST_P:
            winner = row["a"] if (side > 0) == (row["stat"] != "std") else row["b"]
        row |= {"p_holm": p_holm, "winner": winner, "resolved": bool(winner)}
        if not winner and not row["reason"]:
            tests = questions * int(np.isfinite(adjusted).sum())
            why = doubt(row["p"], by_interval=bool(side), tests=tests)
            row["note"] += (why,) if why else ()
        is_open = not winner and not row["reason"] and np.isfinite(row["low"])
        if not is_open or row["stat"] == "within":
            continue
        needed, num = row.get("needed", np.full(3, np.nan)), row.get("images", 0)
        may_do = row.get("over_images") and row["estimate"] and np.isfinite(needed[1])
        if not np.isfinite(needed[0]) and not may_do:
            if row["stat"] in ("mean", _TUNED):
                why = note(Reason.IMAGES_DECIDE, images=num) if num else note(Reason.NO_DIFFERENCE)
                row |= noted(*row["note"], why=why)
            continue
        if row["fixed"]:  # p_holm may ask for more than the interval
            needed = np.maximum(needed, row["num_seeds"] + 1)
        of = "needs_seeds" if row["fixed"] else "needs_configs"
        row |= dict(zip((of, "needs_low", "needs_high"), needed, strict=True))
    return pd.DataFrame(rows, columns=list(COMPARISON_COLUMNS))


def doubt(p: float, *, by_interval: bool, tests: int) -> Note | None:
    """Why a difference that its interval or its own p-value shows is not resolved."""
    if p <= LARGEST_P:
        alone = note(Reason.RESOLVED_ALONE, tests=tests)
        return alone if by_interval else note(Reason.RESOLVED_BY_TEST)
    return note(Reason.RESOLVED_BY_INTERVAL) if by_interval else None


def without_rounding(lead: float, level: float) -> float:
    """Nobody leads by what rounding makes of such levels."""
    return 0.0 if abs(lead) < _ROUNDING * level else lead
