"""How much depends on the settings."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from operator import itemgetter

import numpy as np
import pandas as pd

from clsweep.analysis.reasons import Note
from clsweep.analysis.robustness import table as analysis
from clsweep.analysis.sweep import Sweep
from clsweep.catalog.rows import Row
from clsweep.display.cells import records_of
from clsweep.display.numbers import is_number, setting_column
from clsweep.findings.material import Material
from clsweep.findings.notes import text_of
from clsweep.questions import charts
from clsweep.questions.answers import Answers, Asked
from clsweep.questions.charts import alt
from clsweep.questions.column import Column, Question, level, measured, share
from clsweep.questions.comparison import spreads
from clsweep.questions.model import Figure, Open, Sentences, Wording
from clsweep.questions.pairs import compared
from clsweep.questions.words import counted, interval, known, listed, text


def robustness(of: Answers, *, by: str | None = None, within: float | None = None) -> pd.DataFrame:
    """One row per objective, see `analysis.robustness`."""
    return analysis.robustness(of.material.sweeps, by=by, within=of.near(within))


def tolerance(of: Answers) -> pd.DataFrame:
    """Share of the space within delta points of the best, one row per objective and delta."""
    return analysis.tolerance_curve(of.material.spaces, within=of.material.within)


def by_each(asked: Asked) -> pd.DataFrame:
    """The marginal robustness to each hyperparameter, with a column `by` in front."""
    frames = []
    for name in asked.swept:
        frame = asked.ask(robustness, by=name, within=asked.within)
        sweeping = {s.objective for s in asked.answers.material.sweeps if name in s.params}
        frame.insert(0, "by", name)
        frames.append(frame[frame["objective"].isin(sweeping)])
    if not frames:
        return asked.ask(robustness, within=asked.within).iloc[:0].assign(by="")
    return pd.concat(frames, ignore_index=True)


def unmeasured(sweeps: Sequence[Sweep]) -> Sentences:
    """Objectives whose samples say nothing of the space as a whole, and why."""
    reasons: dict[Note, list[str]] = {}
    for sweep in sweeps:
        if sweep.not_measured:
            reasons.setdefault(sweep.not_measured, []).append(sweep.objective)
    return tuple(
        Open(f"The robustness of {listed(names)} is not measured: {text_of(why)}.")
        for why, names in reasons.items()
    )


def spread(robustness: pd.DataFrame, words: Wording) -> Sentences:
    """How far the settings of the only objective that sweeps any spread its metric, or nothing."""
    rows = [row for row in records_of(robustness) if known(row["sd_star"])]
    if len(rows) != 1:
        return ()
    row = rows[0]
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
    found: dict[str, list[str]] = {}
    noisy: dict[tuple[str, str], list[str]] = {}
    for row in records_of(robustness):
        param, name = text(row.get("band_param")), row["objective"]
        if not param or not known(row.get("band_low"), row.get("band_high"), row["level_noise"]):
            continue
        if known(row["band_sure_low"], row["band_sure_high"]):
            lost, failed = "", row.get("num_failed", 0)
            if known(failed) and failed > 0:
                lost = f", with {counted(failed, 'failed trial', 'failed trials')}"
            band = shown_band(row, "band_sure", named=False)
            found.setdefault(param, []).append(f"{name} {band}{lost}")
        else:
            cause = causes.get(text(row["noise_of"]), causes["seeds"])
            noisy.setdefault((param, cause), []).append(name)
    usable = [
        f"Usable band of {param}, within {amount} of the best: {'; '.join(each)}."
        for param, each in found.items()
    ]
    unresolved = [
        Open(f"The usable band of {param} is not resolved for {listed(names)}: {cause}.")
        for (param, cause), names in noisy.items()
    ]
    return (*usable, *unresolved)


def robustness_forest(robustness: pd.DataFrame, material: Material) -> Figure | None:
    """SD* of every objective with its interval, from `robustness`."""
    frame = charts.intervals(robustness, "sd_star", "sd_star_low", "sd_star_high")
    frame = charts.in_order(frame, material)
    if frame["x"].isna().all():
        return None
    frame.loc[frame["low"].isna() | frame["high"].isna(), ["low", "high"]] = np.nan  # one is open
    frame["row"], frame["resolved"] = frame["objective"], True
    title = charts.in_points("SD* due to hyperparameters", material)
    x = charts.plain_x(title, domainMin=0, padding=8)
    names = ["objective", "sd_star", "sd_star_low", "sd_star_high", "reason", "note"]
    return Figure(
        name="robustness",
        title="Spread due to hyperparameters",
        caption=f"SD* is the standard deviation of {material.metric} over the swept space with "
        f"the noise taken out: the further left, the more robust. "
        f"{charts.bands_text(frame, material, 'Bars')}",
        chart=charts.forest(frame, material, x, legend=False),
        data=robustness[names].reset_index(drop=True),
    )


def tolerance_curves(curves: pd.DataFrame, material: Material) -> Figure | None:
    """Share of the space within delta of the best against delta, from `tolerance_curve`."""
    frame = charts.curve_frame(curves, material, x="delta", y="share")
    if frame.empty:
        return None
    title = "share of the space within δ"

    def share(field: str) -> alt.Y:
        scale, axis = alt.Scale(domain=[0, 1]), alt.Axis(format="%", tickCount=6)
        return alt.Y(field, type="quantitative", title=title, scale=scale, axis=axis)

    x = alt.X(
        "x:Q",
        title=charts.in_points("δ, distance from the best", material),
        axis=alt.Axis(tickCount=6),
    )
    tips = [
        *charts.tips(objective="objective", x=charts.in_points("δ", material)),
        *charts.tips(form=".3~p", y="share of the space", **charts.ENDS),
    ]
    return Figure(
        name="tolerance",
        title="How much of the space is good enough",
        caption="Share of the swept space within δ of the objective's best. A curve that rises "
        "early belongs to an objective that forgives a wrong setting. "
        f"{charts.bands_text(frame, material)}",
        chart=charts.layers(
            charts.banded(frame, material, x, share, tips, marked=charts.is_sparse(frame))
        ),
        data=frame.rename(columns={"x": "delta", "y": "share"}),
    )


def shown_band(row: Row, name: str, *, named: bool) -> str:
    """`tau 0.1 to 0.4`, `tau 0.1`; without its hyperparameter where that stands beside it."""
    low, high = row[f"{name}_low"], row[f"{name}_high"]
    ends = dict.fromkeys(setting_column([low, high])) if is_number(low) else ()
    between = " to ".join(ends)
    return f"{row['band_param']} {between}" if named and between else between


def _band_columns(*, named: bool) -> tuple[Column, ...]:
    sure, seen = (partial(shown_band, name=n, named=named) for n in ("band_sure", "band"))
    means = "values around the best that are shown to lose no more than {points}"
    slope = "slope on log2 of the hyperparameter"
    return (
        Column("usable band", sure, means),
        Column("by the means", seen, "that do so as measured"),
        Column("hi/lo", "band_ratio", "ratio of those ends"),
        Column("per doubling", measured("slope"), slope),
    )


_worst = measured("worst_10", least=1)
COLUMNS = (
    Column("objective"),
    Column(
        "best",
        level("best", itemgetter("sd")),
        "the mean of the best setting, which `recommend` names. It was picked by that mean, so it "
        "is optimistic",
        spare=8,
    ),
    Column(
        "best level",
        level("best_level", itemgetter("sd")),
        "what shares count against: one part of the seeds picks it and another scores it, without "
        "the luck of the pick. Of a race by the seeds of all, and fresh seeds have no part in it",
    ),
    Column("at", "best_at"),
    Column(
        "worst",
        lambda row: _worst(row) if row["num_configs"] < analysis.FEW_SETTINGS else None,
        "level of the worst setting, estimated as the best level: above the worst mean, which was "
        "picked for its bad luck",
    ),
    Column(
        "worst 10 %",
        lambda row: _worst(row) if row["num_configs"] >= analysis.FEW_SETTINGS else None,
        "level of that tenth of the space, estimated likewise",
    ),
    Column(
        "within {near}",
        share("share_within", "share"),
        "share of the space that loses no more than that against the best level",
        called="within {points}",
    ),
    Column(
        "sd*",
        measured("sd_star"),
        "spread over the swept configurations without the noise",
        spare=7,
    ),
    Column("sd", measured("sd"), "with it", spare=5),
    Column("mean", level("mean", itemgetter("sd")), spare=4),
    Column(
        "range",
        level("range", itemgetter("sd")),
        "best - worst mean, optimistic as best is",
        spare=3,
    ),
    Column("configs", "num_configs", spare=2),
    Column("seeds", "num_seeds", spare=6),
    Column("failed", "num_failed", spare=1),
)
MORE_COLUMNS = (
    Column("objective"),
    Column(
        "worst mean",
        level("worst", itemgetter("sd")),
        "the worst mean of a configuration. It was picked by that mean, so it is pessimistic",
    ),
    Column("at", "worst_at"),
    Column(
        "regret",
        measured("regret"),
        "mean loss against the best. One part of the seeds picks the best, another scores it",
    ),
    Column(
        "tolerance area",
        share("tolerance_area"),
        "mean share of the space that loses no more than 0 to D points, D = 10 x within",
    ),
    Column("IQM", measured("iqm"), "mean of the middle half"),
    *_band_columns(named=True),
)
BY_COLUMNS = (
    Column("by"),
    Column("objective"),
    Column("sd", measured("sd"), "spread over the values of this hyperparameter"),
    Column("sd*", measured("sd_star"), "without the noise"),
    Column("range", level("range", itemgetter("sd")), "best - worst value"),
    Column("best at", "best_at"),
    Column("worst at", "worst_at"),
    Column(
        "within {near}",
        share("share_within", "share"),
        "share of the values that lose no more than that against the best",
        called="within {points}",
    ),
    *_band_columns(named=False),
)


def _near(asked: Asked) -> dict[str, float]:
    return {"within": asked.within}


QUESTION = Question(
    name="robustness",
    title="Spread of {metric} over the swept space",
    heading="Robustness of {metric}, with 95 % intervals{images}",
    table=robustness,
    options=_near,
    ahead=True,
    columns=COLUMNS,
    levels="best",
    say=lambda asked: (
        *unmeasured(asked.material.spaces),
        *compared(spreads(asked), "std", asked.words),
        *bands(by_each(asked), asked.words),
    ),
    draw=lambda asked: [robustness_forest(asked.ask(robustness, **_near(asked)), asked.material)],
    formulas={"robustness": analysis.COLUMNS},
)
MORE = Question(
    name="robustness-more",
    title="Regret, tolerance and worst settings",
    table=robustness,
    options=_near,
    columns=MORE_COLUMNS,
    levels="best",
    has_notes=False,
)
BY = Question(
    name="robustness-by-parameter",
    title="Each hyperparameter alone, the others averaged over",
    frame=by_each,
    ahead=lambda asked: [(robustness, {"by": name, **_near(asked)}) for name in asked.swept],
    columns=BY_COLUMNS,
    levels="best",
    has_notes=False,
)
TOLERANCE = Question(
    name="tolerance",
    table=tolerance,
    ahead=True,
    has_notes=False,
    draw=lambda asked: [tolerance_curves(asked.ask(tolerance), asked.material)],
    formulas={"tolerance": analysis.TOLERANCE_COLUMNS},
)
