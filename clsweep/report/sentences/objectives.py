"""Tables -> sentences. A claim stands only where its gate has passed; else the sentence says that
it is not resolved.

What compares two objectives is in `pairs`. All numbers are those of the tables; names are given
verbatim.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import pandas as pd

from clsweep.analysis.reasons import Note, Reason
from clsweep.analysis.sweep import Sweep
from clsweep.catalog.rows import Row
from clsweep.display.cells import records_of
from clsweep.display.numbers import count, settings, work
from clsweep.findings.notes import is_measured, status, text_of
from clsweep.report.sentences.words import (
    ALPHA,
    Open,
    Sentences,
    Wording,
    along,
    counted,
    interval,
    is_true,
    known,
    listed,
    number,
    places_of,
    text,
)

SMALL = 0.01  # of the variance: an effect below is real and hardly matters
LATE = 0.8  # of the tries: an improvement after so many of them says that the search still moved


def unmeasured(sweeps: Sequence[Sweep]) -> Sentences:
    """Objectives whose samples say nothing of the space as a whole, and why."""
    reasons: dict[Note, list[str]] = {}
    for sweep in sweeps:
        if sweep.not_measured:
            reasons.setdefault(sweep.not_measured, []).append(sweep.objective)
    return tuple(
        Open(f"The robustness of {listed(names)} is not measured: {text_of(why)}.")
        for why, names in reasons.items()
    )


def spread(robustness: pd.DataFrame, words: Wording) -> Sentences:
    """How far the settings of the only objective that sweeps any spread its metric, from
    `robustness`; nothing where there are several, which are compared.
    """
    rows = [row for row in records_of(robustness) if known(row["sd_star"])]
    if len(rows) != 1:
        return ()
    row = rows[0]
    seen = f"SD* {words.amount(row['sd_star'])}{interval(row['sd_star_low'], row['sd_star_high'])}"
    return (f"The settings of {row['objective']} spread its {words.metric} by {seen}.",)


def effects(sensitivity: pd.DataFrame) -> Sentences:
    """What matters for each objective, from `sensitivity`."""
    if sensitivity.empty:
        return ()
    return tuple(
        sentence
        for name, rows in sensitivity.groupby("objective", sort=False)
        for sentence in _effects(str(name), records_of(rows))
    )


def bands(robustness: pd.DataFrame, words: Wording) -> Sentences:
    """The usable range of each hyperparameter, from `robustness`: one sentence for each, with all
    its objectives.

    Gate: only the part of a band is named whose values are shown to be within (`band_sure_low`,
    `band_sure_high`).
    """
    found: dict[str, list[str]] = {}
    noisy: dict[tuple[str, str], list[str]] = {}
    for row in records_of(robustness):
        param, name = text(row.get("band_param")), row["objective"]
        if not param or not known(
            *(row.get(key) for key in ("band_low", "band_high", "level_noise"))
        ):
            continue
        if known(row["band_sure_low"], row["band_sure_high"]):
            failed = row.get("num_failed")
            lost = (
                f", with {counted(failed, 'failed trial', 'failed trials')}"
                if failed is not None and known(failed) and failed > 0
                else ""
            )
            found.setdefault(param, []).append(f"{name} {_band(row)}{lost}")
        else:
            noisy.setdefault((param, text(row["noise_of"])), []).append(name)
    near, apart = (
        f"within {words.amount(words.within)} of the best",
        f"{words.amount(words.within)} apart",
    )
    causes = {
        "seeds": f"the seeds' noise is too large to tell levels {apart}",
        "configurations": "the configurations that share a value or bin differ too much to tell "
        f"levels {apart}, which more of them would mend, not more seeds",
    }
    return (
        *(f"Usable band of {param}, {near}: {'; '.join(each)}." for param, each in found.items()),
        *(
            Open(
                f"The usable band of {param} is not resolved for {listed(names)}: "
                f"{causes.get(of, causes['seeds'])}."
            )
            for (param, of), names in noisy.items()
        ),
    )


def _band(row: Row) -> str:
    """The part of a band that is shown; "at least" where the means alone reach further."""
    low, high, ratio = row["band_sure_low"], row["band_sure_high"], row["band_ratio"]
    at_low = low == row["band_low"] and row["band_end"] in ("low", "both")
    at_high = high == row["band_high"] and row["band_end"] in ("high", "both")
    first, last = settings([low, high])
    least = "" if (low, high) == (row["band_low"], row["band_high"]) else "at least "
    if known(row["band_bins"]):
        middles = "the middle of a bin" if low == high else "the middles of bins"
        ends = f"at {first}" if low == high else f"from {first} to {last}"
        return f"{least}{ends}, {middles}"
    if low == high:
        return f"{least}at {first}{'' if least else ' alone'}"
    if at_low and at_high:
        return f"at every swept value, {first} to {last}"
    start, stop = ", the lowest swept value," * at_low, ", the highest swept value" * at_high
    factor = (
        f" (a factor of {number(ratio)})"
        if known(ratio) and not (least or at_low or at_high)
        else ""
    )
    return f"{least}from {first}{start} to {last}{stop}{factor}"


def best_regions(winners: pd.DataFrame, words: Wording) -> Sentences:
    """Which objective is best where, from `winners`: one sentence for every hyperparameter."""
    if winners.empty:
        return ()
    return tuple(
        _regions(str(by), records_of(rows), words) for by, rows in winners.groupby("by", sort=False)
    )


def tuning(cost: pd.DataFrame, words: Wording) -> Sentences:
    """What tuning costs and what it gains over the defaults, from `tuning_cost`."""
    tries, unknown, gains = [], [], []
    for row in records_of(cost):
        if row["reason"] == Reason.ONE_CONFIG:
            continue
        name, k = row["objective"], row["k_within"]
        if known(k, row["k_low"], row["k_high"]):
            tries.append(
                f"{name} after about "
                f"{counted(k, 'try', 'tries')}{interval(row['k_low'], row['k_high'])}"
            )
        else:
            unknown.append(name)
        gain, low, high = row["tunability"], row["tunability_low"], row["tunability_high"]
        if not known(gain, low, high):
            continue
        at = f" ({row['default_at']})" if text(row["default_at"]) else ""
        seen = f"{words.amount(gain)}{interval(low, high, apart_from=0.0)}"
        if low > 0:
            gains.append(f"Tuning {name} gains {seen} over its default{at}.")
        else:
            gains.append(
                Open(
                    f"Whether tuning {name} gains anything over its default{at} is not resolved "
                    f"({seen})."
                )
            )
    near = f"within {words.amount(words.within)} of the objective's best"
    out = [f"Configurations tried at random come {near}: {'; '.join(tries)}."] if tries else []
    if unknown:
        out.append(
            Open(f"How many tries it takes to come {near} is not resolved for {listed(unknown)}.")
        )
    return (*out, *gains)


def failures(regions: pd.DataFrame) -> Sentences:
    """Where trials fail more often than elsewhere, from `failure_regions`."""
    out = []
    for row in records_of(regions):
        if (
            not is_true(row["resolved"])
            or not known(row["p_holm"], row["rate"])
            or row["p_holm"] > ALPHA
            or not row["failed"] > 0
        ):
            continue
        share = f"{number(100 * row['rate'])} %"
        if known(row["low"], row["high"]):
            share += interval(100 * row["low"], 100 * row["high"])
        trials = counted(row["trials"], "trial", "trials")
        out.append(
            f"{row['objective']} fails more often at {row['region']} than elsewhere: "
            f"{number(row['failed'])} of {trials} ({share})."
        )
    return tuple(out)


def associations(links: pd.DataFrame, words: Wording) -> Sentences:
    """Diagnostics that go with the metric, from `links`: one sentence for every objective that has
    some.
    """
    if links.empty:
        return ()
    out, unseen = [], []
    for name, rows in links.groupby("objective", sort=False):
        found = [seen for row in records_of(rows) if (seen := _link(row))]
        what = "an association, not a cause" if len(found) == 1 else "associations, not causes"
        if found:
            out.append(
                f"Over the settings of {name}, {listed(found)} where {words.metric} is higher: "
                f"{what}."
            )
        else:
            unseen.append(str(name))
    if unseen:
        out.append(
            Open(f"Which diagnostics go with {words.metric} is not resolved for {listed(unseen)}.")
        )
    return tuple(out)


def confirmed(confirmation: pd.DataFrame, words: Wording) -> Sentences:
    """What the best configuration of each objective keeps on fresh seeds."""
    if confirmation.empty:
        return ()
    rows = (
        confirmation.sort_values("rank", kind="stable")
        if "rank" in confirmation.columns
        else confirmation
    )
    first = rows.drop_duplicates("objective")
    order = dict.fromkeys(confirmation["objective"])
    by_name = {row["objective"]: row for row in records_of(first)}
    return tuple(sentence for name in order if (sentence := _confirmed(by_name[name], words)))


def _effects(name: str, rows: Sequence[Row]) -> Iterable[str]:
    singles = [row for row in rows if row["order"] == 1 and known(_size(row)[0])]
    if not singles:
        reason, why = rows[0]["reason"], text(rows[0]["note"])
        if reason != Reason.NOTHING_SWEPT:  # a baseline: no news to a reader
            yield Open(f"What matters for {name} is {status(reason)}{f': {why}' if why else ''}.")
        return
    real = sorted((row for row in singles if _matters(row)), key=lambda row: -_size(row)[0])
    matter, small = (
        [row for row in real if _size(row)[0] >= SMALL],
        [row for row in real if _size(row)[0] < SMALL],
    )
    own = " on its own" if singles[0]["method"] == "anova" else ""
    if not real:
        lines = [row["null"] for row in singles if known(row["null"])]
        reach = f"; an inert one reaches {number(max(lines))}" if lines else ""
        yield Open(f"{name}: no hyperparameter's effect{own} is resolved{reach}.")
    elif matter and len(singles) == 1:
        yield f"{name}: {_effect(matter[0], 'matters')}."
    elif matter and _stands_out(matter[0], singles):
        yield f"{name}: {_effect(matter[0], f'matters most{own}')}."
        if others := [_effect(row) for row in matter[1:]]:
            yield f"{name}: {listed(others)} matter{'s' * (len(others) == 1)} too."
    elif len(matter) == 1:
        yield f"{name}: {_effect(matter[0], 'matters')}."
        yield Open(f"{name}: that the others matter less is not resolved.")
    elif matter:
        all_of_them = listed([_effect(row) for row in matter])
        yield f"{name}: {all_of_them} matter."
        yield Open(f"{name}: which of them matters most{own} is not resolved.")
    if small:
        verb = "has a small effect" if len(small) == 1 else "have small effects"
        yield f"{name}: {listed([_effect(row) for row in small])} {verb}."
    for row in rows:
        if row["order"] == 2 and known(_size(row)[0]) and _matters(row):
            a, _, b = text(row["term"]).partition(" x ")
            little = " a little" if _size(row)[0] < SMALL else ""
            yield (
                f"{name}: the effects of {a} and {b} depend on each other{little} "
                f"({_measure(row)})."
            )


def _size(row: Row) -> tuple[float, float, float, str]:
    """Value, interval and name of the effect that `resolved` is about: ST of a Sobol analysis, else
    the share alone.
    """
    kind = "total" if row["method"] == "sobol" and row["order"] == 1 else "first"
    called = "total effect" if kind == "total" else "share of the variance"
    return row[kind], row[f"{kind}_low"], row[f"{kind}_high"], called


def _matters(row: Row) -> bool:
    """Whether the test, the null line and the two-sided interval, which asks for the most, all say
    so.
    """
    value, low, high, _ = _size(row)
    seen = known(value, low, high, row["null"]) and value > float(row["null"]) and low > 0
    return is_true(row["resolved"]) and seen


def _stands_out(top: Row, singles: Sequence[Row]) -> bool:
    """Whether the interval lies above those of all others; an unknown end could be anywhere."""
    low = _size(top)[1]
    return all(known(_size(row)[2]) and low > _size(row)[2] for row in singles if row is not top)


def _effect(row: Row, does: str = "") -> str:
    """`tau matters (share of the variance 0.9 [0.8, 1], an inert one reaches 0.1)`."""
    return f"{row['term']} {does}{' ' * bool(does)}({_measure(row)})"


def _measure(row: Row) -> str:
    value, low, high, called = _size(row)
    return (
        f"{called} {number(value)}{interval(low, high)}, an inert one reaches {number(row['null'])}"
    )


def _regions(by: str, rows: Sequence[Row], words: Wording) -> str:
    winners = [row["winner"] if _leads(row) else None for row in rows]
    places = places_of(by, rows, winners)
    unresolved = places.pop(None, [])
    if not places:
        return Open(f"Which objective is best is not resolved at any value of {by}.")
    if len(places) == 1 and not unresolved and len(rows) > 1:
        leads = [row["lead"] for row in rows]
        return (
            f"{winners[0]} is best at every value of {by}, {number(min(leads))} to "
            f"{words.amount(max(leads))} ahead of the next."
        )
    return along(by, [f"{name} is best at {listed(at)}" for name, at in places.items()], unresolved)


def _leads(row: Row) -> bool:
    if not is_true(row["resolved"]) or not known(row["lead"], row["low"], row["p_holm"]):
        return False
    return bool(row["lead"] > 0 and row["low"] > 0 and row["p_holm"] <= ALPHA)


def _link(row: Row) -> str:
    """`q_b_mean is lower (Spearman -0.7 [-0.8, -0.5])` where test, interval and p-value agree."""
    if not known(row["rho"], row["low"], row["high"], row["p_holm"]) or row["p_holm"] > ALPHA:
        return ""
    side = "higher" if row["rho"] > 0 else "lower"
    agrees = row["low"] > 0 if side == "higher" else row["high"] < 0
    if not is_true(row["resolved"]) or not agrees:
        return ""
    seen = f"{number(row['rho'])}{interval(row['low'], row['high'], apart_from=0.0)}"
    return f"{row['diagnostic']} is {side} (Spearman {seen})"


def _confirmed(row: Row, words: Wording) -> str:
    name, fresh, num = row["objective"], row["fresh"], row.get("fresh_seeds", math.nan)
    if not known(fresh):
        failed = row.get("fresh_failed", math.nan)
        return (
            f"The best {name} setting failed on every fresh seed."
            if known(failed) and failed > 0
            else ""
        )
    low, high, search = row["fresh_low"], row["fresh_high"], row["search"]
    seeds = f"{counted(num, 'fresh seed', 'fresh seeds')}" if known(num) else "fresh seeds"
    out = f"The best {name} setting keeps {words.level(fresh)}{interval(low, high)} on {seeds}"
    if known(search):
        sign = 1 if words.mode == "max" else -1
        out += f"; the search said {words.level(search)}{_excess(row, sign, words)}"
    if known(row.get("test")):
        out += (
            "; the test split says "
            f"{words.level(row['test'])}{interval(row['test_low'], row['test_high'])}"
        )
    return f"{out}."


def _excess(row: Row, sign: int, words: Wording) -> str:
    """By how much the search's score is too good, where the noise of both scores does not explain
    it.

    Half the interval of the difference: t sd sqrt(1 / n + 1 / m) for n fresh seeds and m of the
    search, one noise; it is half the fresh interval times sqrt(1 + n / m).
    """
    num, searched, low, high = (
        row.get(key) for key in ("fresh_seeds", "search_seeds", "fresh_low", "fresh_high")
    )
    if num is None or searched is None or not known(num, searched, low, high) or searched < 1:
        return ""
    excess = sign * (row["search"] - row["fresh"])
    # The longer side: the other one may end where the metric ends.
    side = max(row["fresh"] - row["fresh_low"], row["fresh_high"] - row["fresh"])
    half = side * math.sqrt(1 + num / searched)
    if excess <= half:
        return ""
    return (
        f", {words.amount(excess)} too good{interval(excess - half, excess + half, apart_from=0.0)}"
    )


def course(history: pd.DataFrame, words: Wording) -> Sentences:
    """When each objective's best was found, from `Findings.history`."""
    out = []
    for name, rows in history.groupby("objective", sort=False):
        best = rows["best"].dropna()
        if best.empty:
            continue
        last = best.iloc[-1]
        found = rows.loc[rows["best"] == last].iloc[0]
        late = found["tried"] > LATE * len(rows) and len(rows) > 4
        more = " It still improved near the end, so more tries may help." if late else ""
        out.append(
            f"{name} found its best, {words.level(last)}, at try {count(found['tried'])} of "
            f"{count(len(rows))}.{more}"
        )
    return tuple(out)


