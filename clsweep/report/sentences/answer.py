"""The first screen in words: what was asked, what the answer is, and what stands against it; of a
paper's numbers, how many agree and which differ.

A claim stands only where the tables resolve it, as in `pairs`.
"""

from __future__ import annotations

import math

import pandas as pd

from clsweep.analysis.reference import Verdict
from clsweep.catalog.rows import Row
from clsweep.display.cells import records_of
from clsweep.display.numbers import ROUNDING, count, settings, work
from clsweep.findings.material import Material
from clsweep.findings.notes import is_measured
from clsweep.findings.reproduction import closing, setting_of, settings_of
from clsweep.report.sentences.pairs import is_resolved
from clsweep.report.sentences.words import (
    Sentences,
    Wording,
    counted,
    interval,
    known,
    listed,
    number,
    text,
)

MANY_VALUES = 3  # of the protocol: more are given as a range
DESIGNS = {
    "grid": "a grid",
    "qmc": "a quasi-random design",
    "random": "a random design",
    "tpe": "a TPE search",
    "gp": "a Gaussian-process search",
}


def question(material: Material, board: pd.DataFrame, printed: pd.DataFrame) -> str:
    """`Which of 3 objectives is best? digits, conv4, 8 epochs, ..., 4 min of work.`

    printed: of `Findings.reproduce`; may be empty.
    """
    ours = board[board["kind"] == "objective"]
    if not printed.empty:
        items = list(dict.fromkeys(printed["item"]))
        asked = f"Do the numbers of {listed(items)} come out as printed?"
        return f"{asked} {_protocol(material, ours)}."
    swept = list(dict.fromkeys(name for sweep in material.sweeps for name in sweep.params))
    what = f"Which of {len(ours)} objectives is best"
    if len(ours) == 1:
        what = f"How good is {ours['objective'].iloc[0]}"
    if not swept:
        asked = f"{what}?"
    elif any(sweep.not_measured for sweep in material.sweeps):
        asked = f"{what}, and at which {_named(swept)}?"
    else:
        asked = f"{what}, and how much depends on {_named(swept)}?"
    return f"{asked} {_protocol(material, ours)}."


def verdict(board: pd.DataFrame, means: pd.DataFrame, spreads: pd.DataFrame, words: Wording
            ) -> Sentences:  # fmt: skip
    """Who scores best, and who depends least on its settings, in a sentence each.

    Args:
        board: `Findings.leaderboard`.
        means, spreads: every pair, from `compare`.
    """
    return (*best(board, means, words), *(() if scored(board).empty else robust(spreads)))


def scored(board: pd.DataFrame) -> pd.DataFrame:
    """The objectives of `Findings.leaderboard` that have a score."""
    return board[(board["kind"] == "objective") & board["score"].notna()]


def cautions(board: pd.DataFrame, words: Wording, *, is_search: bool) -> Sentences:
    """References that no objective beats, and that the best of many is too good."""
    ours = scored(board)
    if ours.empty:
        return ()
    sign = 1 if words.mode == "max" else -1
    highest = (sign * ours["score"]).max()
    out = [
        f"{str(row['objective']).capitalize()}, without any training, reaches "
        f"{words.level(row['score'])}: no trained setting is better."
        for row in records_of(board[board["kind"] == "reference"])
        if sign * row["score"] >= highest
    ]
    if is_search and ours["fresh"].isna().all():
        out.append(
            "The best of many tries is picked on its own noise, so its score is too good. Fresh "
            "seeds say what it keeps."
        )
    return tuple(out)


def best(board: pd.DataFrame, means: pd.DataFrame, words: Wording) -> Sentences:
    """Who scores best on average, and by how much; of one objective its best setting."""
    ours = records_of(scored(board))
    measured = [
        row for row in records_of(means) if is_measured(row["reason"]) and known(row["estimate"])
    ]
    rank = _ranked(measured)
    leads = _leads(measured, rank[0]) if rank else {}
    if len(ours) < 2 or not {*rank[1:2]} & {*leads}:
        return best_settings(board, words)
    winner = rank[0]
    if leads[rank[1]][0] < 0:  # it leads the others by more, but not this one
        winner, leads = rank[1], _leads(measured, rank[1])
    beaten = [
        other
        for row in measured
        if is_resolved(row, 0.0) and (other := _other(row, winner)) and row["winner"] == winner
    ]
    rest = [name for name in rank if name in leads]
    second = next((name for name in rest if name not in beaten), rest[0])
    lead, low, high = leads[second]
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


def _pair(row: Row) -> tuple[str, str]:
    return row["a"], row["b"]


def _other(row: Row, name: str) -> str:
    """Whom the row compares `name` with; empty if it does not."""
    a, b = _pair(row)
    return b if a == name else a if b == name else ""


