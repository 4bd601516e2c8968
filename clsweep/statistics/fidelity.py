"""Early epochs as judges of the settings: how they rank them, and what choosing by them loses."""

from __future__ import annotations

from functools import partial

import pandas as pd

from clsweep.analysis import fidelity as analysis
from clsweep.analysis.reasons import Reason, note
from clsweep.catalog.rows import Row
from clsweep.display.numbers import Wording, fixed, interval, is_number
from clsweep.statistics import charts
from clsweep.statistics.charts import alt
from clsweep.statistics.computed import ReportContext, Statistics
from clsweep.statistics.report_objects import Figure, Sentences, Unresolved, described
from clsweep.statistics.statistic import Column, Statistic, between, fraction, whole_number
from clsweep.sweeps.notes import is_measured, is_true, records_of
from clsweep.sweeps.study_data import StudyData

_STEADY = "constant"  # a schedule of the learning rate under which a short run begins as a long one


def fidelity(of: Statistics, *, within: float | None = None) -> pd.DataFrame:
    """A row per objective and early epoch: rank correlation with the last one, and the loss of
    choosing by it.
    """
    data, rows = of.data, []
    curves = scored_epochs(of)
    for sweep in data.spaces:
        own = curves[curves["objective"] == sweep.objective]
        falls = own["lr_schedule"].dropna().unique() if "lr_schedule" in own else ()
        schedules = tuple(str(name) for name in falls if name != _STEADY)
        for row in analysis.fidelity(sweep, own, within=of.near(within)):
            caution = (note(Reason.EARLY_OF_LONG, schedules=schedules),) if schedules else ()
            rows.append(row | {"note": (*row["note"], *caution * is_number(row.get("budget")))})
    return pd.DataFrame(rows, columns=list(analysis.FIDELITY_COLUMNS))


def scored_epochs(of: Statistics) -> pd.DataFrame:
    """The `score` of the finished trials at each epoch, which is a `part` of all of the trial."""
    trials = of.data.trials
    names = ["trial_id", "objective", "config", "seed", "lr_schedule"]
    finished = trials.loc[trials["status"] == "finished", trials.columns.intersection(names)]
    epochs = of.epochs_of(set(finished["trial_id"]))
    if epochs.empty or of.data.metric not in epochs:
        return finished.assign(epoch=0, part=0.0, score=float("nan"))
    last = epochs.groupby("trial_id")["epoch"].transform("max")
    epochs = epochs.assign(part=epochs["epoch"] / last, score=epochs[of.data.metric])
    return epochs[["trial_id", "epoch", "part", "score"]].merge(finished, on="trial_id")


def fidelities(frame: pd.DataFrame, words: Wording) -> Sentences:
    """The smallest part of the epochs that is enough to choose by, of each objective."""
    out: list[str] = []
    near = words.amount(words.within)
    for name, group in frame.groupby("objective", sort=False):
        rows = [row for row in records_of(group) if is_number(row["regret"])]
        if not rows or not is_measured(rows[-1]["reason"]):
            continue
        row = next((row for row in rows if is_true(row["enough"])), rows[-1])
        loses = f"loses {words.amount(row['regret'])}{interval(row['low'], row['high'])}"
        choosing = f"choosing at {_part(row)} of the epochs {loses}"
        if is_true(row["enough"]):
            least = "the smallest part looked at that is surely within"
            out.append(f"{name}: {choosing}, {least} {near}.")
        else:
            which = f"{name}: which part of the epochs is enough to choose within {near}"
            out.append(Unresolved(f"{which} is not resolved ({choosing})."))
    return tuple(out)


def loss_curves(frame: pd.DataFrame, data: StudyData) -> Figure | None:
    """The loss against the part of the epochs."""
    shown = charts.curve_frame(frame.assign(part=100 * frame["budget"]), data, x="part", y="regret")
    if shown.empty or shown["x"].nunique() < 2:
        return None
    title = charts.in_points("loss by choosing early", data)
    tips = charts.tips(objective="objective", x="% of the epochs", y=title, **charts.END_TIPS)
    x = charts.plain_x("% of the epochs", domain=[0, 100])
    y = partial(alt.Y, type="quantitative", title=title, axis=alt.Axis(tickCount=6))
    return Figure(
        name="fidelity",
        title="What choosing early loses",
        caption="Score at the last epoch that is lost where the setting is chosen by an earlier "
        "one, on seeds that did not choose. Bands are 95 % intervals over the seeds.",
        chart=charts.layers(charts.banded(shown, data, x, y, tips, marked=True)),
        data=shown.rename(columns={"x": "part", "y": "regret"}),
    )


def _part(row: Row) -> str:
    return f"{fixed(100 * row['budget'], 0)} %" if is_number(row["budget"]) else ""


def _enough(row: Row) -> str:
    return ("yes" if is_true(row["enough"]) else "not shown") if is_number(row["regret"]) else ""


def _computed(context: ReportContext) -> pd.DataFrame:
    return context.compute(fidelity, within=context.within)


_FORMULAS = described(
    analysis.FIDELITY_COLUMNS,
    budget="part of the epochs, of each trial its own: at most ten, the nearest to 5 %, 10 %, 20 % "
    "... 90 % that half of the trials were scored at",
    epoch="the epoch itself, median over the trials",
    rho="Spearman's rank correlation of the scores there and at the last epoch over the settings, "
    "mean over the seeds; none where trials were stopped for bad ranks",
    rho_low="its interval over the seeds, as that of regret",
    regret="mean_s (x_b(s),s - x_p(s),s) at the last epoch; p(s) and b(s) = best mean without seed "
    "s, of the scores at this epoch and of the last ones; below 0 it counts as 0",
    low="interval of regret: regret -+ the larger of t over the seeds left out, and of the 95 % "
    "quantile of resamples with new noise around levels as unsure as they are",
    enough="high <= within, here and at every larger part (fixed sequence of tests: Maurer, "
    "Hothorn and Lehmacher 1995)",
    num_configs="settings with a score at both",
    num_trials="trials of these",
)
FIDELITY = Statistic(
    name="fidelity",
    title="Early epochs as judges of the last one",
    header="Choosing by {metric} at an early epoch, with 95 % intervals over the seeds",
    table=fidelity,
    options=lambda context: {"within": context.within},
    rows=lambda frame, _: frame[frame["budget"].notna()],
    columns=(
        Column("objective"),
        Column("of epochs", _part, "part of the epochs after which a setting is chosen"),
        Column("epoch", whole_number("epoch"), drop_order=2),
        Column(
            "settings", whole_number("num_configs"), "scored there and at the end", drop_order=1
        ),
        Column(
            "rank correlation",
            fraction("rho", most=2),
            "Spearman's, of the scores there and at the end over the settings, mean over the seeds",
        ),
        Column(
            "loses",
            between("regret", ""),
            "score at the end that is lost by choosing there, against choosing at the end; "
            "measured on seeds that did not choose",
        ),
        Column("enough", _enough, "yes: there and later it surely loses at most {points}"),
    ),
    intro="These are early epochs of long runs: a run planned as short has a schedule of its own.",
    caption="Early epochs of long runs: a run planned as short has a schedule of its own. "
    "{columns}.",
    sentences=lambda context: fidelities(_computed(context), context.words),
    figures=lambda context: [loss_curves(_computed(context), context.data)],
    formulas={"fidelity": _FORMULAS},
)
