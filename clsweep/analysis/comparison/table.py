"""Is one objective better, or more robust, than another: by how much, and how sure."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from functools import partial
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from clsweep.analysis import CONFIDENCE, reasons, resample
from clsweep.analysis.comparison import evidence
from clsweep.analysis.comparison.difference import (
    Options,
    gated,
    mean_difference,
    regions_of,
    split,
)
from clsweep.analysis.comparison.evidence import Evidence
from clsweep.analysis.comparison.pairing import Pairing, pair, unmatched
from clsweep.analysis.holm import holm
from clsweep.analysis.reasons import Note, Reason, note, noted
from clsweep.analysis.sweep import Array, Sweep, check_by
from clsweep.analysis.threads import in_threads
from clsweep.errors import nearest

# A pair is a setting of the hyperparameters that both objectives sweep, and a seed. d_cs = the
# scores' difference.
COLUMNS = {
    "a": "first objective",
    "b": "second objective",
    "region": 'where: "" for everywhere, or a value or bin of `by`, such as "tau=0.1"',
    "stat": "mean, std (SD*, the spread due to hyperparameters) or within (share of settings near "
    "each one's best)",
    "num_pairs": "(setting, seed) pairs with a score on both sides; 0 = unpaired",
    "num_seeds": "seeds of both; unpaired: of the objective with fewer",
    "value_a": "the statistic of a over what is compared, in the metric's own sign",
    "value_b": "that of b",
    "estimate": "mean, within: a - b, oriented so that positive = a is better; std: the ratio a / "
    "b, below 1 = a varies less",
    "low": "interval of the estimate: BCa bootstrap for mean, percentiles for std and within",
    "high": "",
    "p": "two-sided p-value: sign flips of the paired differences for mean, else the tail of the "
    "bootstrap",
    "p_min": "smallest p-value that this test could give with so many pairs",
    "p_holm": "p, corrected for all rows of the table (Holm)",
    "superiority": "P(A > B): share of pairs in which a scores better, ties half",
    "detectable": "smallest true difference (for std: ratio above 1) found with 80 % power: "
    "(t_.975 + t_.8) SE",
    "needs_seeds": "about so many seeds would find the difference seen with 80 % power; NaN when "
    "resolved, or when seeds alone do not help",
    "needs_configs": "so many configurations would, of a sample of the space",
    "winner": "the better objective (std: the more robust), where the interval excludes no "
    "difference and p_holm <= 1 - confidence; else empty",
    "resolved": "whether there is one",
    **reasons.COLUMNS,
}
TEXT = ("a", "b", "region", "stat", "winner")
FEWEST_SETTINGS = 3  # for a spread
FEW_RANDOM = 32


def compare(
    sweeps: Sequence[Sweep],
    a: str | None = None,
    b: str | None = None,
    *,
    stat: str = "mean",
    by: str | None = None,
    within: float = 1.0,
) -> pd.DataFrame:
    """Objective `a` against `b`, or every pair in order of appearance: one row, or one per value or
    bin of `by`, with the columns of `COLUMNS`.

    Pairs: the settings of the hyperparameters that both sweep, over which configurations that
    differ in others are averaged, and the seeds of both. Without matching settings (independent
    random designs): unpaired, and says so. An objective of one setting that the other never tried
    is not compared. Seeds of other labels are paired in their order; where hardly any is in both,
    settings are paired, and each side has noise of its own.

    mean: mean_c mean_s d_cs. On a grid the settings are all there are: its noise is that of the
        seeds, pooled over the settings, and the p-value flips signs of (setting, seed) pairs
        (`evidence.units_of`). Of a qmc or random design the settings are a sample: their mean
        differences are the draws, and are flipped (a qmc design is taken as a random one, so that
        its intervals cover more than they say). The interval (`evidence.mean_effect`) is BCa, with
        the width of t. A shift that a seed gives to both objectives cancels. One seed of a grid: p
        only, under "no difference at any setting"; never resolved.
    std: SD* of a / SD* of b; within: difference of the shares within `within` points of each one's
        own best (`evidence.spread_effect`), for three settings and two seeds or more.
    by: the noise of a grid is pooled over all its regions; where a region has too few pairs for
        sign flips to reach 1 - confidence, p is the tail of the bootstrap, which is that of t.

    The model has one noise variance, independent between settings. Where it may not hold, the
    interval and p are widened by the chance that it does not (`noise.Doubt`). Exact copies of a row
    count once. Failed trials that decide a verdict undo it (`difference.gated`).

    Measured: false verdicts in percent of 150 to 400 tables without a difference, on 6 settings and
    on an 11 x 5 grid. Even noise widens intervals by 5 to 8 %, of 11 x 5 with
    5 seeds by 0 %.

        seeds                                              2     3     5
        even noise, 6 settings                             3     3     4
        even noise, 11 x 5                                 7     5     5
        half of the noise common to a seed, 6 settings     18    15    9
        half of the noise common to a seed, 11 x 5         21    7     5
        noise x6 at one of 6 values, any row of `by`             1
        noise x1 to x5 over 6 values, any row of `by`            5
        noise x6 at one of 6 values, mean                        5

    With few settings or two seeds the scores cannot show a common shift: no rule that widens even
    intervals by 10 % gets below 14 % for 6 settings and 3 seeds.

    Raises ValueError for an unknown objective, a against itself, an option out of range, a `by`
    that neither sweeps.
    """
    options = Options(stat=stat, within=within)
    if a is not None and b is not None:
        sweeps = _find(sweeps, a), _find(sweeps, b)
        if a == b:
            raise ValueError(f"b: expected another objective than a, got {b!r} twice")
    elif a is not None or b is not None:
        raise ValueError(
            f"compare: expected two objectives, or none for every pair; got {a or b!r} alone"
        )
    check_by(by, sweeps)

    def table(sweeps: Sequence[Sweep]) -> pd.DataFrame:
        found = in_threads(lambda pair: _rows(*pair, by, options), combinations(sweeps, 2))
        return _table([row for rows in found for row in rows])

    return gated(sweeps, table, ("a", "b", "region"))


def _find(sweeps: Sequence[Sweep], name: str) -> Sweep:
    known = {sweep.objective: sweep for sweep in sweeps}
    if name not in known:
        raise ValueError(
            f"no objective {name!r}.{nearest(name, known)} Objectives: {', '.join(known)}"
        )
    return known[name]


def _rows(a: Sweep, b: Sweep, by: str | None, options: Options) -> list[dict[str, Any]]:
    """The rows of one pair of objectives, without what needs the other rows."""
    blank: dict[str, Any] = {**dict.fromkeys(COLUMNS, np.nan), **dict.fromkeys(TEXT, "")}
    blank |= {
        "a": a.objective,
        "b": b.objective,
        "stat": options.stat,
        "num_pairs": 0,
        "num_seeds": 0,
    }
    missing = [sweep.nothing.of(sweep.objective) for sweep in (a, b) if sweep.nothing]
    missing += [
        note(Reason.NOT_SWEPT, param=by).of(sweep.objective)
        for sweep in (a, b)
        if by is not None and by not in sweep.params
    ]
    if not missing and (alone := unmatched(a, b)):
        missing = [alone]
    if missing:
        return [blank | noted(*missing, why=missing[0])]
    pairing = pair(a, b)
    parts = split(pairing, None if by is None else regions_of(by, (a, b)))
    if not parts:
        return [
            blank | noted(*pairing.notes, why=note(Reason.NO_PAIR, a=a.objective, b=b.objective))
        ]
    out = []
    for label, part in parts:
        rng = np.random.default_rng(resample.SEED)
        measured = (
            _mean(part, pairing, len(parts), rng)
            if options.stat == "mean"
            else _spread(part, options, rng)
        )
        num_seeds = min(_num_seeds(part.a.scores), _num_seeds(part.b.scores))
        row = blank | {
            "region": label,
            "num_pairs": part.num_pairs,
            "num_seeds": num_seeds,
            "superiority": _superiority(part),
        }
        row |= measured | noted(*pairing.notes, *measured["notes"], why=measured["why"])
        if options.stat == "mean":
            row |= {
                name: sweep.sign * row[name] for name, sweep in (("value_a", a), ("value_b", b))
            }
        out.append(row)
    return out


def _mean(
    part: Pairing, whole: Pairing, num_parts: int, rng: np.random.Generator
) -> dict[str, Any]:
    found, repeats, notes = mean_difference(part, whole, num_parts, rng)
    values = [float(resample.row_means(side.scores).mean()) for side in (part.a, part.b)]
    why = None if np.isfinite(found.se) else _why_no_noise(part)
    if why and why.reason is Reason.ONE_SEED:
        notes.append(note(Reason.P_PER_SETTING))
    needed = evidence.repeats_needed(found, repeats)
    if part.crossed and part.fixed:  # and enough for the sign flips
        flips = np.ceil(np.log2(2.0 / (1.0 - CONFIDENCE)) / len(part.a.scores))
        needed = max(needed, float(flips))
    return {
        **_bounds(found),
        "value_a": values[0],
        "value_b": values[1],
        "estimate": found.estimate,
        "detectable": evidence.detectable(found.se, found.freedom),
        "needed": needed,
        "fixed": part.fixed,
        "why": why,
        "notes": notes,
    }


def _why_no_noise(part: Pairing) -> Note:
    if not part.fixed:
        return note(Reason.NO_NOISE_OF_SETTINGS)
    if max(np.isfinite(side.scores).sum(axis=1).max() for side in (part.a, part.b)) > 1:
        return note(Reason.NO_NOISE)
    return note(Reason.ONE_SEED)


def _spread(part: Pairing, options: Options, rng: np.random.Generator) -> dict[str, Any]:
    a, b = (side.once("packed", partial(resample.packed, side.scores)) for side in (part.a, part.b))
    is_ratio = options.stat == "std"
    blank: dict[str, Any] = {"why": None, "notes": []}
    blank |= {"needed": np.nan, "fixed": part.fixed}
    if min(len(a), len(b)) < FEWEST_SETTINGS:
        few = note(Reason.FEW_SETTINGS, least=FEWEST_SETTINGS, stat=options.stat)
        return {**blank, "why": few}
    if any(np.isfinite(side).sum(axis=1).max() < 2 for side in (a, b)):
        return {**blank, "why": note(Reason.ONE_SEED_NO_SPREAD, stat=options.stat)}
    statistic = _log_sd_star if is_ratio else _share(options.within)
    once = _once(part, options)
    found = evidence.spread_effect(
        a, b, statistic, paired=part.paired, fixed=part.fixed, rng=rng, once=once
    )
    values = [
        float(once(is_a, (), partial(statistic, side, False)))
        for is_a, side in ((True, a), (False, b))
    ]
    smallest = evidence.detectable(found.se, np.inf)
    row = {**blank, **_bounds(found), "value_a": values[0], "value_b": values[1]}
    row |= {"estimate": found.estimate, "detectable": smallest}
    if not is_ratio:
        return row
    if not part.fixed and min(len(a), len(b)) < FEW_RANDOM:
        row["notes"].append(note(Reason.FEW_SAMPLED, settings=min(len(a), len(b))))
    if np.isneginf(values).any():
        row["notes"].append(note(Reason.SPREAD_WITHIN_NOISE))
    row |= {
        name: float(np.exp(row[name]))
        for name in ("estimate", "low", "high", "value_a", "value_b", "detectable")
    }
    if part.fixed:  # the noise of an SD falls with the seeds as that of a mean does
        seeds = float(min(np.isfinite(side).sum(axis=1).mean() for side in (a, b)))
        row["needed"] = evidence.repeats_needed(found, seeds)
    return row


def _once(part: Pairing, options: Options) -> evidence.Once:
    """Keeps for other pairs what hangs on one side alone."""
    key = (options.stat, options.within)

    def once(is_a: bool, hangs_on: Hashable, compute: Callable[[], Array]) -> Array:
        return (part.a if is_a else part.b).once((*key, is_a, hangs_on), compute)

    return evidence.always if part.paired else once


def _log_sd_star(tables: Array, redrawn: bool) -> Array:
    num = tables.shape[-2]  # redrawn rows repeat, and vary by (n - 1) / n less
    return evidence.log_sd_star(tables, num / (num - 1) if redrawn else 1.0)


def _share(within: float) -> Callable[[Array, bool], Array]:
    return lambda tables, _: evidence.share_within(tables, within)


def _bounds(found: Evidence) -> dict[str, Any]:
    return {
        "low": found.low,
        "high": found.high,
        "p": found.p,
        "p_min": found.p_min,
        "side": int(found.low > 0) - int(found.high < 0),
    }


def _superiority(part: Pairing) -> float:
    a, b = part.a.scores, part.b.scores
    if part.crossed:
        there = np.isfinite(a)
        a, b = a[there], b[there]
    else:
        a, b = resample.row_means(a), resample.row_means(b)
    if part.paired:
        return float((a > b).mean() + 0.5 * (a == b).mean())
    ranks = stats.rankdata(np.concatenate([a, b]))[: len(a)]
    return float((ranks.sum() - len(a) * (len(a) + 1) / 2) / (len(a) * len(b)))


def _num_seeds(scores: Array) -> int:
    return int(np.isfinite(scores).sum(axis=1).max())


def _table(rows: list[dict[str, Any]]) -> pd.DataFrame:
    """Adds what needs all rows: p_holm, the winners, and what unresolved ones need."""
    adjusted = holm(np.array([row["p"] for row in rows], dtype=float))
    for row, p_holm in zip(rows, adjusted, strict=True):
        row["p_holm"] = p_holm
        row["winner"] = _winner(row)
        row["resolved"] = bool(row["winner"])
        if not row["resolved"] and not row["reason"]:
            row |= _needs(row)
    return pd.DataFrame(rows, columns=list(COLUMNS))


def _winner(row: dict[str, Any]) -> str:
    if not row.get("side") or not row["p_holm"] <= 1.0 - CONFIDENCE + 1e-12:
        return ""
    larger, smaller = (row["a"], row["b"]) if row["stat"] != "std" else (row["b"], row["a"])
    return str(larger if row["side"] > 0 else smaller)


def _needs(row: dict[str, Any]) -> dict[str, Any]:
    """What it takes to resolve a measured row, or that nothing is seen."""
    if row["stat"] == "within" or not np.isfinite(row["low"]):
        return {}
    if not np.isfinite(row["needed"]):
        none = note(Reason.NO_DIFFERENCE)
        return noted(*row["note"], why=none) if row["stat"] == "mean" else {}
    if not row["fixed"]:
        return {"needs_configs": row["needed"]}
    # p_holm may ask for more than the interval
    return {"needs_seeds": max(row["needed"], row["num_seeds"] + 1)}
