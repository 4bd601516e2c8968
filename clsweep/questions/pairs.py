"""Two objectives against each other, in sentences.

The gate: the table names a winner, the corrected p-value is at most 5 %, and the interval lies on
that side of no difference. All numbers are those of the tables; names are given verbatim.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pandas as pd

from clsweep.catalog.rows import Row
from clsweep.display.cells import records_of
from clsweep.findings.notes import cause, is_measured
from clsweep.questions.model import Open, Sentences, Wording
from clsweep.questions.words import (
    along,
    interval,
    known,
    listed,
    needed,
    number,
    passes,
    places_of,
    text,
)

AHEAD = {"mean": "is better", "std": "is more robust", "within": "has more settings near its best"}
FEW_PAIRS = 3  # more unresolved pairs than this share one sentence
MANY_PAIRS = 12  # more are counted, not named
COMPARED = {"mean": "means", "std": "spreads", "within": "shares near the best"}
Say = Callable[[Row], str]
_TURNED = {"a": "b", "b": "a", "value_a": "value_b", "value_b": "value_a"}


def spreads(pairs: pd.DataFrame, words: Wording) -> Sentences:
    """Which objective is more robust, from `compare` of stat "std"."""
    seen = {"claim": lambda pair: _spread_claim(pair, words), "evidence": _ratio_seen}
    return _pairwise(pairs, "spreads", which="is more robust", null=1.0, **seen)


def means(pairs: pd.DataFrame, words: Wording) -> Sentences:
    """Which objective is better on average, from `compare` of stat "mean"."""
    return _leads(pairs, words, "means", "without tuning", ", on average over the shared space")


def tuned(pairs: pd.DataFrame, words: Wording) -> Sentences:
    """Which objective is better at its best setting, from `compare` of stat "tuned"."""
    return _leads(pairs, words, "best settings", "when tuned", ", each at its best setting")


def _leads(pairs: pd.DataFrame, words: Wording, measured: str, how: str, where: str) -> Sentences:
    side = "higher" if words.mode == "max" else "lower"
    how, where = (f" {how}", where) if words.swept else ("", "")

    def claim(pair: Row) -> str:
        lead, low, high = pair["estimate"], pair["low"], pair["high"]
        if not known(lead, low, high) or lead <= 0:
            return ""
        return (
            f"{pair['a']} scores {words.amount(lead)} {side} than {pair['b']}{how}{where}"
            f"{interval(low, high, apart_from=0.0)}."
        )

    def evidence(row: Row) -> str:
        if not known(row["estimate"], row["low"], row["high"]):
            return ""
        row = seen_from(row, row["a" if row["estimate"] >= 0 else "b"])
        ends = interval(row["low"], row["high"])
        if not row["estimate"]:
            return f" (they score the same{ends})"
        return f" ({row['a']} leads by {words.amount(row['estimate'])}{ends})"

    return _pairwise(pairs, measured, which=f"scores better{how}", claim=claim, evidence=evidence)


def shares(pairs: pd.DataFrame, words: Wording) -> Sentences:
    """Which objective has more good settings, from `compare` of stat "within"."""
    more = f"has more of its settings within {words.amount(words.within)} of its best"

    def claim(pair: Row) -> str:
        own, other = pair["value_a"], pair["value_b"]
        if not known(own, other) or own <= other:
            return ""
        return (
            f"{pair['a']} {more} than {pair['b']}: a share of {number(own)}, against "
            f"{number(other)}."
        )

    def evidence(row: Row) -> str:
        return interval(row["low"], row["high"])

    return _pairwise(pairs, "shares near the best", which=more, claim=claim, evidence=evidence)


def by_value(pairs: pd.DataFrame, by: str, *, stat: str) -> Sentences:
    """Who is ahead at which values of `by`, a sentence for each pair, from `compare` with it."""
    ahead, null, found = AHEAD[stat], 1.0 if stat == "std" else 0.0, []
    measured = pairs[[is_measured(reason) for reason in pairs["reason"]]]
    for (a, b), frame in measured.groupby(["a", "b"], sort=False):
        rows = records_of(frame)
        winners = [row["winner"] if is_resolved(row, null) else None for row in rows]
        places = places_of(by, rows, winners)
        unresolved = places.pop(None, [])
        claims = [
            f"{winner} {ahead} than {b if winner == a else a} at "
            f"{listed(at) if unresolved or len(places) > 1 else 'every value'}"
            for winner, at in places.items()
        ]
        none = Open(f"Whether {a} or {b} {ahead} is not resolved at any value of {by}.")
        found.append(along(by, claims, unresolved) if claims else none)
    told, rows = set(zip(measured["a"], measured["b"], strict=True)), records_of(pairs)
    lost = {pair: row for row in rows if (pair := (row["a"], row["b"])) not in told}
    return (*found, *_not_compared([*lost.values()], COMPARED[stat]))


def robust(spreads: pd.DataFrame) -> Sentences:
    """Who depends least on its settings, from `compare` of stat "std"."""
    measured = [row for row in records_of(spreads) if is_measured(row["reason"])]
    if not measured:
        return ()
    names = dict.fromkeys(row[side] for row in measured for side in "ab")
    won = [
        seen_from(row, row["winner"], null=1.0) for row in measured if is_resolved(row, null=1.0)
    ]
    for name in names:
        own = [pair for pair in won if pair["a"] == name]
        if len(own) == len(names) - 1:  # the next best one is the one to name
            other, whose = min((pair["value_b"], pair["b"]) for pair in own)
            seen = f"SD* {number(own[-1]['value_a'])}, against {number(other)} of {whose}"
            return (f"{name} depends least on its settings: {seen}.",)
    if not won:
        return ("No objective is shown to depend less on its settings than another.",)
    pairs = [f"{pair['a']} less than {pair['b']}" for pair in won[:2]]
    more = f", and {len(won) - 2} more such pairs" if len(won) > 2 else ""
    return (f"Some depend less on their settings: {listed(pairs)}{more}.",)


def _pairwise(
    pairs: pd.DataFrame, measured: str, *, which: str, claim: Say, evidence: Say, null: float = 0.0
) -> Sentences:
    """Claims first, then what is not resolved, then what is not measured.

    Args:
        measured: what is compared.
        which: what is asked.
        claim: of a resolved pair, as the winner sees it; "" where the numbers cannot show it.
        evidence: of an open pair.
        null: the statistic's value where both are alike: 1 of a ratio, else 0.
    """
    rows = records_of(pairs)
    claims: list[str] = []
    undecided: list[Row] = []
    lost: list[Row] = []
    for row in rows:
        won = is_resolved(row, null) and claim(seen_from(row, row["winner"], null=null))
        if won:
            claims.append(won)
        elif is_measured(row["reason"]):
            undecided.append(row)
        else:
            lost.append(row)
    open_pairs = _undecided(undecided, len(rows), which, evidence)
    return (*claims, *open_pairs, *_not_compared(lost, measured))


def _not_compared(rows: Sequence[Row], measured: str) -> Sentences:
    """Pairs of which nothing was measured, a sentence for each cause."""
    pairs: dict[str, list[str]] = {}
    for row in rows:
        pairs.setdefault(text(row["note"]), []).append(f"{row['a']} and {row['b']}")
    missing = []
    for why, those in pairs.items():
        named = "; ".join(those) if len(those) <= FEW_PAIRS else f"{len(those)} pairs"
        missing.append(Open(f"The {measured} of {named} are not compared: {why}."))
    return tuple(missing)


def _undecided(rows: Sequence[Row], num_pairs: int, which: str, evidence: Say) -> Sentences:
    """What is not resolved: a sentence for each of few pairs, one for all of many."""
    if len(rows) > FEW_PAIRS:
        named = "; ".join(f"{row['a']} and {row['b']}" for row in rows)
        those = f": {named}" if len(rows) <= MANY_PAIRS else f" of {num_pairs}"
        return (Open(f"Which objective {which} is not resolved for {len(rows)} pairs{those}."),)
    few = []
    for row in rows:
        takes = f"; it needs {it}" if (it := needed(row)) else ""
        why = f": {cause(row)}" if row["reason"] else takes
        start = f"Whether {row['a']} or {row['b']} {which} is not resolved"
        few.append(Open(f"{start}{evidence(row)}{why}."))
    return tuple(few)


def is_resolved(row: Row, null: float) -> bool:
    """Whether there is a winner, and interval and p-value agree with it."""
    if not passes(row):
        return False
    # The ratio of spreads is small where a is the better.
    above = (row["winner"] == row["a"]) == (null == 0.0)
    bound = row["low"] if above else row["high"]
    return known(bound) and (bound > null if above else bound < null)


def seen_from(row: Row, name: str, *, null: float = 0.0) -> Row:
    """A pair as one of both sees it: `a` is that one, and the numbers are turned with it."""
    if row["a"] == name:
        return row
    low, high, lead = row["low"], row["high"], row["estimate"]
    turned = {"estimate": -lead, "low": -high, "high": -low}
    if null == 1.0:
        turned = {"estimate": _inverse(lead), "low": _inverse(high), "high": _inverse(low)}
    return row | turned | {new: row[old] for new, old in _TURNED.items()}


def _inverse(value: float) -> float:
    """1 / value; 0 of infinity and of what is not known, which then counts as open."""
    return 1 / value if known(value) and value > 0 else 0.0


def _spread_claim(pair: Row, words: Wording) -> str:
    own, other, ratio, low = (pair[name] for name in ("value_a", "value_b", "estimate", "low"))
    if not known(own, other) or own < 0 or other <= 0:
        return ""
    start = f"{pair['a']} is more robust than {pair['b']}: "
    if own == 0:
        return (
            f"{start}its {words.metric} has no spread due to hyperparameters that shows above the "
            f"noise, against SD* {words.amount(other)}."
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
