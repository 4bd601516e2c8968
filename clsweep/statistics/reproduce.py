"""A paper's table in its own layout: its numbers beside those measured, and its differences."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pandas as pd

from clsweep.analysis import reproduce as analysis
from clsweep.analysis.contrast import Contrast, contrast_table
from clsweep.analysis.reproduce import RESOLVABLE, Verdict
from clsweep.catalog.rows import Row
from clsweep.display.numbers import interval, known, num_of, number, setting, setting_column
from clsweep.statistics import charts
from clsweep.statistics.charts import alt
from clsweep.statistics.computed import ReportContext, Statistics
from clsweep.statistics.contrast import sweeps_by
from clsweep.statistics.report_objects import REASON_COLUMNS, Figure, Sentences, Table, described
from clsweep.statistics.statistic import Column, Statistic, between
from clsweep.sweeps.notes import notes_of, records_of
from clsweep.sweeps.study_data import StudyData

_ABOUT = ("paper", "item")
PLACE_COLUMNS = ("dataset", "encoder", "metric")
_KEYS = (*_ABOUT, "objective", *PLACE_COLUMNS)
_PARTS = ("measured", "paper", "verdict")  # of a cell, one under the other
LEGEND = (
    "measured: mean over the seeds +- half of its 95 % interval, - where there is none; paper: the "
    "printed number; agrees: they differ by {within} at most, with 95 % confidence; differs: they "
    "are not the same, with 95 % confidence; other scale: the run fixes something otherwise than "
    "the paper"
)
_LONG = 18  # letters of a name of which four do not fit side by side
SAME, OTHER, OPEN = "same sign", "other sign", "not resolved"
DIFFERENCE_COLUMNS = {
    "what": "what is subtracted from what: the objective that a printed difference starts from, or "
    "whose name the other's extends; where a table has none such the first at the same settings, "
    "else the objective's own first setting",
    "published": "the difference of the printed numbers",
    "estimate": "the same difference in the run",
    "low": "95 % interval of that, as of a contrast, of each alone",
    "high": "its upper end",
    "num_seeds": "seeds that it rests on",
    "verdict": f"{SAME}, {OTHER}: the interval excludes 0, and which way; its size is of another "
    "scale than the paper's",
    **REASON_COLUMNS,
}


@dataclass(frozen=True, kw_only=True, eq=False)
class Layout:
    """A part of a paper's table: of a metric, data set and encoder unless these stand across."""

    paper: str
    item: str
    title: str  # what part it is
    across: str  # the setting or place that its columns are
    labels: tuple[str, ...]  # the objective of each row, with the settings not across
    rows: pd.DataFrame  # of `reproduce`, what it is made of
    shown: pd.DataFrame  # "objective", "" and a column for each value; three rows an objective

    @property
    def is_measured(self) -> bool:
        return bool(self.rows["measured"].notna().any())


def reproduce(of: Statistics, *, within: float | None = None) -> pd.DataFrame:
    """One row per printed number of all cells, see `analysis.reproduce`; may be empty."""
    return analysis.reproduce(of.printed(within))


def printed_numbers(context: ReportContext) -> pd.DataFrame:
    """A paper's numbers beside what was measured; may be empty."""
    return context.statistics.compute_whole(reproduce)


def _measured(context: ReportContext) -> list[Layout]:
    return [part for part in layouts(printed_numbers(context)) if part.is_measured]


def setting_names(frame: pd.DataFrame) -> list[str]:
    """The columns of `reproduce` that hold hyperparameters."""
    return [str(name) for name in frame if name not in (*_KEYS, *analysis.REPRODUCE_COLUMNS)]


def layouts(frame: pd.DataFrame) -> list[Layout]:
    """Every part of every table, in the paper's order; printed spreads stand in none."""
    parts_laid = []
    for _, item in frame[frame["value"].notna()].groupby(list(_ABOUT), sort=False):
        # Across stands the setting of most values, else what else tells the columns apart.
        sizes = {name: item[name].nunique() for name in setting_names(item)}
        across = max(sizes, key=lambda name: sizes[name], default="")
        if sizes.get(across, 0) < 2:
            across = next((name for name in PLACE_COLUMNS if item[name].nunique() > 1), "metric")
        places = [name for name in PLACE_COLUMNS if name != across]
        parts = item.groupby(places, sort=False, dropna=False)
        parts_laid += [_layout(rows, across, places) for _, rows in parts]
    return parts_laid


