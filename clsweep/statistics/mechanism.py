"""Diagnostics beside the scores: their means, and their rank correlation with the metric."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from scipy import special

from clsweep.analysis import CONFIDENCE, SIGNIFICANCE
from clsweep.analysis.array_types import Array
from clsweep.analysis.holm import holm
from clsweep.analysis.reasons import Note, Reason, note, noted
from clsweep.analysis.regions import cut
from clsweep.analysis.sweep import Sweep, check_by
from clsweep.catalog.rows import Row
from clsweep.display.numbers import Wording, interval, joined, number, setting
from clsweep.statistics import charts
from clsweep.statistics.charts import alt
from clsweep.statistics.computed import ReportContext, Statistics
from clsweep.statistics.report_objects import REASON_COLUMNS, Figure, Sentences, Unresolved
from clsweep.statistics.statistic import Column, Statistic, fraction, p_of
from clsweep.sweeps.notes import passes, records_of, status_text
from clsweep.sweeps.study_data import StudyData

# then the metric under its own name, and every diagnostic that any trial has
MEANINGS = {
    "objective": "name, in order of first appearance",
    "at": 'value of `by`, or a bin of its values, such as "batch_size=256"; empty for the whole '
    "objective",
    "num_trials": "finished trials with a finite metric",
    **REASON_COLUMNS,
}
LINK_FORMULAS = {
    "objective": "name, in order of first appearance",
    "diagnostic": "name",
    "num_configs": "configurations with a mean of both",
    "rho": "Spearman's rank correlation between the configurations' means of diagnostic and metric",
    "low": "interval: tanh( atanh(rho) -+ z sqrt( (1 + rho^2 / 2) / (n - 3) ) ) (Bonett and "
    "Wright 2000)",
    "high": "",
    "p_holm": "of rho = 0, on the scale of the interval; Holm over all diagnostics and objectives",
    "resolved": "whether p_holm is below the level of significance: the diagnostic is higher "
    "(rho > 0) or lower with the metric, an association and no cause",
    **REASON_COLUMNS,
}
MIN_CONFIGS = 10


def mechanism(of: Statistics, *, by: str | None = None) -> pd.DataFrame:
    """Mean metric and diagnostics per objective and value of `by`: `MEANINGS`, with the means
    before the note.

    Means are over configurations, each the mean of its finished trials, so that a failed seed
    changes no weight. A diagnostic that no trial has is no column; without any the table is empty.
    An objective that does not sweep `by` has one row, at its own value; one that does not cover the
    space evenly one without means. ValueError for a `by` that no objective sweeps.
    """
    trials, sweeps = of.data.trials, of.data.spaces
    metric, diagnostics = of.data.metric, of.data.diagnostics
    check_by(by, sweeps)
    tables = [config_means(trials, sweep, metric, diagnostics) for sweep in sweeps]
    tables = [means.reindex(columns=[metric, *diagnostics, "num"]) for means in tables]
    shown = [name for name in diagnostics if any(means[name].notna().any() for means in tables)]
    start, end = [name for name in MEANINGS if name not in REASON_COLUMNS], [*REASON_COLUMNS]
    if not shown:
        return pd.DataFrame(columns=[*start, metric, *end])
    rows: list[dict[str, Any]] = []
    measured = [sweep for sweep in sweeps if by in sweep.params and not sweep.not_measured]
    regions = cut(by, measured) if by is not None and measured else None
    for sweep, means in zip(sweeps, tables, strict=True):
        if why := sweep.nothing:
            num = int(means["num"].sum())
            row = {"objective": sweep.objective, "at": "", "num_trials": num}
            rows.append(row | noted(why=why))
            continue
        codes, texts = pd.Series(0, index=sweep.configs), [""]
        if regions is not None and regions.param in sweep.params:
            codes[:], texts = regions.place(sweep.settings[regions.param]), list(regions.named)
        elif by is not None:
            own = trials.loc[trials["objective"].astype(str) == sweep.objective, by].dropna()
            texts = [f"{by}={setting(own.iloc[0])}" if len(own) else ""]
        for code, group in means.groupby(codes.reindex(means.index)):
            row = {"objective": sweep.objective, "at": texts[int(code)], **noted()}
            row["num_trials"] = int(group["num"].sum())
            rows.append(row | {name: group[name].mean() for name in (metric, *shown)})
    return pd.DataFrame(rows, columns=[*start, metric, *shown, *end])


def links(of: Statistics) -> pd.DataFrame:
    """Rank correlation of every diagnostic with the metric over configurations; the columns of
    `LINK_FORMULAS`.

    A hyperparameter that moves both links them, so this says nothing of cause. It needs 10
    configurations that cover the space evenly, as a sample, which errs on the wide side for a grid.
    """
    metric, diagnostics = of.data.metric, of.data.diagnostics
    rows: list[dict[str, Any]] = []
    for sweep in of.data.spaces:
        means = config_means(of.data.trials, sweep, metric, diagnostics)
        for name in diagnostics:
            if name in means and means[name].notna().any():
                row = {"objective": sweep.objective, "diagnostic": name}
                pairs = means[[name, metric]].dropna().to_numpy()
                rows.append(row | rank_correlation(pairs, sweep.not_measured))
    table = pd.DataFrame(rows, columns=[*LINK_FORMULAS, "p"])
    table["p_holm"] = holm(table.pop("p").to_numpy(dtype=float))
    table["resolved"] = table["p_holm"] < SIGNIFICANCE
    return table


def config_means(
    trials: pd.DataFrame, sweep: Sweep, metric: str, diagnostics: Sequence[str]
) -> pd.DataFrame:
    """Means of metric and diagnostics, and `num` trials; a row per scored configuration."""
    names = [metric, *(name for name in diagnostics if name in trials.columns)]
    group = trials[trials["objective"].astype(str) == sweep.objective]
    numbers = group[names].to_numpy(dtype=float, na_value=np.nan)
    values = pd.DataFrame(numbers, index=group.index, columns=names)
    values = values.where(np.isfinite(values))
    scored = (group["status"] == "finished") & values[metric].notna()
    # Those of which a trial was stopped count nowhere.
    scored &= group["config"].isin(sweep.configs[sweep.measured.alive])
    scored &= group["seed"].isin(sweep.seeds)
    grouped = values[scored].groupby(group.loc[scored, "config"], sort=False)
    return grouped.mean().assign(num=grouped.size())


def rank_correlation(pairs: Array, withheld: Note | None) -> dict[str, Any]:
    """Spearman's rho of two columns (n, 2), its interval and p; NaN with a note without one."""
    num = len(pairs)
    if num < MIN_CONFIGS:
        withheld = withheld or note(Reason.FEW_PAIRED, configs=num, least=MIN_CONFIGS)
    row: dict[str, Any] = {"num_configs": num, "p": np.nan, **noted(why=withheld)}
    if withheld:
        return row
    # To 10 digits: equal values whose means over the seeds differ in the last bit are ties.
    size = np.abs(pairs).max(axis=0)
    digits = 10.0 ** (9 - np.floor(np.log10(np.where(size > 0, size, 1.0))))
    ranks = pd.DataFrame(np.round(pairs * digits)).rank().to_numpy()
    ranks = ranks - ranks.mean(axis=0)
    size = np.sqrt(np.square(ranks).sum(axis=0))
    if not size.all():
        return row | noted(why=note(Reason.EQUAL_RANKS))
    rho = float(np.clip(ranks[:, 0] @ ranks[:, 1] / (size[0] * size[1]), -1.0, 1.0))
    # Ranks in full agreement are not certainty: the interval and p take half a swap of neighbours
    # off.
    most = 1 - 6 / (num * (num**2 - 1))
    used = float(np.clip(rho, -most, most))
    place, error = np.arctanh(used), np.sqrt((1 + used**2 / 2) / (num - 3))
    half = float(special.ndtri((1 + CONFIDENCE) / 2)) * error
    low, high = np.tanh(place - half), np.tanh(place + half)
    # In the tails not as small as that of t, which let 6 % through.
    p = float(2 * special.ndtr(-abs(place) / error))
    return row | {"rho": rho, "low": min(float(low), rho), "high": max(float(high), rho), "p": p}


