"""Two objectives against each other, in sentences.

The gate: the table names a winner, the corrected p-value is at most 5 %, and the interval lies on
that side of no difference. All numbers are those of the tables; names are given verbatim.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import pandas as pd

from clsweep.catalog.rows import Row
from clsweep.display.cells import records_of
from clsweep.findings.notes import is_measured, said
from clsweep.questions.model import Open, Sentences, Wording
from clsweep.questions.words import (
    ALPHA,
    along,
    counted,
    interval,
    known,
    listed,
    number,
    passes,
    places_of,
    text,
)

AHEAD = {"mean": "is better", "std": "is more robust", "within": "has more settings near its best"}
FEW_PAIRS = 3  # more unresolved pairs than this share one sentence
MANY_PAIRS = 12  # more are counted, not named
_TURNED = {"a": "b", "b": "a", "value_a": "value_b", "value_b": "value_a"}


def spreads(pairs: pd.DataFrame, words: Wording) -> Sentences:
    """Which objective is more robust, from `compare` of stat "std"."""
    return _pairwise(
        pairs,
        null=1.0,
        claim=lambda row: _spread_claim(row, words),
        evidence=_ratio_seen,
        champion=lambda name, num: (
            f"{name} is more robust than each of the {num} other objectives."
        ),
        question=lambda a, b: f"Whether {a} or {b} is more robust",
        questions="Which objective is more robust",
        measured="spreads",
    )


def means(pairs: pd.DataFrame, words: Wording) -> Sentences:
    """Which objective is better on average, from `compare` of stat "mean"."""
    return _pairwise(
        pairs,
        null=0.0,
        claim=lambda row: _mean_claim(row, words),
        evidence=lambda row: _difference_seen(row, words),
        champion=lambda name, num: (
            f"{name} is better on average than each of the {num} other objectives."
        ),
        question=lambda a, b: f"Whether {a} or {b} scores better on average",
        questions="Which objective scores better on average",
        measured="means",
    )


def shares(pairs: pd.DataFrame, words: Wording) -> Sentences:
    """Which objective has more good settings, from `compare` of stat "within"."""
    near = f"within {words.amount(words.within)} of its best"
    return _pairwise(
        pairs,
        null=0.0,
        claim=lambda row: _share_claim(row, near),
        evidence=lambda row: interval(row["low"], row["high"]),
        champion=lambda name, num: (
            f"{name} has more of its settings {near} than each of the {num} other objectives."
        ),
        question=lambda a, b: f"Whether {a} or {b} has more of its settings {near}",
        questions=f"Which objective has more of its settings {near}",
        measured="shares near the best",
    )


def by_value(pairs: pd.DataFrame, by: str, *, stat: str) -> Sentences:
    """Who is ahead at which values of `by`, a sentence for each pair, from `compare` with it."""
    measured = pairs[[is_measured(reason) for reason in pairs["reason"]]]
    return tuple(
        _along(
            by, str(a), str(b), records_of(rows), AHEAD[stat], null=1.0 if stat == "std" else 0.0
        )
        for (a, b), rows in measured.groupby(["a", "b"], sort=False)
    )


def _along(by: str, a: str, b: str, rows: Sequence[Row], ahead: str, *, null: float) -> str:
    winners = [row["winner"] if is_resolved(row, null) else None for row in rows]
    places = places_of(by, rows, winners)
    unresolved = places.pop(None, [])
    if not places:
        return Open(f"Whether {a} or {b} {ahead} is not resolved at any value of {by}.")
    claims = [
        f"{winner} {ahead} than {b if winner == a else a} at "
        f"{listed(at) if unresolved or len(places) > 1 else 'every value'}"
        for winner, at in places.items()
    ]
    return along(by, claims, unresolved)


def _pairwise(
    pairs: pd.DataFrame,
    *,
    null: float,
    claim: Callable[[Row], str],
    evidence: Callable[[Row], str],
    champion: Callable[[str, int], str],
    question: Callable[[str, str], str],
    questions: str,
    measured: str,
) -> Sentences:
    """Claims first, then what is not resolved, then what is not measured."""
    rows = records_of(pairs)
    claims = {
        (row["a"], row["b"]): sentence
        for row in rows
        if is_resolved(row, null) and (sentence := claim(row))
    }
    open_rows = [
        row for row in rows if is_measured(row["reason"]) and (row["a"], row["b"]) not in claims
    ]
    out = [
        *_champion([row for row in rows if (row["a"], row["b"]) in claims], rows, champion),
        *claims.values(),
    ]
    if len(open_rows) <= FEW_PAIRS:
        out += [
            Open(
                f"{question(row['a'], row['b'])} is not resolved{evidence(row)}{_needs(row)}."
                f"{_corrected(row, null, len(rows))}"
            )
            for row in open_rows
        ]
    else:
        needed = [_needed(row) for row in open_rows]
        named = [
            f"{row['a']} and {row['b']}{f', needs about {it}' if it else ''}"
            for row, it in zip(open_rows, needed, strict=True)
        ]
        which = f": {'; '.join(named)}" if len(named) <= MANY_PAIRS else f" of {len(rows)}"
        apart = [row for row in open_rows if _excludes(row, null)]
        out.append(
            Open(
                f"{questions} is not resolved for {len(named)} pairs{which}."
                f"{_corrected(apart[0], null, len(rows)) if apart else ''}"
            )
        )
    reasons: dict[str, list[str]] = {}
    for row in rows:
        if not is_measured(row["reason"]):
            reasons.setdefault(text(row["note"]), []).append(f"{row['a']} and {row['b']}")
    for why, names in reasons.items():
        which = "; ".join(names) if len(names) <= FEW_PAIRS else f"{len(names)} pairs"
        out.append(Open(f"The {measured} of {which} are not compared: {why}."))
    return tuple(out)


def is_resolved(row: Row, null: float) -> bool:
    """Whether there is a winner, and interval and p-value agree with it."""
    if not passes(row):
        return False
    # The ratio of spreads is small where a is the better.
    above = (row["winner"] == row["a"]) == (null == 0.0)
    bound = row["low"] if above else row["high"]
    return known(bound) and (bound > null if above else bound < null)


def _champion(
    resolved: Sequence[Row], rows: Sequence[Row], sentence: Callable[[str, int], str]
) -> Sentences:
    """The one that is resolved against every other one, where there are two others or more."""
    names = list(dict.fromkeys(name for row in rows for name in (row["a"], row["b"])))
    won = [row["winner"] for row in resolved]
    return tuple(
        sentence(name, len(names) - 1) for name in names if won.count(name) == len(names) - 1 >= 2
    )


def seen_from(row: Row, name: str) -> Row:
    """A pair as one of both sees it: `a` is that one, and the numbers are turned with it."""
    if row["a"] == name:
        return row
    low, high, lead = row["low"], row["high"], row["estimate"]
    turned = {"estimate": -lead, "low": -high, "high": -low}
    if row.get("stat") == "std":
        turned = {"estimate": _inverse(lead), "low": _inverse(high), "high": _inverse(low)}
    return row | turned | {new: row[old] for new, old in _TURNED.items()}


def _inverse(value: float) -> float:
    """1 / value; 0 of infinity and of what is not known, which then counts as open."""
    return 1 / value if known(value) and value > 0 else 0.0


def _spread_claim(row: Row, words: Wording) -> str:
    pair = seen_from(row | {"stat": "std"}, row["winner"])
    own, other, ratio, low = (pair[name] for name in ("value_a", "value_b", "estimate", "low"))
    if not known(own, other) or own < 0 or other <= 0:
        return ""
    start = f"{pair['a']} is more robust than {pair['b']}: "
    if own == 0:
        return (
            f"{start}its {words.metric} has no spread due to hyperparameters that shows above the "
            f"seed noise, against SD* {words.amount(other)}."
        )
    if not known(ratio) or ratio <= 0:
        return ""
    seen = f", at most {number(pair['high'], apart_from=1.0)}"
    if known(low) and low > 0:
        seen = interval(low, pair["high"], apart_from=1.0)
    return (
        f"{start}the spread of {words.metric} due to hyperparameters is "
        f"{number(ratio, apart_from=1.0)} times as large"
        f"{seen} (SD* {number(own)} against {words.amount(other)})."
    )


def _mean_claim(row: Row, words: Wording) -> str:
    pair = seen_from(row, row["winner"])
    lead, low, high = pair["estimate"], pair["low"], pair["high"]
    if not known(lead, low, high) or lead <= 0:
        return ""
    side = "higher" if words.mode == "max" else "lower"
    return (
        f"{pair['a']} scores {words.amount(lead)} {side} than {pair['b']} on average over the "
        f"shared space{interval(low, high, apart_from=0.0)}."
    )


def _share_claim(row: Row, near: str) -> str:
    pair = seen_from(row, row["winner"])
    own, other = pair["value_a"], pair["value_b"]
    if not known(own, other) or own <= other:
        return ""
    return (
        f"{pair['a']} has more of its settings {near} than {pair['b']}: a share of {number(own)}, "
        f"against {number(other)}."
    )


def _ratio_seen(row: Row) -> str:
    """The ratio with its interval, where neither is made with a zero."""
    ratio, low, high = row["estimate"], row["low"], row["high"]
    sizes = ratio, row["value_a"], row["value_b"]
    if not known(*sizes) or min(sizes) <= 0:
        return ""
    ends = known(low) and low > 0, known(high)
    if not any(ends):
        return ""
    seen = f", at most {number(high)}" if ends[1] else f", at least {number(low)}"
    if all(ends):
        seen = interval(low, high)
    return f" (SD* ratio {row['a']} / {row['b']} {number(ratio)}{seen})"


def _difference_seen(row: Row, words: Wording) -> str:
    if not known(row["estimate"], row["low"], row["high"]):
        return ""
    seen = f"{words.amount(row['estimate'])}{interval(row['low'], row['high'])}"
    return f" (lead of {row['a']}: {seen})"


def _excludes(row: Row, null: float) -> bool:
    """Whether the interval alone lies on one side of no difference."""
    low, high = row["low"], row["high"]
    return (known(low) and low > null) or (known(high) and high < null)


def _corrected(row: Row, null: float, num_pairs: int) -> str:
    """Why a lead whose interval excludes no difference is not resolved all the same."""
    if not _excludes(row, null) or not known(row["p_holm"]):
        return ""
    p = f"p = {number(row['p_holm'])}"
    if row["p_holm"] <= ALPHA:
        return ""
    if num_pairs > 1:
        return (
            f" The interval of {row['a']} against {row['b']} alone excludes {null:g}. With "
            f"{num_pairs} pairs compared, chance alone would show as much too often ({p} by Holm)."
        )
    return (
        f" The interval of {row['a']} against {row['b']} excludes {null:g}, but the test of sign "
        f"flips does not ({p})."
    )


def _needs(row: Row) -> str:
    """`; it needs about 8 seeds`, or why that cannot be said."""
    if row["reason"]:
        return f": {said(row['reason'], row)}"
    return f"; it needs about {needed}" if (needed := _needed(row)) else ""


def _needed(row: Row) -> str:
    """`8 seeds`, `120 configurations`, or nothing where that cannot be said."""
    seeds, configs = row["needs_seeds"], row["needs_configs"]
    if known(seeds):
        return counted(math.ceil(seeds), "seed", "seeds")
    return counted(configs, "configuration", "configurations") if known(configs) else ""


def _loser(row: Row) -> str:
    return str(row["b"] if row["winner"] == row["a"] else row["a"])


def robust(spreads: pd.DataFrame) -> Sentences:
    """Who depends least on its settings, from `compare` of stat "std"."""
    measured = [row for row in records_of(spreads) if is_measured(row["reason"])]
    if not measured:
        return ()
    names = list(dict.fromkeys(name for row in measured for name in (row["a"], row["b"])))
    resolved = [row for row in measured if is_resolved(row, 1.0)]
    for name in names:
        won = [row for row in resolved if row["winner"] == name]
        if len(won) == len(names) - 1:
            return (f"{name} depends least on its settings: {_against(won, name)}.",)
    if not resolved:
        return ("No objective is shown to depend less on its settings than another.",)
    pairs = [f"{row['winner']} less than {_loser(row)}" for row in resolved[:2]]
    more = f", and {len(resolved) - 2} more such pairs" if len(resolved) > 2 else ""
    return (f"Some depend less on their settings: {listed(pairs)}{more}.",)


def _against(won: list[Row], name: str) -> str:
    """`SD* 0.8, against 2.1 of dcl`, of the next best one."""
    pairs = [seen_from(row | {"stat": "std"}, name) for row in won]
    other, whose = min((pair["value_b"], pair["b"]) for pair in pairs)
    return f"SD* {number(pairs[-1]['value_a'])}, against {number(other)} of {whose}"
