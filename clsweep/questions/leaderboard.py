"""Who stands where, at which setting, how sure, at what cost; what is reached without training."""

from __future__ import annotations

from typing import Any

import pandas as pd

from clsweep.catalog.rows import Row
from clsweep.display.cells import records_of
from clsweep.display.numbers import Number, is_number, work
from clsweep.questions.answers import Answers, Asked
from clsweep.questions.column import Column, Question, half, level, measured, share
from clsweep.questions.health import health
from clsweep.questions.model import Sentences, Wording
from clsweep.questions.named import scored
from clsweep.questions.recommend import recommend
from clsweep.questions.robustness import robustness
from clsweep.questions.words import listed, text

_NAMES = ("objective", "kind", "yardstick", "at")
_FRESH = ("fresh", "fresh_low", "fresh_high")
_SCORES = ("score", "low", "high", "num_seeds", *_FRESH, "when_tuned")
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


def standing(of: Answers) -> pd.DataFrame:
    """The columns of `FORMULAS` up to `when_tuned`, without the robustness that the others take:
    one row per objective and reference, the best score first: on fresh seeds where all have them.
    """
    material = of.material
    best = of.ask(recommend).query("kind == 'best'").set_index("objective")
    swept = {sweep.objective for sweep in material.sweeps if sweep.params}
    fresh = of.side_table("confirmation").reindex(columns=["objective", "config", *_FRESH])
    again = {(row["objective"], row["config"]): row for row in fresh.to_dict("records")}
    rows: list[dict[str, Any]] = []
    for name in best.index:
        row = {**best.loc[name], **again.get((name, best.loc[name, "config"]), {})}
        row |= {"objective": name, "kind": "objective"}
        row["yardstick"] = material.yardsticks.get(name, "")
        rows.append(row if name in swept else row | {"at": ""})
    references = of.side_table("references")
    yardsticks = references.groupby("yardstick", sort=False) if "yardstick" in references else ()
    for told, table in yardsticks or (("", references),):
        rows += [row | {"yardstick": told} for row in _references(table, material.metric)]
    frame = pd.DataFrame(rows).reindex(columns=[*_NAMES, *_SCORES])
    frame[[*_SCORES]] = frame[[*_SCORES]].astype(float)
    ours = scored(frame)
    by = "fresh" if len(ours) and ours["fresh"].notna().all() else "score"
    frame["level"] = frame[by].fillna(frame["score"])
    frame = frame.sort_values("level", ascending=material.mode == "min", kind="stable")
    order = list(dict.fromkeys(frame["yardstick"]))
    frame = frame.sort_values(
        "yardstick", key=lambda told: told.map(order.index), kind="stable", ignore_index=True
    )
    return frame.drop(columns="level")


def leaderboard(of: Answers, *, within: float | None = None) -> pd.DataFrame:
    """The columns of `FORMULAS`, in the rows of `standing`."""
    spread = of.ask(robustness, within=of.near(within)).set_index("objective")
    more = spread.join(of.ask(health).set_index("objective")[["trials", "hours"]])
    further = [name for name in FORMULAS if name not in (*_NAMES, *_SCORES)]
    return of.ask(standing).join(more[further].astype(float), on="objective")


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


def cautions(board: pd.DataFrame, words: Wording, *, is_search: bool) -> Sentences:
    """References that objectives do not beat, and that the best of many is too good."""
    ours = scored(board)
    if ours.empty:
        return ()
    out = []
    for row in records_of(board[board["kind"] == "reference"]):
        if beaten := _not_better(ours[ours["yardstick"] == row["yardstick"]], row, words):
            name = str(row["objective"]).capitalize()
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


def _not_better(ours: pd.DataFrame, reference: Row, words: Wording) -> str:
    """Whose settings do not beat a reference; empty where all do. Which ones stay below an
    untrained encoder is not asked: an objective may be one.
    """
    ahead = (1 if words.mode == "max" else -1) * (ours["score"] - reference["score"])
    if not ours.empty and (ahead <= 0).all():
        return "no trained setting"
    behind = ours.loc[ahead <= 0, "objective"].tolist()
    return (
        f"no setting of {listed(behind)}"
        if behind and reference["objective"] == "raw pixels"
        else ""
    )


def _best(row: Row) -> Number | None:
    return (measured("score", "") if is_number(row["low"]) else level("score"))(row)


QUESTION = Question(
    name="leaderboard",
    title="Leaderboard",
    caption="Each at its best setting, with 95 % intervals{images}. A best that was picked by its "
    "score is a little too good; when tuned: without the luck of its seeds. Near the best: within "
    "{points} of the best level (see robustness). In italics: without training.",
    table=leaderboard,
    options=lambda asked: {"within": asked.within},
    columns=(
        Column("scored by", "yardstick", optional=True),
        Column("objective"),
        Column("best setting", lambda row: text(row["at"]), optional=True),
        Column("best {metric}", _best),
        Column("when tuned", level("when_tuned", half("score", "")), optional=True),
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
