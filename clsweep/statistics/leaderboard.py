"""Who stands where, at which setting, how sure, at what cost; what is reached without training."""

from __future__ import annotations

from typing import Any

import pandas as pd

from clsweep.catalog.rows import Row
from clsweep.display.numbers import Number, Wording, is_number, joined, work
from clsweep.statistics.computed import Statistics
from clsweep.statistics.health import health
from clsweep.statistics.recommend import recommend
from clsweep.statistics.report_objects import Sentences
from clsweep.statistics.robustness import robustness
from clsweep.statistics.statistic import Column, Statistic, between, fraction, half, level_cell
from clsweep.sweeps.notes import records_of, references_apart, text_in

FRESH = ("fresh", "fresh_low", "fresh_high")
_SCORES = ["score", "low", "high", "num_seeds", *FRESH, "when_tuned"]
_FORMULAS = {
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
    names = [name for name in _FORMULAS if name not in frame]
    more = spread.join(cost[["trials", "hours"]]).reindex(columns=names).astype(float)
    is_ours = frame["kind"] == "objective"
    return frame.join(more.reindex(frame["objective"].where(is_ours)).set_axis(frame.index))


def standings(of: Statistics) -> pd.DataFrame:
    """The leaderboard without what its space and its trials say, which takes longer."""
    data = of.data
    best = of.compute(recommend).query("kind == 'best'").set_index("objective")
    swept = {sweep.objective for sweep in data.sweeps if sweep.params}
    fresh = of.side_table("confirmation").reindex(columns=["objective", "config", *FRESH])
    again = {(row["objective"], row["config"]): row for row in fresh.to_dict("records")}
    rows: list[dict[str, Any]] = []
    for name in best.index:
        row = {**best.loc[name], **again.get((name, best.loc[name, "config"]), {})}
        row |= {"objective": name, "kind": "objective"}
        row["yardstick"] = data.yardsticks.get(name, "")
        rows.append(row if name in swept else row | {"at": ""})
    references = of.side_table("references")
    yardsticks = references.groupby("yardstick", sort=False) if "yardstick" in references else ()
    for yardstick, table in yardsticks or (("", references),):
        for name, seeds in references_apart(table, data.metric).items():
            row = {"objective": name, "kind": "reference", "yardstick": yardstick}
            score = float(seeds[data.metric].mean())
            rows.append(row | {"score": score, "num_seeds": len(seeds)})
    names = ["objective", "kind", "yardstick", "at"]
    frame = pd.DataFrame(rows).reindex(columns=[*names, *_SCORES])
    frame[_SCORES] = frame[_SCORES].astype(float)
    ours = scored_rows(frame)
    by = "fresh" if len(ours) and ours["fresh"].notna().all() else "score"
    frame["level"] = frame[by].fillna(frame["score"])
    frame = frame.sort_values("level", ascending=data.mode == "min", kind="stable")
    order = list(dict.fromkeys(frame["yardstick"]))
    frame = frame.sort_values(
        "yardstick",
        key=lambda yardstick: yardstick.map(order.index),
        kind="stable",
        ignore_index=True,
    )
    return frame.drop(columns="level")


def cautions(board: pd.DataFrame, words: Wording, *, is_search: bool) -> Sentences:
    """References that objectives do not beat, and that the best of many is too good."""
    ours = scored_rows(board)
    if ours.empty:
        return ()
    out = []
    for row in records_of(board[board["kind"] == "reference"]):
        alike = ours[ours["yardstick"] == row["yardstick"]]
        behind = (1 if words.mode == "max" else -1) * (alike["score"] - row["score"]) <= 0
        beaten = f"no setting of {joined(alike.loc[behind, 'objective'].tolist())}"
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
    return (between("score", "") if is_number(row["low"]) else level_cell("score"))(row)


def sweeps(board: pd.DataFrame) -> bool:
    """True if any of its objectives has a setting that was chosen, or none has one yet."""
    ours = scored_rows(board)
    return ours.empty or any(text_in(at) for at in ours["at"])


def scored_rows(board: pd.DataFrame) -> pd.DataFrame:
    """The objectives of `Results.leaderboard` that have a score."""
    return board[(board["kind"] == "objective") & board["score"].notna()]


LEADERBOARD = Statistic(
    name="leaderboard",
    title="Leaderboard",
    caption="Each at its best setting, with 95 % intervals{images}. A best that was picked by its "
    "score is a little too good: when tuned is without the luck of its seeds. Near the best: "
    "within {points} of the best level (see robustness). In italics: without training.",
    table=leaderboard,
    options=lambda context: {"within": context.within},
    columns=(
        Column("scored by", "yardstick"),
        Column("objective"),
        Column("best setting", lambda row: text_in(row["at"])),
        Column("best {metric}", _best),
        Column("when tuned", level_cell("when_tuned", half("score", ""))),
        Column("fresh seeds", between("fresh")),
        Column("SD*", between("sd_star")),
        Column("near the best", fraction("share_within", "share", most=2)),
        Column("cost", lambda row: work(row["hours"]) if is_number(row["hours"]) else ""),
    ),
    levels="score",
    formulas={"leaderboard": _FORMULAS},
)
