"""Points with intervals, one row each: spreads, pairs of objectives, effects of hyperparameters,
fresh seeds.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from clsweep.findings.material import Material
from clsweep.report.figures.encodings import (
    ROW_HEIGHT,
    bands_text,
    colour,
    in_order,
    in_points,
    interval_tips,
    layers,
    legend_place,
    numbers,
    objectives,
    param_title,
    shape,
    slugs,
    tooltip,
)
from clsweep.report.figures.theme import GREY
from clsweep.report.model import Figure

MAX_PAIRS = 45  # those of ten objectives; of more the ones that are told apart best
MAX_INTERACTIONS = 10
LOWER = 7  # pixels from the middle of a row, below its label
SCORED_ON = {"search": "search", "fresh": "fresh seeds", "test": "test split"}
EFFECTS = {"total": "with interactions", "first": "alone"}
SHADES = ("#5f6773", "#878d97", "#a7acb5")  # of kinds; legible on white and on black
_ENDS = ("x", "low", "high")


def robustness_forest(robustness: pd.DataFrame, material: Material) -> Figure | None:
    """SD* of every objective with its interval, from `robustness`."""
    if robustness.empty or np.isnan(numbers(robustness, "sd_star")).all():
        return None
    frame = in_order(_intervals(robustness, "sd_star", "sd_star_low", "sd_star_high"), material)
    frame.loc[frame["low"].isna() | frame["high"].isna(), ["low", "high"]] = np.nan  # one is open
    frame["row"], frame["resolved"] = frame["objective"], True
    title = in_points("SD* due to hyperparameters", material)
    chart = _forest(
        frame,
        material,
        _plain_x(title, domainMin=0, padding=8),
        legend=False,
        describe=f"SD* of {material.metric} with its interval, a row an objective.",
    )
    return Figure(
        name="robustness",
        title="Spread due to hyperparameters",
        caption=f"SD* is the standard deviation of {material.metric} over the swept space with "
        f"seed noise taken out: the further left, the more robust. {bands_text(frame, 'Bars')}",
        chart=chart,
        data=robustness[
            ["objective", "sd_star", "sd_star_low", "sd_star_high", "reason", "note"]
        ].reset_index(drop=True),
    )


def ratio_forest(pairs: pd.DataFrame, material: Material) -> Figure | None:
    """Ratio of the SD* of every pair of objectives, from `compare` of stat "std"."""
    frame = _pairs(pairs, "/")
    frame.loc[~(frame["x"] > 0), list(_ENDS)] = np.nan
    if frame["x"].isna().all():
        return None
    frame = _with_open_ends(frame)
    axis = alt.Axis(grid=False, format=".3~r", labelOverlap="greedy", tickCount=6)
    scale = alt.Scale(type="log", nice=False, padding=8)
    title = "SD* of the first / SD* of the second"
    return Figure(
        name="sd-ratios",
        title="Which objective is more robust",
        caption=f"Left of 1 the first of the pair is more robust. {_pair_text(frame, pairs)}",
        chart=_forest(
            frame,
            material,
            alt.X("x", type="quantitative", title=title, scale=scale, axis=axis),
            line=1.0,
            describe="Ratio of the spreads due to hyperparameters with its interval, a row a pair "
            "of objectives.",
        ),
        data=_pair_data(pairs),
    )


def difference_forest(pairs: pd.DataFrame, material: Material) -> Figure | None:
    """Difference of the means of every pair of objectives, from `compare` of stat "mean"."""
    frame = _pairs(pairs, "−")
    if frame["x"].isna().all():
        return None
    title = in_points("lead of the first over the second", material)
    return Figure(
        name="mean-differences",
        title="Which objective is better on average",
        caption=f"Mean {material.metric} over the space that both sweep. Right of 0 the first of "
        f"the pair is better. {_pair_text(frame, pairs)}",
        chart=_forest(
            frame,
            material,
            _plain_x(title, zero=True, padding=8),
            line=0.0,
            describe=f"Difference of mean {material.metric} with its interval, a row a pair of "
            "objectives.",
        ),
        data=_pair_data(pairs),
    )


def sensitivity_figures(sensitivity: pd.DataFrame, material: Material) -> list[Figure]:
    """Effect of every hyperparameter, one figure an objective that has passed the gate, from
    `sensitivity`.
    """
    if sensitivity.empty:
        return []
    tables = {
        name: _effects(sensitivity[sensitivity["objective"] == name])
        for name in objectives(material)
    }
    shown = {name: rows for name, rows in tables.items() if not rows.empty}
    names = slugs("sensitivity", list(shown))
    return [
        _effect_figure(slug, name, shown[name], material)
        for slug, name in zip(names, shown, strict=True)
    ]


def confirmation_figure(material: Material) -> Figure | None:
    """Scores of the confirmed configurations: in the search, on fresh seeds, on the test split."""
    table = material.confirmation
    if table.empty:
        return None
    parts = [
        _intervals(table, column, f"{column}_low", f"{column}_high").assign(
            kind=kind, row=_ranks(table), at=table["at"]
        )
        for column, kind in SCORED_ON.items()
        if column in table.columns
    ]
    frame = in_order(pd.concat(parts).dropna(subset=["x"]), material)
    if frame.empty:
        return None
    frame = frame.sort_values(
        "row",
        key=lambda rows: rows.map({row: i for i, row in enumerate(_ranks(table))}),
        kind="stable",
    )
    title = material.metric_title
    tips = [
        tooltip("row", "configuration", number=False),
        tooltip("at", "setting", number=False),
        tooltip("kind", "scored on", number=False),
    ]
    return Figure(
        name="confirmation",
        title="The best settings on fresh seeds",
        caption="The score of the search was picked for being good. The fresh seeds took no part "
        f"in the picking. {bands_text(frame, 'Bars')}",
        chart=_dots(
            frame,
            _plain_x(title, zero=False, padding=12),
            list(SCORED_ON.values()),
            tips=[*tips, *interval_tips(title, "x")],
            describe=f"{material.metric} of the best configurations: "
            f"{', '.join(dict.fromkeys(frame['kind']))}.",
        ),
        data=table,
    )


def _pair_text(frame: pd.DataFrame, pairs: pd.DataFrame) -> str:
    cut = (
        f" Shown are the {len(frame)} of {len(pairs)} pairs that differ most clearly."
        if len(frame) < len(pairs)
        else ""
    )
    resolved = (
        "A coloured row is resolved, in favour of the objective of that colour. A grey one is not."
    )
    return f"{resolved} {bands_text(frame, 'Bars')}{cut}"


def _intervals(table: pd.DataFrame, x: str, low: str, high: str) -> pd.DataFrame:
    """Objective, x, low, high and note of every row; a column that is not there is NaN."""
    columns = {"x": x, "low": low, "high": high}
    found = {
        key: numbers(table, name) if name in table.columns else np.nan
        for key, name in columns.items()
    }
    frame = pd.DataFrame({"objective": table["objective"].to_numpy(), **found})
    frame["note"] = table["note"].fillna("").to_numpy() if "note" in table.columns else ""
    return frame


def _pairs(pairs: pd.DataFrame, sign: str) -> pd.DataFrame:
    """A row a pair, in the table's order; `objective` is the one it is resolved for."""
    if pairs.empty:
        return pd.DataFrame(columns=["objective", *_ENDS, "row", "resolved", "note", "p"])
    frame = _intervals(pairs.assign(objective=pairs["winner"]), "estimate", "low", "high")
    frame["p"] = numbers(pairs, "p_holm")
    frame["row"] = [f"{a} {sign} {b}" for a, b in zip(pairs["a"], pairs["b"], strict=True)]
    frame["resolved"] = pairs["resolved"].to_numpy(dtype=bool)
    return frame.loc[frame["p"].sort_values(kind="stable").index[:MAX_PAIRS]].sort_index(
        ignore_index=True
    )


