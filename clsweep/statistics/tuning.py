"""Tries that tuning takes, and its gain over the default."""

from __future__ import annotations

import pandas as pd

from clsweep.analysis import tuning as analysis
from clsweep.analysis.reasons import TEXTS, Reason
from clsweep.catalog.rows import Row
from clsweep.display.numbers import Wording, count, interval, is_number, joined, known, num_of
from clsweep.statistics import charts
from clsweep.statistics.charts import alt
from clsweep.statistics.computed import Statistics
from clsweep.statistics.report_objects import Figure, Sentences, Unresolved, described
from clsweep.statistics.statistic import Column, Statistic, between, ends, half, level_cell
from clsweep.sweeps.notes import records_of, text_in
from clsweep.sweeps.study_data import StudyData

_NEAREST = TEXTS["DEFAULT_NEAREST"].partition(" (")[0]  # as a note has it


def tuning_cost(of: Statistics, *, within: float | None = None) -> pd.DataFrame:
    """One row per objective: tries until near the best, and the gain over the default."""
    data = of.data
    return analysis.cost_of_tuning(data.spaces, defaults=data.defaults, within=of.near(within))


def best_of_k(of: Statistics) -> pd.DataFrame:
    """Expected score of the best of k configurations tried at random, with intervals."""
    return analysis.expected_best_of_k(of.data.spaces)


def tuning(cost: pd.DataFrame, words: Wording) -> Sentences:
    """Sentences on cost and gain of tuning, from `tuning_cost`."""
    tries, unknown, gains = [], [], []
    for row in records_of(cost):
        if row["reason"] == Reason.ONE_CONFIG:
            continue
        name, k, k_low, k_high = (row[key] for key in ("objective", "k_within", "k_low", "k_high"))
        if known(k, k_low, k_high):
            num = f"{num_of(k, 'try', 'tries')}{interval(k_low, k_high)}"
            tries.append(f"{name} after about {num}")
        else:
            unknown.append(name)
        gain, low, high = row["tunability"], row["tunability_low"], row["tunability_high"]
        if known(gain, low, high):
            at = f" ({row['default_at']})" if text_in(row["default_at"]) else ""
            seen = f"{words.amount(gain)}{interval(low, high, apart_from=0.0)}"
            is_near = _NEAREST in text_in(row.get("note"))
            default = f"{'the setting nearest to ' * is_near}its default{at}"
            shown = f"Tuning {name} gains {seen} over {default}."
            whether = f"Whether tuning {name} gains anything over {default}"
            gains.append(shown if low > 0 else Unresolved(f"{whether} is not resolved ({seen})."))
    near = f"within {words.amount(words.within)} of the objective's best"
    out = [f"Configurations tried at random come {near}: {'; '.join(tries)}."] if tries else []
    if unknown:
        how = f"How many tries it takes to come {near}"
        out.append(Unresolved(f"{how} is not resolved for {joined(unknown)}."))
    return (*out, *gains)


def best_of_k_curves(expected: pd.DataFrame, data: StudyData) -> Figure | None:
    """Expected score of the best of k configurations against k, from `best_of_k`."""
    frame = charts.curve_frame(expected, data, x="k", y="expected")
    frame = frame[frame["x"] > 0]
    if frame.empty:
        return None
    title = f"best {data.metric_title}"
    halvings = [2**power for power in range(max(1, int(frame["x"].max())).bit_length())]
    x = alt.X(
        "x:Q",
        title="k, configurations tried",
        scale=alt.Scale(type="log", nice=False, padding=8),
        axis=alt.Axis(values=halvings, format="d", labelOverlap="greedy", grid=False),
    )
    tips = charts.tips(objective="objective", x="tries", y=title, **charts.END_TIPS)
    drawn, note = charts.curves(frame, data, x, title, tips, marked=charts.is_sparse(frame))
    return Figure(
        name="best-of-k",
        title="What tuning costs",
        caption="Score to expect of the best of k configurations tried at random. A curve that is "
        "flat from the start "
        f"belongs to an objective that needs no tuning. {charts.bands_text(frame, data)}{note}",
        chart=charts.layers(drawn),
        data=frame.rename(columns={"x": "k", "y": "expected"}),
    )


def _tries(row: Row) -> str:
    low, high = ends(row, "k_within", "k")
    value = count(row["k_within"]) if is_number(row["k_within"]) else ""
    return f"{value} [{count(low)}, {count(high)}]" if value and is_number(low) else value


_COST_FORMULAS = described(
    analysis.COST_COLUMNS,
    best_level="level of the best of all n, as in robustness: picked without the seed that scores "
    "it; none of a race, whose best ones have further seeds",
    k_within="smallest k with expected >= best_level - within: random tries that tuning costs",
    k_low="interval of k_within, percentiles of the bootstrap",
    default_at="the configuration taken for the default one",
    default="its mean over the seeds; hyperparameters that are not swept stand as the study sets "
    "them",
    tunability="by how much best_level is better than default, in points (positive = tuning helps)",
    tunability_low="interval of tunability, for the configurations tried: it carries the noise of "
    "seeds and images alone",
)
TUNING_COST = Statistic(
    name="tuning-cost",
    title="Tries to come near the best, and the gain over the default",
    caption="Tries are random configurations of the space; the best of them is picked on other "
    "seeds than it is scored on.",
    table=tuning_cost,
    options=lambda context: {"within": context.within},
    ahead=True,
    columns=(
        Column("objective"),
        Column("best level", level_cell("best_level", half("tunability"))),
        Column("tries to within {near}", _tries),
        Column("default at", "default_at"),
        Column("default", level_cell("default", half("tunability"))),
        Column("gain over it", between("tunability")),
    ),
    levels="best_level",
    sentences=lambda context: tuning(
        context.compute(tuning_cost, within=context.within), context.words
    ),
    formulas={"tuning cost": _COST_FORMULAS},
)
# n = configurations tried, N = those of them with a score. Levels are in the metric's own sign.
_BEST_OF_K_FORMULAS = described(
    analysis.BEST_OF_K_COLUMNS,
    k="configurations tried at random, without replacement, out of the n of the sweep",
    expected="expected score of the one that looks best: mean_s sum_r C(r-1, k-1) / C(n, k) "
    "x_(r)s, r = rank by the mean without seed s (r = n is the best), no higher than best_level, "
    "where it falls levelled (isotonic regression). A configuration without a score is a try that "
    "brings nothing",
    low="interval: expected -+ t SD, of a bootstrap over the noise (grid) or the configurations; "
    "of k = 1 that of the mean, see robustness",
)
BEST_OF_K = Statistic(
    name="best-of-k",
    table=best_of_k,
    ahead=True,
    has_notes=False,
    figures=lambda context: [best_of_k_curves(context.compute(best_of_k), context.data)],
    formulas={"best of k": _BEST_OF_K_FORMULAS},
)
