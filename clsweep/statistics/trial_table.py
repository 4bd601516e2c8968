"""Every trial: its table, scatter plots and feature maps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from clsweep.catalog import DIAGNOSTIC, METRIC, PARAM
from clsweep.catalog.rows import Row
from clsweep.display.numbers import count, fixed, setting
from clsweep.statistics import charts
from clsweep.statistics.charts import alt
from clsweep.statistics.computed import ReportContext
from clsweep.statistics.report_objects import Figure
from clsweep.statistics.sensitivity import sensitivity, sizes_of
from clsweep.statistics.statistic import Statistic
from clsweep.sweeps.notes import records_of
from clsweep.sweeps.study_data import StudyData

TRIAL_COLUMNS = ("trial_id", "objective", "config", "seed", "status")
TRIAL_OUTCOMES = ("epochs_trained", "wall_time_s")
_MEANINGS = {
    "trial_id": "name of the trial in all tables: objective, configuration and seed",
    "seed": "what its random numbers begin with",
    "status": "finished; stopped or skipped by a scheduler; or failed",
    "train_loss": "of the last epoch",
    "images_per_s": "images trained on in a second, over all epochs",
    "wall_time_s": "seconds from the start of training to the last score",
    "epochs_trained": "fewer than were asked for where the trial was stopped",
}
_MAX_POINTS = 750  # of each scatter figure, the same in all: a page has to stay small
MAX_PANEL_POINTS = 1000
MAX_SCATTERS = 4
MAX_LABELS = 20  # more classes than this have no legend
DRAWN_SEED = 0
_SETTING = "setting of the configuration"  # no trial has a column of this name


def scatter_figures(data: StudyData, sensitivity: pd.DataFrame) -> list[Figure]:
    """The trials with a score, or `_MAX_POINTS` of them at random, against each of the most
    important hyperparameters by `sensitivity`.
    """
    params = list(dict.fromkeys(param for sweep in data.sweeps for param in sweep.params))
    if len(sensitivity):
        largest = sizes_of(sensitivity).groupby(sensitivity["term"].to_numpy()).max().fillna(0.0)
        params.sort(key=lambda param: -float(largest.get(param, 0.0)))
    drawn = _sampled(charts.scored_trials(data), _MAX_POINTS)
    if drawn.empty:
        return []
    drawn = drawn.assign(**{_SETTING: charts.settings_at(data, drawn)})  # once for all figures
    tables = {param: drawn[drawn[param].notna()] for param in params[:MAX_SCATTERS]}
    return charts.each("trials", tables, _scatter, data)


def meanings_of(columns: Sequence[str]) -> list[str]:
    """The meaning of columns of trials, a text each: of settings and scores the catalog's."""
    rows = (PARAM, METRIC, DIAGNOSTIC)
    docs = {name: of[name].doc for of in rows for name in columns if name in of} | _MEANINGS
    return [f"{name}: {docs[name]}" for name in columns if name in docs]


def point_figures(data: StudyData) -> list[Figure]:
    """The t-SNE map of the images by each objective's best trial (DCL Fig. 4, DimCL Fig. 7-8)."""
    points, trials = data.points, charts.scored_trials(data)
    if points.empty or trials.empty:
        return []
    trials = trials[trials["trial_id"].isin(points["trial_id"].unique())]
    best = trials.sort_values(data.metric, ascending=data.mode == "min", kind="stable")
    best = charts.by_objective_order(best.drop_duplicates("objective"), data)
    trial = {row["objective"]: row for row in records_of(best)}
    tables = {name: points[points["trial_id"] == row["trial_id"]] for name, row in trial.items()}
    return charts.each("map", tables, _panel, trial, data)


def _sampled(rows: pd.DataFrame, num: int) -> pd.DataFrame:
    """At most so many rows, in their order."""
    if len(rows) <= num:
        return rows
    chosen = np.random.default_rng(DRAWN_SEED).choice(len(rows), num, replace=False)
    return rows.iloc[np.sort(chosen)]