def _pair_data(pairs: pd.DataFrame) -> pd.DataFrame:
    names = ["a", "b", "estimate", "low", "high", "p_holm", "winner", "reason", "note"]
    return pairs[names].reset_index(drop=True)


def _with_open_ends(frame: pd.DataFrame) -> pd.DataFrame:
    """On a log axis an end at 0 or infinity is drawn at the edge of the others, with an arrow that
    points on.
    """
    ends = frame[list(_ENDS)].where(frame[list(_ENDS)] > 0)
    drawn = ends.to_numpy(dtype=float)
    edges = {"low": np.nanmin(drawn) / 1.5, "high": np.nanmax(drawn) * 1.5}
    one_end = ends["low"].notna() ^ ends["high"].notna()
    for end, edge in edges.items():
        frame[f"{end}_open"] = one_end & ends[end].isna()
        frame[end] = ends[end].where(~frame[f"{end}_open"], edge)
    return frame


def _forest(
    frame: pd.DataFrame,
    material: Material,
    x: alt.X,
    *,
    describe: str,
    line: float | None = None,
    legend: bool = True,
) -> alt.LayerChart:
    """Rows of points and intervals in their objective's colour, grey where nothing is resolved."""
    winners = frame["objective"][frame["resolved"]]
    legend = legend and not winners.empty
    hue = (
        alt.when("datum.resolved")
        .then(colour(material, winners, legend=legend))
        .otherwise(alt.value(GREY))
    )
    form = (
        alt.when("datum.resolved")
        .then(shape(material, winners, legend=legend))
        .otherwise(alt.value("circle"))
    )
    place = alt.Chart(frame).encode(_rows(frame["row"]))
    tips = [tooltip("row", "row", number=False), *interval_tips("estimate", "x")]
    if frame["note"].ne("").any():
        tips.append(tooltip("note", "note", number=False))
    known, missing = (
        place.transform_filter("isValid(datum.x)"),
        place.transform_filter("!isValid(datum.x)"),
    )
    charts = [] if line is None else [_rule_at(line, x)]
    charts += [
        _labels(frame, ROW_HEIGHT),
        _bars(place, x, yOffset=LOWER).encode(color=hue),
        known.mark_point(filled=True, size=90, opacity=1, yOffset=LOWER).encode(
            x, color=hue, shape=form, tooltip=tips
        ),
        missing.mark_text(align="left", yOffset=LOWER, style="soft", text="not measured").encode(
            x=alt.value(0)
        ),
    ]
    for end, arrow in {"low": "triangle-left", "high": "triangle-right"}.items():
        if f"{end}_open" in frame and frame[f"{end}_open"].any():
            open_end = place.transform_filter(f"datum.{end}_open")
            head = open_end.mark_point(filled=True, size=60, shape=arrow, opacity=1, yOffset=LOWER)
            charts.append(head.encode(_column(x, end), color=hue))
    return layers(charts, height=ROW_HEIGHT * frame["row"].nunique(), describe=describe)