def _leads(measured: list[Row], name: str) -> dict[str, tuple[float, float, float]]:
    """Whom it is compared with -> its lead and the interval of that."""
    return {
        other: (row["estimate"], row["low"], row["high"])
        if row["a"] == name
        else (-row["estimate"], -row["high"], -row["low"])
        for row in measured
        if (other := _other(row, name))
    }


def _ranked(measured: list[Row]) -> list[str]:
    """The names by their mean lead over all others, the best first."""
    leads: dict[str, list[float]] = {}
    for row in measured:
        leads.setdefault(row["a"], []).append(row["estimate"])
        leads.setdefault(row["b"], []).append(-row["estimate"])
    return sorted(leads, key=lambda name: -sum(leads[name]) / len(leads[name]))


def best_settings(board: pd.DataFrame, words: Wording) -> Sentences:
    """The best setting of the best objective, and what the best of the second reaches."""
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


def robust(spreads: pd.DataFrame) -> Sentences:
    """Who depends least on its settings, from `compare` of stat "std"."""
    measured = [row for row in records_of(spreads) if is_measured(row["reason"])]
    if not measured:
        return ()
    names = list(dict.fromkeys(name for row in measured for name in _pair(row)))
    resolved = [row for row in measured if is_resolved(row, 1.0)]
    for name in names:
        won = [row for row in resolved if row["winner"] == name]
        if len(won) == len(names) - 1:
            return (f"{name} depends least on its settings: {_against(won, name)}.",)
    if not resolved:
        return ("No objective is shown to depend less on its settings than another.",)
    pairs = [
        f"{row['winner']} less than {row['b'] if row['winner'] == row['a'] else row['a']}"
        for row in resolved[:2]
    ]
    more = f", and {len(resolved) - 2} more such pairs" if len(resolved) > 2 else ""
    return (f"Some depend less on their settings: {listed(pairs)}{more}.",)


def _against(won: list[Row], name: str) -> str:
    """`SD* 0.8, against 2.1 of dcl`, of the next best one."""
    own, others = math.nan, []
    for row in won:
        first = row["a"] == name
        own = row["value_a" if first else "value_b"]
        others.append((row["value_b" if first else "value_a"], row["b" if first else "a"]))
    other, whose = min(others)
    return f"SD* {number(own)}, against {number(other)} of {whose}"


def _named(names: list[str]) -> str:
    return listed(names) if len(names) <= MANY_VALUES else f"{len(names)} hyperparameters"


def _protocol(material: Material, ours: pd.DataFrame) -> str:
    """`digits, conv4, 8 epochs, 3 seeds, the whole grid of 15 settings, 60 trials, 2 min`."""
    trials = material.trials
    seeds = max((len(sweep.seeds) for sweep in material.sweeps), default=0)
    configs = sum(len(sweep.configs) for sweep in material.sweeps)
    planned = sum(sweep.num_planned for sweep in material.sweeps)
    samplers = list(dict.fromkeys(name for s in material.sweeps for name in s.samplers))
    design = " and ".join(DESIGNS.get(name, name) for name in samplers)
    parts = [
        _values(trials, "dataset"),
        _values(trials, "encoder"),
        f"{epochs} epochs" if (epochs := _values(trials, "epochs")) else "",
        counted(seeds, "seed", "seeds"),
        f"{design} of {_out_of(configs, planned)}",
        counted(len(trials), "trial", "trials"),
    ]
    hours = ours["hours"].sum(min_count=1)
    if known(hours):
        parts.append(f"{work(hours)} of work")
    return ", ".join(part for part in parts if part)


def _out_of(num: int, planned: int) -> str:
    """`20 configurations`, `20 configurations, 6 so far`."""
    whole = counted(max(num, planned), "configuration", "configurations")
    return whole if num >= planned else f"{whole}, {count(num)} so far"


def _values(trials: pd.DataFrame, name: str) -> str:
    if name not in trials:
        return ""
    values = trials[name].dropna().unique().tolist()
    if not values:
        return ""
    texts = settings(sorted(values, key=lambda v: (isinstance(v, str), v)))
    return listed(texts) if len(texts) <= MANY_VALUES else f"{texts[0]} to {texts[-1]}"


def summary(frame: pd.DataFrame) -> Sentences:
    """The count of the verdicts; nothing where no number is printed."""
    return () if frame.empty else (f"Against the paper: {closing(frame)}.",)


def differing(frame: pd.DataFrame) -> Sentences:
    """The numbers that differ, a sentence each, the largest difference first."""
    rows = frame[frame["verdict"] == Verdict.DIFFERS]
    rows = rows.loc[rows["difference"].abs().sort_values(ascending=False).index]
    return tuple(
        f"{row['item']}, {setting_of(row, settings_of(frame))}: {row['metric']} is "
        f"{number(row['measured'])}, printed {number(row['value'])}, a difference of "
        f"{number(row['difference'])}{interval(row['difference_low'], row['difference_high'])}."
        for row in records_of(rows)
    )
