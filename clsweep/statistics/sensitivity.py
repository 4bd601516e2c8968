"""Which hyperparameter matters."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pandas as pd

from clsweep.analysis import sensitivity as analysis
from clsweep.analysis.reasons import Reason
from clsweep.catalog.rows import Row
from clsweep.display.numbers import Wording, interval, is_number, joined, known, number
from clsweep.statistics import charts
from clsweep.statistics.computed import Statistics, chosen_sweeps
from clsweep.statistics.pair_sentences import NEEDS, depends, needed
from clsweep.statistics.report_objects import Figure, Sentences, Unresolved, described
from clsweep.statistics.statistic import Column, Statistic, fraction
from clsweep.sweeps.notes import is_true, records_of, status_text, text_in
from clsweep.sweeps.study_data import StudyData

SMALL = 0.01  # of the variance: an effect below is real and hardly matters
MAX_INTERACTIONS = 10
EFFECTS = {"total": "with interactions", "first": "alone"}


def sensitivity(of: Statistics, *objectives: str) -> pd.DataFrame:
    """One row per objective and term, see `analysis.sensitivity`."""
    return analysis.sensitivity(chosen_sweeps(of.data.spaces, objectives))


def effects(sensitivity: pd.DataFrame, words: Wording) -> Sentences:
    """The effects that matter for each objective, from `sensitivity`."""
    groups = sensitivity.groupby("objective", sort=False) if len(sensitivity) else ()
    return tuple(
        each
        for name, rows in groups
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
    yield f"{name}: as measured, {joined(shares)} of the variance."
    if it := needed(largest[0]):
        yield Unresolved(f"{name}: {largest[0]['term']} is not resolved; it needs {it}.")


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
    """Note that the other of two columns deviates alike: the fault may be in either."""
    other = text_in(row.get("opposite"))
    return f", and with {other} as far {'below' if side == 'above' else 'above'}" if other else ""


def _effects(name: str, rows: Sequence[Row]) -> Iterable[str]:
    singles = [row for row in rows if row["order"] == 1 and known(_size(row)[0])]
    if not singles and is_true(rows[0]["resolved"]):
        yield depends(name, rows[0]["term"], rows[0]["r2"])
        return
    if not singles:
        reason, why = rows[0]["reason"], text_in(rows[0]["note"])
        if reason != Reason.NOTHING_SWEPT:  # a baseline: no news to a reader
            because = f": {why}" * bool(why)
            yield Unresolved(f"What matters for {name} is {status_text(reason)}{because}.")
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
            reach = f": {joined(tested)} by the test alone, not by the interval"
        yield Unresolved(f"{name}: no hyperparameter's effect{own} is resolved{reach}.")
    elif matter and len(singles) == 1:
        yield f"{name}: {_effect(matter[0], 'matters')}."
    elif matter and stands_out:
        yield f"{name}: {_effect(matter[0], f'matters most{own}')}."
        if others := [_effect(row) for row in matter[1:]]:
            yield f"{name}: {joined(others)} matter{'s' * (len(others) == 1)} too."
    elif len(matter) == 1:
        yield f"{name}: {_effect(matter[0], 'matters')}."
        yield Unresolved(f"{name}: that the others matter less is not resolved.")
    elif matter:
        yield f"{name}: {joined([_effect(row) for row in matter])} matter."
        yield Unresolved(f"{name}: which of them matters most{own} is not resolved.")
    if small:
        verb = "has a small effect" if len(small) == 1 else "have small effects"
        yield f"{name}: {joined([_effect(row) for row in small])} {verb}."
    for row in rows:
        if row["order"] == 2 and known(_size(row)[0]) and _matters(row):
            a, _, b = text_in(row["term"]).partition(" x ")
            little = " a little" if _size(row)[0] < SMALL else ""
            joint = f"the effects of {a} and {b} depend on each other{little}"
            yield f"{name}: {joint} ({_measure(row)})."


def _size(row: Row) -> tuple[float, float, float, str]:
    """Value, interval, name of the effect of `resolved`: ST of Sobol, else the share alone."""
    kind = "total" if row["method"] == "sobol" and row["order"] == 1 else "first"
    called = "total effect" if kind == "total" else "share of the variance"
    return row[kind], row[f"{kind}_low"], row[f"{kind}_high"], called


def _matters(row: Row) -> bool:
    """True if the test, the null line and the two-sided interval all say so."""
    value, low, high, _ = _size(row)
    seen = known(value, low, high, row["null"]) and value > float(row["null"]) and low > 0
    return is_true(row["resolved"]) and seen


def _effect(row: Row, does: str = "") -> str:
    """`tau matters (share of the variance 0.9 [0.8, 1], an inert one reaches 0.1)`."""
    return " ".join(filter(None, (row["term"], does, f"({_measure(row)})")))


def _measure(row: Row) -> str:
    value, low, high, called = _size(row)
    seen = f"{called} {number(value)}{interval(low, high)}"
    return f"{seen}, an inert one reaches {number(row['null'])}"


def sensitivity_figures(sensitivity: pd.DataFrame, data: StudyData) -> list[Figure]:
    """Effect of every hyperparameter, a figure for each objective that passes the gate."""
    if sensitivity.empty:
        return []
    sizes = sensitivity.assign(size=sizes_of(sensitivity))
    sizes = sizes[sizes["term"].fillna("").ne("") & sizes["size"].notna()]
    tables = {name: _terms(rows) for name, rows in charts.by_objective(sizes, data).items()}
    return charts.each("sensitivity", tables, _effect_figure, data)


def sizes_of(rows: pd.DataFrame) -> pd.Series[float]:
    """The larger of an effect in all and alone; NaN where none is known."""
    both = charts.float_column(rows, "total"), charts.float_column(rows, "first")
    return pd.Series(np.fmax(*both), index=rows.index)


def _terms(rows: pd.DataFrame) -> pd.DataFrame:
    """The terms of one objective: hyperparameters, then the largest interactions."""
    rows = rows.sort_values("size", ascending=False, kind="stable")
    order = charts.float_column(rows, "order")
    pairs = rows[order == 2].head(MAX_INTERACTIONS)
    parts = [rows[order == 1], pairs, rows[~np.isin(order, (1, 2))]]
    return pd.concat(parts).drop(columns="size")


def _effect_figure(slug: str, name: str, rows: pd.DataFrame, data: StudyData) -> Figure:
    labels = [
        charts.param_title(term) if " x " not in term else term.replace(" x ", " × ")
        for term in rows["term"].astype(str)
    ]
    parts = [
        charts.ends_frame(rows, column, f"{column}_low", f"{column}_high").assign(
            kind=kind, row=labels, null=charts.float_column(rows, "null")
        )
        for column, kind in EFFECTS.items()
    ]
    frame = pd.concat(parts).dropna(subset=["x"]).reset_index(drop=True)
    method = "Sobol indices" if (rows["method"] == "sobol").any() else "Shares of variance (ANOVA)"
    title = "share of the variance"
    null = "an inert one reaches"
    tips = charts.tips(row="term", kind="effect", x=title, **charts.END_TIPS, null=null)
    x = charts.plain_x(title, zero=True, padding=8)
    return Figure(
        name=slug,
        title=f"What matters for {name}",
        caption=f"{method} of {data.metric}, alone and with all interactions. Grey ticks: what "
        "an inert hyperparameter reaches by chance in 95 % of cases. Left of its tick nothing is "
        f"resolved. {charts.bands_text(frame, data, 'Bars', of_seeds=True)}",
        chart=charts.dots(frame, x, list(EFFECTS.values()), tips),
        data=rows.reset_index(drop=True),
        is_apart=True,
    )


def _resolved(row: Row) -> str:
    is_asked = row["term"] and row["order"] != 0  # the noise is no effect
    yes = "yes" if row["method"] != "anova" or _matters(row) else "by the test alone"
    return {True: yes, False: "no"}.get(row["resolved"], "") if is_asked else ""


# The formulas in full: `anova`, `sobol` and `surrogate`.
_FORMULAS = described(
    analysis.SENSITIVITY_COLUMNS,
    objective="name",
    method='"anova" for a whole grid, "sobol" for a sample of the space; empty where nothing was '
    "measured",
    term='a hyperparameter, a pair as "tau x batch_size", "higher interactions", "seed noise"; '
    "empty in a row that only says why nothing is resolved",
    order="1 for a hyperparameter, 2 for a pair, 3 for all the rest, 0 for the seed noise",
    first="share of the variance that the term explains on its own. anova: of the variance of one "
    "trial, seed noise included, V*_u / (sum V*_u + s_w^2). sobol: of the response's variance over "
    "the space, Var(E[f | x_u]) / Var(f), without what single hyperparameters explain in the row "
    "of a pair (only the largest pair is shown)",
    first_low="its interval; sobol: a lower end not above the null line, nor above how far the "
    "draws are off their mean, is 0, and an upper end less than the null line below 1 is 1",
    total="share of a hyperparameter with all its interactions, ST",
    total_low="its interval; sobol: a lower end not above the null line is 0, an upper end less "
    "than the null line below 1 is 1",
    null="what a hyperparameter without any effect reaches in 95 % of cases: anova, the share at "
    "which its F test just passes; sobol, the ST of inert ones that were added to the same data",
    resolved="anova: F test against the seed noise, Holm over the terms. sobol: the lower end of "
    "total is above the null line, which a real ST below about 0.02 rarely is; of a pair, the "
    "lower end of first is above the null line and above how far the draws are off their mean; of "
    "a single hyperparameter, which has all shares: the surrogate predicts configurations left out",
    r2="sobol: share of the variance of configurations left out that the surrogate explains, may "
    "be below 0",
    r2_ceiling="1 - (s_w^2 / S) / SD^2: the most that any model can explain beside the seed noise",
    num_configs="configurations with a score",
    cell='of a pair: where its effect is largest, such as "tau=0.1, width=16"',
    effect="by how much the mean there differs from what both predict without each other: mean of "
    "the cell - mean at one value - mean at the other + mean, in units of the metric; others are "
    "averaged over",
    effect_low="its t-interval, which allows for a look at every cell of every pair (Bonferroni): "
    "one without 0 is no chance find",
    opposite="of a pair with a hyperparameter of two values: the cell at its other value, which "
    "deviates as far the other way",
    needs_seeds="seeds at which 80 % of studies would resolve an effect as large as it was seen; "
    "sobol: at which the noise is a quarter of the spread. None where it is resolved, or where "
    "seeds do not help; inf: more than 1,000",
    needs_low="anova: the same for the effect at the ends of its 80 % interval; inf where the "
    "lower end is 0",
    needs_configs="configurations that it would take, likewise",
)
SENSITIVITY = Statistic(
    name="sensitivity",
    title="Shares of the variance of {metric}",
    header="Shares of the variance of {metric}, with 95 % intervals{scored}",
    table=sensitivity,
    ahead=True,
    columns=(
        Column("objective"),
        Column("term", lambda row: row["term"] or status_text(row["reason"])),
        Column("alone", fraction("first", most=2), "first-order share"),
        Column("in all", fraction("total", most=2), "with its interactions"),
        Column("null line", "null", "what a parameter without any effect reaches", drop_order=3),
        Column("resolved", _resolved),
        Column("needs seeds", lambda row: needed(row, "needs_seeds"), NEEDS, drop_order=5),
        Column(
            "R2",
            "r2",
            "what the surrogate predicts of unseen configurations. All that seed noise leaves to "
            "predict counts as 1",
            drop_order=4,
        ),
        Column(
            "of possible",
            lambda row: row["r2_ceiling"] if is_number(row["r2"]) else None,
            drop_order=2,
        ),
        Column("configs", "num_configs", drop_order=1),
    ),
    sentences=lambda context: effects(context.compute(sensitivity), context.words),
    figures=lambda context: sensitivity_figures(context.compute(sensitivity), context.data),
    formulas={"sensitivity": _FORMULAS},
)
