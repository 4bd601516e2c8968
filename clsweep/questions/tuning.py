"""How many tries tuning takes, and what it gains over the default."""

from __future__ import annotations

import pandas as pd

from clsweep.analysis import tuning as analysis
from clsweep.analysis.reasons import TEXTS, Reason
from clsweep.catalog.rows import Row
from clsweep.display.cells import records_of
from clsweep.display.numbers import count, is_number
from clsweep.findings.material import Material
from clsweep.questions import charts
from clsweep.questions.answers import Answers
from clsweep.questions.charts import alt
from clsweep.questions.column import Column, Question, ends, half, level, measured
from clsweep.questions.model import Figure, Open, Sentences, Wording
from clsweep.questions.words import counted, interval, known, listed, text

_NEAREST = TEXTS["DEFAULT_NEAREST"].partition(" (")[0]  # as a note has it


def tuning_cost(of: Answers, *, within: float | None = None) -> pd.DataFrame:
    """One row per objective: tries until near the best, and the gain over the default."""
    found = of.material
    return analysis.cost_of_tuning(found.spaces, defaults=found.defaults, within=of.near(within))


def best_of_k(of: Answers) -> pd.DataFrame:
    """Expected score of the best of k configurations tried at random, with intervals."""
    return analysis.expected_best_of_k(of.material.spaces)


def tuning(cost: pd.DataFrame, words: Wording) -> Sentences:
    """What tuning costs and what it gains over the defaults, from `tuning_cost`."""
    tries, unknown, gains = [], [], []
    for row in records_of(cost):
        if row["reason"] == Reason.ONE_CONFIG:
            continue
        name, k, k_low, k_high = (row[key] for key in ("objective", "k_within", "k_low", "k_high"))
        if known(k, k_low, k_high):
            num = f"{counted(k, 'try', 'tries')}{interval(k_low, k_high)}"
            tries.append(f"{name} after about {num}")
        else:
            unknown.append(name)
        gain, low, high = row["tunability"], row["tunability_low"], row["tunability_high"]
        if known(gain, low, high):
            at = f" ({row['default_at']})" if text(row["default_at"]) else ""
            seen = f"{words.amount(gain)}{interval(low, high, apart_from=0.0)}"
            is_near = _NEAREST in text(row.get("note"))
            default = f"{'the setting nearest to ' * is_near}its default{at}"
            shown = f"Tuning {name} gains {seen} over {default}."
            whether = f"Whether tuning {name} gains anything over {default}"
            gains.append(shown if low > 0 else Open(f"{whether} is not resolved ({seen})."))
    near = f"within {words.amount(words.within)} of the objective's best"
    out = [f"Configurations tried at random come {near}: {'; '.join(tries)}."] if tries else []
    if unknown:
        how = f"How many tries it takes to come {near}"
        out.append(Open(f"{how} is not resolved for {listed(unknown)}."))
    return (*out, *gains)


def best_of_k_curves(expected: pd.DataFrame, material: Material) -> Figure | None:
    """Expected score of the best of k configurations against k, from `best_of_k`."""
    frame = charts.curve_frame(expected, material, x="k", y="expected")
    frame = frame[frame["x"] > 0]
    if frame.empty:
        return None
    title = f"best {material.metric_title}"
    halvings = [2**power for power in range(max(1, int(frame["x"].max())).bit_length())]
    x = alt.X(
        "x:Q",
        title="k, configurations tried",
        scale=alt.Scale(type="log", nice=False, padding=8),
        axis=alt.Axis(values=halvings, format="d", labelOverlap="greedy", grid=False),
    )
    tips = charts.tips(objective="objective", x="tries", y=title, **charts.ENDS)
    drawn, said = charts.curves(frame, material, x, title, tips, marked=charts.is_sparse(frame))
    return Figure(
        name="best-of-k",
        title="What tuning costs",
        caption="Score to expect of the best of k configurations tried at random. A curve that is "
        "flat from the start "
        f"belongs to an objective that needs no tuning. {charts.bands_text(frame, material)}{said}",
        chart=charts.layers(drawn),
        data=frame.rename(columns={"x": "k", "y": "expected"}),
    )


def _tries(row: Row) -> str:
    low, high = ends(row, "k_within", "k")
    value = count(row["k_within"]) if is_number(row["k_within"]) else ""
    return f"{value} [{count(low)}, {count(high)}]" if value and is_number(low) else value


QUESTION = Question(
    name="tuning-cost",
    title="Tries to come near the best, and the gain over the default",
    caption="Tries are random configurations of the space; the best of them is picked on other "
    "seeds than it is scored on.",
    table=tuning_cost,
    options=lambda asked: {"within": asked.within},
    ahead=True,
    columns=(
        Column("objective"),
        Column("best level", level("best_level", half("tunability"))),
        Column("tries to within {near}", _tries),
        Column("default at", "default_at"),
        Column("default", level("default", half("tunability"))),
        Column("gain over it", measured("tunability")),
    ),
    levels="best_level",
    say=lambda asked: tuning(asked.ask(tuning_cost, within=asked.within), asked.words),
    formulas={"tuning cost": analysis.COST_COLUMNS},
)
BEST_OF_K = Question(
    name="best-of-k",
    table=best_of_k,
    ahead=True,
    has_notes=False,
    draw=lambda asked: [best_of_k_curves(asked.ask(best_of_k), asked.material)],
    formulas={"best of k": analysis.BEST_OF_K_COLUMNS},
)