def _scatter(slug: str, param: str, rows: pd.DataFrame, data: StudyData) -> Figure:
    total, lost = charts.scored_trials(data), len(data.trials) - len(charts.scored_trials(data))
    called, title = charts.param_title(param), data.metric_title
    named = {"objective": "objective", "trial": "trial_id", "setting": _SETTING, "seed": "seed"}
    frame = pd.DataFrame({name: rows[column].to_numpy() for name, column in named.items()})
    frame["y"] = charts.float_column(rows, data.metric).round(4)
    if any(sweep.scales.get(param) == "category" for sweep in data.sweeps):
        frame["x"] = [setting(value) for value in rows[param]]
        axis = alt.Axis(labelAngle=0, labelOverlap="greedy", grid=False)
        scale = alt.Scale(domain=list(dict.fromkeys(frame["x"])))
        x = alt.X("x:N", title=called, scale=scale, axis=axis)
    else:
        frame["x"] = charts.float_column(rows, param)
        x = charts.param_axis(data, param, frame["x"].to_numpy(dtype=float), ticks=True)
    names = {name: name for name in ("trial", "objective", "setting", "seed")}
    tips = charts.tips(**names, y=title)
    lines, note = charts.reference_lines(data, frame, title)
    hue, form = charts.looks(data, frame)
    cloud = alt.Chart(frame).mark_point(filled=True, size=34, opacity=1, fillOpacity=0.65)
    shown, num = "Every trial with a score", int(total[param].notna().sum())
    if len(frame) < num:
        shown = f"{count(len(frame))} of {count(num)} trials, drawn at random with a fixed seed"
    return Figure(
        name=slug,
        title=f"Every trial against {called}",
        caption=f"{shown}.{f' {count(lost)} without a score are not shown.' if lost else ''}{note}",
        chart=charts.layers(
            [*lines, cloud.encode(x, charts.score_axis(title), hue, form, tooltip=tips)]
        ),
        data=frame.rename(columns={"trial": "trial_id", "x": "value", "y": "score"}),
        is_apart=True,
    )


def _panel(
    slug: str, name: str, points: pd.DataFrame, best: Mapping[str, Row], data: StudyData
) -> Figure:
    trial = best[name]
    drawn = _sampled(points, MAX_PANEL_POINTS)
    places = drawn[["x", "y"]].astype(float)
    places -= places.mean()
    frame = (places / max(float(places.abs().to_numpy().max()), 1e-12)).round(3)
    frame = frame.assign(label=drawn["label"].astype(str)).reset_index(drop=True)
    labels = sorted(frame["label"].unique(), key=lambda text: (len(text), text))
    # No colour of an objective: what is coloured here are classes.
    scale = alt.Scale(domain=labels, scheme={"name": "sinebow", "count": len(labels) + 1})
    columns = {"columns": alt.ExprRef("width > 460 ? 10 : 5")}
    legend = alt.Legend(**charts.legend_place() | columns) if len(labels) <= MAX_LABELS else None
    span = alt.Scale(domain=[-1.05, 1.05])
    points_drawn = alt.Chart(frame).mark_point(filled=True, size=26, opacity=1, fillOpacity=0.75)
    part = f"{count(len(frame))} of {count(len(points))} images"
    shown = f" {part}, drawn at random with a fixed seed." * (len(frame) < len(points))
    score = f"{data.metric} {fixed(trial[data.metric])}"
    shapes = alt.Scale(domain=labels)
    cloud = points_drawn.encode(
        alt.X("x:Q", axis=None, scale=span),
        alt.Y("y:Q", axis=None, scale=span),
        alt.Color("label:N", title="class", scale=scale, legend=legend),
        alt.Shape("label:N", title="class", scale=shapes, legend=legend),
        tooltip=charts.tips(label="class"),
    )
    return Figure(
        name=slug,
        title=f"{trial['objective']}: map of the features",
        caption=f"t-SNE of the {'test' if data.on_test else 'validation'} images by the best "
        f"trial ({trial['trial_id']}, {score}), coloured by class. "
        f"Distances between groups mean nothing.{shown}",
        chart=charts.layers([cloud], height=300),
        data=frame,
        is_apart=True,
    )


def _trials(context: ReportContext) -> pd.DataFrame:
    """The trials, best first."""
    data = context.data
    outcomes = [name for name in TRIAL_OUTCOMES if name in data.trials]
    names = [name for name in TRIAL_COLUMNS if name in data.trials]
    frame = data.trials[[*names, *context.swept, data.metric, *outcomes]]
    return frame.sort_values(
        data.metric, ascending=data.mode == "min", kind="stable", ignore_index=True
    )


TRIALS = Statistic(
    name="trials",
    title="All trials, the best first",
    frame=_trials,
    is_apart=True,
    figures=lambda context: (
        *scatter_figures(context.data, context.compute(sensitivity)),
        *point_figures(context.data),
    ),
)
