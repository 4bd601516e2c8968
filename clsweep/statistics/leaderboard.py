"""Who stands where, at which setting, how sure, at what cost; what is reached without training.

Who is named best, in both senses: when tuned, each objective at its best setting, estimated without
the luck of the pick; and without tuning, by the mean over the swept space. Every sentence that
names one comes from here, so that no two commands name different ones.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pandas as pd

from clsweep.catalog.rows import Row
from clsweep.display.cells import records_of
from clsweep.display.numbers import Number, count, is_number, work
from clsweep.statistics.computed import ReportContext, Statistics
from clsweep.statistics.health import health
from clsweep.statistics.pair_sentences import is_resolved, robust, seen_from
from clsweep.statistics.recommend import recommend
from clsweep.statistics.report_objects import Sentences, Wording
from clsweep.statistics.robustness import robustness
from clsweep.statistics.statistic import Column, Statistic, half, level, measured, share
from clsweep.statistics.wording import counted, interval, known, listed, p_value, text
from clsweep.sweeps.notes import apart, cause, is_measured

TUNED, UNTUNED = "when tuned", "without tuning"
EQUAL = 1e-9  # of a score: what rounding makes of a tie
_FRESH = ("fresh", "fresh_low", "fresh_high")
_SCORES = ["score", "low", "high", "num_seeds", *_FRESH, "when_tuned"]
FORMULAS = {
    "objective": "name; of a reference what it is",
    "kind": '"objective", or "reference": what is reached without training',
    "yardstick": "what its scores depend on beside the encoder, where that differs: only those of "
    "one are ranked",
    "at": "swept hyperparameters of its best configuration, that of `recommend`",
    "score": "mean of that configuration over the seeds; picked on its own noise, so optimistic. "
    "Of a reference the mean over its seeds",
    "low": "t-interval of score; none of a reference",
    "high": "",
    "num_seeds": "seeds that score rests on",
    "fresh": "mean of the same configuration on fresh seeds, where clsweep confirm has run it",
    "fresh_low": "its interval",
    "fresh_high": "",
    "when_tuned": "level of the best without the luck of the pick, that of `compare --tuned`; on "
    "the fresh seeds once there are any",
    "sd_star": "spread over the swept space with the noise taken out",
    "sd_star_low": "its interval",
    "sd_star_high": "",
    "share_within": "share of the swept space near the best level, as in robustness",
    "share_low": "its interval",
    "share_high": "",
    "trials": "trials that ended",
    "hours": "worker hours of all its trials",
}


def leaderboard(of: Statistics, *, within: float | None = None) -> pd.DataFrame:
    """One row per objective and reference with `FORMULAS`, the best first, on fresh seeds if all
    ran.
    """
    frame = of.compute(standings)
    tables = (of.compute(robustness, within=of.near(within)), of.compute(health))
    spread, cost = (table.set_index("objective") for table in tables)
    names = [name for name in FORMULAS if name not in frame]
    more = spread.join(cost[["trials", "hours"]]).reindex(columns=names).astype(float)
    is_ours = frame["kind"] == "objective"
    return frame.join(more.reindex(frame["objective"].where(is_ours)).set_axis(frame.index))


def standings(of: Statistics) -> pd.DataFrame:
    """The leaderboard without what its space and its trials say, which takes longer."""
    data = of.data
    best = of.compute(recommend).query("kind == 'best'").set_index("objective")
    swept = {sweep.objective for sweep in data.sweeps if sweep.params}
    fresh = of.side_table("confirmation").reindex(columns=["objective", "config", *_FRESH])
    again = {(row["objective"], row["config"]): row for row in fresh.to_dict("records")}
    rows: list[dict[str, Any]] = []
    for name in best.index:
        row = {**best.loc[name], **again.get((name, best.loc[name, "config"]), {})}
        row |= {"objective": name, "kind": "objective"}
        row["yardstick"] = data.yardsticks.get(name, "")
        rows.append(row if name in swept else row | {"at": ""})
    references = of.side_table("references")
    yardsticks = references.groupby("yardstick", sort=False) if "yardstick" in references else ()
    for told, table in yardsticks or (("", references),):
        for name, seeds in apart(table, data.metric).items():
            row = {"objective": name, "kind": "reference", "yardstick": told}
            score = float(seeds[data.metric].mean())
            rows.append(row | {"score": score, "num_seeds": len(seeds)})
    names = ["objective", "kind", "yardstick", "at"]
    frame = pd.DataFrame(rows).reindex(columns=[*names, *_SCORES])
    frame[_SCORES] = frame[_SCORES].astype(float)
    ours = scored(frame)
    by = "fresh" if len(ours) and ours["fresh"].notna().all() else "score"
    frame["level"] = frame[by].fillna(frame["score"])
    frame = frame.sort_values("level", ascending=data.mode == "min", kind="stable")
    order = list(dict.fromkeys(frame["yardstick"]))
    frame = frame.sort_values(
        "yardstick", key=lambda told: told.map(order.index), kind="stable", ignore_index=True
    )
    return frame.drop(columns="level")


def leaderboard_rows(context: ReportContext) -> pd.DataFrame:
    """The leaderboard, as far as the sentences on who is best need it."""
    return context.compute(standings)


def cautions(board: pd.DataFrame, words: Wording, *, is_search: bool) -> Sentences:
    """References that objectives do not beat, and that the best of many is too good."""
    ours = scored(board)
    if ours.empty:
        return ()
    out = []
    for row in records_of(board[board["kind"] == "reference"]):
        alike = ours[ours["yardstick"] == row["yardstick"]]
        behind = (1 if words.mode == "max" else -1) * (alike["score"] - row["score"]) <= 0
        beaten = f"no setting of {listed(alike.loc[behind, 'objective'].tolist())}"
        if len(alike) and behind.all():
            beaten = "no trained setting"
        # which ones stay below an untrained encoder is not asked: an objective may be one
        elif not behind.any() or row["objective"] != "raw pixels":
            continue
        name = str(row["objective"]).capitalize().replace("Untrained", "An untrained")
        yardstick = f" ({row['yardstick']})" * bool(row["yardstick"])
        out.append(
            f"{name}, without any training, reach{'' if name.endswith('s') else 'es'} "
            f"{words.level(row['score'])}: {beaten} is better{yardstick}."
        )
    if is_search and ours["fresh"].isna().all():
        out.append(
            "The best of many tries is picked on its own noise, so its score is too good. Fresh "
            "seeds say what it keeps."
        )
    return tuple(out)


def _best(row: Row) -> Number | None:
    return (measured("score", "") if is_number(row["low"]) else level("score"))(row)


# Who is named best


@dataclass(frozen=True, kw_only=True)
class Lead:
    """How the first of several objectives stands."""

    pair: Row  # against the second, as the first sees it
    ranked: tuple[str, ...]  # all that are compared with it, best first, and it before them
    beaten: tuple[str, ...]  # those that it is shown to be better than
    num_pairs: int  # that had their chance

    @property
    def is_resolved(self) -> bool:
        """Whether it is shown to be better than every other one."""
        return len(self.beaten) == len(self.ranked) - 1


def lead_of(board: pd.DataFrame, pairs: pd.DataFrame) -> Lead | None:
    """Who of the board is named, from `compare` of stat "mean" or "tuned"; None if nobody is."""
    ours = pairs[pairs["a"].isin(board["objective"]) & pairs["b"].isin(board["objective"])]
    measured = [
        row for row in records_of(ours) if is_measured(row["reason"]) and known(row["estimate"])
    ]
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
        pair=own[second], ranked=(rank[0], *rest), beaten=tuple(beaten), num_pairs=len(measured)
    )


def best(board: pd.DataFrame, pairs: pd.DataFrame, words: Wording, sense: str) -> Sentences:
    """Who is best in one sense and by how much, tied or not resolved where it is so; nothing where
    nobody is compared. `pairs` are from `compare` of stat "tuned" or "mean"; where nothing is swept
    the sense, TUNED or UNTUNED, is not said.
    """
    if (lead := lead_of(board, pairs)) is None:
        return ()
    first, second = lead.pair["a"], lead.pair["b"]
    amount, low, high = (lead.pair[key] for key in ("estimate", "low", "high"))
    how = {TUNED: ", each at its best setting", UNTUNED: " on average over the swept settings"}
    is_tuned, is_swept = sense == TUNED, sweeps(board)
    where, sense = how[sense] * is_swept, f" {sense}" * is_swept
    fresh = lead.pair["fresh_seeds"] if is_tuned else 0
    where += f", on {counted(fresh, 'fresh seed', 'fresh seeds')}" if fresh else ""
    own = scored(board).set_index("objective")["fresh"].reindex([first, second])
    if is_tuned and not fresh and own.notna().any():
        where += ", on the study's seeds, as they share no two fresh ones"
    side = "higher" if words.mode == "max" else "lower"
    seen = interval(low, high, apart_from=0.0) if known(low, high) else ""
    if lead.is_resolved:
        ahead = f"it scores {words.amount(amount)} {side} than {second}"
        others = board.query("kind == 'objective' and score.isna()")["objective"].tolist()
        lack = (
            f" of those with a best setting, which {listed(others)} lack{'s' * (len(others) == 1)}"
        )
        of = lack * (is_tuned and bool(others))
        return (f"{first} is best{sense}{of}: {ahead}{where}{seen}.",)
    equal = _equal(board, lead) if is_tuned and not fresh else []
    if abs(amount) <= EQUAL * (abs(high - low) if known(low, high) else 1.0):
        tied = max([first, second], equal, key=len)
        return (f"Best{sense} is not resolved: {listed(tied)} score the same{where}{seen}.",)
    # An interval without 0 is not enough for the test, least where several pairs had their chance.
    one = f"p = {p_value(lead.pair['p_holm'])}"
    several = f"among {count(lead.num_pairs)} pairs" if lead.num_pairs > 1 else one
    among = f", {several}" if known(low) and low > 0 else ""
    why = "" if known(low, high) else f" ({cause(lead.pair)})"
    also = f" {first} is better than {listed(lead.beaten)}." if lead.beaten else ""
    also += f" The best settings of {listed(equal)} have the same mean." if equal else ""
    ahead = f"{first} leads {second} by {words.amount(amount)}{where}{seen}{among}{why}"
    return (f"Best{sense} is not resolved: {ahead}.{also}",)


def _equal(board: pd.DataFrame, lead: Lead) -> list[str]:
    """Those whose best mean on the board is that of the first; none where nobody shares it."""
    scores = scored(board).set_index("objective")["score"].reindex(list(lead.ranked)).dropna()
    top = scores.get(lead.ranked[0], math.nan)
    equal = [str(name) for name, x in scores.items() if math.isclose(x, top, rel_tol=EQUAL)]
    return equal if len(equal) > 1 else []


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
        when_tuned = best(rows, tuned, words, TUNED) or settings(rows, words)
        untuned = best(rows, means, words, UNTUNED) if sweeps(rows) else ()
        return (*when_tuned, *untuned)

    return (*each_yardstick(board, say), *(robust(spreads) if len(scored(board)) else ()))


def each_yardstick(board: pd.DataFrame, say: Callable[[pd.DataFrame], Sentences]) -> Sentences:
    """What is said of those rows that a yardstick has scored, for each yardstick."""
    parts = [rows for _, rows in board.groupby("yardstick", sort=False) if len(scored(rows))]
    if len(parts) < 2:
        return say(board)
    told = [(str(rows["yardstick"].iloc[0]), say(rows)) for rows in parts]
    return tuple(f"For {name or 'the others'}: {each}" for name, said in told for each in said)


def sweeps(board: pd.DataFrame) -> bool:
    """Whether any of its objectives has a setting that was chosen, or none has one yet."""
    ours = scored(board)
    return ours.empty or any(text(at) for at in ours["at"])


def scored(board: pd.DataFrame) -> pd.DataFrame:
    """The objectives of `Results.leaderboard` that have a score."""
    return board[(board["kind"] == "objective") & board["score"].notna()]


def settings(board: pd.DataFrame, words: Wording, lead: Lead | None = None) -> Sentences:
    """The best settings of the two that `lead` names, else of the first two."""
    ours = records_of(scored(board))
    if lead:
        ours = [row for n in "ab" for row in ours if row["objective"] == lead.pair[n]]
    if not ours:
        return ("No setting is best yet: no configuration has finished on all seeds.",)
    out = []
    for row in ours[:2]:
        names, seeds = ("score", "low", "high"), counted(row["num_seeds"], "seed", "seeds")
        if known(row["fresh"]):
            names, seeds = _FRESH, "fresh seeds"
        at, seen = text(row["at"]), words.level(*(row[name] for name in names))
        start = f"The best setting of {row['objective']} is {at}" if at else row["objective"]
        out.append(f"{start}: {seen}, the mean of {seeds}.")
    return tuple(out)


LEADERBOARD = Statistic(
    name="leaderboard",
    title="Leaderboard",
    caption="Each at its best setting, with 95 % intervals{images}. A best that was picked by its "
    "score is a little too good; when tuned: without the luck of its seeds. Near the best: within "
    "{points} of the best level (see robustness). In italics: without training.",
    table=leaderboard,
    options=lambda context: {"within": context.within},
    columns=(
        Column("scored by", "yardstick"),
        Column("objective"),
        Column("best setting", lambda row: text(row["at"])),
        Column("best {metric}", _best),
        Column("when tuned", level("when_tuned", half("score", ""))),
        Column("fresh seeds", measured("fresh")),
        Column("SD*", measured("sd_star")),
        Column("near the best", share("share_within", "share", most=2)),
        Column("cost", lambda row: work(row["hours"]) if is_number(row["hours"]) else ""),
    ),
    levels="score",
    formulas={"leaderboard": FORMULAS},
)
