"""Parts that charts share: names, axes, colours by objective, tooltips, lines of reference; points
with intervals in rows, and lines with bands.

A table is first brought into columns with plain names ("objective", "x", "y", "low", "high", "at"),
because Vega-Lite reads dots and brackets in a field name as a path. Names that people give are only
ever values.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from clsweep.catalog import PARAM
from clsweep.display.numbers import mentioned, setting_column
from clsweep.display.theme import GREY
from clsweep.statistics.report_objects import Figure, as_slug
from clsweep.sweeps.notes import references_apart
from clsweep.sweeps.study_data import StudyData

if TYPE_CHECKING:
    import altair

    alt = altair
else:

    class _Altair:
        """Altair, loaded once something is drawn: a terminal's answer needs none."""

        def __getattr__(self, name: str) -> Any:
            import altair

            return getattr(altair, name)

    alt = _Altair()

HAS_INTERVAL = "isValid(datum.low) && isValid(datum.high)"
END_TIPS = {"low": "95 % from", "high": "95 % to"}  # of an interval, in a tooltip
NAMES = {  # fields of texts
    "objective", "at", "state", "setting", "trial", "seed", "trial_id", "status", "kind", "row",
    "note", "label", "verdict", "size", "region", "second",
}  # fmt: skip
NUMBER = ".4~r"  # four significant digits, never an exponent
SHADES = ("#5f6773", "#878d97", "#a7acb5")  # of kinds; legible on white and on black
LOWER = 7  # pixels from the middle of a row, below its label
HEIGHT = 260
ROW_HEIGHT = 40
MAX_TICKS = 12  # more grid values than this and the axis picks its own
# No chart's width crosses this once its axes are laid out, which would cut the legend off.
LEGEND_COLUMNS = "width > 380 ? 3 : 2"


def slugs(prefix: str, texts: Sequence[str]) -> list[str]:
    """A different name for each text, not too long for a file, even where their slugs agree."""
    names: list[str] = []
    for text in texts:
        start = f"{prefix}-{as_slug(text)[:60].rstrip('-')}"
        name, count = start, 2
        while name in names:
            name, count = f"{start}-{count}", count + 1
        names.append(name)
    return names


def each(
    prefix: str, tables: Mapping[str, pd.DataFrame], draw: Callable[..., Figure], *about: Any
) -> list[Figure]:
    """A figure of each table with rows: `draw` of its slug, its name, it, and what is `about`."""
    filled = {name: table for name, table in tables.items() if not table.empty}
    names = slugs(prefix, list(filled))
    return [draw(slug, *each, *about) for slug, each in zip(names, filled.items(), strict=True)]


def by_objective(frame: pd.DataFrame, data: StudyData) -> dict[str, pd.DataFrame]:
    """The rows of each objective that has a colour."""
    own = by_objective_order(frame, data).groupby("objective", sort=False)
    return {str(name): rows.reset_index(drop=True) for name, rows in own}


def objectives(data: StudyData) -> list[str]:
    """In the order that fixes every objective's colour and shape."""
    return [sweep.objective for sweep in data.sweeps]


def points_unit(data: StudyData) -> str:
    """Of a difference: percentages differ by points."""
    return "points" if data.unit == "%" else data.unit


def in_points(title: str, data: StudyData) -> str:
    unit = points_unit(data)
    return f"{title} ({unit})" if unit else title


def param_title(param: str) -> str:
    """`τ (tau)`: a symbol may stand for two parameters, and tables have the name."""
    symbol = PARAM[param].symbol if param in PARAM else ""
    return f"{symbol} ({param})" if symbol and symbol != param else param


def float_column(table: pd.DataFrame, column: str) -> NDArray[np.float64]:
    """A column as floats; what is missing or infinite is NaN, which a chart leaves out."""
    values = pd.to_numeric(table[column], errors="coerce").to_numpy(dtype=float, na_value=np.nan)
    return np.where(np.isfinite(values), values, np.nan)


def columns(table: pd.DataFrame, **names: str) -> pd.DataFrame:
    """The objectives and these columns of a table as `numbers`, under plain names."""
    frame = pd.DataFrame({plain: float_column(table, name) for plain, name in names.items()})
    frame.insert(0, "objective", table["objective"].to_numpy())
    return frame