def _by(context: ReportContext) -> dict[str, Any]:
    """The axis of the mechanism: the batch size, or what most objectives share."""
    names = context.swept
    return {"by": "batch_size" if "batch_size" in names else next(iter(names), None)}


def associations(links: pd.DataFrame, words: Wording) -> Sentences:
    """Diagnostics that go with the metric, where test, interval and p-value agree."""
    out, unseen = [], []
    for name, rows in links.groupby("objective", sort=False) if len(links) else ():
        associated = []
        for row in records_of(rows):
            rho, low, high = row["rho"], row["low"], row["high"]
            if passes(row, "rho", "low", "high") and (low > 0 if rho > 0 else high < 0):
                seen = f"Spearman {number(rho)}{interval(low, high, apart_from=0.0)}"
                way = "higher" if rho > 0 else "lower"
                associated.append(f"{row['diagnostic']} is {way} ({seen})")
        what = "an association, not a cause" if len(associated) == 1 else "associations, not causes"
        where = f"where {words.metric} is higher"
        if associated:
            out.append(f"Over the settings of {name}, {joined(associated)} {where}: {what}.")
        else:
            unseen.append(str(name))
    which = f"Which diagnostics go with {words.metric}"
    open_ = [Unresolved(f"{which} is not resolved for {joined(unseen)}.")] if unseen else []
    return (*out, *open_)