def remarks(frame: pd.DataFrame) -> list[str]:
    """Remarks on one or more tables: scales, reasons, misprints."""
    rows = frame[frame["measured"].notna()]
    scales = rows.loc[rows["verdict"] == Verdict.OTHER_SCALE, ["here", "there"]].drop_duplicates()
    lines = [f"other scale: here {here}; in the paper {there}" for here, there in scales.to_numpy()]
    lines += notes_of(rows[rows["verdict"] != Verdict.OTHER_SCALE])
    lines += [
        f"{setting_of(row, setting_names(frame))}: {row['printed_note']}"
        for row in records_of(frame)
        if row["printed_note"] and (known(row["measured"]) or not known(row["value"]))  # a spread
    ]
    return list(dict.fromkeys(lines))


def legend(frame: pd.DataFrame) -> str:
    """Legend of the cells, with the differences that still agree."""
    allowed = sorted({float(value) for value in frame["within"].dropna()}) or [1.0]
    return LEGEND.format(within=" or ".join(map(setting, allowed)))


def closing(frame: pd.DataFrame) -> str:
    """`12 of 20 numbers agree, 3 differ, 5 not resolved; 40 not measured`."""
    counts = frame.loc[frame["value"].notna(), "verdict"].value_counts()
    num = {verdict: int(counts.get(verdict, 0)) for verdict in Verdict}
    comparable = sum(num[verdict] for verdict in RESOLVABLE)
    sentence = "no number is measured at the paper's scale"
    differ, open_ = num[Verdict.DIFFERS], num[Verdict.NOT_RESOLVED]
    if comparable:
        sentence = (
            f"{number(num[Verdict.AGREES])} of {number(comparable)} numbers agree, "
            f"{number(differ)} differ{'s' * (differ == 1)}, {number(open_)} not resolved"
        )
    others = {
        "at another scale": num[Verdict.OTHER_SCALE],
        "not measured": num[Verdict.NOT_MEASURED],
        "for reference only": num[Verdict.REFERENCE_ONLY],
    }
    return "; ".join([sentence, *(f"{number(n)} {what}" for what, n in others.items() if n)])


def not_measured_items(parts: Sequence[Layout]) -> list[str]:
    """The parts of tables without a measured number, in a line."""
    titles = [f"{part.item}, {part.title}" for part in parts if not part.is_measured]
    return [f"not measured: {'; '.join(titles)}"] if titles else []


def setting_of(row: Mapping[str, Any], names: Sequence[str]) -> str:
    """`dcl, tau=0.5, cifar10`: what a printed number is of."""
    return ", ".join([_label(row, names), *(row[name] for name in PLACE_COLUMNS[:1] if row[name])])


def _layout(rows: pd.DataFrame, across: str, places: Sequence[str]) -> Layout:
    others = [n for n in setting_names(rows) if n != across and rows[n].notna().any()]
    labels = [_label(row, others) for row in records_of(rows)]
    heads = rows[across].tolist()
    if across not in PLACE_COLUMNS:  # what has no such setting stands below `-`
        heads = [text or "-" for text in setting_column([plain_of(value) for value in heads])]
    decimals = max(len(setting(value).partition(".")[2]) for value in rows["value"])
    turn = rows.assign(label=labels).groupby(["label", across], dropna=False).cumcount()
    table: dict[tuple[str, int], dict[str, dict[str, str]]] = {}
    for row, label, head, place in zip(records_of(rows), labels, heads, turn, strict=True):
        table.setdefault((label, place), {})[head] = _cell(row, decimals)
    order = list(dict.fromkeys(heads))
    shown = [
        {"objective": label if part == _PARTS[0] else "", "": part}
        | {head: cells.get(head, {}).get(part, "") for head in order}
        for (label, _), cells in table.items()
        for part in _PARTS
    ]
    first = rows.iloc[0]
    return Layout(
        paper=first["paper"],
        item=first["item"],
        title=f"{', '.join(first[name] for name in places if first[name])}, by {across}",
        across=across,
        labels=tuple(labels),
        rows=rows,
        shown=pd.DataFrame(shown),
    )