def param_axis(data: StudyData, param: str, values: NDArray[np.float64], *, ticks: bool) -> alt.X:
    """A numeric parameter's axis; with `ticks` it is marked at the values themselves, if they are
    few. It is logarithmic where some sweep reads it so and every value can be.
    """
    levels = np.unique(values[np.isfinite(values)]).tolist()
    axis: dict[str, Any] = {"format": NUMBER}
    if ticks and len(levels) <= MAX_TICKS:
        exact = f"{json.dumps(setting_column(levels))}[indexof({json.dumps(levels)}, datum.value)]"
        axis = {"values": levels, "labelExpr": exact}
    is_log = any(s.scales.get(param) == "log" for s in data.sweeps) and (values > 0).all()
    kind = {"type": "log"} if is_log else {"zero": False}
    return alt.X(
        "x:Q",
        title=param_title(param),
        scale=alt.Scale(**kind, nice=False, padding=12),
        axis=alt.Axis(**axis, labelOverlap="greedy", labelSeparation=5, grid=False),
    )


def looks(
    data: StudyData, frame: pd.DataFrame, *, legend: bool = True
) -> tuple[alt.Color, alt.Shape]:
    """Colour and shape by objective, the same in every chart; the legend names those of `frame`."""
    names = list(dict.fromkeys(frame["objective"]))
    options: dict[str, Any] = {
        "type": "nominal",
        "title": None,
        "scale": alt.Scale(domain=objectives(data)),
        "legend": alt.Legend(**legend_place(), values=names) if legend else None,
    }
    return alt.Color("objective", **options), alt.Shape("objective", **options)


def legend_place() -> dict[str, Any]:
    """On top, in columns that fit a phone."""
    return {
        "orient": "top",
        "columns": alt.ExprRef(LEGEND_COLUMNS),
        "labelLimit": 130,
        "symbolOpacity": 1,
        "offset": 6,
    }


def tips(*names: str, form: str = NUMBER, **titles: str) -> list[alt.Tooltip]:
    """Fields that hovering shows: field -> title, in order; `names` and `NAMES` hold texts."""
    return [
        alt.Tooltip(field, type="nominal", title=title)
        if field in {*NAMES, *names}
        else alt.Tooltip(field, type="quantitative", title=title, format=form)
        for field, title in titles.items()
    ]


def score_axis(title: str, field: str = "y") -> alt.Y:
    """Layers that share an axis need one title, also where they read other columns."""
    return alt.Y(
        field,
        type="quantitative",
        title=title,
        scale=alt.Scale(zero=False, padding=8),
        axis=alt.Axis(tickCount=6),
    )


def span(frame: pd.DataFrame, title: str) -> alt.Chart:
    """Unseen points at the ends of scores, so that charts side by side share their axis."""
    scores = frame[["y", "low", "high"]].to_numpy(dtype=float)
    ends = pd.DataFrame({"y": [np.nanmin(scores), np.nanmax(scores)]})
    return alt.Chart(ends).mark_point(opacity=0).encode(score_axis(title))


def layers(charts: Sequence[alt.Chart], *, height: float = HEIGHT) -> alt.LayerChart:
    """Several marks as one chart that is as wide as its place."""
    return alt.LayerChart(layer=list(charts)).properties(width="container", height=height)


def settings_at(data: StudyData, rows: pd.DataFrame) -> list[str]:
    """The setting of the configuration of each of few rows, by objective and config: `tau=0.2,
    lr=1`.
    """
    sweeps = {sweep.objective: sweep for sweep in data.sweeps}
    place = {name: {c: i for i, c in enumerate(sweep.configs)} for name, sweep in sweeps.items()}
    keys = list(zip(rows["objective"], rows["config"], strict=True))
    labels = {(name, c): sweeps[name].label(place[name][c]) for name, c in dict.fromkeys(keys)}
    return [labels[key] for key in keys]


def has_interval(frame: pd.DataFrame) -> bool:
    return bool((frame["low"].notna() & frame["high"].notna()).any())


def bands_text(
    frame: pd.DataFrame, data: StudyData, what: str = "Bands", *, of_seeds: bool = False
) -> str:
    """The meaning of bands or bars; `of_seeds`: they know of no images."""
    if has_interval(frame):
        images = data.images.replace("new", "these") if of_seeds else data.images
        return f"{what} are 95 % intervals{f' for {images}' * bool(images)}."
    if any(sweep.has_repeats for sweep in data.sweeps):
        return "No intervals: the notes say why."
    return "No intervals: they need two seeds."


def by_objective_order(frame: pd.DataFrame, data: StudyData) -> pd.DataFrame:
    """Rows of the objectives that have a colour, in their order and numbered anew."""
    place = {name: number for number, name in enumerate(objectives(data))}
    places = frame["objective"].map(place)
    return frame[places.notna()].sort_values(
        "objective", key=lambda names: names.map(place), kind="stable", ignore_index=True
    )


