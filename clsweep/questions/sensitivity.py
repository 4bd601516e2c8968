"""Which hyperparameter matters."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pandas as pd

from clsweep.analysis import sensitivity as analysis
from clsweep.analysis.reasons import Reason
from clsweep.catalog.rows import Row
from clsweep.display.cells import records_of
from clsweep.display.numbers import is_number
from clsweep.findings.material import Material
from clsweep.findings.notes import status
from clsweep.questions import charts
from clsweep.questions.answers import Answers, chosen
from clsweep.questions.column import Column, Question, share
from clsweep.questions.model import Figure, Open, Sentences, Wording
from clsweep.questions.words import depends, interval, is_true, known, listed, needed, number, text

SMALL = 0.01  # of the variance: an effect below is real and hardly matters
MAX_INTERACTIONS = 10
EFFECTS = {"total": "with interactions", "first": "alone"}


def sensitivity(of: Answers, *objectives: str) -> pd.DataFrame:
    """One row per objective and term, see `analysis.sensitivity`."""
    return analysis.sensitivity(chosen(of.material.spaces, objectives))


def effects(sensitivity: pd.DataFrame, words: Wording) -> Sentences:
    """What matters for each objective, from `sensitivity`."""
    found = sensitivity.groupby("objective", sort=False) if len(sensitivity) else ()
    return tuple(
        each
        for name, rows in found
        for each in (
            *_effects(str(name), records_of(rows)),
            *_as_measured(str(name), records_of(rows)),
            *_apart(str(name), records_of(rows), words),
        )
    )


def _as_measured(name: str, rows: Sequence[Row]) -> Iterable[str]:
    """The largest shares of a grid of which none is resolved, and what it would take."""
    sizes = [row for row in rows if row["method"] == "anova" and row["order"]]
    largest = sorted(sizes, key=lambda row: -row["first"])[:3]
    if not largest or any(map(_matters, sizes)):
        return
    shares = [
        f"{row['term']} has {number(row['first'])}{interval(row['first_low'], row['first_high'])}"
        for row in largest
    ]
    yield f"{name}: as measured, {listed(shares)} of the variance."
    if it := needed(largest[0]):
        yield Open(f"{name}: {largest[0]['term']} is not resolved; it needs {it}.")


def _apart(name: str, rows: Sequence[Row], words: Wording) -> Iterable[str]:
    """The cell that lies furthest from what the parameters of a pair alone predict."""
    seen = [r for r in rows if known(r.get("effect_low"), r.get("effect_high"))]
    seen = [row for row in seen if row["effect_low"] > 0 or row["effect_high"] < 0]
    if seen:
        row = max(seen, key=lambda row: abs(row["effect"]))
        low, high = sorted((abs(row["effect_low"]), abs(row["effect_high"])))
        side = "above" if row["effect"] > 0 else "below"
        yield (
            f"{name}: {row['cell'].replace(', ', ' with ')} is {words.amount(abs(row['effect']))} "
            f"{side} what {row['term'].replace(' x ', ' and ')} alone "
            f"predict{interval(low, high)}{_opposite(row, side)}."
        )


def _opposite(row: Row, side: str) -> str:
    """That the other of two columns deviates alike: the fault may be in either."""
    other = text(row.get("opposite"))
    return f", and with {other} as far {'below' if side == 'above' else 'above'}" if other else ""


def _effects(name: str, rows: Sequence[Row]) -> Iterable[str]:
    singles = [row for row in rows if row["order"] == 1 and known(_size(row)[0])]
    if not singles and is_true(rows[0]["resolved"]):
        yield depends(name, rows[0]["term"], rows[0]["r2"])
        return
    if not singles:
        reason, why = rows[0]["reason"], text(rows[0]["note"])
        if reason != Reason.NOTHING_SWEPT:  # a baseline: no news to a reader
            yield Open(f"What matters for {name} is {status(reason)}{f': {why}' if why else ''}.")
        return
    real = sorted((row for row in singles if _matters(row)), key=lambda row: -_size(row)[0])
    matter = [row for row in real if _size(row)[0] >= SMALL]
    small = [row for row in real if _size(row)[0] < SMALL]
    own = " on its own" if singles[0]["method"] == "anova" else ""
    # Its interval lies above those of all others; an unknown end could be anywhere.
    highs = [_size(row)[2] for row in singles if matter and row is not matter[0]]
    stands_out = all(known(high) and _size(matter[0])[1] > high for high in highs)
    if not real:
        lines = [row["null"] for row in singles if known(row["null"])]
        reach = f"; an inert one reaches {number(max(lines))}" if lines else ""
        if tested := [row["term"] for row in singles if is_true(row["resolved"])]:
            reach = f": {listed(tested)} by the test alone, not by the interval"
        yield Open(f"{name}: no hyperparameter's effect{own} is resolved{reach}.")
    elif matter and len(singles) == 1:
        yield f"{name}: {_effect(matter[0], 'matters')}."
    elif matter and stands_out:
        yield f"{name}: {_effect(matter[0], f'matters most{own}')}."
        if others := [_effect(row) for row in matter[1:]]:
            yield f"{name}: {listed(others)} matter{'s' * (len(others) == 1)} too."
    elif len(matter) == 1:
        yield f"{name}: {_effect(matter[0], 'matters')}."
        yield Open(f"{name}: that the others matter less is not resolved.")
    elif matter:
        yield f"{name}: {listed([_effect(row) for row in matter])} matter."
        yield Open(f"{name}: which of them matters most{own} is not resolved.")
    if small:
        verb = "has a small effect" if len(small) == 1 else "have small effects"
        yield f"{name}: {listed([_effect(row) for row in small])} {verb}."
    for row in rows:
        if row["order"] == 2 and known(_size(row)[0]) and _matters(row):
            a, _, b = text(row["term"]).partition(" x ")
            little = " a little" if _size(row)[0] < SMALL else ""
            yield (
                f"{name}: the effects of {a} and {b} depend on each other{little} "
                f"({_measure(row)})."
            )


def _size(row: Row) -> tuple[float, float, float, str]:
    """Value, interval, name of the effect of `resolved`: ST of Sobol, else the share alone."""
    kind = "total" if row["method"] == "sobol" and row["order"] == 1 else "first"
    called = "total effect" if kind == "total" else "share of the variance"
    return row[kind], row[f"{kind}_low"], row[f"{kind}_high"], called


def _matters(row: Row) -> bool:
    """Whether the test, the null line and the two-sided interval all say so."""
    value, low, high, _ = _size(row)
    seen = known(value, low, high, row["null"]) and value > float(row["null"]) and low > 0
    return is_true(row["resolved"]) and seen


def _effect(row: Row, does: str = "") -> str:
    """`tau matters (share of the variance 0.9 [0.8, 1], an inert one reaches 0.1)`."""
    return " ".join(filter(None, (row["term"], does, f"({_measure(row)})")))


def _measure(row: Row) -> str:
    value, low, high, called = _size(row)
    return (
        f"{called} {number(value)}{interval(low, high)}, an inert one reaches {number(row['null'])}"
    )


def sensitivity_figures(sensitivity: pd.DataFrame, material: Material) -> list[Figure]:
    """Effect of every hyperparameter, a figure for each objective that passes the gate."""
    if sensitivity.empty:
        return []
    sizes = sensitivity.assign(size=sizes_of(sensitivity))
    sizes = sizes[sizes["term"].fillna("").ne("") & sizes["size"].notna()]
    tables = {name: _terms(rows) for name, rows in charts.by_objective(sizes, material).items()}
    return charts.each("sensitivity", tables, _effect_figure, material)


def sizes_of(rows: pd.DataFrame) -> pd.Series[float]:
    """The larger of an effect in all and alone; NaN where none is known."""
    both = charts.numbers(rows, "total"), charts.numbers(rows, "first")
    return pd.Series(np.fmax(*both), index=rows.index)


def _terms(rows: pd.DataFrame) -> pd.DataFrame:
    """The terms of one objective: hyperparameters, then the largest interactions."""
    rows = rows.sort_values("size", ascending=False, kind="stable")
    order = charts.numbers(rows, "order")
    pairs = rows[order == 2].head(MAX_INTERACTIONS)
    parts = [rows[order == 1], pairs, rows[~np.isin(order, (1, 2))]]
    return pd.concat(parts).drop(columns="size")


def _effect_figure(slug: str, name: str, rows: pd.DataFrame, material: Material) -> Figure:
    labels = [
        charts.param_title(term) if " x " not in term else term.replace(" x ", " × ")
        for term in rows["term"].astype(str)
    ]
    parts = [
        charts.intervals(rows, column, f"{column}_low", f"{column}_high").assign(
            kind=kind, row=labels, null=charts.numbers(rows, "null")
        )
        for column, kind in EFFECTS.items()
    ]
    frame = pd.concat(parts).dropna(subset=["x"]).reset_index(drop=True)
    method = "Sobol indices" if (rows["method"] == "sobol").any() else "Shares of variance (ANOVA)"
    title = "share of the variance"
    null = "an inert one reaches"
    tips = charts.tips(row="term", kind="effect", x=title, **charts.ENDS, null=null)
    x = charts.plain_x(title, zero=True, padding=8)
    return Figure(
        name=slug,
        title=f"What matters for {name}",
        caption=f"{method} of {material.metric}, alone and with all interactions. Grey ticks: what "
        "an inert hyperparameter reaches by chance in 95 % of cases. Left of its tick nothing is "
        f"resolved. {charts.bands_text(frame, material, 'Bars', of_seeds=True)}",
        chart=charts.dots(frame, x, list(EFFECTS.values()), tips=tips, null=True),
        data=rows.reset_index(drop=True),
    )


def _resolved(row: Row) -> str:
    is_asked = row["term"] and row["order"] != 0  # the noise is no effect
    yes = "yes" if row["method"] != "anova" or _matters(row) else "by the test alone"
    return {True: yes, False: "no"}.get(row["resolved"], "") if is_asked else ""


QUESTION = Question(
    name="sensitivity",
    title="Shares of the variance of {metric}",
    heading="Shares of the variance of {metric}, with 95 % intervals{scored}",
    table=sensitivity,
    ahead=True,
    columns=(
        Column("objective"),
        Column("term", lambda row: row["term"] or status(row["reason"])),
        Column("alone", share("first", most=2), "first-order share"),
        Column("in all", share("total", most=2), "with its interactions"),
        Column("null line", "null", "what a parameter without any effect reaches", spare=3),
        Column("resolved", _resolved),
        Column(
            "needs seeds",
            lambda row: needed(row, "needs_seeds"),
            "how many would find it in four of five studies, an 80 % interval",
            spare=5,
        ),
        Column(
            "R2",
            "r2",
            "what the surrogate predicts of unseen configurations. All that seed noise leaves to "
            "predict counts as 1",
            spare=4,
        ),
        Column(
            "of possible", lambda row: row["r2_ceiling"] if is_number(row["r2"]) else None, spare=2
        ),
        Column("configs", "num_configs", spare=1),
    ),
    say=lambda asked: effects(asked.ask(sensitivity), asked.words),
    draw=lambda asked: sensitivity_figures(asked.ask(sensitivity), asked.material),
    formulas={"sensitivity": analysis.SENSITIVITY_COLUMNS},
)
