"""The metric over one hyperparameter and over two, the others averaged over."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from clsweep.analysis import marginals as analysis
from clsweep.analysis.nested import conditional
from clsweep.analysis.regions import cut
from clsweep.analysis.sweep import Sweep
from clsweep.statistics import charts
from clsweep.statistics.charts import alt
from clsweep.statistics.computed import Statistics, chosen_sweeps
from clsweep.statistics.report_objects import Figure, described
from clsweep.statistics.sensitivity import sensitivity, sizes_of
from clsweep.statistics.statistic import Statistic
from clsweep.sweeps.study_data import StudyData

FAVOURITES = ("tau", "batch_size")
MAX_CELLS_WITH_TEXT = 8  # a row of more has no room for numbers on a phone
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


def marginals(of: Statistics, *objectives: str) -> pd.DataFrame:
    """One row per value of each swept hyperparameter, see `analysis.marginals`."""
    return analysis.marginal_levels(chosen_sweeps(of.data.spaces, objectives))


def marginal_figures(marginals: pd.DataFrame, data: StudyData) -> list[Figure]:
    """The metric against each hyperparameter, averaged over the others, a line an objective."""
    if marginals.empty:
        return []
    frame = charts.columns(
        marginals, x="position", y="mean", low="low", high="high", num="num_configs"
    )
    frame.insert(1, "at", marginals["label"].astype(str).to_numpy())
    lows, highs = (charts.float_column(marginals, f"value_{end}") for end in ("low", "high"))
    frame["binned"] = lows < highs
    frame["param"] = marginals["param"].to_numpy()
    frame = charts.by_objective_order(frame.dropna(subset=["y"]), data)
    yardsticks = frame["objective"].map(lambda name: data.yardsticks.get(name, ""))
    figures: list[Figure] = []
    for yardstick, alike in frame.groupby(yardsticks, sort=False):
        behind = f", {yardstick}" if yardstick else ""
        tables = {
            f"{param}{behind}": alike[alike["param"] == param].reset_index(drop=True)
            for param in dict.fromkeys(marginals["param"])
        }
        figures += charts.each("marginal", tables, _marginal_figure, data, alike)
    return figures


def _marginal_figure(
    name: str, title_of: str, frame: pd.DataFrame, data: StudyData, whole: pd.DataFrame
) -> Figure:
    param = str(frame["param"].iloc[0])
    frame = frame.drop(columns="param")
    metric, title = data.metric, data.metric_title
    called = charts.param_title(param)
    by_name = bool(frame["x"].isna().any())
    tips = charts.tips(
        objective="objective", at=called, y=f"mean {title}", **charts.END_TIPS, num="configurations"
    )
    if by_name:
        lines, note = charts.reference_lines(data, whole, title)
        drawn = [*lines, *_side_by_side(frame, data, called, title, tips)]
    else:
        x = charts.param_axis(
            data, param, frame["x"].to_numpy(dtype=float), ticks=not frame["binned"].any()
        )
        drawn, note = charts.curves(frame, data, x, title, tips, whole=whole)
    binned = " Each point stands for a range of values." if frame["binned"].any() else ""
    if any(sweep.num_skipped for sweep in data.sweeps):
        binned += " Of a race, by the seeds that all settings ran on."
    is_search = bool(data.unmeasured)  # its surrogate knows of no images
    bands = charts.bands_text(frame, data, "Bars" if by_name else "Bands", of_seeds=is_search)
    if is_search:
        binned += " Of a search, by a surrogate, which knows least where little was tried."
    return Figure(
        name=name,
        title=f"{metric} against {called}{title_of.removeprefix(param)}",
        caption=f"Mean {metric} over all settings that share a value of {param}.{binned} "
        f"{bands}{note}",
        chart=charts.layers([*drawn, charts.span(whole, title)]),
        data=frame.drop(columns=["x", "binned"]).rename(
            columns={"at": "value", "y": "mean", "num": "num_configs"}
        ),
    )


def _side_by_side(
    frame: pd.DataFrame, data: StudyData, called: str, title: str, tips: Sequence[alt.Tooltip]
) -> list[alt.Chart]:
    """Points with error bars, for a hyperparameter whose values are names."""
    axis = alt.Axis(labelAngle=0, labelOverlap="greedy", labelLimit=100, grid=False)
    scale = alt.Scale(domain=list(dict.fromkeys(frame["at"])))
    place = alt.X("at:N", title=called, scale=scale, axis=axis)
    beside = alt.XOffset("objective:N", scale=alt.Scale(domain=charts.objectives(data)))
    base = alt.Chart(frame)
    hue, form = charts.looks(data, frame)
    bar = base.transform_filter(charts.HAS_INTERVAL).mark_rule(strokeWidth=2)
    point = base.mark_point(filled=True, size=70, opacity=1)
    return [
        bar.encode(place, beside, charts.score_axis(title, "low"), alt.Y2("high"), hue),
        point.encode(place, beside, charts.score_axis(title), hue, form, tooltip=list(tips)),
    ]


def heatmap_figures(data: StudyData, sensitivity: pd.DataFrame) -> list[Figure]:
    """Mean metric over two hyperparameters of every objective that sweeps two, in the regions of
    `regions.cut` and one scale of colours: tau and batch_size if both are swept, else the largest
    interaction in `sensitivity`, else the first two. A failed trial has no colour.
    """
    pairs, tables = {}, {}
    for sweep in data.spaces:
        if sweep.not_measured or len(sweep.params) < 2 or not sweep.alive.any():
            continue
        pair = pairs[sweep.objective] = _two_params(sweep, sensitivity)
        scored = _having(sweep, pair)
        places = {}
        for axis, param in zip("xy", pair, strict=True):  # in the order of the regions
            regions = cut(param, [scored])
            codes, labels = regions.place(scored.settings[param]), pd.Index(regions.labels)
            places[axis] = pd.Categorical.from_codes(codes, labels)
        frame = pd.DataFrame({**places, "score": scored.sign * scored.means})
        cells = frame.groupby(["x", "y"], observed=True)["score"]  # where all failed, no mean
        counts = cells.agg(mean="mean", num="size", scored="count")
        tables[sweep.objective] = counts.reset_index()
    means = pd.concat([cells["mean"] for cells in tables.values()] or [pd.Series(dtype=float)])
    if means.isna().all():
        return []
    domain = [float(means.min()), float(means.max())]
    return charts.each("heatmap", tables, _heatmap, pairs, data, domain)


def _having(sweep: Sweep, pair: tuple[str, str]) -> Sweep:
    """The configurations that have both hyperparameters."""
    return conditional(conditional(sweep.measured, pair[0]), pair[1])


def _two_params(sweep: Sweep, sensitivity: pd.DataFrame) -> tuple[str, str]:
    if set(FAVOURITES) <= set(sweep.params):
        return FAVOURITES
    if len(sensitivity):
        is_pair = charts.float_column(sensitivity, "order") == 2
        rows = sensitivity[(sensitivity["objective"] == sweep.objective) & is_pair]
        size = sizes_of(rows).dropna()
        for term in rows.loc[size.sort_values(ascending=False).index, "term"]:
            names = str(term).split(" x ")
            if len(names) == 2 and set(names) <= set(sweep.params):
                return names[0], names[1]
    pairs = list(itertools.combinations(sweep.params, 2))
    for pair in pairs:  # of one that is swept at one value of the other alone there is no plane
        scored = _having(sweep, pair)
        if all(scored.settings[name].nunique() > 1 for name in pair):
            return pair
    return pairs[0]


def _heatmap(
    slug: str,
    name: str,
    cells: pd.DataFrame,
    pairs: Mapping[str, tuple[str, str]],
    data: StudyData,
    domain: list[float],
) -> Figure:
    pair, (columns, lines) = pairs[name], (list(cells[axis].cat.categories) for axis in "xy")
    cells = cells.astype({"x": str, "y": str})
    x, y = (charts.param_title(param) for param in pair)
    means = {"x": x, "y": y, "mean": f"mean {data.metric_title}"}
    nums = {"scored": "configurations with a score", "num": "configurations tried"}
    base = alt.Chart(cells).encode(
        alt.X("x:N", title=x, scale=alt.Scale(domain=columns), axis=_level_axis()),
        alt.Y("y:N", title=y, scale=alt.Scale(domain=lines[::-1]), axis=_level_axis()),
        tooltip=charts.tips("x", "y", **means, **nums),
    )
    empty = " Empty cells hold no configuration." if len(cells) < len(columns) * len(lines) else ""
    note = f"{empty} Grey cells: every trial failed." if cells["mean"].isna().any() else empty
    return Figure(
        name=slug,
        title=f"{name}: {data.metric} over {pair[0]} and {pair[1]}",
        caption=f"Mean {data.metric} of the configurations in each cell, averaged over the "
        "other hyperparameters. Failed trials are left out. "
        f"The colours mean the same in every such figure.{note}",
        chart=charts.layers(
            _coloured(base, data, domain, has_text=len(columns) <= MAX_CELLS_WITH_TEXT),
            height=max(charts.HEIGHT / 2, 30 * len(lines)),
        ),
        data=cells.rename(
            columns={"x": f"{pair[0]} (across)", "y": f"{pair[1]} (up)", "num": "num_configs"}
        ),
        is_apart=True,
    )


def _coloured(
    base: alt.Chart, data: StudyData, domain: list[float], *, has_text: bool
) -> list[alt.Chart]:
    """The cells, those without a mean grey; with their numbers where there is room."""
    bar: dict[str, Any] = {
        "gradientLength": alt.ExprRef("min(width, 260)"),
        "gradientThickness": 10,
    }
    legend = alt.Legend(orient="top", format=".4~r", tickCount=4, **bar)
    scale, title = alt.Scale(domain=domain), data.metric_title
    hue = alt.Color("mean:Q", title=title, scale=scale, legend=legend)
    missing = base.transform_filter("!isValid(datum.mean)")
    known = base.transform_filter("isValid(datum.mean)")
    cells = [missing.mark_rect(style="missing"), known.mark_rect().encode(hue)]
    if not has_text:
        return cells
    dark, light = alt.value("#101216"), alt.value("#ffffff")
    ink = alt.when(f"datum.mean > {(domain[0] + domain[1]) / 2}").then(dark).otherwise(light)
    text = alt.Text("mean:Q", format=".3r")
    numbers = known.mark_text(fontSize=11).encode(text=text, color=ink)
    return [*cells, numbers, missing.mark_text(text="failed", style="soft")]


def _level_axis() -> alt.Axis:
    labels: dict[str, Any] = {"labelAngle": 0, "labelOverlap": "greedy", "labelLimit": 90}
    return alt.Axis(labelExpr=SHORT_EDGES, **labels, ticks=False, domain=False, grid=False)


MARGINALS_OF_SEARCH = Statistic(  # of a search, where no chapter on the space is written
    name="searched-marginals",
    table=marginals,
    has_notes=False,
    figures=lambda context: (
        () if context.says_of_space else marginal_figures(context.compute(marginals), context.data)
    ),
)
# m_i is the mean of configuration i over its seeds, of which failed ones count as the note says, in
# the metric's own sign.
_FORMULAS = described(
    analysis.MARGINAL_COLUMNS,
    objective="name",
    param="the swept hyperparameter",
    position="the value; the centre of a bin on the hyperparameter's axis (log where it is); none "
    "for a category",
    label='the value or the bin as text, "0.1" or "0.05..0.08"',
    value_low="smallest value in the bin",
    value_high="largest value in the bin",
    num_configs="configurations with a score",
    mean="mean of m_i over them",
    low="t interval of the mean. A whole grid: from the seeds and the residual noise, the settings "
    "being the space. Otherwise: from the spread of m_i, the configurations being a sample of it. "
    "It ends where the metric ends",
)
MARGINALS = Statistic(
    name="marginals",
    table=marginals,
    has_notes=False,
    figures=lambda context: (
        *marginal_figures(context.compute(marginals), context.data),
        *heatmap_figures(context.data, context.compute(sensitivity)),
    ),
    formulas={"marginals": _FORMULAS},
)