def reference_lines(
    data: StudyData, frame: pd.DataFrame, title: str
) -> tuple[list[alt.Chart], str]:
    """On the axis y of this title, lines at what is reached without training, and a sentence. One
    that is further away than the scores are spread, which it would squeeze, is said and not drawn.
    """
    scores = frame[[name for name in ("y", "low", "high") if name in frame]].to_numpy(dtype=float)
    table = data.references
    if data.metric not in table or not np.isfinite(scores).any():
        return [], ""
    if "yardstick" in table:
        alike = {data.yardsticks.get(name, "") for name in frame["objective"]}
        table = table[table["yardstick"].isin(alike)]
    low, high = np.nanmin(scores), np.nanmax(scores)
    named = {
        f"{name.replace(' encoder', '')} {mentioned(float(f'{at:.4g}'))}": at
        for name, seeds in references_apart(table, data.metric).items()
        for at in [float(seeds[data.metric].mean())]
    }
    near = {name: at for name, at in named.items() if 2 * low - high <= at <= 2 * high - low}
    away = [name for name in named if name not in near]
    note = f" Off the axis: {', '.join(away)}." if away else ""
    if not near:
        return [], note
    base = alt.Chart(pd.DataFrame({"y": near.values(), "name": [*near]})).encode(score_axis(title))
    rule = base.mark_rule(color=GREY, strokeDash=[5, 4]).encode(
        tooltip=tips("name", name="without training")
    )
    text = base.mark_text(align="left", dx=4, dy=-5, style="soft").encode(
        x=alt.value(0), text=alt.Text("name:N")
    )
    return [rule, text], f" Dashed: without training.{note}"


def scored_trials(data: StudyData) -> pd.DataFrame:
    """Finished trials with a finite score, of objectives that have a colour."""
    trials = data.trials
    has_score = np.isfinite(float_column(trials, data.metric))
    return by_objective_order(trials[(trials["status"] == "finished") & has_score], data)


# Points with intervals in rows, and lines with bands


def ends_frame(table: pd.DataFrame, x: str, low: str, high: str) -> pd.DataFrame:
    """Objective, x, low, high and note of every row; a column that is not there is NaN."""
    frame = columns(table.reindex(columns=["objective", x, low, high]), x=x, low=low, high=high)
    frame["note"] = table["note"].fillna("").to_numpy() if "note" in table.columns else ""
    return frame


def forest(
    frame: pd.DataFrame,
    data: StudyData,
    x: alt.X,
    *,
    line: float | None = None,
    legend: bool = True,
) -> alt.LayerChart:
    """Rows of points and intervals in their objective's colour, grey where nothing is resolved."""
    resolved = frame[frame["resolved"]]
    colour, shape = looks(data, resolved, legend=legend and not resolved.empty)
    is_resolved = alt.when("datum.resolved")
    hue = is_resolved.then(colour).otherwise(alt.value(GREY))
    form = is_resolved.then(shape).otherwise(alt.value("circle"))
    frame = frame.assign(missing=frame.get("missing", "not measured"))
    place = alt.Chart(frame).encode(rows_of(frame["row"]))
    noted = {"note": "note"} if frame["note"].ne("").any() else {}
    known = place.transform_filter("isValid(datum.x)")
    missing = place.transform_filter("!isValid(datum.x)")
    at = pd.DataFrame({"x": [] if line is None else [line]})
    marks = [alt.Chart(at).mark_rule(color=GREY, strokeDash=[5, 4]).encode(x)][: len(at)]
    marks += [
        _labels(frame, ROW_HEIGHT),
        _bars(place, x, yOffset=LOWER).encode(color=hue),
        known.mark_point(filled=True, size=90, opacity=1, yOffset=LOWER).encode(
            x, color=hue, shape=form, tooltip=tips(row="row", x="estimate", **END_TIPS, **noted)
        ),
        missing.mark_text(align="left", yOffset=LOWER, style="soft").encode(
            x=alt.value(0), text="missing:N"
        ),
    ]
    for end, arrow in {"low": "triangle-left", "high": "triangle-right"}.items():
        if f"{end}_open" in frame and frame[f"{end}_open"].any():
            open_end = place.transform_filter(f"datum.{end}_open")
            head = open_end.mark_point(filled=True, size=60, shape=arrow, opacity=1, yOffset=LOWER)
            marks.append(head.encode(other_column(x, end), color=hue))
    return layers(marks, height=ROW_HEIGHT * frame["row"].nunique())


