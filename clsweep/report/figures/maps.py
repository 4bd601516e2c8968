"""Where in the space: the metric over two hyperparameters, and the winner in each region of one."""

from __future__ import annotations

import altair as alt
import numpy as np
import pandas as pd

from clsweep.analysis.regions import cut
from clsweep.analysis.sweep import Sweep
from clsweep.display.numbers import number
from clsweep.findings.material import Material
from clsweep.findings.notes import status
from clsweep.report.figures.encodings import (
    HEIGHT,
    colour,
    in_points,
    layers,
    numbers,
    param_title,
    points_unit,
    slugs,
    tooltip,
)
from clsweep.report.figures.theme import GREY
from clsweep.report.model import Figure

FAVOURITES = ("tau", "batch_size")
MAX_CELLS_WITH_TEXT = 8  # a row of more has no room for numbers on a phone
REGION_HEIGHT = 30
# On an axis the edges of a bin have two digits, or three of a hundred and more; the tooltips have
# them all.
SHORT_EDGES = (
    r"test(/^-?[0-9][0-9.e+-]*\.\.-?[0-9][0-9.e+-]*$/, datum.label) ? "
    + " + '..' + ".join(
        f"format(+split(datum.label, '..')[{end}], abs(+split(datum.label, '..')[{end}]) < 100 ? "
        "'.2~r' : '.3~r')"
        for end in (0, 1)
    )
    + " : datum.label"
)


def heatmap_figures(material: Material, sensitivity: pd.DataFrame | None = None) -> list[Figure]:
    """Mean metric over two hyperparameters of every objective that sweeps two, all on one scale of
    colours. A failed trial has no colour.

    The two are tau and batch_size if both are swept, else those of the largest interaction in
    `sensitivity`, else the first two. Their regions are those of `analysis.regions.cut`.
    """
    tables = {}
    for sweep in material.sweeps:
        pair = None if sweep.not_measured else _two_params(sweep, sensitivity)
        if pair is not None and sweep.alive.any():
            tables[sweep.objective] = (pair, _cells(sweep.without_failed(), *pair))
    means = np.concatenate(
        [cells["mean"].to_numpy(dtype=float) for _, cells in tables.values()] or [np.empty(0)]
    )
    if np.isnan(means).all():
        return []
    domain = [float(np.nanmin(means)), float(np.nanmax(means))]
    return [
        _heatmap(slug, name, *tables[name], material, domain)
        for slug, name in zip(slugs("heatmap", list(tables)), tables, strict=True)
    ]


def winner_figures(winners: pd.DataFrame, material: Material) -> list[Figure]:
    """The best objective in each region of every hyperparameter in `winners`, in a dashed frame if
    not resolved.
    """
    if winners.empty:
        return []
    tables = {
        str(by): rows
        for by, rows in winners.groupby("by", sort=False)
        if rows["objective"].notna().any()
    }
    names = slugs("winners", list(tables))
    return [
        _winner_figure(slug, by, tables[by], material)
        for slug, by in zip(names, tables, strict=True)
    ]


def _two_params(sweep: Sweep, sensitivity: pd.DataFrame | None) -> tuple[str, str] | None:
    if len(sweep.params) < 2:
        return None
    if set(FAVOURITES) <= set(sweep.params):
        return FAVOURITES
    if sensitivity is not None and len(sensitivity):
        rows = sensitivity[
            (sensitivity["objective"] == sweep.objective) & (numbers(sensitivity, "order") == 2)
        ]
        size = pd.Series(
            np.fmax(numbers(rows, "first"), numbers(rows, "total")), index=rows.index
        ).dropna()
        for term in rows.loc[size.sort_values(ascending=False).index, "term"]:
            names = str(term).split(" x ")
            if len(names) == 2 and set(names) <= set(sweep.params):
                return names[0], names[1]
    return sweep.params[0], sweep.params[1]


def _cells(sweep: Sweep, x: str, y: str) -> pd.DataFrame:
    """Mean over the configurations of every cell, in the metric's own sign; a cell where all failed
    has none.
    """
    frame = pd.DataFrame(
        {"x": _levels(sweep, x), "y": _levels(sweep, y), "score": sweep.sign * sweep.means}
    )
    cells = frame.groupby(["x", "y"], observed=True)["score"]
    return cells.agg(mean="mean", num="size", scored="count").reset_index()


def _levels(sweep: Sweep, param: str) -> pd.Categorical[str]:
    """Text of the region of each configuration, in the order of the regions."""
    regions = cut(param, [sweep])
    return pd.Categorical.from_codes(regions.place(sweep.settings[param]), pd.Index(regions.labels))


