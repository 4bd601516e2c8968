"""What goes with the scores."""

from __future__ import annotations

from typing import Any

import pandas as pd

from clsweep.analysis import mechanism as analysis
from clsweep.catalog.rows import Row
from clsweep.display.cells import records_of
from clsweep.display.numbers import setting
from clsweep.findings.material import Material
from clsweep.findings.notes import status
from clsweep.questions import charts
from clsweep.questions.answers import Answers, Asked
from clsweep.questions.charts import alt
from clsweep.questions.column import Column, Question, p_of, share
from clsweep.questions.model import Figure, Open, Sentences, Wording
from clsweep.questions.words import interval, listed, number, passes


def mechanism(of: Answers, *, by: str | None = None) -> pd.DataFrame:
    """The metric beside the diagnostics, see `analysis.mechanism`."""
    return analysis.mechanism(of.material.trials, of.material.spaces, **_of(of.material), by=by)


def links(of: Answers) -> pd.DataFrame:
    """Rank correlation of each diagnostic with the metric over the configurations."""
    return analysis.links(of.material.trials, of.material.spaces, **_of(of.material))


def _of(material: Material) -> dict[str, Any]:
    return {"metric": material.metric, "diagnostics": material.diagnostics}


def _by(asked: Asked) -> dict[str, Any]:
    """What the mechanism is shown against: the batch size, or what most objectives share."""
    names = asked.swept
    return {"by": "batch_size" if "batch_size" in names else next(iter(names), None)}


def associations(links: pd.DataFrame, words: Wording) -> Sentences:
    """Diagnostics that go with the metric, from `links`: one sentence for every objective that has
    some, where test, interval and p-value agree.
    """
    out, unseen = [], []
    for name, rows in links.groupby("objective", sort=False) if len(links) else ():
        found = []
        for row in records_of(rows):
            rho, low, high = row["rho"], row["low"], row["high"]
            if passes(row, "rho", "low", "high") and (low > 0 if rho > 0 else high < 0):
                seen = f"Spearman {number(rho)}{interval(low, high, apart_from=0.0)}"
                found.append(f"{row['diagnostic']} is {'higher' if rho > 0 else 'lower'} ({seen})")
        what = "an association, not a cause" if len(found) == 1 else "associations, not causes"
        where = f"where {words.metric} is higher"
        if found:
            out.append(f"Over the settings of {name}, {listed(found)} {where}: {what}.")
        else:
            unseen.append(str(name))
    if unseen:
        out.append(
            Open(f"Which diagnostics go with {words.metric} is not resolved for {listed(unseen)}.")
        )
    return tuple(out)


def histogram_figures(material: Material) -> list[Figure]:
    """Distribution of q_B at the last scored epoch by batch size (DCL Fig. 1), one figure an
    objective: the mean share of every bin over the trials.
    """
    histograms, trials = material.histograms, charts.scored(material)
    if "diagnostic" in histograms.columns:  # an older table has q_B alone
        histograms = histograms[histograms["diagnostic"].fillna("q_b_mean") == "q_b_mean"]
    if histograms.empty or trials.empty:
        return []
    last = histograms.groupby("trial_id")["epoch"].transform("max")
    by = [name for name in ("trial_id", "objective", "batch_size") if name in trials.columns]
    joined = histograms[histograms["epoch"] == last].merge(trials[by], on="trial_id")
    if "batch_size" not in by or joined["batch_size"].isna().all():
        joined["batch_size"] = 0
    keys = ["objective", "batch_size", "bin_low", "bin_high"]
    groups = joined.groupby(keys, as_index=False)
    frame = groups.agg(share=("share", "mean"), num=("trial_id", "nunique"))
    tables = {
        name: frame[frame["objective"] == name].reset_index(drop=True)
        for name in charts.objectives(material)
    }
    return charts.each(
        "coupling", tables, lambda slug, at, rows: _histogram(slug, at, rows, material)
    )


def _histogram(slug: str, name: str, frame: pd.DataFrame, material: Material) -> Figure:
    sizes = [setting(value) for value in sorted(frame["batch_size"].unique())]
    frame["size"] = [setting(value) for value in frame["batch_size"]]
    frame["middle"] = (frame["bin_low"] + frame["bin_high"]) / 2
    called = charts.param_title(material, "batch_size")
    legend = alt.Legend(**charts.legend_place(), values=sizes) if len(sizes) > 1 else None
    hue = alt.Color(
        "size:O", title=called, sort=sizes, scale=alt.Scale(domain=sizes), legend=legend
    )
    x = alt.X("middle:Q", title="q_B of an anchor", scale=alt.Scale(domain=[0, 1]))
    y = alt.Y("share:Q", title="share of the anchors", axis=alt.Axis(format="%", tickCount=5))
    tips = [
        *charts.tips(size=called, bin_low="q_B from", bin_high="q_B to"),
        *charts.tips(form=".3~p", share="share of the anchors"),
        *charts.tips(num="trials"),
    ]
    base = alt.Chart(frame).encode(x, y, hue, tooltip=tips)
    return Figure(
        name=slug,
        title=f"{name}: coupling of negatives and positives",
        caption="Distribution of the negative-positive coupling multiplier q_B over the anchors at "
        "the last scored epoch, mean over the trials of each batch size. Where q_B is near 0, "
        "InfoNCE hardly learns from the anchor.",
        chart=charts.layers(
            [
                base.mark_line(strokeWidth=2, interpolate="monotone"),
                base.mark_point(filled=True, size=80, opacity=0),  # something to hover over
            ]
        ),
        data=frame[["batch_size", "bin_low", "bin_high", "share", "num"]],
        settings=("batch_size",),
    )


def _direction(row: Row) -> str:
    """Whether a diagnostic rises or falls with the metric."""
    if not row["resolved"]:
        return status(row["reason"])
    return f"{'higher' if row['rho'] > 0 else 'lower'} with the metric"


QUESTION = Question(
    name="mechanism",
    caption="Means over the configurations, each the mean of its finished trials.",
    table=mechanism,
    options=_by,
    ahead=True,
    title=lambda asked: (
        "{metric} and the diagnostics" + (f" by {_by(asked)['by']}" if asked.swept else "")
    ),
    draw=lambda asked: histogram_figures(asked.material),
    formulas={"mechanism": analysis.COLUMNS},
)
LINKS = Question(
    name="links",
    title="Diagnostics that rise or fall with the metric",
    caption="Spearman's rank correlation over the configurations, with 95 % intervals: "
    "association, not cause.",
    table=links,
    ahead=True,
    columns=(
        Column("objective"),
        Column("diagnostic"),
        Column("configs", "num_configs"),
        Column("rank correlation", share("rho", "", most=2)),
        Column("p Holm", p_of("p_holm")),
        Column("verdict", _direction),
    ),
    say=lambda asked: associations(asked.ask(links), asked.words),
    formulas={"links": analysis.LINK_COLUMNS},
)
