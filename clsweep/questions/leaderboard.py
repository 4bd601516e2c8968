"""Who stands where, at which setting, how sure, at what cost; what is reached without training."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd

from clsweep.catalog.rows import Row
from clsweep.display.cells import records_of
from clsweep.display.numbers import ROUNDING, Number, count, is_number, work
from clsweep.findings.notes import is_measured
from clsweep.questions.answers import Answers, Asked
from clsweep.questions.column import Column, Question, half, level, measured, share
from clsweep.questions.health import health
from clsweep.questions.model import Sentences, Wording
from clsweep.questions.pairs import is_resolved, robust, seen_from
from clsweep.questions.recommend import recommend
from clsweep.questions.robustness import robustness
from clsweep.questions.words import counted, interval, known, listed, text

_FRESH = ("fresh", "fresh_low", "fresh_high")
FORMULAS = {
    "objective": "name; of a reference what it is",
    "kind": '"objective", or "reference": what is reached without training',
    "yardstick": "what its scores depend on beside the encoder, where that differs: only those of "
    "one are ranked",
    "at": "swept hyperparameters of its best configuration",
    "score": "mean of that configuration over the seeds; picked on its own noise, so optimistic. "
    "Of a reference the mean over its seeds",
    "low": "t-interval of score; none of a reference",
    "high": "",
    "num_seeds": "seeds that score rests on",
    "fresh": "mean of the same configuration on fresh seeds, where clsweep confirm has run it",
    "fresh_low": "its interval",
    "fresh_high": "",
    "best_level": "the same without the luck of the pick, as in robustness: share_within counts "
    "against it",
    "sd_star": "spread over the swept space with seed noise taken out",
    "sd_star_low": "its interval",
    "sd_star_high": "",
    "share_within": "share of the swept space near the best",
    "share_low": "its interval",
    "share_high": "",
    "trials": "trials that ended",
    "hours": "worker hours of all its trials",
}


def leaderboard(of: Answers, *, within: float | None = None) -> pd.DataFrame:
    """One row per objective and reference with the columns of `FORMULAS`, the best score first."""
    material = of.material
    best = of.ask(recommend).query("kind == 'best'").set_index("objective")
    spread = of.ask(robustness, within=of.near(within)).set_index("objective")
    cost = of.ask(health).set_index("objective")
    swept = {sweep.objective for sweep in material.sweeps if sweep.params}
    fresh = of.side_table("confirmation").reindex(columns=["objective", "config", *_FRESH])
    again = {(row["objective"], row["config"]): row for row in fresh.to_dict("records")}
    rows: list[dict[str, Any]] = []
    for name in best.index:
        row = {**best.loc[name], **spread.loc[name], **cost.loc[name]}
        row |= again.get((name, best.loc[name, "config"]), {})
        row |= {"objective": name, "kind": "objective", "num_seeds": best.loc[name, "num_seeds"]}
        row["yardstick"] = material.yardsticks.get(name, "")
        rows.append(row if name in swept else row | {"at": ""})
    references = of.side_table("references")
    yardsticks = references.groupby("yardstick", sort=False) if "yardstick" in references else ()
    for told, table in yardsticks or (("", references),):
        rows += [row | {"yardstick": told} for row in _references(table, material.metric)]
    frame = pd.DataFrame(rows).reindex(columns=list(FORMULAS))
    numbers = [name for name in FORMULAS if name not in ("objective", "kind", "yardstick", "at")]
    frame[numbers] = frame[numbers].astype(float)
    frame = frame.sort_values("score", ascending=material.mode == "min", kind="stable")
    order = list(dict.fromkeys(frame["yardstick"]))
    return frame.sort_values(
        "yardstick", key=lambda told: told.map(order.index), kind="stable", ignore_index=True
    )


def _references(table: pd.DataFrame, metric: str) -> list[dict[str, Any]]:
    """A row of each way to have features without training, and of each encoder."""
    if table.empty or metric not in table:
        return []
    known = table[table[metric].notna()]
    several = known.loc[known["reference"] != "raw_pixels", "encoder"].nunique() > 1
    by = ["reference", "encoder"] if several else ["reference"]
    rows = []
    for _, group in known.groupby(by, sort=False, dropna=False):
        first, seeds = group.iloc[0], group.head(1)
        name = str(first["reference"]).replace("_", " ")
        if first["reference"] != "raw_pixels":
            name += f" {first['encoder'] if several else 'encoder'}"
            seeds = group.drop_duplicates("seed")
        found = {"score": float(seeds[metric].mean()), "num_seeds": len(seeds)}
        rows.append({"objective": name, "kind": "reference", **found})
    return rows


def board(asked: Asked) -> pd.DataFrame:
    """The leaderboard."""
    return asked.ask(leaderboard, within=asked.within)


def verdict_of(
    board: pd.DataFrame, means: pd.DataFrame, spreads: pd.DataFrame, words: Wording
) -> Sentences:
    """Who scores best, and who depends least on its settings, in a sentence each.

    Args:
        board: the leaderboard.
        means, spreads: every pair, from `compare`.
    """
    return (*best(board, means, words), *(robust(spreads) if len(scored(board)) else ()))


def scored(board: pd.DataFrame) -> pd.DataFrame:
    """The objectives of `Findings.leaderboard` that have a score."""
    return board[(board["kind"] == "objective") & board["score"].notna()]


def cautions(board: pd.DataFrame, words: Wording, *, is_search: bool) -> Sentences:
    """References that no objective beats, and that the best of many is too good."""
    ours = scored(board)
    if ours.empty:
        return ()
    sign = 1 if words.mode == "max" else -1
    highest = (sign * ours["score"]).groupby(ours["yardstick"]).max()
    out = [
        f"{str(row['objective']).capitalize()}, without any training, reaches "
        f"{words.level(row['score'])}: no trained setting is better{_by(row['yardstick'])}."
        for row in records_of(board[board["kind"] == "reference"])
        if sign * row["score"] >= highest.get(row["yardstick"], np.inf)
    ]
    if is_search and ours["fresh"].isna().all():
        out.append(
            "The best of many tries is picked on its own noise, so its score is too good. Fresh "
            "seeds say what it keeps."
        )
    return tuple(out)


def best_settings(board: pd.DataFrame, words: Wording) -> Sentences:
    """The best setting of the best objective, and what the best of the second reaches; for each
    yardstick.
    """
    return _each(board, lambda rows: _best_settings(rows, words))


def _best_settings(board: pd.DataFrame, words: Wording) -> Sentences:
    ours = records_of(scored(board))
    if not ours:
        return ("No trial has finished with a score.",)
    first = ours[0]
    at = f" at {text(first['at'])}" if text(first["at"]) else ""
    seen = f"{words.level(first['score'])}{interval(first['low'], first['high'])}"
    if len(ours) == 1:
        of = f"the mean of {counted(first['num_seeds'], 'seed', 'seeds')}"
        return (f"{first['objective']} scores best{at}: {seen}, {of}.",)
    second = ours[1]
    return (
        f"The best setting is of {first['objective']}{at}: {seen}.",
        f"The best of {second['objective']} reaches {words.level(second['score'])}"
        f"{interval(second['low'], second['high'])}.",
    )


def _by(yardstick: str) -> str:
    return f" ({yardstick})" if yardstick else ""


def best(board: pd.DataFrame, means: pd.DataFrame, words: Wording) -> Sentences:
    """Who scores best on average, and by how much; of one objective its best setting. A sentence
    for each yardstick.
    """

    def say(rows: pd.DataFrame) -> Sentences:
        names = set(rows["objective"])
        return _best_of(rows, means[means["a"].isin(names) & means["b"].isin(names)], words)

    return _each(board, say)


def _each(board: pd.DataFrame, say: Callable[[pd.DataFrame], Sentences]) -> Sentences:
    """What is said of those that a yardstick has scored, for each yardstick."""
    parts = [rows for _, rows in board.groupby("yardstick", sort=False) if len(scored(rows))]
    if len(parts) < 2:
        return say(board)
    told = [(str(rows["yardstick"].iloc[0]), say(rows)) for rows in parts]
    return tuple(f"For {name or 'the others'}: {each}" for name, said in told for each in said)


def _best_of(board: pd.DataFrame, means: pd.DataFrame, words: Wording) -> Sentences:
    ours = records_of(scored(board))
    measured = [
        row for row in records_of(means) if is_measured(row["reason"]) and known(row["estimate"])
    ]
    leads: dict[str, dict[str, Row]] = {}  # name -> whom it is compared with -> the pair
    for row in measured:
        for name, other in ((row["a"], row["b"]), (row["b"], row["a"])):
            leads.setdefault(name, {})[other] = seen_from(row, name)
    ahead = {
        name: sum(pair["estimate"] for pair in pairs.values()) / len(pairs)
        for name, pairs in leads.items()
    }
    rank = sorted(ahead, key=lambda name: -ahead[name])
    if len(ours) < 2 or len(rank) < 2 or rank[1] not in leads[rank[0]]:
        return _best_settings(board, words)
    winner = rank[0]
    if leads[winner][rank[1]]["estimate"] < 0:  # it leads the others by more, but not this one
        winner = rank[1]
    beaten = [
        name
        for name, pair in leads[winner].items()
        if is_resolved(pair, 0.0) and pair["winner"] == winner
    ]
    rest = [name for name in rank if name in leads[winner]]
    second = next((name for name in rest if name not in beaten), rest[0])
    lead, low, high = (leads[winner][second][key] for key in ("estimate", "low", "high"))
    if math.isclose(lead, 0, abs_tol=ROUNDING * (high - low)):
        return (f"No winner is shown: {winner} and {second} score the same on average.",)
    side = "higher" if words.mode == "max" else "lower"
    where = " on average over the swept settings" if any(text(one["at"]) for one in ours) else ""
    seen = interval(low, high, apart_from=0.0)
    if len(beaten) == len(rank) - 1:
        return (
            f"{winner} is best: it scores {words.amount(lead)} {side} than {second}{where}{seen}.",
        )
    # An interval without 0 is not enough where several pairs had their chance.
    among = f" among {count(len(measured))} pairs" if low > 0 else ""
    also = f" It is better than {listed(beaten)}." if beaten else ""
    return (
        f"No winner is shown: {winner} leads {second} by {words.amount(lead)}{where}{seen}, "
        f"which may be chance{among}.{also}",
    )


def _best(row: Row) -> Number | None:
    return (measured("score", "") if is_number(row["low"]) else level("score"))(row)


QUESTION = Question(
    name="leaderboard",
    title="Leaderboard",
    caption="Each at its best setting, with 95 % intervals. A best that was picked by its score is "
    "a little too good; when tuned: without that luck. Near the best: within {points} of that. "
    "In italics: without training.",
    table=leaderboard,
    options=lambda asked: {"within": asked.within},
    columns=(
        Column("scored by", "yardstick", optional=True),
        Column("objective"),
        Column("best setting", lambda row: text(row["at"]), optional=True),
        Column("best {metric}", _best),
        Column("when tuned", level("best_level", half("score", "")), optional=True),
        Column("fresh seeds", measured("fresh"), optional=True),
        Column("SD*", measured("sd_star"), optional=True),
        Column("near the best", share("share_within", "share", most=2), optional=True),
        Column(
            "cost",
            lambda row: work(row["hours"]) if is_number(row["hours"]) else "",
            optional=True,
        ),
    ),
    levels="score",
    formulas={"leaderboard": FORMULAS},
)