def dots(
    frame: pd.DataFrame, x: alt.X, kinds: Sequence[str], tips: Sequence[alt.Tooltip]
) -> alt.LayerChart:
    """Rows with a point for each kind, apart in shape, shade and place, and ticks at `null`."""
    shown = [kind for kind in kinds if kind in set(frame["kind"])]
    scale, legend = alt.Scale(domain=list(kinds)), alt.Legend(**legend_place(), values=shown)
    shades = alt.Scale(domain=list(kinds), range=SHADES[: len(kinds)])
    hue = alt.Color("kind:N", title=None, scale=shades, legend=legend)
    form = alt.Shape("kind:N", title=None, scale=scale, legend=legend)
    row_height = ROW_HEIGHT / 2 + 14 * len(shown)
    base = alt.Chart(frame).encode(rows_of(frame["row"]), tooltip=list(tips))
    spread = alt.Scale(domain=shown, range=[ROW_HEIGHT / 2 - 2, row_height - 5])
    beside = alt.YOffset("kind:N", scale=spread)
    marks = [
        _labels(frame, row_height),
        _bars(base, x).encode(beside, hue),
        base.mark_point(filled=True, size=70, opacity=1).encode(beside, x, hue, form),
    ]
    if "null" in frame:
        known = base.transform_filter("isValid(datum.null)")
        size = row_height - ROW_HEIGHT / 2
        tick = known.mark_tick(color=GREY, thickness=2, size=size, yOffset=ROW_HEIGHT / 4)
        marks.insert(0, tick.encode(other_column(x, "null")))
    return layers(marks, height=row_height * frame["row"].nunique())


def rows_of(names: Iterable[str]) -> alt.Y:
    """A band for each row. Its label stands in it, not beside it: a phone has no room there."""
    scale = alt.Scale(domain=list(dict.fromkeys(names)), paddingInner=0, paddingOuter=0)
    return alt.Y("row:N", title=None, scale=scale, axis=None)


def _labels(frame: pd.DataFrame, row_height: float) -> alt.Chart:
    text = alt.Chart(frame[["row"]].drop_duplicates()).mark_text(
        align="left", dy=10 - row_height / 2, limit=alt.ExprRef("width"), style="ink"
    )
    return text.encode(rows_of(frame["row"]), x=alt.value(0), text=alt.Text("row:N"))


def _bars(base: alt.Chart, x: alt.X, **options: Any) -> alt.Chart:
    bars = base.transform_filter(HAS_INTERVAL).mark_rule(strokeWidth=2.5, **options)
    return bars.encode(other_column(x, "low"), alt.X2("high"))


def other_column(x: alt.X, field: str) -> alt.X:
    """The same axis over another column."""
    other = x.copy()
    other.shorthand = f"{field}:Q"
    return other


def plain_x(title: str, **scale: Any) -> alt.X:
    axis = alt.Axis(labelOverlap="greedy", labelSeparation=5, tickCount=6, format=".4~r")
    return alt.X("x:Q", title=title, scale=alt.Scale(**scale), axis=axis)


def curve_frame(curves: pd.DataFrame, data: StudyData, *, x: str, y: str) -> pd.DataFrame:
    """The columns of every curve; rows without a value are left out."""
    names = ["objective", x, y, "low", "high"]
    frame = columns(curves.reindex(columns=names), x=x, y=y, low="low", high="high")
    return by_objective_order(frame.dropna(subset=["x", "y"]), data)


def banded(
    frame: pd.DataFrame,
    data: StudyData,
    x: alt.X,
    y: Callable[[str], alt.Y],
    tips: Sequence[alt.Tooltip],
    *,
    marked: bool,
) -> list[alt.Chart]:
    """A band, a line and points of each objective, which where not `marked` only hover."""
    base = alt.Chart(frame)
    hue, form = looks(data, frame)
    band = base.transform_filter(HAS_INTERVAL).mark_area(opacity=0.16)
    line = base.mark_line(strokeWidth=2)
    point = base.mark_point(filled=True, size=60, opacity=1 if marked else 0)
    return [
        *([band.encode(x, y("low"), alt.Y2("high"), hue)] if has_interval(frame) else []),
        line.encode(x, y("y"), hue),
        point.encode(x, y("y"), hue, form, tooltip=list(tips)),
    ]


def curves(
    frame: pd.DataFrame,
    data: StudyData,
    x: alt.X,
    title: str,
    tips: Sequence[alt.Tooltip],
    *,
    marked: bool = True,
    whole: pd.DataFrame | None = None,
) -> tuple[list[alt.Chart], str]:
    """The same over an axis of scores, beside what is reached without training; and a sentence on
    that. `whole`: the scores of all charts that share the axis.
    """
    lines, note = reference_lines(data, frame if whole is None else whole, title)
    drawn = banded(frame, data, x, partial(score_axis, title), tips, marked=marked)
    return [*lines, *drawn], note


def is_sparse(frame: pd.DataFrame) -> bool:
    return bool(frame["x"].nunique() <= 12)
