"""Two objectives against each other, in sentences.

The gate: the table names a winner, the corrected p-value is at most 5 %, and the interval lies on
that side of no difference. All numbers are those of the tables; names are given verbatim.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from clsweep.catalog.rows import Row
from clsweep.display.numbers import Wording, count, interval, joined, known, number
from clsweep.statistics.report_objects import Sentences, Unresolved
from clsweep.sweeps.notes import (
    NOTES_APART,
    cause,
    is_measured,
    is_resolved,
    records_of,
    seen_from,
    text_in,
)

FEW_PAIRS = 3  # more unresolved pairs than this share one sentence
MANY_PAIRS = 12  # more are counted, not named
NEEDS = "how many would find it in four of five studies, an 80 % interval"  # of `needed`


@dataclass(frozen=True)
class _Kind:
    """The words of one statistic of a comparison."""

    better: str  # what the winner does; `{near}` stands for how far from the best is near
    compared: str  # what was compared
    number: str  # how much that is, by the fields of a row, `amount` with a unit and `number`
    sense: str = ""  # said where anything is swept
    null: float = 0.0  # the value where both are alike: 1 of a ratio


_LEAD = "{a} leads by {amount}"
_KINDS = {
    "mean": _Kind("scores better", "means", _LEAD, " without tuning"),
    "tuned": _Kind("scores better", "best settings", _LEAD, " when tuned"),
    "std": _Kind("is more robust", "spreads", "SD* ratio {a} / {b} {number}", null=1.0),
    "within": _Kind(
        "has more of its settings within {near} of its best",
        "shares near the best",
        "the share of {a} is larger by {number}",
    ),
}


def compared(pairs: pd.DataFrame, stat: str, words: Wording) -> Sentences:
    """Which objective is ahead, from `compare` of this stat: claims first, then what is not
    resolved, then what is not measured.
    """
    kind, rows = _KINDS[stat], records_of(pairs)
    better, sense = _better(kind, words), kind.sense * words.swept
    claims: list[str] = []
    undecided: list[Row] = []
    lost: list[Row] = []
    for row in rows:
        won = seen_from(row, row["winner"], null=kind.null) if is_resolved(row, kind.null) else {}
        if won and (seen := _seen(won, kind, words)) and _has_numbers(won, kind):
            claims.append(f"{won['a']} {better} than {won['b']}{sense}: {seen}.")
        else:
            (undecided if is_measured(row["reason"]) else lost).append(row)
    open_pairs = _undecided(undecided, len(rows), f"{better}{sense}", kind, words)
    return (*claims, *open_pairs, *_not_compared(lost, kind.compared))


def _better(kind: _Kind, words: Wording) -> str:
    return kind.better.format(near=words.amount(words.within))


def _has_numbers(won: Row, kind: _Kind) -> bool:
    """True if the winner's lead is known, and no ratio to a zero."""
    own, other = won["value_a"], won["value_b"]
    return known(own, other, won["high"]) and (other > 0 or not kind.null)


def _seen(row: Row, kind: _Kind, words: Wording) -> str:
    """The number of a pair with its interval; "" where one is not known or open, or none leads."""
    value, null, low = row["estimate"], kind.null, row["low"]
    low = 0.0 if null and not known(low) else low  # below which no ratio is
    is_led = known(value) and value != null
    if not (is_led and (ends := interval(low, row["high"], apart_from=null))):
        return ""
    shown = {"number": number(value, apart_from=null), "amount": words.amount(value)}
    return kind.number.format(a=row["a"], b=row["b"], **shown) + ends


def by_value(pairs: pd.DataFrame, by: str, stat: str, words: Wording) -> Sentences:
    """Who is ahead at which values of `by`, a sentence for each pair, from `compare` with it."""
    ahead, null, sentences = _better(_KINDS[stat], words), _KINDS[stat].null, []
    measured = pairs[[is_measured(reason) for reason in pairs["reason"]]]
    for (a, b), frame in measured.groupby(["a", "b"], sort=False):
        rows = records_of(frame)
        winners = [row["winner"] if is_resolved(row, null) else None for row in rows]
        places = places_of(by, rows, winners)
        unresolved = places.pop(None, [])
        claims = [
            f"{winner} {ahead} than {b if winner == a else a} at "
            f"{joined(at) if unresolved or len(places) > 1 else 'every value'}"
            for winner, at in places.items()
        ]
        none = Unresolved(f"Whether {a} or {b} {ahead} is not resolved at any value of {by}.")
        sentences.append(along(by, claims, unresolved) if claims else none)
    compared_pairs, rows = set(zip(measured["a"], measured["b"], strict=True)), records_of(pairs)
    lost = {pair: row for row in rows if (pair := (row["a"], row["b"])) not in compared_pairs}
    return (*sentences, *_not_compared([*lost.values()], _KINDS[stat].compared))