def importances(table: pd.DataFrame) -> Sentences:
    """Which hyperparameters went with the score, from `Findings.importance`."""
    out: list[str] = []
    for name, frame in table.groupby("objective", sort=False):
        rows = records_of(frame)
        found = [
            f"{row['param']} ({number(row['importance'])}, by chance up to {number(row['null'])})"
            for row in sorted(rows, key=lambda row: -row["importance"])
            if row["resolved"]
        ]
        if found:
            verb = "goes" if len(found) == 1 else "go"
            out.append(f"Among the tries of {name}, {listed(found)} {verb} with the score.")
        elif any(is_measured(row["reason"]) for row in rows):
            why = "" if not rows[0]["reason"] else f": {rows[0]['note']}"
            out.append(Open(f"Which hyperparameter matters for {name} is not resolved{why}."))
    return tuple(out)


def savings(table: pd.DataFrame) -> Sentences:
    """What stopping early saved, from `Findings.saved`."""
    out = []
    for row in records_of(table):
        hours = f", about {work(row['saved_hours'])}" if known(row["saved_hours"]) else ""
        out.append(
            f"{row['objective']}: {count(row['stopped'])} of {count(row['trials'])} trials were "
            f"stopped early, which saved {number(100 * row['saved'])} % of the epochs{hours}."
        )
    return tuple(out)
