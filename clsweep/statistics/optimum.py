"""The best value of a hyperparameter at each level of another one, and by how much it moves."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pandas as pd

from clsweep.analysis.holm import holm
from clsweep.analysis.nested import conditional
from clsweep.analysis.optimum import Curves, curves_of, p_of_one_best, pairs_of, shift_of
from clsweep.analysis.reasons import Note, Reason, note, noted, with_notes
from clsweep.analysis.sweep import Sweep, check_by
from clsweep.catalog.rows import Row
from clsweep.display.numbers import THRESHOLD, interval, known, number, setting_column
from clsweep.display.theme import GREY
from clsweep.statistics import charts
from clsweep.statistics.charts import alt
from clsweep.statistics.computed import ReportContext, Statistics, TableFunction
from clsweep.statistics.report_objects import Figure, Sentences, Unresolved, described
from clsweep.statistics.statistic import Column, Statistic, p_of
from clsweep.sweeps.notes import cause, records_of, status_text

SHIFT_COLUMNS = with_notes(
    "objective of by of_scale by_scale levels bounded shift low high start p p_holm law resolved"
)
LEVEL_COLUMNS = with_notes("objective of by level place best low high is_low_end is_high_end")
ENDS = ("shift", "low", "high", "start", "p")
LAWS = {1.0: "linear", 0.5: "square root", -0.5: "inverse square root", -1.0: "inverse"}


def _pairs(
    of: Statistics, param: str | None, by: str | None
) -> Iterator[tuple[Sweep, dict[str, Any], Curves | Note]]:
    """Each sweep with the start of a row, and its curves."""
    check_by(param, of.data.sweeps, option="of")
    check_by(by, of.data.sweeps)
    if param and param == by:
        raise ValueError(f"by: expected another hyperparameter than of, given {by!r} twice")
    own = [sweep.scales[param] for sweep in of.data.sweeps if param in sweep.params]
    if own and param and {*own} == {"category"}:
        raise ValueError(f"of: expected numbers, which have an order, given {param!r}: categories")
    for sweep in of.data.spaces:
        for x, y in pairs_of(sweep, param, by):
            yield sweep, {"objective": sweep.objective, "of": x, "by": y}, curves_of(sweep, x, y)


def optimum(of: Statistics, *, param: str | None = None, by: str | None = None) -> pd.DataFrame:
    """One row per objective and pair of hyperparameters, see `analysis.optimum`."""
    rows = [_shift_row(*each) for each in _pairs(of, param, by)]
    adjusted = holm(np.array([row["p"] for row in rows], dtype=float))
    for row, p_holm in zip(rows, adjusted, strict=True):
        _decide(row, float(p_holm))
    return pd.DataFrame(rows, columns=list(SHIFT_COLUMNS))


def _decide(row: dict[str, Any], p_holm: float) -> None:
    """Puts into a row whether its shift is resolved, or why not."""
    excludes = row["by_scale"] == "category" or row["low"] > 0 or row["high"] < 0
    row["p_holm"] = p_holm
    row["resolved"] = bool(excludes and row["bounded"] >= 2 and p_holm <= THRESHOLD)
    if row["resolved"]:
        return
    row["law"] = ""
    if not row["reason"]:
        figures = {"num": row["bounded"], "levels": row["levels"]}
        why = note(Reason.BEST_NOT_BOUNDED, param=row["of"], by=row["by"], **figures)
        if row["bounded"] >= 2:
            why = note(Reason.ONE_BEST, param=row["of"])
        row |= noted(*row["note"], why=why)


def _shift_row(sweep: Sweep, start: dict[str, Any], curves: Curves | Note) -> dict[str, Any]:
    scales = {f"{key}_scale": sweep.scales[start[key]] for key in ("of", "by")}
    start = {**start, **scales, "law": "", **dict.fromkeys(ENDS, np.nan)}
    if isinstance(curves, Note):
        return start | {"levels": 0, "bounded": 0} | noted(*sweep.measured.missing, why=curves)
    bounded = int(np.isfinite(curves.intervals).any(axis=0).sum())
    start |= {"levels": len(curves.at), "bounded": bounded}
    if scales["by_scale"] == "category":
        return start | {"p": p_of_one_best(curves)} | noted(*sweep.measured.missing)
    shift, law = shift_of(curves), ""
    if set(scales.values()) == {"log"} and shift.is_line:
        law = " or ".join(name for at, name in LAWS.items() if shift.low <= at <= shift.high)
    notes = [*sweep.measured.missing, *[note(Reason.NO_LINE)] * (not shift.is_line)]
    notes += [note(Reason.NO_CURVE_FITS, param=start["of"])] * (not curves.fits)
    first = np.exp2(shift.start) if scales["of_scale"] == "log" else shift.start
    ends = (shift.estimate, shift.low, shift.high, first, shift.p)
    return start | dict(zip(ENDS, ends, strict=True)) | {"law": law} | noted(*notes)


def optima(of: Statistics, *, param: str | None = None, by: str | None = None) -> pd.DataFrame:
    """One row per level of each pair of `optimum`."""
    rows = []
    for sweep, start, curves in _pairs(of, param, by):
        if isinstance(curves, Note):
            rows.append(start | {"level": ""} | noted(why=curves))
            continue
        is_log = sweep.scales[start["of"]] == "log", sweep.scales[start["by"]] == "log"
        for k, label in enumerate(curves.labels):
            at = [curves.best[k], *curves.intervals[:, k], curves.x[k, 0], curves.x[k, -1]]
            best, low, high, first, last = np.exp2(at) if is_log[0] else at
            low, high = (low if low > 0 or not is_log[0] else -np.inf), high
            row = {"level": label, "best": best, "low": low, "high": high}
            row["place"] = np.exp2(curves.at[k]) if is_log[1] else curves.at[k]
            row |= {"is_low_end": np.isinf(low), "is_high_end": np.isinf(high)}
            is_open = row["is_low_end"] and row["is_high_end"]
            why = note(Reason.BEST_NOT_BOUNDED, param=start["of"], by=start["by"], num=0, levels=1)
            edge = [note(Reason.AT_EDGE, params=(start["of"],))] * (best in (first, last))
            rows.append(start | row | noted(*edge, why=why if is_open else None))
    return pd.DataFrame(rows, columns=list(LEVEL_COLUMNS))


def level_curves(of: Statistics, *, param: str, by: str) -> pd.DataFrame:
    """The curve (`score`) at places of each level of a pair, and the `mean` of the settings of each
    value there, of a grid.
    """
    parts: list[pd.DataFrame] = []
    for sweep, start, curves in _pairs(of, param, by):
        if isinstance(curves, Note):
            continue
        places = np.linspace(0, curves.x.shape[1] - 1, 81).astype(int)
        x, level = curves.x[:, places], sweep.sign * curves.level[:, places]
        x = np.exp2(x) if sweep.scales[param] == "log" else x
        drawn = {"level": np.repeat(curves.labels, len(places)), "x": x.ravel()}
        own = pd.DataFrame(drawn | {"score": level.ravel(), "mean": np.nan})
        used = conditional(conditional(sweep.measured, param), by)
        if used.samplers == ("grid",):
            texts = setting_column(used.settings[by].tolist())
            cells = {"level": texts, "x": used.settings[param], "mean": used.sign * used.means}
            ran = pd.DataFrame(cells)[used.alive & np.isin(texts, curves.labels)]
            own = pd.concat([own, ran.groupby(["level", "x"], as_index=False)["mean"].mean()])
        parts.append(own.assign(objective=start["objective"]))
    return pd.concat(parts, ignore_index=True)


def _moved(row: Row) -> str:
    """`x 1.98 [1.70, 2.30]` where the axis is log, `+0.1 [0.05, 0.2]` where not; one end alone
    where the other is open.
    """

    def text(value: float) -> str:
        return number(2.0**value) if row["of_scale"] == "log" else number(value)

    if not known(row["shift"]) or row["bounded"] < 2:
        return ""
    before = "x " if row["of_scale"] == "log" else "+" * (row["shift"] > 0)
    ends = [row["low"], row["high"]]
    if known(*ends):
        return f"{before}{text(row['shift'])} [{text(ends[0])}, {text(ends[1])}]"
    if known(row["low"]):
        return f"{before}{text(row['low'])} or more"
    return f"{before}{text(row['high'])} or less" if known(row["high"]) else ""


def _step(row: Row) -> str:
    return {"log": "a doubling", "linear": "1 more"}.get(row["by_scale"], "")


def _verdict(row: Row) -> str:
    if not row["resolved"]:
        return status_text(row["reason"])
    if row["by_scale"] == "category":
        return "differs"
    return "moves up" if row["low"] > 0 else "moves down"


def _best(row: Row) -> str:
    if not known(row["best"]) or (row["is_low_end"] and row["is_high_end"]):
        return ""
    if known(row["low"], row["high"]):
        return f"{number(row['best'])}{interval(row['low'], row['high'])}"
    end, way = (row["high"], "less") if row["is_low_end"] else (row["low"], "more")
    return f"{number(end)} or {way}"


def moves(frame: pd.DataFrame) -> Sentences:
    """A sentence on each shift that is resolved, or that none is."""
    lines = []
    for row in records_of(frame[frame["resolved"].astype(bool)]):
        law = f" (as a {row['law']} law has it)" if row["law"] else ""
        if row["by_scale"] == "category":
            lines.append(f"{row['objective']}: the best {row['of']} differs with {row['by']}.")
            continue
        step = {"log": "each doubling", "linear": "each 1 more"}[row["by_scale"]]
        lines.append(
            f"{row['objective']}: the best {row['of']} moves by {_moved(row)} with {step} of "
            f"{row['by']}{law}."
        )
    none = Unresolved("No best value is shown to move with another hyperparameter.")
    return tuple(lines) if lines else (none,) * bool(len(frame))


def shift_figures(context: ReportContext) -> list[Figure]:
    """The curves of each shift that is resolved, with the best values and the line they move on."""
    rows = records_of(_if_any(optimum)(context).query("resolved"))
    names = charts.slugs("optimum", ["{objective} {of} by {by}".format(**row) for row in rows])
    return [_shift_figure(name, row, context) for name, row in zip(names, rows, strict=True)]


def _shift_figure(slug: str, row: Row, context: ReportContext) -> Figure:
    data, name, of, by = context.data, row["objective"], row["of"], row["by"]
    frames = [context.compute(table, param=of, by=by) for table in (level_curves, optima)]
    drawn, best = (each[each["objective"] == name].reset_index(drop=True) for each in frames)
    best = _bests(best, drawn.dropna(subset="score"), row)
    title, level_title = data.metric_title, charts.param_title(by)
    hue, rank = _shades(best["level"], level_title), {at: k for k, at in enumerate(best["level"])}
    drawn, best = (each.assign(rank=each["level"].map(rank)) for each in (drawn, best))
    means = drawn.assign(y=drawn["mean"]).dropna(subset="y")
    at_means = (drawn if means.empty else means)["x"].to_numpy(float)
    x = charts.param_axis(data, of, at_means, ticks=not means.empty)
    tips = charts.tips("level", level=level_title, x=charts.param_title(of), y=f"mean {title}")
    of_best = charts.tips("level", level=level_title, x=f"best {of}", **charts.END_TIPS)
    line = alt.Chart(drawn.dropna(subset="score")).mark_line(strokeWidth=2)
    point, top = alt.Chart(means).mark_point(filled=True, size=40, opacity=0.6), alt.Chart(best)
    bar, dot = top.mark_rule(strokeWidth=4, opacity=0.7), top.mark_point(filled=True, size=110)
    marks = [
        line.encode(x, charts.score_axis(title, "score"), hue, detail="rank"),
        *[point.encode(x, charts.score_axis(title), hue, tooltip=tips)] * (not means.empty),
        bar.encode(charts.other_column(x, "low"), alt.X2("high"), charts.score_axis(title), hue),
        dot.encode(x, charts.score_axis(title), hue, shape=alt.value("diamond"), tooltip=of_best),
    ]
    law, moved = f" ({row['law']} law)" * bool(row["law"]), _moved(row)
    if is_line := bool(moved and best["on_line"].notna().sum() > 1):
        dashed = alt.Chart(best.dropna(subset="on_line")).mark_line(
            color=GREY, strokeDash=[5, 4], order=False
        )
        at = charts.other_column(x, "on_line"), charts.score_axis(title, "line_score")
        marks.append(dashed.encode(*at, order="place:Q"))
    line_text = f" Dashed: moved by {moved} with {_step(row)} of {by}{law}." * is_line
    return Figure(
        name=slug,
        title=f"{name}: the best {of} moves with {by}",
        caption=f"Fitted curves of {data.metric} against {of}, one for each {by}, the others "
        f"averaged over{'; points are means of settings' * (not means.empty)}. Diamonds: the best "
        f"{of}, with its 95 % interval.{line_text}",
        chart=charts.layers(marks),
        data=drawn.drop(columns="rank"),
    )


def _shades(levels: pd.Series, title: str) -> alt.Color:
    """The colour of a `rank` of these levels, from light to dark, and their names."""
    last = max(len(levels) - 1, 1)
    legend = alt.Legend(
        **charts.legend_place(), type="symbol", values=[*range(len(levels))],
        labelExpr=f"{json.dumps([*levels])}[datum.value]",
    )  # fmt: skip
    scale = alt.Scale(domain=[0, last], range="ordinal")
    return alt.Color("rank:Q", title=title, scale=scale, legend=legend)


def _bests(best: pd.DataFrame, curves: pd.DataFrame, row: Row) -> pd.DataFrame:
    """The best values as a chart has them, on their curves. Where both ends are open there is none,
    one open end is that of the curve. `on_line`: where the line has them, if it is on the curve.
    """
    own = dict(iter(curves.groupby("level")))
    place = np.log2(best["place"]) if row["by_scale"] == "log" else best["place"]
    steps = row["shift"] * (place - place.mean())
    line = row["start"] * np.exp2(steps) if row["of_scale"] == "log" else row["start"] + steps
    first, last = (np.array([own[at]["x"].iloc[k] for at in best["level"]]) for k in (0, -1))
    best = best.assign(on_line=line.where((line >= first) & (line <= last)))
    is_open = best["is_low_end"].astype(bool) & best["is_high_end"].astype(bool)
    best["best"], best["low"] = best["best"].mask(is_open), best["low"].clip(first).mask(is_open)
    best["high"] = best["high"].clip(upper=last).mask(is_open)
    for name, at in (("y", "best"), ("line_score", "on_line")):
        best[name] = [
            np.interp(x, own[level]["x"], own[level]["score"])
            for level, x in zip(best["level"], best[at], strict=True)
        ]
    return best.rename(columns={"best": "x"})[
        ["level", "place", "x", "low", "high", "y", "on_line", "line_score"]
    ]


def _if_any(table: TableFunction) -> Callable[[ReportContext], pd.DataFrame]:
    """The table as a report has it: without rows where no shift is resolved."""

    def frame(context: ReportContext) -> pd.DataFrame:
        whole = context.compute(table)
        return whole if context.compute(optimum)["resolved"].any() else whole.head(0)

    return frame


_text: Callable[[Row], str] = lambda row: f"{row['of']} along {row['by']}"  # noqa: E731
OPTIMUM = Statistic(
    name="optimum",
    title="Does the best value move with another hyperparameter?",
    header="Does the best value move with another hyperparameter? 95 % intervals{scored}",
    table=optimum,
    frame=_if_any(optimum),
    ahead=True,
    sentences=lambda context: moves(_if_any(optimum)(context)),
    figures=shift_figures,
    columns=(
        Column("objective"),
        Column("best value of", _text, "the others averaged over"),
        Column(
            "moves by", _moved,
            "with its 95 % interval: a factor (x) of a hyperparameter on a log axis, else a "
            "difference. Where best values lie at or beyond an end of the range, one side is open",
        ),
        Column("for", _step, "each doubling of the other one on a log axis, else each 1 more"),
        Column(
            "law", "law", "linear: as much as the other; square root: as its root. Those that the "
            "interval has", drop_order=1,
        ),
        Column("p Holm", p_of("p_holm"), "adjusted over the rows", drop_order=2),
        Column("verdict", _verdict),
        Column("why", cause, drop_order=3),
    ),
    formulas={
        "optimum": described(
            SHIFT_COLUMNS,
            of="the hyperparameter whose best value is looked for",
            by="the one along which it may move",
            of_scale="log, linear or category",
            by_scale="the same of the other",
            levels="levels of the other that have a curve",
            bounded="of these, those whose best value has an end",
            shift="s on both axes: log2 of a factor where of is log, by each doubling where by is. "
            "Both log: the exponent of by",
            low="interval of the shift; infinite where it is open",
            start="the best value on the fitted line, at the mean of the levels on their axis",
            p="of no shift, F(1, df); of categories of one best value, F(K - 1, df)",
            p_holm="the same, corrected for all rows (Holm)",
            law="those of the powers 1, 1/2, -1/2, -1 that the interval has; where it is resolved",
            resolved="p_holm <= 0.05, an interval without 0, and two bounded levels or more",
        )
    },
)  # fmt: skip
OPTIMA = Statistic(
    name="optima",
    title="The best value at each level",
    header="The best value at each level, with 95 % intervals{scored}",
    frame=_if_any(optima),
    is_apart=True,
    columns=(
        Column("objective"),
        Column("best value of", _text),
        Column("at", "level", "of the second; of a sample two places, a standard deviation apart "
               "from its mean"),
        Column("best", _best, "with its 95 % interval, or the one end that it has"),
        Column("verdict", lambda row: status_text(row["reason"]) * bool(row["reason"])),
    ),
    has_notes=False,
    formulas={
        "optima": described(
            LEVEL_COLUMNS,
            of="the hyperparameter whose best value is looked for",
            by="the one along which it may move",
            level="its level as text",
            place="the same as a number",
            best="where the curve is highest, within the values that were tried",
            low="interval of the best value; infinite where that may lie at or beyond the end",
            is_low_end="the lower end is open",
            is_high_end="the upper end is open",
        )
    },
)  # fmt: skip