def _cell(row: Mapping[str, Any], decimals: int) -> dict[str, str]:
    """`79.67 +-8.33`, with the first digit of the half width at least, over the printed number."""
    measured, half = "-", row["high"] - row["measured"]
    if known(row["measured"]):
        more = math.ceil(-math.log10(half)) if half > 0 else 0
        digits = max(decimals + 1, more)
        measured = f"{row['measured']:.{digits}f}"
        measured += f" +-{half:.{digits}f}" if known(half) else ""
    return {
        "measured": measured,
        "paper": f"{row['value']:.{decimals}f}",
        "verdict": row["verdict"] if row["verdict"] != Verdict.NOT_MEASURED else "",
    }


def _label(row: Mapping[str, Any], others: Sequence[str]) -> str:
    values = {name: plain_of(row[name]) for name in others}
    texts = [f"{name}={setting(value)}" for name, value in values.items() if value is not None]
    return ", ".join([row["objective"], *texts])


def plain_of(value: Any) -> Any:
    """A setting as a number where it is one; None where there is none."""
    if value is None or value == "" or value != value:
        return None
    try:
        return float(value)
    except (TypeError, ValueError):
        return value


def agreement_summary(frame: pd.DataFrame) -> Sentences:
    """The count of the verdicts; nothing where no number is printed."""
    return () if frame.empty else (f"Against the paper: {closing(frame)}.",)


def differing(frame: pd.DataFrame) -> Sentences:
    """The numbers that differ, a sentence each, the largest difference first."""
    rows = frame[frame["verdict"] == Verdict.DIFFERS]
    rows = rows.loc[rows["difference"].abs().sort_values(ascending=False).index]
    return tuple(
        f"{row['item']}, {setting_of(row, setting_names(frame))}: {row['metric']} is "
        f"{number(row['measured'])}, printed {number(row['value'])}, a difference of "
        f"{number(row['difference'])}{interval(row['difference_low'], row['difference_high'])}."
        for row in records_of(rows)
    )


def _paper_points(part: Layout) -> pd.DataFrame:
    """Rows with a place on the axis; none where names stand across."""
    rows = part.rows.assign(at=pd.to_numeric(part.rows[part.across], errors="coerce"))
    frame = charts.columns(rows, x="at", printed="value", y="measured", low="low", high="high")
    own = zip(part.labels, frame["objective"], strict=True)
    frame.insert(1, "label", list(part.labels))
    frame.insert(2, "setting", [text.removeprefix(name).removeprefix(", ") for text, name in own])
    frame["verdict"] = rows["verdict"].to_numpy()
    return frame.dropna(subset=["x"]).sort_values("x", kind="stable")


def _paper_figure(name: str, part: Layout, frame: pd.DataFrame, data: StudyData) -> Figure:
    metric = str(part.rows["metric"].iloc[0])
    param = charts.param_title(part.across)
    place = ", ".join(str(part.rows[n].iloc[0]) for n in ("dataset", "encoder"))
    apart = (frame["verdict"] == Verdict.OTHER_SCALE).any()
    bars = charts.bands_text(frame, data, "Bars", of_seeds=True)
    return Figure(
        name=name,
        title=f"{part.item}: {metric} against {param}, {place.strip(', ')}",
        caption=f"Filled points: measured. {bars} "
        f"Open points, dashed: printed in {part.paper}."
        f"{' The scales differ: see the notes.' if apart else ''}",
        chart=charts.layers(_printed(frame, part.across, metric, data)),
        data=frame.drop(columns="setting").rename(columns={"x": part.across, "y": "measured"}),
    )


def _legend(labels: Sequence[str], **options: Any) -> alt.Legend:
    """Names that are long stand in fewer columns."""
    wide = {"columns": 2, "labelLimit": 290} if max(map(len, labels)) > _LONG else {}
    return alt.Legend(**charts.legend_place() | wide | options)