def histogram_figures(data: StudyData) -> list[Figure]:
    """Mean distribution of q_B over the trials at the last epoch by batch size (DCL Fig. 1)."""
    histograms, trials = data.histograms, charts.scored_trials(data)
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
    return charts.each("coupling", charts.by_objective(frame, data), _histogram)


def _histogram(slug: str, name: str, frame: pd.DataFrame) -> Figure:
    sizes = [setting(value) for value in sorted(frame["batch_size"].unique())]
    frame["size"] = [setting(value) for value in frame["batch_size"]]
    frame["middle"] = (frame["bin_low"] + frame["bin_high"]) / 2
    called = charts.param_title("batch_size")
    of_each = " of each batch size" if len(sizes) > 1 else ""
    legend = alt.Legend(**charts.legend_place(), values=sizes) if len(sizes) > 1 else None
    scale = alt.Scale(domain=sizes)
    hue = alt.Color("size:O", title=called, sort=sizes, scale=scale, legend=legend)
    x = alt.X("middle:Q", title="q_B of an anchor", scale=alt.Scale(domain=[0, 1]))
    y = alt.Y("share:Q", title="share of the anchors", axis=alt.Axis(format="%", tickCount=5))
    tips = [
        *charts.tips(size=called, bin_low="q_B from", bin_high="q_B to"),
        *charts.tips(form=".3~p", share="share of the anchors"),
        *charts.tips(num="trials"),
    ]
    base = alt.Chart(frame).encode(x, y, hue, tooltip=tips)
    line = base.mark_line(strokeWidth=2, interpolate="monotone")
    hovered = base.mark_point(filled=True, size=80, opacity=0)  # something to hover over
    return Figure(
        name=slug,
        title=f"{name}: coupling of negatives and positives",
        caption="Distribution of the negative-positive coupling multiplier q_B over the anchors at "
        f"the last scored epoch, mean over the trials{of_each}. Where q_B is near 0, "
        "InfoNCE hardly learns from the anchor.",
        chart=charts.layers([line, hovered]),
        data=frame[["batch_size", "bin_low", "bin_high", "share", "num"]],
        is_apart=True,
    )


def _direction(row: Row) -> str:
    """`rises` or `falls`: a diagnostic along the metric."""
    if not row["resolved"]:
        return status_text(row["reason"])
    return f"{'higher' if row['rho'] > 0 else 'lower'} with the metric"


MECHANISM = Statistic(
    name="mechanism",
    is_apart=True,
    table=mechanism,
    options=_by,
    ahead=True,
    title=lambda context: (
        "{metric} and the diagnostics" + (f" by {_by(context)['by']}" if context.swept else "")
    ),
    figures=lambda context: histogram_figures(context.data),
    formulas={"mechanism": MEANINGS},
)
LINKS = Statistic(
    name="links",
    title="Diagnostics that rise or fall with the metric",
    is_apart=True,
    table=links,
    ahead=True,
    columns=(
        Column("objective"),
        Column("diagnostic"),
        Column("configs", "num_configs"),
        Column("rank correlation", fraction("rho", "", most=2)),
        Column("p Holm", p_of("p_holm")),
        Column("verdict", _direction),
    ),
    sentences=lambda context: associations(context.compute(links), context.words),
    formulas={"links": LINK_FORMULAS},
)
