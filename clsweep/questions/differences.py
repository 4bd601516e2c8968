"""Of a run at another scale than the paper's: its differences beside those of the printed table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import pandas as pd

from clsweep.analysis import contrasts as analysis
from clsweep.analysis.contrasts import Contrast
from clsweep.analysis.reasons import COLUMNS as REASONS
from clsweep.analysis.reference import Verdict
from clsweep.catalog.rows import Row
from clsweep.display.cells import records_of
from clsweep.findings.material import Material
from clsweep.questions.answers import Answers, Asked
from clsweep.questions.column import Column, Question, measured
from clsweep.questions.contrasts import sweeps_by
from clsweep.questions.model import Sentences
from clsweep.questions.reproduction import ABOUT, PLACES, plain_of, reproduce, settings_of
from clsweep.questions.words import counted, known, number

SAME, OTHER, OPEN = "same sign", "other sign", "not resolved"
COLUMNS = {
    "what": "what is subtracted from what: the objective that a printed difference starts from, or "
    "whose name the other's extends; where a table has none such the first at the same settings, "
    "else the objective's own first setting",
    "published": "the difference of the printed numbers",
    "estimate": "the same difference in the run",
    "low": "95 % interval of that, as of a contrast, of each alone",
    "high": "its upper end",
    "num_seeds": "seeds that it rests on",
    "verdict": f"{SAME}, {OTHER}: the interval excludes 0, and which way; its size is of another "
    "scale than the paper's",
    **REASONS,
}


def differences(of: Answers) -> pd.DataFrame:
    """One row per difference of two printed numbers that the run has at another scale: paper, item,
    dataset and encoder there, metric and `COLUMNS`.

    Of a study with factors both are of one cell.
    """
    frame = of.ask_whole(reproduce)
    rows, names = frame[frame["verdict"] == Verdict.OTHER_SCALE], settings_of(frame)
    found = []
    for _, group in rows.groupby([*ABOUT, *PLACES], sort=False, dropna=False):
        place = {name: group[name].iloc[0] for name in (*ABOUT, *PLACES)}
        asked, metric = list(_pairs(records_of(group), names)), place["metric"]
        for cell in of.cells or (of,):
            if asked and all(cell.levels.get(name, place[name]) == place[name] for name in PLACES):
                table = analysis.contrasts(asked, {metric: sweeps_by(cell.material, metric)})
                found += [place | {"verdict": _verdict(row)} | row for row in records_of(table)]
    kept = [*ABOUT, *PLACES, *COLUMNS]
    return pd.DataFrame(found, columns=kept).dropna(subset=["estimate"], ignore_index=True)


def _pairs(rows: Sequence[Row], names: Sequence[str]) -> Iterator[Contrast]:
    """Each number less another one, as `COLUMNS` says; of one place and metric."""
    of = [row["objective"] for row in rows]
    at = [{n: x for n in names if (x := plain_of(row[n])) is not None} for row in rows]
    every = range(len(rows))

    def is_beside(a: int, b: int) -> bool:
        """Whether these are objectives that no printed setting tells apart."""
        return bool(of[a] != of[b] and at[a] | at[b] == at[b] | at[a])

    def is_named(a: int, b: int) -> bool:
        told = rows[a]["delta_to"]
        return bool(of[b] == told or (not told and of[a].startswith(f"{of[b]}_")))

    ways = (
        [[b for b in every if is_beside(a, b) and is_named(a, b)] for a in every],
        [[b for b in range(a) if is_beside(a, b)] for a in every],
        [[b for b in range(a) if of[a] == of[b]] for a in every],
    )
    for a, bases in enumerate(next(filter(any, ways), ())):
        for b in bases[:1]:
            pair: dict[str, Any] = {"of": (of[a],), "at": at[a], "minus": at[b]}
            if of[a] != of[b]:
                pair = {"of": (of[a], of[b]), "at": at[a] | at[b]}
            published = round(rows[a]["value"] - rows[b]["value"], 6)
            yield Contrast(name="", metric=rows[a]["metric"], published=published, **pair)


def _verdict(row: Row) -> str:
    if not known(row["low"]) or row["low"] <= 0 <= row["high"] or not row["published"]:
        return OPEN
    return SAME if row["estimate"] * row["published"] > 0 else OTHER


def _shown(frame: pd.DataFrame, _of: Material) -> pd.DataFrame:
    """One row for each difference of the run: several of a paper's data sets may have it."""
    rows = []
    for _, group in frame.groupby(["item", "what", "metric", "estimate"], sort=False):
        ends = dict.fromkeys(map(number, group["published"].agg(["min", "max"])))
        told = {"printed": " to ".join(ends), "verdict": " or ".join(group["verdict"].unique())}
        rows.append(group.iloc[0].to_dict() | told)
    return pd.DataFrame(rows, columns=[*frame, "printed"])


def _say(asked: Asked) -> Sentences:
    rows = _shown(asked.answers.ask_whole(differences), asked.material)
    kinds = Counter(rows["verdict"])
    told = ", ".join(f"{num} {kind}" for kind, num in kinds.items())
    num = counted(len(rows), "difference", "differences")
    return (f"Of {num} of the paper, at another scale: {told}.",) if kinds else ()


QUESTION = Question(
    name="differences",
    title="The paper's differences, measured at another scale{images}",
    table=differences,
    frame=lambda asked: asked.answers.ask_whole(differences),
    rows=_shown,
    columns=(
        Column("item"),
        Column("difference", "what"),
        Column("metric"),
        Column("paper", "printed", "the difference of the printed numbers, over its data sets"),
        Column("here", measured("estimate", ""), "the same of this run, with its 95 % interval"),
        Column("seeds", "num_seeds", spare=1),
        Column("verdict", means=f"{SAME} or {OTHER}: the interval excludes 0"),
    ),
    say=_say,
    formulas={"differences": COLUMNS},
)
