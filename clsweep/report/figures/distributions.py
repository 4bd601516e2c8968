"""Clouds and densities: every trial, the coupling q_B of its negatives and positives, the map of
its features.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any
from weakref import WeakKeyDictionary

import altair as alt
import numpy as np
import pandas as pd

from clsweep.display.numbers import count, fixed, setting
from clsweep.findings.material import Material
from clsweep.report.figures.encodings import (
    colour,
    in_order,
    layers,
    legend_place,
    numbers,
    objectives,
    param_axis,
    param_title,
    reference_lines,
    score_axis,
    settings_at,
    shape,
    slugs,
    tooltip,
)
from clsweep.report.model import Figure, trial_anchor

MAX_POINTS = 750  # of each scatter figure, the same in all: a page has to stay small
MAX_PANEL_POINTS = 1000
MAX_SCATTERS = 4
MAX_LABELS = 20  # more classes than this have no legend
SEED = 0
_SCORED: WeakKeyDictionary[Material, pd.DataFrame] = WeakKeyDictionary()
_SETTING = "setting of the configuration"  # no trial has a column of this name


def scatter_figures(material: Material, sensitivity: pd.DataFrame | None = None) -> list[Figure]:
    """Every trial's score against a hyperparameter, one figure for each of the most important ones.

    Importance is the largest effect that any objective has in `sensitivity`; without one the order
    is the study's. The trials are those of `drawn_trials`; each point is a link to its row in the
    table of trials.
    """
    params = _by_importance(material, sensitivity)[:MAX_SCATTERS]
    trials, drawn = _scored(material), drawn_trials(material)
    if trials.empty:
        return []
    drawn = drawn.assign(**{_SETTING: settings_at(material, drawn)})  # once for all figures
    tables = {param: drawn[drawn[param].notna()] for param in params}
    tables = {param: rows for param, rows in tables.items() if not rows.empty}
    totals = {param: int(trials[param].notna().sum()) for param in tables}
    return [
        _scatter(slug, param, tables[param], totals[param], material)
        for slug, param in zip(slugs("trials", list(tables)), tables, strict=True)
    ]


def drawn_trials(material: Material) -> pd.DataFrame:
    """The trials that scatter figures show: all with a score, or `MAX_POINTS` of them, drawn at
    random with a fixed seed.
    """
    return _sampled(_scored(material), MAX_POINTS)


def histogram_figures(material: Material) -> list[Figure]:
    """Distribution of q_B at the last scored epoch by batch size (DCL Fig. 1), one figure an
    objective.
    """
    frame = _coupling(material)
    if frame.empty:
        return []
    shown = [name for name in objectives(material) if name in set(frame["objective"])]
    return [
        _histogram(slug, name, frame[frame["objective"] == name].reset_index(drop=True), material)
        for slug, name in zip(slugs("coupling", shown), shown, strict=True)
    ]


def point_figures(material: Material) -> list[Figure]:
    """The t-SNE map of the scored images by the best trial of each objective (DCL Fig. 4, DimCL
    Fig. 7-8).
    """
    points, trials = material.points, _scored(material)
    if points.empty or trials.empty:
        return []
    trials = trials[trials["trial_id"].isin(points["trial_id"].unique())]
    best = trials.sort_values(material.metric, ascending=material.mode == "min", kind="stable")
    best = in_order(best.drop_duplicates("objective"), material)
    return [
        _panel(slug, row, points[points["trial_id"] == row["trial_id"]], material)
        for slug, row in zip(
            slugs("map", list(best["objective"])), best.to_dict("records"), strict=True
        )
    ]


def _by_importance(material: Material, sensitivity: pd.DataFrame | None) -> list[str]:
    swept = list(dict.fromkeys(param for sweep in material.sweeps for param in sweep.params))
    if sensitivity is None or sensitivity.empty:
        return swept
    size = np.fmax(numbers(sensitivity, "total"), numbers(sensitivity, "first"))
    largest = pd.Series(size).groupby(sensitivity["term"].to_numpy()).max()
    return sorted(swept, key=lambda param: -float(np.nan_to_num(largest.get(param, 0.0))))


def _scored(material: Material) -> pd.DataFrame:
    """Finished trials with a finite score, of objectives that have a colour; found once."""
    if material not in _SCORED:
        trials = material.trials
        has_score = np.isfinite(numbers(trials, material.metric))
        finished = trials[(trials["status"] == "finished") & has_score]
        _SCORED[material] = in_order(finished, material)
    return _SCORED[material]


def _sampled(rows: pd.DataFrame, num: int) -> pd.DataFrame:
    """At most so many rows, in their order."""
    if len(rows) <= num:
        return rows
    chosen = np.random.default_rng(SEED).choice(len(rows), num, replace=False)
    return rows.iloc[np.sort(chosen)]


def _scatter(slug: str, param: str, rows: pd.DataFrame, total: int, material: Material) -> Figure:
    called, title = param_title(material, param), material.metric_title
    frame = pd.DataFrame(
        {
            "objective": rows["objective"].to_numpy(),
            "trial": rows["trial_id"].to_numpy(),
            "setting": rows[_SETTING].to_numpy(),
            "seed": rows["seed"].to_numpy(),
            "link": [f"#{trial_anchor(str(name))}" for name in rows["trial_id"]],
            "y": numbers(rows, material.metric).round(4),
        }
    )
    if any(sweep.scales.get(param) == "category" for sweep in material.sweeps):
        frame["x"] = [setting(value) for value in rows[param]]
        axis = alt.Axis(labelAngle=0, labelOverlap="greedy", grid=False)
        x = alt.X(
            "x",
            type="nominal",
            title=called,
            scale=alt.Scale(domain=list(dict.fromkeys(frame["x"]))),
            axis=axis,
        )
    else:
        frame["x"] = numbers(rows, param)
        x = param_axis(material, param, frame["x"].to_numpy(dtype=float), ticks=True)
    tips = [
        tooltip("trial", "trial", number=False),
        tooltip("objective", "objective", number=False),
        tooltip("setting", "setting", number=False),
        tooltip("seed", "seed", number=False),
        tooltip("y", title),
    ]
    lines, said = reference_lines(material, frame["y"].to_numpy(dtype=float), title)
    hue, form = colour(material, frame["objective"]), shape(material, frame["objective"])
    cloud = alt.Chart(frame).mark_point(filled=True, size=34, opacity=1, fillOpacity=0.65)
    lost = len(material.trials) - len(_scored(material))
    sampled = (
        f"{count(len(frame))} of {count(total)} trials, drawn at random with a fixed seed"
        if len(frame) < total
        else "Every trial with a score"
    )
    return Figure(
        name=slug,
        title=f"Every trial against {called}",
        caption=f"{sampled}. Hover over a point for its setting, or click it for its row in the "
        f"table of trials.{f' {count(lost)} without a score are not shown.' if lost else ''}{said}",
        chart=layers(
            [
                *lines,
                cloud.encode(
                    x,
                    score_axis(title),
                    hue,
                    form,
                    alt.Href("link", type="nominal"),
                    tooltip=tips,
                ),
            ],
            describe=f"{material.metric} of every trial against {param}, a point a trial.",
        ),
        data=frame.drop(columns="link").rename(
            columns={"trial": "trial_id", "x": "value", "y": "score"}
        ),
        settings=("value",),
    )


def _coupling(material: Material) -> pd.DataFrame:
    """Mean share of every bin over the trials of an objective and batch size, at the last epoch
    each was scored.
    """
    histograms, trials = material.histograms, _scored(material)
    if histograms.empty or trials.empty:
        return pd.DataFrame(columns=["objective"])
    last = histograms[
        histograms["epoch"] == histograms.groupby("trial_id")["epoch"].transform("max")
    ]
    by = ["trial_id", "objective", *[name for name in ("batch_size",) if name in trials.columns]]
    joined = last.merge(trials[by], on="trial_id")
    if "batch_size" not in by or joined["batch_size"].isna().all():
        joined["batch_size"] = 0
    keys = ["objective", "batch_size", "bin_low", "bin_high"]
    frame = joined.groupby(keys, as_index=False).agg(
        share=("share", "mean"), num=("trial_id", "nunique")
    )
    return frame


def _histogram(slug: str, name: str, frame: pd.DataFrame, material: Material) -> Figure:
    sizes = [setting(value) for value in sorted(frame["batch_size"].unique())]
    frame["size"] = [setting(value) for value in frame["batch_size"]]
    frame["middle"] = (frame["bin_low"] + frame["bin_high"]) / 2
    called = param_title(material, "batch_size")
    legend = alt.Legend(**legend_place(), values=sizes) if len(sizes) > 1 else None
    hue = alt.Color(
        "size",
        type="ordinal",
        title=called,
        sort=sizes,
        scale=alt.Scale(domain=sizes),
        legend=legend,
    )
    x = alt.X(
        "middle", type="quantitative", title="q_B of an anchor", scale=alt.Scale(domain=[0, 1])
    )
    y = alt.Y(
        "share",
        type="quantitative",
        title="share of the anchors",
        axis=alt.Axis(format="%", tickCount=5),
    )
    tips = [
        tooltip("size", called, number=False),
        tooltip("bin_low", "q_B from"),
        tooltip("bin_high", "q_B to"),
        alt.Tooltip("share", type="quantitative", title="share of the anchors", format=".3~p"),
        tooltip("num", "trials"),
    ]
    base = alt.Chart(frame).encode(x, y, hue, tooltip=tips)
    return Figure(
        name=slug,
        title=f"{name}: coupling of negatives and positives",
        caption="Distribution of the negative-positive coupling multiplier q_B over the anchors at "
        "the last scored epoch, mean over the trials of each batch size. Where q_B is near 0, "
        "InfoNCE hardly learns from the anchor.",
        chart=layers(
            [
                base.mark_line(strokeWidth=2, interpolate="monotone"),
                base.mark_point(filled=True, size=80, opacity=0),  # something to hover over
            ],
            describe=f"Distribution of q_B of {name}, a line a batch size.",
        ),
        data=frame[["batch_size", "bin_low", "bin_high", "share", "num"]],
        settings=("batch_size",),
    )


def _panel(
    slug: str, trial: Mapping[Hashable, Any], points: pd.DataFrame, material: Material
) -> Figure:
    drawn = _sampled(points, MAX_PANEL_POINTS)
    places = drawn[["x", "y"]].to_numpy(dtype=float)
    places = (places - places.mean(axis=0)) / max(
        float(np.abs(places - places.mean(axis=0)).max()), 1e-12
    )
    frame = pd.DataFrame(
        {
            "x": places[:, 0].round(3),
            "y": places[:, 1].round(3),
            "label": drawn["label"].astype(str).to_numpy(),
        }
    )
    labels = sorted(frame["label"].unique(), key=lambda text: (len(text), text))
    # No colour of an objective: what is coloured here are classes.
    scale = alt.Scale(domain=labels, scheme={"name": "sinebow", "count": len(labels) + 1})
    shapes = alt.Scale(domain=labels)
    legend = (
        alt.Legend(**legend_place() | {"columns": alt.ExprRef("width > 460 ? 10 : 5")})
        if len(labels) <= MAX_LABELS
        else None
    )
    span, none = alt.Scale(domain=[-1.05, 1.05]), None
    chart = alt.Chart(frame).mark_point(filled=True, size=26, opacity=1, fillOpacity=0.75)
    shown = (
        f" {count(len(frame))} of {count(len(points))} images, drawn at random with a fixed seed."
        if len(frame) < len(points)
        else ""
    )
    score = f"{material.metric} {fixed(trial[material.metric])}"
    return Figure(
        name=slug,
        title=f"{trial['objective']}: map of the features",
        caption=f"t-SNE of the {'test' if material.on_test else 'validation'} images by the best "
        f"trial ({trial['trial_id']}, {score}), coloured by class. "
        f"Distances between groups mean nothing.{shown}",
        chart=layers(
            [
                chart.encode(
                    alt.X("x", type="quantitative", axis=none, scale=span),
                    alt.Y("y", type="quantitative", axis=none, scale=span),
                    alt.Color("label", type="nominal", title="class", scale=scale, legend=legend),
                    alt.Shape("label", type="nominal", title="class", scale=shapes, legend=legend),
                    tooltip=[tooltip("label", "class", number=False)],
                )
            ],
            height=300,
            describe=f"t-SNE map of the features of {trial['objective']}, a point an image, "
            "coloured by class.",
        ),
        data=frame,
    )
