"""Which changes from the default to the best setting bring the gain."""

from __future__ import annotations

import pandas as pd

from clsweep.analysis import ablation as analysis
from clsweep.analysis.reasons import TEXTS
from clsweep.catalog.rows import Row
from clsweep.display.numbers import Wording, interval, joined
from clsweep.statistics import charts
from clsweep.statistics.computed import Statistics
from clsweep.statistics.report_objects import Figure, Sentences, Unresolved, described
from clsweep.statistics.statistic import Column, Statistic, between, whole_number
from clsweep.sweeps.notes import records_of, text_in
from clsweep.sweeps.study_data import StudyData

_NO_DEFAULT = TEXTS["FROM_FIRST"].partition(":")[0]  # as a note has it


def ablation(of: Statistics) -> pd.DataFrame:
    """A row per objective and hyperparameter that differs between the default and the best setting,
    the largest gain first, and one of all.
    """
    data = of.data
    return analysis.ablation(data.spaces, defaults=data.defaults)


def ablations(frame: pd.DataFrame, words: Wording) -> Sentences:
    """The changes that surely gain, of each objective."""
    out: list[str] = []
    for name, group in frame[frame["low"].notna()].groupby("objective", sort=False):
        *steps, total = records_of(group)
        seen = {
            row["step"]: f"{words.amount(row['gain'])}{interval(row['low'], row['high'])}"
            for row in (*steps, total)
        }
        gains = [f"{_change(r)} gains {seen[r['step']]}" for r in steps if r["low"] > 0]
        begin = "first setting" if _NO_DEFAULT in text_in(total["note"]) else "default"
        whole = f"all changes {seen[total['step']]}"
        if gains:
            also = f"; {whole}" if len(steps) > 1 else ""
            out.append(f"{name}, from its {begin} to its best setting: {joined(gains)}{also}.")
        elif not steps:
            out.append(f"{name}: its {begin} is the best setting tried.")
        else:
            which = f"Which change from the {begin} of {name} to its best setting gains anything"
            out.append(Unresolved(f"{which} is not resolved ({whole})."))
    return tuple(out)


def gain_forest(frame: pd.DataFrame, data: StudyData) -> Figure | None:
    """The gain of each change, in the order of the path."""
    known = frame[frame["gain"].notna()]
    drawn = charts.columns(known, x="gain", low="low", high="high")
    drawn["row"] = [f"{row['objective']}: {_change(row)}" for row in records_of(known)]
    drawn = drawn.assign(resolved=(drawn["low"] > 0) | (drawn["high"] < 0), note="")
    if not drawn["resolved"].any():
        return None
    x = charts.plain_x(charts.in_points("gain", data), zero=True, padding=8)
    return Figure(
        name="ablation",
        title="From the default to the best setting",
        caption="Gain of each change, the largest first, after those above it. Bars are 95 % "
        "intervals over the seeds; grey where it may be none.",
        chart=charts.forest(drawn, data, x, line=0.0, legend=False),
        data=known,
    )


def _change(row: Row) -> str:
    """`tau 0.5 to 0.1`."""
    is_all = row["param"] == analysis.ALL
    return "all changes" if is_all else f"{row['param']} {row['before']} to {row['after']}"


_FORMULAS = described(
    analysis.ABLATION_COLUMNS,
    step="place on the path: at each step the change with the largest gain comes next",
    param="the hyperparameter that changes; all: every one of the path",
    before="its value in the default: of the study's base, else of the catalog, else of the first "
    "setting",
    after="its value in the best setting, by the mean over the seeds or by the surrogate",
    gain="grid: mean_s (x_after,s - x_before,s) at this change of the path that has the best mean "
    "without seed s at its end. surrogate: median of f(after) - f(before) over its posterior by "
    "one half of the seeds, on the path that the other half picks; mean of both",
    low="interval of gain: as regret of fidelity, or quantiles of the posterior, 1.15 times as far "
    "from the median",
    method="grid: every setting of the path was measured; surrogate: a Gaussian process through "
    "those that were",
)
ABLATION = Statistic(
    name="ablation",
    rows=lambda frame, _: frame[frame["step"].notna()],
    title="Gain of each change from the default to the best setting",
    header="Gain of each change from the default to the best setting, by {metric}, with 95 % "
    "intervals{scored}",
    table=ablation,
    ahead=True,
    columns=(
        Column("objective"),
        Column("step", whole_number("step")),
        Column("changes", "param", "the one whose change gains most, after those above it"),
        Column("from", "before", "the default"),
        Column("to", "after", "the best setting"),
        Column("gains", between("gain", ""), "measured on seeds that did not pick the path"),
        Column("by", "method", "grid: measured settings; surrogate: a model of them", drop_order=1),
    ),
    caption="Greedy, the largest gain first (Fawcett and Hoos 2016). {columns}.",
    sentences=lambda context: ablations(context.compute(ablation), context.words),
    figures=lambda context: [gain_forest(context.compute(ablation), context.data)],
    formulas={"ablation": _FORMULAS},
)