def _effects(rows: pd.DataFrame) -> pd.DataFrame:
    """The terms of one objective, its hyperparameters first and the largest of its interactions
    after them.
    """
    rows = rows[
        rows["term"].fillna("").ne("")
        & ~(np.isnan(numbers(rows, "total")) & np.isnan(numbers(rows, "first")))
    ]
    size = pd.Series(np.fmax(numbers(rows, "total"), numbers(rows, "first")), index=rows.index)
    order = numbers(rows, "order")
    parts = [
        size[order == 1],
        size[order == 2].nlargest(MAX_INTERACTIONS),
        size[~np.isin(order, (1, 2))],
    ]
    return rows.loc[
        [
            index
            for part in parts
            for index in part.sort_values(ascending=False, kind="stable").index
        ]
    ]


def _effect_figure(slug: str, name: str, rows: pd.DataFrame, material: Material) -> Figure:
    parts = [
        _intervals(rows, column, f"{column}_low", f"{column}_high").assign(kind=kind)
        for column, kind in EFFECTS.items()
    ]
    labels = [_term(str(term), material) for term in rows["term"]]
    frame = pd.concat(
        [part.assign(row=labels, null=numbers(rows, "null")) for part in parts]
    ).dropna(subset=["x"])
    frame = frame.reset_index(drop=True)
    method = "Sobol indices" if (rows["method"] == "sobol").any() else "Shares of variance (ANOVA)"
    title = "share of the variance"
    x = _plain_x(title, zero=True, padding=8)
    chart = _dots(
        frame,
        x,
        list(EFFECTS.values()),
        tips=[
            tooltip("row", "term", number=False),
            tooltip("kind", "effect", number=False),
            *interval_tips(title, "x"),
            tooltip("null", "an inert one reaches"),
        ],
        describe=f"{method} of {name}: the share of the variance of {material.metric} due to each "
        "hyperparameter.",
        null=True,
    )
    return Figure(
        name=slug,
        title=f"What matters for {name}",
        caption=f"{method} of {material.metric}, alone and with all interactions. Grey ticks: what "
        "an inert hyperparameter reaches by chance in 95 % of cases. Left of its tick nothing is "
        f"resolved. {bands_text(frame, 'Bars')}",
        chart=chart,
        data=rows.reset_index(drop=True),
    )