def _not_compared(rows: Sequence[Row], measured: str) -> Sentences:
    """Pairs of which nothing was measured, a sentence for each cause."""
    pairs: dict[str, list[str]] = {}
    for row in rows:
        pairs.setdefault(_why(row), []).append(f"{row['a']} and {row['b']}")
    missing = []
    for why, those in pairs.items():
        named = "; ".join(those) if len(those) <= FEW_PAIRS else f"{len(those)} pairs"
        missing.append(Unresolved(f"The {measured} of {named} are not compared: {why}."))
    return tuple(missing)


def _why(row: Row) -> str:
    """The notes of a pair, what is told of both sides once."""
    notes = text_in(row["note"]).split(NOTES_APART)
    bare = [n.removeprefix(f"{row['a']}: ").removeprefix(f"{row['b']}: ") for n in notes]
    once = [x if bare.count(x) > 1 else n for n, x in zip(notes, bare, strict=True)]
    return NOTES_APART.join(dict.fromkeys(once))


def _undecided(
    rows: Sequence[Row], num_pairs: int, which: str, kind: _Kind, words: Wording
) -> Sentences:
    """Pairs that are not resolved: a sentence for each of few pairs, one for all of many."""
    if len(rows) > FEW_PAIRS:
        named = "; ".join(f"{row['a']} and {row['b']}" for row in rows)
        those = f": {named}" if len(rows) <= MANY_PAIRS else f" of {num_pairs}"
        return (
            Unresolved(f"Which objective {which} is not resolved for {len(rows)} pairs{those}."),
        )
    few = []
    for row in rows:
        takes = f"; it needs {it}" if (it := needed(row)) else ""
        why = f": {cause(row)}" if row["reason"] else takes
        start = f"Whether {row['a']} or {row['b']} {which} is not resolved"
        is_led = kind.null or not row["estimate"] < 0  # a lead is told of the one who has it
        seen = _seen(row if is_led else seen_from(row, row["b"]), kind, words)
        few.append(Unresolved(f"{start}{f' ({seen})' if seen else ''}{why}."))
    return tuple(few)


def places_of(
    by: str, rows: Sequence[Row], winners: Sequence[str | None]
) -> dict[str | None, list[str]]:
    """Each winner, or None where there is none -> the values or bins of `by` of its rows."""
    places: dict[str | None, list[str]] = {}
    for winner, row in zip(winners, rows, strict=True):
        places.setdefault(winner, []).append(text_in(row["region"]).removeprefix(f"{by}="))
    return places


def along(by: str, claims: Sequence[str], unresolved: Sequence[str]) -> str:
    """`Along tau, dcl is best at 0.1; at 0.2 and 0.5 it is not resolved.`"""
    rest = f"; at {joined(unresolved)} it is not resolved" if unresolved else ""
    return f"Along {by}, {joined(claims)}{rest}."


def depends(objective: str, param: str, r2: float) -> str:
    """Of the only hyperparameter, whose share of the variance says nothing."""
    return f"{objective} depends on {param}: it predicts settings left out (R2 = {number(r2)})."


def needed(row: Row, column: str = "") -> str:
    """The trials that would resolve the row with 80 % power: `15 to 200 seeds (80 % interval; 40 if
    it is as large as it looks)`, `15 seeds or more, ...`; nothing where that is not known. Of a
    column alone: `15 to 200`, `15 or more`.
    """
    name = column or ("needs_configs" if known(row.get("needs_configs")) else "needs_seeds")
    seen, low, high = (row.get(each) for each in (name, "needs_low", "needs_high"))
    if low is None or high is None or not known(low) or (column and seen != seen):  # NaN
        return ""
    unit = "" if column else " seeds" if name == "needs_seeds" else " configurations"
    if seen is None or not known(seen, high):
        return f"{count(low)}{unit} or more{', how many cannot be said yet' if unit else ''}"
    ends = f"{count(low)} to {count(high)}" if low < high else count(low)
    about = f" (80 % interval; {count(seen)} if it is as large as it looks)" if unit else ""
    return f"{ends}{unit}{about}"