def _heatmap(
    slug: str,
    name: str,
    pair: tuple[str, str],
    cells: pd.DataFrame,
    material: Material,
    domain: list[float],
) -> Figure:
    x, y = (param_title(material, param) for param in pair)
    title = material.metric_title
    columns, lines = (list(cells[axis].cat.categories) for axis in ("x", "y"))
    cells = cells.astype({"x": str, "y": str})
    base = alt.Chart(cells).encode(
        alt.X("x", type="nominal", title=x, scale=alt.Scale(domain=columns), axis=_level_axis()),
        alt.Y(
            "y", type="nominal", title=y, scale=alt.Scale(domain=lines[::-1]), axis=_level_axis()
        ),
        tooltip=[
            tooltip("x", x, number=False),
            tooltip("y", y, number=False),
            tooltip("mean", f"mean {title}"),
            tooltip("scored", "configurations with a score"),
            tooltip("num", "configurations tried"),
        ],
    )
    legend = alt.Legend(
        orient="top",
        gradientLength=alt.ExprRef("min(width, 260)"),
        gradientThickness=10,
        format=".4~r",
        tickCount=4,
    )
    hue = alt.Color(
        "mean", type="quantitative", title=title, scale=alt.Scale(domain=domain), legend=legend
    )
    charts = [
        base.transform_filter("!isValid(datum.mean)").mark_rect(style="missing"),
        base.transform_filter("isValid(datum.mean)").mark_rect().encode(hue),
    ]
    if len(columns) <= MAX_CELLS_WITH_TEXT:
        middle = (domain[0] + domain[1]) / 2
        ink = (
            alt.when(f"datum.mean > {middle}")
            .then(alt.value("#101216"))
            .otherwise(alt.value("#ffffff"))
        )
        known = base.transform_filter("isValid(datum.mean)")
        charts.append(
            known.mark_text(fontSize=11).encode(
                text=alt.Text("mean", type="quantitative", format=".3r"), color=ink
            )
        )
        charts.append(
            base.transform_filter("!isValid(datum.mean)").mark_text(text="failed", style="soft")
        )
    empty = " Empty cells hold no configuration." if len(cells) < len(columns) * len(lines) else ""
    said = f"{empty} Grey cells: every trial failed." if cells["mean"].isna().any() else empty
    return Figure(
        name=slug,
        title=f"{name}: {material.metric} over {pair[0]} and {pair[1]}",
        caption=f"Mean {material.metric} of the configurations in each cell, averaged over the "
        "other hyperparameters. Failed trials are left out. "
        f"The colours mean the same in every such figure.{said}",
        chart=layers(
            charts,
            height=max(HEIGHT / 2, 30 * len(lines)),
            describe=f"{material.metric} of {name} over {pair[0]} and {pair[1]}, as coloured "
            "cells.",
        ),
        data=cells.rename(
            columns={"x": f"{pair[0]} (across)", "y": f"{pair[1]} (up)", "num": "num_configs"}
        ),
    )


def _winner_figure(slug: str, by: str, rows: pd.DataFrame, material: Material) -> Figure:
    unit = points_unit(material)
    frame = pd.DataFrame(
        {
            "objective": rows["winner"].to_numpy(),
            "best": rows["objective"].astype(str).to_numpy(),
            "second": rows["runner_up"].fillna("").astype(str).to_numpy(),
            "region": rows["region"].astype(str).to_numpy(),
            "mean": numbers(rows, "mean"),
            "lead": numbers(rows, "lead"),
            "low": numbers(rows, "low"),
            "high": numbers(rows, "high"),
            "resolved": rows["resolved"].to_numpy(dtype=bool),
            "status": rows["reason"].map(status).to_numpy(),
        }
    )
    frame["text"] = [
        f"{row['best']}, by {number(row['lead'])} {unit}".rstrip()
        if row["resolved"]
        else str(row["status"])
        for row in frame.to_dict("records")
    ]
    won = frame[frame["resolved"]]
    base = alt.Chart(frame).encode(
        alt.Y(
            "region",
            type="nominal",
            title=None,
            scale=alt.Scale(domain=list(dict.fromkeys(frame["region"]))),
            axis=alt.Axis(ticks=False, domain=False),
        ),
        x=alt.value(0),
        tooltip=[
            tooltip("region", "region", number=False),
            tooltip("best", "best mean", number=False),
            tooltip("mean", material.metric_title),
            tooltip("second", "runner-up", number=False),
            tooltip("lead", in_points("lead", material)),
            tooltip("low", "95 % from"),
            tooltip("high", "95 % to"),
        ],
    )
    cell = base.mark_rect(opacity=0.35, height={"band": 0.86}).encode(x2=alt.value("width"))
    open_cell = base.transform_filter("!datum.resolved").mark_rect(
        filled=False, stroke=GREY, strokeDash=[4, 3], height={"band": 0.86}
    )
    return Figure(
        name=slug,
        title=f"Who wins where along {param_title(material, by)}",
        caption=f"The objective with the best mean {material.metric} in each region of {by}. In a "
        "dashed frame its lead over some other one is not resolved. A lead was picked for being "
        "the largest, and so is a little too large.",
        chart=layers(
            [
                cell.transform_filter("datum.resolved").encode(
                    colour(material, won["objective"], legend=False)
                ),
                open_cell.encode(x2=alt.value("width")),
                base.mark_text(
                    align="left", dx=10, limit=alt.ExprRef("width - 16"), style="ink"
                ).encode(text="text:N"),
            ],
            height=REGION_HEIGHT * frame["region"].nunique() + 10,
            describe=f"The best objective in each region of {by}, or that it is not resolved.",
        ),
        data=rows.reset_index(drop=True),
    )


def _level_axis() -> alt.Axis:
    return alt.Axis(
        labelExpr=SHORT_EDGES,
        labelAngle=0,
        labelOverlap="greedy",
        labelLimit=90,
        ticks=False,
        domain=False,
        grid=False,
    )