def _printed(frame: pd.DataFrame, param: str, metric: str, data: StudyData) -> list[alt.Chart]:
    labels, kinds = (list(dict.fromkeys(frame[name])) for name in ("objective", "setting"))
    domain = list(dict.fromkeys([*charts.objectives(data), *labels]))
    scale, legend = alt.Scale(domain=domain), _legend(labels, values=labels)
    hue = alt.Color("objective:N", title=None, scale=scale, legend=legend)
    form: alt.Shape | alt.ShapeValue = alt.ShapeValue("circle")
    if len(kinds) > 1:
        scale, legend = alt.Scale(domain=kinds), _legend(kinds)
        form = alt.Shape("setting:N", title=None, scale=scale, legend=legend)
    x = charts.param_axis(data, param, frame["x"].to_numpy(dtype=float), ticks=True)
    y = partial(charts.score_axis, metric)
    names = {"printed": "printed", "verdict": "verdict"}
    tips = charts.tips(label="objective", x=param, y="measured", **charts.END_TIPS, **names)
    base = alt.Chart(frame).encode(detail="label:N")
    measured = base.transform_filter("isValid(datum.y)")
    bars = base.transform_filter(charts.HAS_INTERVAL)
    dashed = base.mark_line(strokeWidth=1.5, strokeDash=[4, 4], opacity=0.8)
    hollow = base.mark_point(filled=False, size=60, opacity=1)
    filled = measured.mark_point(filled=True, size=70, opacity=1)
    return [
        dashed.encode(x, y("printed"), hue),
        hollow.encode(x, y("printed"), hue, form, tooltip=tips),
        base.mark_line(strokeWidth=2).encode(x, y("y"), hue),  # broken where nothing is measured
        bars.mark_rule(strokeWidth=2).encode(x, y("low"), alt.Y2("high"), hue),
        filled.encode(x, y("y"), hue, form, tooltip=tips),
    ]


def _tables(context: ReportContext) -> list[Table]:
    parts = _measured(context)
    names = charts.slugs("paper", [f"{part.item} {part.title}" for part in parts])
    return [
        Table(
            name=name,
            title=f"{part.paper}, {part.item}: {part.title}",
            caption=legend(part.rows),
            frame=part.rows,
            shown=part.shown,
        )
        for name, part in zip(names, parts, strict=True)
    ]


def _notes(context: ReportContext) -> list[str]:
    frame = printed_numbers(context)
    return [] if frame.empty else [*remarks(frame), *not_measured_items(layouts(frame))]


def figures(context: ReportContext) -> list[Figure]:
    """A figure of each measured part of a paper's table that has two numbers across."""
    curves = [(part, _paper_points(part)) for part in _measured(context)]
    drawn = [(part, frame) for part, frame in curves if frame["x"].nunique() > 1]
    names = charts.slugs("paper", [f"{part.item} {part.title}" for part, _ in drawn])
    return [
        _paper_figure(name, part, frame, context.data)
        for name, (part, frame) in zip(names, drawn, strict=True)
    ]


_FORMULAS = described(
    analysis.REPRODUCE_COLUMNS,
    item="table or figure of the paper",
    value="the printed number",
    spread="the printed standard deviation",
    delta_to="the objective that a printed difference starts from",
    measured="mean of the metric over the seeds that finished, of the configuration that has the "
    "row's settings",
    low="95 % t-interval of that mean, by the noise of the seeds pooled over the objective's "
    "configurations on that data set and with that encoder",
    high="its upper end",
    num_seeds="seeds that finished",
    difference="measured - printed, at the paper's scale",
    difference_low="95 % interval of the difference, with the printed number as one more run: t "
    "sqrt(s^2 / S + s^2 + r^2 / 12), r its last decimal; a printed spread takes the place of the "
    "second s",
    difference_high="its upper end",
    within="the largest difference that still agrees",
    verdict="agrees: the interval of the difference lies within +- within; differs: it excludes 0; "
    "other scale: the run fixes something otherwise than the paper",
    differs_in="what the run fixes otherwise than the paper, by name",
    here="its values in the run",
    there="its values in the paper, or in the study of the paper",
    printed_note="misprints and readings of the printed number",
)
REPRODUCTION = Statistic(
    name="reproduction",
    table=reproduce,
    tables=_tables,
    notes=_notes,
    sentences=lambda context: (
        *agreement_summary(printed_numbers(context)),
        *differing(printed_numbers(context)),
    ),
    figures=figures,
    formulas={"reproduction": _FORMULAS},
)


# At another scale


