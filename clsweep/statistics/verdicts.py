"""Who is named best: when tuned, each objective at its best setting, estimated without the luck of
the pick; and without tuning, by the mean over the swept space.

Every sentence that names one comes from here, so that no two commands name different ones.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import wraps
from typing import Any

import pandas as pd

from clsweep.catalog.rows import Row
from clsweep.display.numbers import Wording, count, interval, joined, known, num_of, number, p_value
from clsweep.statistics.compare import compare, means, spreads, tuned
from clsweep.statistics.computed import ReportContext, Statistics, of_each
from clsweep.statistics.contrast import contrasts, contrasts_summary, sentence
from clsweep.statistics.leaderboard import FRESH, cautions, scored_rows, standings, sweeps
from clsweep.statistics.pair_sentences import FEW_PAIRS, by_value, compared
from clsweep.statistics.recommend import fresh_sentences
from clsweep.statistics.report_objects import Sentences, resolved_only
from clsweep.statistics.robustness import bands, not_measured, robustness, spread_sentence
from clsweep.statistics.search_history import importance, importances
from clsweep.statistics.sensitivity import effects, sensitivity
from clsweep.sweeps.notes import cause, is_measured, is_resolved, records_of, seen_from, text_in

TUNED, UNTUNED = "when tuned", "without tuning"
_EQUAL = 1e-9  # of a score: what rounding makes of a tie
MANY_CONTRASTS = 4  # more have their numbers in the table alone


@dataclass(frozen=True, kw_only=True)
class Lead:
    """The standing of the first of several objectives."""

    pair: Row  # against the second, as the first sees it
    ranked: tuple[str, ...]  # all that are compared with it, best first, and it before them
    beaten: tuple[str, ...]  # those that it is shown to be better than
    tied: tuple[str, ...]  # it and those whose lead over it, and its over them, is 0
    num_pairs: int  # that had their chance

    @property
    def is_resolved(self) -> bool:
        """True if it is shown to be better than every other one."""
        return len(self.beaten) == len(self.ranked) - 1


def lead_of(board: pd.DataFrame, pairs: pd.DataFrame) -> Lead | None:
    """Who of the board is named, from `compare` of stat "mean" or "tuned"; None if nobody is."""
    ours = pairs[pairs["a"].isin(board["objective"]) & pairs["b"].isin(board["objective"])]
    rows = [row for row in records_of(ours) if is_measured(row["reason"])]
    measured = [row for row in rows if known(row["estimate"])]
    leads: dict[str, dict[str, Row]] = {}  # name -> whom it is compared with -> the pair
    for row in measured:
        for name, other in ((row["a"], row["b"]), (row["b"], row["a"])):
            leads.setdefault(name, {})[other] = seen_from(row, name)
    ahead = {n: sum(p["estimate"] for p in of.values()) / len(of) for n, of in leads.items()}
    rank = sorted(ahead, key=lambda name: -ahead[name])
    if len(rank) < 2 or rank[1] not in leads[rank[0]]:
        return None
    if leads[rank[0]][rank[1]]["estimate"] < 0:  # it leads the others by more, but not this one
        rank[:2] = rank[1::-1]
    own = leads[rank[0]]
    rest = [name for name in rank if name in own]
    beaten = [n for n in rest if is_resolved(own[n], 0.0) and own[n]["winner"] == rank[0]]
    second = next((name for name in rest if name not in beaten), rest[0])
    return Lead(
        pair=own[second],
        ranked=(rank[0], *rest),
        beaten=tuple(beaten),
        tied=(rank[0], *(name for name in rest if _is_tie(own[name]))),
        num_pairs=len(measured),
    )


def _is_tie(pair: Row) -> bool:
    """True if a pair is no further apart than rounding makes of a tie."""
    amount, low, high = (pair[key] for key in ("estimate", "low", "high"))
    return bool(abs(amount) <= _EQUAL * (abs(high - low) if known(low, high) else 1.0))


def best(board: pd.DataFrame, pairs: pd.DataFrame, words: Wording, sense: str) -> Sentences:
    """Who is best in one sense and by how much, tied or not resolved where it is so; nothing where
    nobody is compared. `pairs` are from `compare` of stat "tuned" or "mean"; where nothing is swept
    the sense, TUNED or UNTUNED, is not said.
    """
    if (lead := lead_of(board, pairs)) is None:
        return ()
    first, second = lead.pair["a"], lead.pair["b"]
    amount, low, high = (lead.pair[key] for key in ("estimate", "low", "high"))
    how = {TUNED: ", each at its best setting", UNTUNED: " on average over the settings tried"}
    is_tuned, is_swept = sense == TUNED, sweeps(board)
    where, sense = how[sense] * is_swept, f" {sense}" * is_swept
    fresh = lead.pair["fresh_seeds"] if is_tuned else 0
    where += f", on {num_of(fresh, 'fresh seed', 'fresh seeds')}" if fresh else ""
    own = scored_rows(board).set_index("objective")["fresh"].reindex([first, second])
    if is_tuned and not fresh and own.notna().any():
        where += ", on the study's seeds, as they share no two fresh ones"
    side = "higher" if words.mode == "max" else "lower"
    seen = interval(low, high, apart_from=0.0) if known(low, high) else ""
    if lead.is_resolved:
        ahead = f"it scores {words.amount(amount)} {side} than {second}"
        others = board.query("kind == 'objective' and score.isna()")["objective"].tolist()
        lack = f"{joined(others)} lack{'s' * (len(others) == 1)}"
        of = f" of those with a best setting, which {lack}" * (is_tuned and bool(others))
        return (f"{first} is best{sense}{of}: {ahead}{where}{seen}.",)
    if second in lead.tied:
        apart = seen * (len(lead.tied) == 2)  # of several, each pair has its own
        return (f"Best{sense} is not resolved: {joined(lead.tied)} score the same{where}{apart}.",)
    # An interval without 0 is not enough for the test, least where several pairs had their chance.
    one = f"p = {p_value(lead.pair['p_holm'])}"
    several = f"among {count(lead.num_pairs)} pairs" if lead.num_pairs > 1 else one
    among = f", {several}" if known(low) and low > 0 else ""
    why = "" if known(low, high) else f" ({cause(lead.pair)})"
    also = f" {first} is better than {joined(lead.beaten)}." if lead.beaten else ""
    ahead = f"{first} leads {second} by {words.amount(amount)}{where}{seen}{among}{why}"
    return (f"Best{sense} is not resolved: {ahead}.{also}",)


def verdict_of(
    board: pd.DataFrame,
    tuned: pd.DataFrame,
    means: pd.DataFrame,
    spreads: pd.DataFrame,
    words: Wording,
) -> Sentences:
    """Who is best when tuned, who without tuning, and who depends least on its settings, of every
    pair; of one objective, or where none is compared, the settings.
    """

    def say(rows: pd.DataFrame) -> Sentences:
        when_tuned = best(rows, tuned, words, TUNED) or settings_of(rows, words)
        untuned = best(rows, means, words, UNTUNED) if sweeps(rows) else ()
        return (*when_tuned, *untuned)

    return (*each_yardstick(board, say), *(robust(spreads) if len(scored_rows(board)) else ()))


def each_yardstick(board: pd.DataFrame, say: Callable[[pd.DataFrame], Sentences]) -> Sentences:
    """Sentences on the rows that a yardstick has scored, for each yardstick."""
    parts = [rows for _, rows in board.groupby("yardstick", sort=False) if len(scored_rows(rows))]
    if len(parts) < 2:
        return say(board)
    groups = [(str(rows["yardstick"].iloc[0]), say(rows)) for rows in parts]
    return tuple(f"For {name or 'the others'}: {line}" for name, lines in groups for line in lines)


def settings_of(board: pd.DataFrame, words: Wording, lead: Lead | None = None) -> Sentences:
    """The best settings of the two that `lead` names, else of the first two."""
    ours = records_of(scored_rows(board))
    if lead:
        ours = [row for n in "ab" for row in ours if row["objective"] == lead.pair[n]]
    if not ours:
        return ("No setting is best yet: no configuration has finished on all seeds.",)
    out = []
    for row in ours[:2]:
        names, seeds = ("score", "low", "high"), num_of(row["num_seeds"], "seed", "seeds")
        if known(row["fresh"]):
            names, seeds = FRESH, "fresh seeds"
        at, seen = text_in(row["at"]), words.level(*(row[name] for name in names))
        start = f"The best setting of {row['objective']} is {at}" if at else row["objective"]
        out.append(f"{start}: {seen}, the mean of {seeds}.")
    return tuple(out)


# Under the table of a command


def _of_each(say: Callable[..., Sentences]) -> Callable[..., Sentences]:
    """A verdict on all trials, or on each cell of a study with factors."""

    @wraps(say)
    def verdict(
        statistics: Statistics, *given: str, within: float | None = None, **options: Any
    ) -> Sentences:
        return of_each(statistics, lambda context: say(context, *given, **options), within)

    return verdict


@_of_each
def robustness_verdict(context: ReportContext, *, by: str | None = None) -> Sentences:
    """Who is best without tuning, who depends least on its settings; of one of them its band."""
    frame = context.compute(robustness, by=by, within=context.within)
    without: Sentences = ()
    if by is not None:
        sentences = bands(frame, context.words)
    else:
        least = spread_sentence(frame, context.words) or robust(spreads(context))
        if context.swept and context.says_of_space:
            without = best(context.compute(standings), means(context), context.words, UNTUNED)
        sentences = (*without, *least)
    return sentences or not_measured(context.data.spaces)


@_of_each
def sensitivity_verdict(context: ReportContext, *names: str) -> Sentences:
    """The hyperparameters that matter, of each objective."""
    return effects(context.compute(sensitivity, *names), context.words)


@_of_each
def importance_verdict(context: ReportContext) -> Sentences:
    """The hyperparameters that matter to a search, of each objective."""
    return importances(context.compute(importance, within=context.within), context.words)


@_of_each
def compare_verdict(
    context: ReportContext, *pair: str, stat: str = "mean", by: str | None = None
) -> Sentences:
    """Which objective is ahead, by the statistic of the table; by value, of few pairs."""
    frame = context.compute(compare, *pair, stat=stat, by=by, within=context.within)
    if frame.empty:
        return ("One objective has trials: there is nothing to compare.",)
    if by is not None:
        each = by_value(frame, by, stat, context.words)
        return each if len(each) <= FEW_PAIRS else ()
    if len(frame) == 1:
        return compared(frame, stat, context.words)
    if stat in (senses := {"mean": UNTUNED, "tuned": TUNED}):
        return each_yardstick(
            context.compute(standings), lambda rows: best(rows, frame, context.words, senses[stat])
        )
    if stat == "std":
        return robust(frame)
    near = f"within {context.words.amount(context.within)} of its best"
    none = f"No objective is shown to have more of its settings {near} than another."
    is_any = any(map(is_measured, frame["reason"]))
    return resolved_only(compared(frame, "within", context.words)) or (none,) * is_any


@_of_each
def contrasts_verdict(
    of: ReportContext, *, more: Mapping[str, Mapping[str, Any]] | None = None
) -> Sentences:
    """The number of contrasts that are answered; of few, each."""
    rows = records_of(of.compute(contrasts, more=more))
    each = map(sentence, rows)
    return contrasts_summary(rows) if len(rows) > MANY_CONTRASTS else tuple(each)


@_of_each
def recommend_verdict(context: ReportContext) -> Sentences:
    """Who is best when tuned, the best settings, and what they keep on fresh seeds if known."""
    frame, on_fresh = tuned(context), fresh_sentences(context)

    def of(rows: pd.DataFrame) -> Sentences:
        settings = () if on_fresh else settings_of(rows, context.words, lead_of(rows, frame))
        return (*best(rows, frame, context.words, TUNED), *settings)

    beside = cautions(context.compute(standings), context.words, is_search=context.is_search)
    return (*each_yardstick(context.compute(standings), of), *on_fresh, *beside)


@_of_each
def pareto_verdict(context: ReportContext) -> Sentences:
    """Who is best when tuned, whatever it costs; of one objective its best setting."""
    frame, words = tuned(context), context.words
    return each_yardstick(
        context.compute(standings),
        lambda rows: best(rows, frame, words, TUNED) or settings_of(rows, words),
    )


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
    return (f"Some depend less on their settings: {joined(pairs)}{more}.",)
