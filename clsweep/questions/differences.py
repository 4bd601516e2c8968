"""Of a run at another scale than the paper's: its differences beside those of the printed table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
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
        cells = [
            cell
            for cell in of.cells or (of,)
            if all(cell.levels.get(name, place[name]) == place[name] for name in PLACES)
        ]
        asked = list(_pairs(records_of(group), names))
        if not cells or not asked:
            continue
        sweeps = sweeps_by(cells[0].material, place["metric"])
        table = analysis.contrasts(asked, {place["metric"]: sweeps})
        found += [place | {"verdict": _verdict(row)} | row for row in records_of(table)]
    kept = [*ABOUT, *PLACES, *COLUMNS]
    return pd.DataFrame(found, columns=kept).dropna(subset=["estimate"], ignore_index=True)


def _pairs(rows: Sequence[Row], names: Sequence[str]) -> Iterator[Contrast]:
    """Each number less another one, as `COLUMNS` says; of one place and metric."""
    told = [[each for each in rows if _is_base(each, row, names)] for row in rows]
    earlier = [(row, rows[:at]) for at, row in enumerate(rows)]
    beside = [[each for each in some if _beside(each, row, names)] for row, some in earlier]
    own = [[x for x in some if x["objective"] == row["objective"]] for row, some in earlier]
    for row, bases in zip(rows, next(filter(any, (told, beside)), own), strict=True):
        for base in bases[:1]:
            yield _contrast(row, base, names)


def _beside(a: Row, b: Row, names: Sequence[str]) -> bool:
    """Whether two objectives have no printed setting that tells them apart."""
    both = ((plain_of(a[name]), plain_of(b[name])) for name in names)
    apart = any(x != y for x, y in both if x is not None and y is not None)
    return a["objective"] != b["objective"] and not apart


def _is_base(base: Row, row: Row, names: Sequence[str]) -> bool:
    name, told = base["objective"], row["delta_to"]
    is_named = name == told if told else row["objective"].startswith(f"{name}_")
    return is_named and _beside(base, row, names)


def _contrast(row: Row, base: Row, names: Sequence[str]) -> Contrast:
    at, minus = (
        {name: value for name in names if (value := plain_of(each[name])) is not None}
        for each in (row, base)
    )
    pair: Mapping[str, Any] = {"of": (row["objective"],), "at": at, "minus": minus}
    if row["objective"] != base["objective"]:
        pair = {"of": (row["objective"], base["objective"]), "at": minus | at}
    published = row["value"] - base["value"]
    return Contrast(name="", metric=row["metric"], published=published, **pair)


def _verdict(row: Row) -> str:
    if not known(row["low"]) or row["low"] <= 0 <= row["high"] or not row["published"]:
        return OPEN
    return SAME if row["estimate"] * row["published"] > 0 else OTHER


def _shown(frame: pd.DataFrame, _: Material) -> pd.DataFrame:
    """One row for each difference of the run: several of a paper's data sets may have it."""
    groups = frame.groupby(["item", "what", "metric", "estimate"], sort=False)
    rows = [
        group.iloc[0].to_dict()
        | {"printed": _range(group["published"]), "verdict": " or ".join(group["verdict"].unique())}
        for _, group in groups
    ]
    return pd.DataFrame(rows, columns=[*frame, "printed"])


def _range(values: pd.Series[float]) -> str:
    low, high = (number(round(end, 6)) for end in (values.min(), values.max()))
    return low if low == high else f"{low} to {high}"


def _say(asked: Asked) -> Sentences:
    rows = _shown(asked.answers.ask_whole(differences), asked.material)
    if rows.empty:
        return ()
    verdicts = rows["verdict"].tolist()
    told = ", ".join(f"{verdicts.count(kind)} {kind}" for kind in dict.fromkeys(verdicts))
    num = counted(len(rows), "difference", "differences")
    return (f"Of {num} of the paper, at another scale: {told}.",)


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
        Column(
            "here", measured("estimate", ""), "the same of this run, with its own 95 % interval"
        ),
        Column("seeds", "num_seeds", spare=1),
        Column("verdict", means=f"{SAME} or {OTHER}: the interval excludes 0"),
    ),
    say=_say,
    formulas={"differences": COLUMNS},
)