def _term(term: str, material: Material) -> str:
    names = term.split(" x ")
    return param_title(material, term) if len(names) == 1 else " × ".join(names)


def _dots(
    frame: pd.DataFrame,
    x: alt.X,
    kinds: Sequence[str],
    *,
    tips: Sequence[alt.Tooltip],
    describe: str,
    null: bool = False,
) -> alt.LayerChart:
    """Rows with one point for each of the kinds, apart in shape, shade and place: colours are the
    objectives'. `null` adds ticks.
    """
    shown = [kind for kind in kinds if kind in set(frame["kind"])]
    scale, legend = alt.Scale(domain=list(kinds)), alt.Legend(**legend_place(), values=shown)
    shades = alt.Scale(domain=list(kinds), range=SHADES[: len(kinds)])
    hue = alt.Color("kind", type="nominal", title=None, scale=shades, legend=legend)
    form = alt.Shape("kind", type="nominal", title=None, scale=scale, legend=legend)
    row_height = ROW_HEIGHT / 2 + 14 * len(shown)
    base = alt.Chart(frame).encode(_rows(frame["row"]), tooltip=list(tips))
    spread = alt.Scale(domain=shown, range=[ROW_HEIGHT / 2 - 2, row_height - 5])
    beside = alt.YOffset("kind", type="nominal", scale=spread)
    charts = [
        _labels(frame, row_height),
        _bars(base, x).encode(beside, hue),
        base.mark_point(filled=True, size=70, opacity=1).encode(beside, x, hue, form),
    ]
    if null:
        known = base.transform_filter("isValid(datum.null)")
        tick = known.mark_tick(
            color=GREY, thickness=2, size=row_height - ROW_HEIGHT / 2, yOffset=ROW_HEIGHT / 4
        )
        charts.insert(0, tick.encode(_column(x, "null")))
    return layers(charts, height=row_height * frame["row"].nunique(), describe=describe)


def _rows(names: Iterable[str]) -> alt.Y:
    """A band for each row. Its label stands in it, not beside it: a phone has no room there."""
    scale = alt.Scale(domain=list(dict.fromkeys(names)), paddingInner=0, paddingOuter=0)
    return alt.Y("row", type="nominal", title=None, scale=scale, axis=None)


def _labels(frame: pd.DataFrame, row_height: float) -> alt.Chart:
    text = alt.Chart(frame[["row"]].drop_duplicates()).mark_text(
        align="left", dy=10 - row_height / 2, limit=alt.ExprRef("width"), style="ink"
    )
    return text.encode(_rows(frame["row"]), x=alt.value(0), text=alt.Text("row", type="nominal"))


def _bars(base: alt.Chart, x: alt.X, **options: Any) -> alt.Chart:
    whole = base.transform_filter("isValid(datum.low) && isValid(datum.high)")
    return whole.mark_rule(strokeWidth=2.5, **options).encode(_column(x, "low"), alt.X2("high"))


def _rule_at(value: float, x: alt.X) -> alt.Chart:
    line = alt.Chart(pd.DataFrame({"x": [value]})).mark_rule(color=GREY, strokeDash=[5, 4])
    return line.encode(x)


def _column(x: alt.X, field: str) -> alt.X:
    """The same axis over another column."""
    other = x.copy()
    other.shorthand = field
    return other


def _plain_x(title: str, **scale: Any) -> alt.X:
    axis = alt.Axis(labelOverlap="greedy", labelSeparation=5, tickCount=6, format=".4~r")
    return alt.X("x", type="quantitative", title=title, scale=alt.Scale(**scale), axis=axis)


def _ranks(table: pd.DataFrame) -> list[str]:
    """`dcl, 2nd of the search`: what a confirmed configuration is called."""
    ranks = table["rank"] if "rank" in table.columns else table.groupby("objective").cumcount() + 1
    return [f"{name} #{int(rank)}" for name, rank in zip(table["objective"], ranks, strict=True)]
