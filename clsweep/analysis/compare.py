"""Is one objective better, or more robust, than another: by how much, and how sure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from clsweep.analysis import evidence, resample
from clsweep.analysis.difference import STATS, Options, check_by, mean_difference, split
from clsweep.analysis.evidence import Evidence
from clsweep.analysis.multiple import holm
from clsweep.analysis.pairing import Pairing, pair
from clsweep.analysis.sweep import Array, Sweep
from clsweep.analysis.winners import COLUMNS as WINNER_COLUMNS
from clsweep.analysis.winners import winners
from clsweep.errors import nearest

__all__ = ["COLUMNS", "STATS", "WINNER_COLUMNS", "compare", "compare_all", "winners"]

# A pair is a setting of the hyperparameters that both objectives sweep, and a seed. d_cs = the scores' difference.
COLUMNS = {
    "a": "first objective",
    "b": "second objective",
    "region": 'where: "" for everywhere, or a value or bin of `by`, such as "tau=0.1"',
    "stat": "mean, std (SD*, the spread due to hyperparameters) or within (share of settings near each one's best)",
    "num_pairs": "(setting, seed) pairs with a score on both sides; 0 = unpaired",
    "num_seeds": "seeds of both; unpaired: of the objective with fewer",
    "value_a": "the statistic of a over what is compared, in the metric's own sign",
    "value_b": "that of b",
    "estimate": "mean, within: a - b, oriented so that positive = a is better; std: the ratio a / b, "
    "below 1 = a varies less",
    "low": "interval of the estimate: BCa bootstrap for mean, percentiles for std and within",
    "high": "",
    "p": "two-sided p-value: sign flips of the paired differences for mean, else the tail of the bootstrap",
    "p_min": "smallest p-value that this test could give with so many pairs",
    "p_holm": "p, corrected for all rows of the table (Holm)",
    "superiority": "P(A > B): share of pairs in which a scores better, ties half",
    "detectable": "smallest true difference (for std: ratio above 1) found with 80 % power: (t_.975 + t_.8) SE",
    "seeds_needed": "about so many seeds would find the difference seen with 80 % power; NaN when resolved, or when "
    "seeds alone do not help",
    "verdict": 'the better objective (std: the more robust), "not resolved" unless the interval excludes no difference '
    'and p_holm <= 1 - confidence, or "not measured"',
    "note": "how it was paired, and what is missing and why",
}
TEXT = ("a", "b", "region", "stat", "verdict", "note")
FEWEST_SETTINGS = 3  # for a spread
FEW_RANDOM = 32


def compare(
    sweeps: Sequence[Sweep],
    a: str,
    b: str,
    *,
    stat: str = "mean",
    by: str | None = None,
    within: float = 1.0,
    confidence: float = 0.95,
    num_resamples: int = 2000,
    seed: int = 0,
) -> pd.DataFrame:
    """Objective `a` against `b`: one row, or one per value or bin of `by`, with the columns of `COLUMNS`.

    Pairs: the settings of the hyperparameters that both sweep, over which configurations that differ in others are
    averaged, and the seeds of both. Without matching settings (independent random designs): unpaired, and says so.

    mean: mean_c mean_s d_cs. On a grid the settings are all there are: its noise is that of the seeds, pooled over the
        settings, and the p-value flips signs of (setting, seed) pairs (`evidence.units_of`). Of a qmc or random design
        the settings are a sample: their mean differences are the draws, and are flipped (a qmc design is taken as a
        random one, so that its intervals cover more than they say). The interval (`evidence.mean_effect`) is BCa, with
        the width of t. A shift that a seed gives to both objectives cancels. One that it gives to the *differences* of
        all settings is looked for by an F test at 1 %; where seen, the seeds alone are the draws.
        One seed of a grid: p only, under "no difference at any setting"; never resolved.
    std: SD* of a / SD* of b; within: difference of the shares within `within` points of each one's own best
        (`evidence.spread_effect`), for three settings and two seeds or more.
    by: the noise of a grid is pooled over all its regions; where a region has too few pairs for sign flips to reach
        1 - confidence, p is the tail of the bootstrap, which is that of t.

    Raises ValueError for an unknown objective, a against itself, an option out of range, a `by` that neither sweeps.
    """
    options = Options(stat=stat, within=within, confidence=confidence, num_resamples=num_resamples, seed=seed)
    first, second = _find(sweeps, a), _find(sweeps, b)
    if a == b:
        raise ValueError(f"b: expected another objective than a, got {b!r} twice")
    check_by(by, (first, second))
    return _table(_rows(first, second, by, options), options)


def compare_all(
    sweeps: Sequence[Sweep],
    *,
    stat: str = "mean",
    by: str | None = None,
    within: float = 1.0,
    confidence: float = 0.95,
    num_resamples: int = 2000,
    seed: int = 0,
) -> pd.DataFrame:
    """Every pair of objectives in order of appearance, as `compare`, with p_holm over all rows."""
    options = Options(stat=stat, within=within, confidence=confidence, num_resamples=num_resamples, seed=seed)
    check_by(by, sweeps)
    return _table([row for a, b in combinations(sweeps, 2) for row in _rows(a, b, by, options)], options)


def _find(sweeps: Sequence[Sweep], name: str) -> Sweep:
    known = {sweep.objective: sweep for sweep in sweeps}
    if name not in known:
        raise ValueError(f"no objective {name!r}.{nearest(name, known)} Objectives: {', '.join(known)}")
    return known[name]


def _rows(a: Sweep, b: Sweep, by: str | None, options: Options) -> list[dict[str, Any]]:
    """The rows of one pair of objectives, without what needs the other rows."""
    blank: dict[str, Any] = {**dict.fromkeys(COLUMNS, np.nan), **dict.fromkeys(TEXT, "")}
    blank |= {"a": a.objective, "b": b.objective, "stat": options.stat, "num_pairs": 0, "num_seeds": 0}
    notes = [f"{sweep.objective}: {sweep.not_measured}" for sweep in (a, b) if sweep.not_measured]
    notes += [f"{sweep.objective} does not sweep {by}" for sweep in (a, b) if by is not None and by not in sweep.params]
    notes += [f"{sweep.objective} has no score" for sweep in (a, b) if not sweep.alive.any()]
    if notes:
        return [blank | {"verdict": "not measured", "note": "; ".join(notes)}]
    pairing = pair(a, b)
    parts = split(pairing, by, (a, b))
    if not parts:
        return [blank | {"verdict": "not measured", "note": "; ".join([*pairing.notes, "no pair has both scores"])}]
    out = []
    for label, part in parts:
        rng = np.random.default_rng(options.seed)
        measured = (
            _mean(part, pairing, len(parts), options, rng) if options.stat == "mean" else _spread(part, options, rng)
        )
        num_pairs = int(np.isfinite(part.a.scores).sum()) if part.paired else 0
        num_seeds = min(_num_seeds(part.a.scores), _num_seeds(part.b.scores))
        row = blank | {
            "region": label,
            "num_pairs": num_pairs,
            "num_seeds": num_seeds,
            "superiority": _superiority(part),
        }
        row |= measured | {"note": "; ".join([*pairing.notes, *measured["note"]])}
        if options.stat == "mean":
            row |= {name: sweep.sign * row[name] for name, sweep in (("value_a", a), ("value_b", b))}
        out.append(row)
    return out


def _mean(part: Pairing, whole: Pairing, num_parts: int, options: Options, rng: np.random.Generator) -> dict[str, Any]:
    found, repeats, notes = mean_difference(part, whole, num_parts, options, rng)
    values = [float(resample.row_means(side.scores).mean()) for side in (part.a, part.b)]
    if not np.isfinite(found.se):
        notes.append(_why_no_noise(part))
    needed = evidence.repeats_needed(found, repeats, options.confidence)
    if part.paired and part.fixed:  # and enough for the sign flips
        needed = max(needed, float(np.ceil(np.log2(2.0 / (1.0 - options.confidence)) / len(part.a.scores))))
    return {
        **_bounds(found),
        "value_a": values[0],
        "value_b": values[1],
        "estimate": found.estimate,
        "detectable": evidence.detectable(found.se, found.freedom, options.confidence),
        "needed": needed,
        "fixed": part.fixed,
        "note": notes,
    }


def _why_no_noise(part: Pairing) -> str:
    if not part.fixed:
        return "no interval: one setting, or none differs"
    if max(np.isfinite(side.scores).sum(axis=1).max() for side in (part.a, part.b)) > 1:
        return "no interval: the seeds show no noise, or one side has no repeat"
    return "one seed: no interval, and p is for no difference at any setting"


def _spread(part: Pairing, options: Options, rng: np.random.Generator) -> dict[str, Any]:
    a, b, is_ratio = part.a.scores, part.b.scores, options.stat == "std"
    blank = {"note": [], "needed": np.nan, "fixed": part.fixed}
    if min(len(a), len(b)) < FEWEST_SETTINGS:
        why = f"fewer than {FEWEST_SETTINGS} settings: no {options.stat}"
        return {**blank, "verdict": "not measured", "note": [why]}
    if any(np.isfinite(side).sum(axis=1).max() < 2 for side in (a, b)):
        return {**blank, "note": [f"one seed: no {options.stat}, which needs the seed noise"]}
    statistic = _log_sd_star if is_ratio else _share(options.within)
    found = evidence.spread_effect(
        a,
        b,
        statistic,
        paired=part.paired,
        fixed=part.fixed,
        confidence=options.confidence,
        num_resamples=options.num_resamples,
        rng=rng,
    )
    values = [float(statistic(side, False)) for side in (a, b)]
    smallest = evidence.detectable(found.se, np.inf, options.confidence)
    row = {**blank, **_bounds(found), "value_a": values[0], "value_b": values[1]}
    row |= {"estimate": found.estimate, "detectable": smallest}
    if not is_ratio:
        return row
    if not part.fixed and min(len(a), len(b)) < FEW_RANDOM:
        row["note"] = [f"{min(len(a), len(b))} sampled settings: the interval may be too narrow"]
    if np.isneginf(values).any():
        row["note"] = [*row["note"], "a spread that does not exceed the seed noise counts as 0"]
    row |= {name: float(np.exp(row[name])) for name in ("estimate", "low", "high", "value_a", "value_b", "detectable")}
    if part.fixed:  # the noise of an SD falls with the seeds as that of a mean does
        seeds = float(min(np.isfinite(side).sum(axis=1).mean() for side in (a, b)))
        row["needed"] = evidence.repeats_needed(found, seeds, options.confidence)
    return row


def _log_sd_star(tables: Array, redrawn: bool) -> Array:
    num = tables.shape[-2]  # redrawn rows repeat, and vary by (n - 1) / n less
    return evidence.log_sd_star(tables, num / (num - 1) if redrawn else 1.0)


def _share(within: float) -> Callable[[Array, bool], Array]:
    return lambda tables, _: evidence.share_within(tables, within)


def _bounds(found: Evidence) -> dict[str, Any]:
    excludes = found.low > 0 or found.high < 0
    winner = 0 if not excludes else 1 if found.low > 0 else -1
    return {"low": found.low, "high": found.high, "p": found.p, "p_min": found.p_min, "winner": winner}


def _superiority(part: Pairing) -> float:
    if part.paired:
        there = np.isfinite(part.a.scores)
        a, b = part.a.scores[there], part.b.scores[there]
        return float((a > b).mean() + 0.5 * (a == b).mean())
    a, b = resample.row_means(part.a.scores), resample.row_means(part.b.scores)
    ranks = stats.rankdata(np.concatenate([a, b]))[: len(a)]
    return float((ranks.sum() - len(a) * (len(a) + 1) / 2) / (len(a) * len(b)))


def _num_seeds(scores: Array) -> int:
    return int(np.isfinite(scores).any(axis=0).sum())


def _table(rows: list[dict[str, Any]], options: Options) -> pd.DataFrame:
    """Adds what needs all rows: p_holm, the verdicts, and the seeds that unresolved ones need."""
    adjusted = holm(np.array([row["p"] for row in rows], dtype=float))
    for row, p_holm in zip(rows, adjusted, strict=True):
        row["p_holm"] = p_holm
        if row["verdict"]:
            continue
        row["verdict"] = _verdict(row, options)
        if row["verdict"] == "not resolved":
            _say_what_it_takes(row)
    return pd.DataFrame(rows, columns=list(COLUMNS))


def _verdict(row: dict[str, Any], options: Options) -> str:
    if not row.get("winner") or not row["p_holm"] <= 1.0 - options.confidence + 1e-12:
        return "not resolved"
    larger, smaller = (row["a"], row["b"]) if options.stat != "std" else (row["b"], row["a"])
    return str(larger if row["winner"] > 0 else smaller)


def _say_what_it_takes(row: dict[str, Any]) -> None:
    """The seeds needed, or a note of what else it takes."""
    if row["stat"] == "within" or not np.isfinite(row["low"]):
        return
    notes = [row["note"]] if row["note"] else []
    if not np.isfinite(row["needed"]):
        if row["stat"] == "mean":
            notes.append("no difference seen")
    elif row["fixed"]:
        row["seeds_needed"] = max(row["needed"], row["num_seeds"] + 1)  # p_holm may ask for more than the interval
    else:
        notes.append(f"needs about {row['needed']:.0f} configurations")
    row["note"] = "; ".join(notes)
