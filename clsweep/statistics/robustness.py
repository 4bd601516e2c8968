"""Robustness: the spread of the metric over the swept settings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from operator import itemgetter

import numpy as np
import pandas as pd

from clsweep.analysis import robustness as analysis
from clsweep.analysis import tolerance_curve
from clsweep.analysis.reasons import Note
from clsweep.analysis.sweep import Sweep
from clsweep.catalog.rows import Row
from clsweep.display.numbers import Wording, interval, joined, known, num_of, setting_column
from clsweep.statistics import charts
from clsweep.statistics.charts import alt
from clsweep.statistics.compare import spreads
from clsweep.statistics.computed import ReportContext, Statistics
from clsweep.statistics.pair_sentences import compared
from clsweep.statistics.report_objects import Figure, Sentences, Unresolved, described
from clsweep.statistics.statistic import Column, Statistic, between, fraction, level_cell
from clsweep.sweeps.notes import is_measured, note_text, records_of, text_in
from clsweep.sweeps.study_data import StudyData


def robustness(of: Statistics, *, within: float, by: str | None = None) -> pd.DataFrame:
    """One row per objective, see `analysis.robustness`."""
    return analysis.robustness(of.data.sweeps, by=by, within=within)


def tolerance(of: Statistics) -> pd.DataFrame:
    """Share of the space within delta points of the best, one row per objective and delta."""
    return tolerance_curve.tolerance_curve(of.data.spaces, within=of.data.within)


def by_each(context: ReportContext) -> pd.DataFrame:
    """The marginal robustness to each hyperparameter, with a column `by` in front."""
    frames = []
    for name in context.swept:
        frame = context.compute(robustness, by=name, within=context.within)
        sweeping = {s.objective for s in context.statistics.data.sweeps if name in s.params}
        frame.insert(0, "by", name)
        frames.append(frame[frame["objective"].isin(sweeping)])
    if not frames:
        return context.compute(robustness, within=context.within).iloc[:0].assign(by="")
    return pd.concat(frames, ignore_index=True)


def not_measured(sweeps: Sequence[Sweep]) -> Sentences:
    """Objectives whose samples say nothing of the space as a whole, and why."""
    reasons: dict[Note, list[str]] = {}
    for sweep in sweeps:
        if sweep.not_measured:
            reasons.setdefault(sweep.not_measured, []).append(sweep.objective)
    return tuple(
        Unresolved(f"The robustness of {joined(names)} is not measured: {note_text(why)}.")
        for why, names in reasons.items()
    )


def spread_sentence(robustness: pd.DataFrame, words: Wording) -> Sentences:
    """The spread over the settings of the only objective that sweeps any, or nothing."""
    rows = robustness[robustness["sd_star"].notna()]
    if len(rows) != 1:
        return ()
    row = rows.iloc[0]
    seen = f"SD* {words.amount(row['sd_star'])}{interval(row['sd_star_low'], row['sd_star_high'])}"
    return (f"The settings of {row['objective']} spread its {words.metric} by {seen}.",)


def bands(robustness: pd.DataFrame, words: Wording) -> Sentences:
    """The usable range of each hyperparameter, from `robustness`: one sentence for each. Only what
    is shown to be within is named (`band_sure_low`, `band_sure_high`).
    """
    amount = words.amount(words.within)
    causes = {
        "seeds": f"the noise is too large to tell levels {amount} apart",
        "configurations": "the configurations that share a value or bin differ too much to tell "
        f"levels {amount} apart, which more of them would mend, not more seeds",
    }
    usable_of: dict[str, list[str]] = {}
    noisy: dict[tuple[str, str], list[str]] = {}
    for row in records_of(robustness):
        param, name = text_in(row.get("band_param")), row["objective"]
        if not param or not known(row.get("band_low"), row.get("band_high"), row["level_noise"]):
            continue
        if known(row["band_sure_low"], row["band_sure_high"]):
            lost, failed = "", row.get("num_failed", 0)
            if known(failed) and failed > 0:
                lost = f", with {num_of(failed, 'failed trial', 'failed trials')}"
            band = shown_band(row, "band_sure", named=False)
            usable_of.setdefault(param, []).append(f"{name} {band}{lost}")
        else:
            cause = causes.get(text_in(row["noise_of"]), causes["seeds"])
            noisy.setdefault((param, cause), []).append(name)
    usable = [
        f"Usable band of {param}, within {amount} of the best: {'; '.join(each)}."
        for param, each in usable_of.items()
    ]
    unresolved = [
        Unresolved(f"The usable band of {param} is not resolved for {joined(names)}: {cause}.")
        for (param, cause), names in noisy.items()
    ]
    return (*usable, *unresolved)


def robustness_forest(robustness: pd.DataFrame, data: StudyData) -> Figure | None:
    """SD* of every objective with its interval, from `robustness`."""
    frame = charts.ends_frame(robustness, "sd_star", "sd_star_low", "sd_star_high")
    frame = charts.by_objective_order(frame, data)
    if frame["x"].isna().all():
        return None
    frame.loc[frame["low"].isna() | frame["high"].isna(), ["low", "high"]] = np.nan  # one is open
    frame["row"], frame["resolved"] = frame["objective"], True
    title = charts.in_points("SD* due to hyperparameters", data)
    x = charts.plain_x(title, domainMin=0, padding=8)
    names = ["objective", "sd_star", "sd_star_low", "sd_star_high", "reason", "note"]
    return Figure(
        name="robustness",
        title="Spread due to hyperparameters",
        caption=f"SD* is the standard deviation of {data.metric} over the swept space with "
        f"the noise taken out: the further left, the more robust. "
        f"{charts.bands_text(frame, data, 'Bars')}",
        chart=charts.forest(frame, data, x, legend=False),
        data=robustness[names].reset_index(drop=True),
    )


def tolerance_curves(curves: pd.DataFrame, data: StudyData) -> Figure | None:
    """Share of the space within delta of the best against delta, from `tolerance_curve`."""
    frame = charts.curve_frame(curves, data, x="delta", y="share")
    if frame.empty:
        return None
    title, scale = "share of the space within δ", alt.Scale(domain=[0, 1])
    axis = alt.Axis(format="%", tickCount=6)
    share = partial(alt.Y, type="quantitative", title=title, scale=scale, axis=axis)
    x_title = charts.in_points("δ, distance from the best", data)
    x = alt.X("x:Q", title=x_title, axis=alt.Axis(tickCount=6))
    tips = [
        *charts.tips(objective="objective", x=charts.in_points("δ", data)),
        *charts.tips(form=".3~p", y="share of the space", **charts.END_TIPS),
    ]
    bands = charts.banded(frame, data, x, share, tips, marked=charts.is_sparse(frame))
    return Figure(
        name="tolerance",
        title="How much of the space is good enough",
        caption="Share of the swept space within δ of the objective's best. A curve that rises "
        "early belongs to an objective that forgives a wrong setting. "
        f"{charts.bands_text(frame, data)}",
        chart=charts.layers(bands),
        data=frame.rename(columns={"x": "delta", "y": "share"}),
    )


def shown_band(row: Row, name: str, *, named: bool) -> str:
    """`tau 0.1 to 0.4`, `tau 0.1`; without its hyperparameter where that stands beside it."""
    low, high = row[f"{name}_low"], row[f"{name}_high"]
    ends = dict.fromkeys(setting_column([low, high])) if known(low) else ()
    span = " to ".join(ends)
    return f"{row['band_param']} {span}" if named and span else span


def _band_columns(*, named: bool) -> tuple[Column, ...]:
    sure, seen = (partial(shown_band, name=n, named=named) for n in ("band_sure", "band"))
    means = "values around the best that are shown to lose no more than {points}"
    slope = "slope on log2 of the hyperparameter"
    return (
        Column("usable band", sure, means),
        Column("by the means", seen, "that do so as measured"),
        Column("hi/lo", "band_ratio", "ratio of those ends"),
        Column("per doubling", between("slope"), slope),
    )


_sd, _worst = itemgetter("sd"), between("worst_10", least=1)
_COLUMNS = (
    Column("objective"),
    Column("mean", level_cell("mean", _sd), "over the space: without tuning"),
    Column(
        "best",
        level_cell("best", _sd),
        "the mean of the best setting, which `recommend` names. It was picked by that mean, so it "
        "is optimistic",
        drop_order=7,
    ),
    Column(
        "best level",
        level_cell("best_level", _sd),
        "what shares count against: one part of the seeds picks it and another scores it, without "
        "the luck of the pick. Unlike `when tuned` of `recommend` it knows no fresh seeds, and "
        "counts settings of which a seed failed or is missing",
        drop_order=8,
    ),
    Column("at", "best_at"),
    Column(
        "worst",
        lambda row: _worst(row) if row["num_configs"] < analysis.FEW_SETTINGS else None,
        "level of the worst setting, estimated as the best level: above the worst mean, which was "
        "picked for its bad luck",
        drop_order=6,
    ),
    Column(
        "worst 10 %",
        lambda row: _worst(row) if row["num_configs"] >= analysis.FEW_SETTINGS else None,
        "level of that tenth of the space, estimated likewise",
        drop_order=6,
    ),
    Column(
        "within {near}",
        fraction("share_within", "share"),
        "share of the space that loses no more than that against the best level",
        called="within {points}",
    ),
    Column("sd*", between("sd_star"), "spread over the swept configurations without the noise"),
    Column("sd", between("sd"), "with it", drop_order=4),
    Column(
        "range", level_cell("range", _sd), "best - worst mean, optimistic as best is", drop_order=3
    ),
    Column("configs", "num_configs", drop_order=2),
    Column("seeds", "num_seeds", drop_order=5),
    Column("failed", "num_failed", drop_order=1),
)
MORE_COLUMNS = (
    Column("objective"),
    Column(
        "worst mean",
        level_cell("worst", _sd),
        "the worst mean of a configuration. It was picked by that mean, so it is pessimistic",
    ),
    Column("at", "worst_at"),
    Column(
        "regret",
        between("regret"),
        "mean loss against the best. One part of the seeds picks the best, another scores it",
    ),
    Column(
        "tolerance area",
        fraction("tolerance_area"),
        "mean share of the space that loses no more than 0 to D points, D = 10 x within",
    ),
    Column("IQM", between("iqm"), "mean of the middle half"),
    *_band_columns(named=True),
)
BY_COLUMNS = (
    Column("by"),
    Column("objective"),
    Column("sd", between("sd"), "spread over the values of this hyperparameter"),
    Column("sd*", between("sd_star"), "without the noise"),
    Column("range", level_cell("range", _sd), "best - worst value"),
    Column("best at", "best_at"),
    Column("worst at", "worst_at"),
    Column(
        "within {near}",
        fraction("share_within", "share"),
        "share of the values that lose no more than that against the best",
        called="within {points}",
    ),
    *_band_columns(named=False),
)


def _near(context: ReportContext) -> dict[str, float]:
    return {"within": context.within}


# m_i is the mean of configuration i over its seeds, of which failed ones count as the note says;
# units are those of the metric.
_FORMULAS = described(
    analysis.ROBUSTNESS_COLUMNS,
    num_configs="configurations tried, with or without a finished seed",
    num_seeds="different seeds tried",
    num_failed="trials that failed, or finished without a finite metric; the note says what they "
    "count as. Where there are any, intervals reach to those without them too",
    mean="mean_i m_i",
    mean_low="interval of mean; all are for new images where trials keep which they have right",
    sd="sqrt( sum_i (m_i - mean)^2 / (n - 1) ): the spread seen with this many seeds, seed noise "
    "included. ddof = 1",
    sd_low="interval of sd, for the spread to expect with this many seeds",
    sd_star="sqrt( max(0, sd^2 - s_w^2 / S - v) ): the spread due to hyperparameters alone; s_w^2 "
    "= pooled within-configuration seed variance, S = harmonic mean of seeds per configuration; "
    "both of the scores without what a seed gives to all; v = what the scored "
    "images add to the variance of the m_i, 0 where intervals are for these alone",
    range="best - worst (always >= 0): the drop that papers print; none where worst has none",
    best="m_i of the best configuration, that of `recommend`; picked on its own noise, so "
    "optimistic",
    best_level="L: level of the best, picked without the seed that scores it (cross-fitted, "
    "score_table.best_level). Regret and shares count against it. Of a race by all seeds of the "
    "best ones, as when tuned; regret and shares by the seeds that all ran on",
    best_at='its swept hyperparameters, such as "tau=0.2"',
    worst="m_i of the worst configuration; none where one failed on every seed and counts as the "
    "worst score seen. Intervals are then open (none) at the end that it could move",
    worst_at="its swept hyperparameters",
    regret="mean_i (L - m_i), always >= 0: what is lost on average by not tuning",
    share_within="#{i: m_i >= L - within} / number of configurations",
    tolerance_area="1/D int_0^D T(delta) d delta, T(delta) = share_within for within = delta, D = "
    "10 within (10 points by default): 1 where every configuration equals the best, 0 where all "
    "others are D or more below it",
    iqm="interquartile mean: mean of the middle half of the m_i; n / 4 are cut on each side, the "
    "last by its part",
    worst_10="level of the worst 10 % of configurations, of fewer than 20 of the worst one, "
    "cross-fitted likewise (score_table.tail_level): no worse than the worst m_i, which had bad "
    "luck",
    band_param="the hyperparameter of the band and the slope: `by`, or the only one swept",
    band_low="lowest value of the run of neighbouring values around the best one at which the "
    "(marginal) level is >= L - within, L of these levels; the outer edge of its bin where values "
    "are binned",
    band_high="highest value of that run",
    band_ratio="band_high / band_low; none unless both are positive, nor where a bin at the end of "
    "the swept values is part of the band",
    slope="least-squares slope of the (marginal) level on log2(value): change per doubling; none "
    "unless every value is positive, and they span a doubling",
    slope_low="t-interval of slope",
    band_sure_low="lowest value of the part of that run which is shown to be within: m_k - w >= "
    "max m - within, w = t sqrt(2) level_noise, and the images' part, at once for all values "
    "(multiple comparisons with the best); of a bin its median. None where w > within",
    band_sure_high="highest value of that part",
    band_end='whether the run reaches the "low" or "high" end of the swept values, or "both"',
    band_bins="bins that the hyperparameter is cut into, whose means are its levels; none where "
    "values are single",
    level_noise="standard error of one level that the band compares: sqrt(s_w^2 / S) of the "
    "(marginal) table, without what a seed gives to all",
    noise_of='what that is the noise of: "seeds" (grid), or the "configurations" that share a '
    "value or bin",
)
ROBUSTNESS = Statistic(
    name="robustness",
    title="Spread of {metric} over the swept space",
    header="Robustness of {metric}, with 95 % intervals{images}",
    table=robustness,
    options=_near,
    ahead=True,
    columns=_COLUMNS,
    levels="best",
    sentences=lambda context: (
        *not_measured(context.data.spaces),
        *compared(spreads(context), "std", context.words),
        *bands(by_each(context), context.words),
    ),
    figures=lambda context: [
        robustness_forest(context.compute(robustness, **_near(context)), context.data)
    ],
    formulas={"robustness": _FORMULAS},
)
ROBUSTNESS_MORE = Statistic(
    name="robustness-more",
    is_apart=True,
    title="Regret, tolerance and worst settings",
    table=robustness,
    options=_near,
    columns=MORE_COLUMNS,
    levels="best",
    has_notes=False,
)
ROBUSTNESS_BY = Statistic(
    name="robustness-by-parameter",
    is_apart=True,
    title="Each hyperparameter alone, the others averaged over",
    frame=by_each,
    ahead=lambda context: [(robustness, {"by": name, **_near(context)}) for name in context.swept],
    columns=BY_COLUMNS,
    levels="best",
    has_notes=False,
)
_TOLERANCE_FORMULAS = described(
    tolerance_curve.TOLERANCE_COLUMNS,
    delta="how far below the best level L, in units of the metric",
    share="T(delta) = #{i: m_i >= L - delta} / number of configurations; L cross-fitted over seeds",
    low="interval of share, for this delta alone; where trials failed, it reaches to that without "
    "them",
)
TOLERANCE = Statistic(
    name="tolerance",
    table=tolerance,
    ahead=True,
    has_notes=False,
    figures=lambda context: [tolerance_curves(context.compute(tolerance), context.data)],
    formulas={"tolerance": _TOLERANCE_FORMULAS},
)


def robustness_by(param: str, frame: pd.DataFrame) -> Statistic:
    """The statistic of the marginal effect of one hyperparameter, if anything was measured."""
    if not any(map(is_measured, frame["reason"])):
        return ROBUSTNESS
    return replace(ROBUSTNESS, header=f"{ROBUSTNESS.header}, by {param}")