def differences(of: Statistics) -> pd.DataFrame:
    """One row per difference of two printed numbers that the run has at another scale, of one cell:
    paper, item, dataset and encoder there, metric and `DIFFERENCE_COLUMNS`.
    """
    frame = of.compute_whole(reproduce)
    rows, names = frame[frame["verdict"] == Verdict.OTHER_SCALE], setting_names(frame)
    table_rows = []
    for _, group in rows.groupby([*_ABOUT, *PLACE_COLUMNS], sort=False, dropna=False):
        place = {name: group[name].iloc[0] for name in (*_ABOUT, *PLACE_COLUMNS)}
        differences, metric = list(_differences_in(records_of(group), names)), place["metric"]
        for cell in of.cells or (of,):
            if differences and all(
                cell.levels.get(name, place[name]) == place[name] for name in PLACE_COLUMNS
            ):
                table = contrast_table(differences, {metric: sweeps_by(cell.data, metric)})
                table_rows += [place | {"verdict": _sign(row)} | row for row in records_of(table)]
    columns = [*_ABOUT, *PLACE_COLUMNS, *DIFFERENCE_COLUMNS]
    return pd.DataFrame(table_rows, columns=columns).dropna(subset=["estimate"], ignore_index=True)


def _differences_in(rows: Sequence[Row], names: Sequence[str]) -> Iterator[Contrast]:
    """Each number less another one, as `DIFFERENCE_COLUMNS` says; of one place and metric."""
    of = [row["objective"] for row in rows]
    at = [{n: x for n in names if (x := plain_of(row[n])) is not None} for row in rows]
    every = range(len(rows))

    def is_beside(a: int, b: int) -> bool:
        """True if these are objectives that no printed setting tells apart."""
        return bool(of[a] != of[b] and at[a] | at[b] == at[b] | at[a])

    def is_named(a: int, b: int) -> bool:
        base = rows[a]["delta_to"]
        return bool(of[b] == base or (not base and of[a].startswith(f"{of[b]}_")))

    ways = (
        [[b for b in every if is_beside(a, b) and is_named(a, b)] for a in every],
        [[b for b in range(a) if is_beside(a, b)] for a in every],
        [[b for b in range(a) if of[a] == of[b]] for a in every],
    )
    for a, bases in enumerate(next(filter(any, ways), ())):
        for b in bases[:1]:
            pair: dict[str, Any] = {"of": (of[a],), "at": at[a], "minus": at[b]}
            if of[a] != of[b]:
                pair = {"of": (of[a], of[b]), "at": at[a] | at[b]}
            published = round(rows[a]["value"] - rows[b]["value"], 6)
            yield Contrast(name="", metric=rows[a]["metric"], published=published, **pair)


def _sign(row: Row) -> str:
    if not known(row["low"]) or row["low"] <= 0 <= row["high"] or not row["published"]:
        return OPEN
    return SAME if row["estimate"] * row["published"] > 0 else OTHER


def _of_run(frame: pd.DataFrame, _of: StudyData) -> pd.DataFrame:
    """One row for each difference of the run: several of a paper's data sets may have it."""
    rows = []
    for _, group in frame.groupby(["item", "what", "metric", "estimate"], sort=False):
        ends = dict.fromkeys(map(number, group["published"].agg(["min", "max"])))
        verdicts = {"printed": " to ".join(ends), "verdict": " or ".join(group["verdict"].unique())}
        rows.append(group.iloc[0].to_dict() | verdicts)
    return pd.DataFrame(rows, columns=[*frame, "printed"])


def _say_differences(context: ReportContext) -> Sentences:
    rows = _of_run(context.statistics.compute_whole(differences), context.data)
    kinds = Counter(rows["verdict"])
    counts = ", ".join(f"{num} {kind}" for kind, num in kinds.items())
    num = num_of(len(rows), "difference", "differences")
    return (f"Of {num} of the paper, at another scale: {counts}.",) if kinds else ()


DIFFERENCES = Statistic(
    name="differences",
    title="The paper's differences, measured at another scale{images}",
    frame=lambda context: context.statistics.compute_whole(differences),
    rows=_of_run,
    columns=(
        Column("item"),
        Column("difference", "what"),
        Column("metric"),
        Column("paper", "printed", "the difference of the printed numbers, over its data sets"),
        Column("here", between("estimate", ""), "the same of this run, with its 95 % interval"),
        Column("seeds", "num_seeds", drop_order=1),
        Column("verdict", means=f"{SAME} or {OTHER}: the interval excludes 0"),
    ),
    sentences=_say_differences,
    formulas={"differences": DIFFERENCE_COLUMNS},
)
