"""Contrasts: differences that a study names before it runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pandas as pd

from clsweep.analysis import contrast as analysis
from clsweep.analysis.reasons import Reason, note
from clsweep.analysis.sweep import (
    ANYWHERE,
    CHANCE,
    LABEL_KEYS,
    WORST,
    Sweep,
    as_far_as_levels,
    worst_score,
)
from clsweep.catalog import METRIC
from clsweep.catalog.rows import Row
from clsweep.display.numbers import interval, known, num_of, number
from clsweep.display.theme import GREY
from clsweep.errors import MAX_LINES, RequestError, nearest
from clsweep.statistics import charts
from clsweep.statistics.charts import alt
from clsweep.statistics.computed import ReportContext, Statistics
from clsweep.statistics.pair_sentences import needed
from clsweep.statistics.report_objects import Figure, Sentences, Unresolved, described
from clsweep.statistics.statistic import Column, Statistic, p_of
from clsweep.sweeps.notes import cause, records_of, status_text
from clsweep.sweeps.study_data import StudyData, contrasts_with, known_mode

NO_ROOM = "no room for the published"
OUTCOMES = {"shown": "shown", "equivalent": "within the margin", "excluded": "less than published"}


def contrasts(of: Statistics, *, more: Mapping[str, Any] | None = None) -> pd.DataFrame:
    """One row per contrast of the study, or asked beside them: see `analysis.contrast`."""
    return named_contrasts(of.data, contrasts_with(more, of.data) if more else of.data.contrasts)


def named_contrasts(data: StudyData, chosen: Sequence[analysis.Contrast]) -> pd.DataFrame:
    """One row for each of these contrasts of the data, corrected for all of them."""
    # metrics: the columns of numbers that are no settings and name no trial
    others = {*data.params, *LABEL_KEYS}
    numbers = [str(n) for n in data.trials.select_dtypes(["number"]) if n not in others]
    for each in chosen:
        require_known("objective", each.of, [sweep.objective for sweep in data.sweeps])
        require_known("metric", [each.metric], numbers)
    metrics = dict.fromkeys(each.metric for each in chosen)
    measured = {name: sweeps_by(data, name) for name in metrics}
    table = analysis.contrast_table(chosen, measured)
    for name, ends in product(measured, (["low", "high"], ["low_holm", "high_holm"])):
        these = table["metric"] == name
        plain = table.loc[these, ends].set_axis(["low", "high"], axis=1)
        table.loc[these, ends] = as_far_as_levels(plain, measured[name]).to_numpy()
    if data.images == "new images":
        alone = {m for m in metrics if m in METRIC and m not in (*data.hits, data.metric)}
        these = table["metric"].isin(alone) & table["low"].notna()
        notes = zip(table["note"], these, strict=True)
        table["note"] = [(*n, note(Reason.THESE_IMAGES)) if is_so else n for n, is_so in notes]
    return table


def require_known(part: str, names: Sequence[str], known: Sequence[str]) -> None:
    """Raises RequestError for a name that nobody has."""
    for name in names:
        if name not in known:
            few = f" Expected one of: {', '.join(known)}" if len(known) <= MAX_LINES else ""
            raise RequestError(f"unknown {part} '{name:.80}'.{nearest(name, known)}{few}")


def sweeps_by(data: StudyData, metric: str) -> tuple[Sweep, ...]:
    """The sweeps of a study with any metric as their score."""
    if metric == data.metric:
        return data.spaces
    return tuple(_rescored(sweep, data, metric) for sweep in data.spaces)


def _rescored(sweep: Sweep, data: StudyData, metric: str) -> Sweep:
    """A sweep by another metric. Failed trials count as they do by the study's own; where nothing
    says which values of it are bad, or what a guess has, they are left out.
    """
    mode, hits = known_mode(metric), data.hits.get(metric)
    limits = METRIC[metric].limits if metric in METRIC else ANYWHERE
    sign = -1.0 if mode == "min" else 1.0
    scored = analysis.scored_by(sweep, data.trials, metric, hits, sign=sign, limits=limits)
    level = np.nan
    if sweep.failed_as == WORST and mode:
        level = worst_score([scored])
    elif sweep.failed_as == CHANCE and {metric, data.metric} <= set(METRIC):
        guesses = [METRIC[name].guesses for name in (metric, data.metric)]
        level = sweep.failed_level * guesses[0] / guesses[1] if all(guesses) else np.nan
    counted = scored.counted_at(level)
    return replace(counted, failed_as=sweep.failed_as) if counted is not scored else scored


def outcome(row: Row) -> str:
    """`shown, less than published`, `within the margin`, `not resolved`."""
    return ", ".join(_verdicts(row)) or status_text(row["reason"])


def _verdicts(row: Row) -> list[str]:
    """`shown`, `less than published`; none where nothing is resolved."""
    parts = [text for name, text in OUTCOMES.items() if row[name]]
    if _is_turned(row):
        parts[-1] = "the other way"
    elif not _has_room(row):
        parts[-1] = NO_ROOM
    return parts


def _is_answered(row: Row) -> bool:
    return _verdicts(row) not in ([], [NO_ROOM])


def _is_turned(row: Row) -> bool:
    """True if an effect is shown against the published one."""
    return bool(row["shown"] and row["excluded"] and row["estimate"] * row["published"] < 0)


def _has_room(row: Row) -> bool:
    """False if no setting of the study is as far off as an excluded effect that was published."""
    return not (row["excluded"] and abs(row["published"]) > row["room"])


def sentence(row: Row) -> str:
    """One contrast in words: the verdict first, then the number."""
    name, seen = row["contrast"], _seen(row)
    if not known(row["low"]):
        return Unresolved(f"{name} is not resolved{f' ({seen})' if seen else ''}: {cause(row)}.")
    number_of, published = f"{row['what']} is {seen}", number(row["published"])
    less = f" An effect as large as the published {published} is excluded." * bool(row["excluded"])
    if _is_turned(row):
        less = f" The published {published} goes the other way."
    elif not _has_room(row):
        room = number(row["room"])
        less = f" The published {published} has no room: no setting is more than {room} away."
    if row["shown"]:
        small = ", and within its margin" if row["equivalent"] else ""
        return f"{name} is shown{small}: {number_of}.{less}"
    if row["equivalent"]:
        return f"{name} is within its margin of {number(row['margin'])}: {number_of}.{less}"
    if row["excluded"] and not _has_room(row):
        return Unresolved(f"{name} is not resolved: {number_of}.{less}")
    if row["excluded"]:
        open_ = "Whether there is any effect is not resolved."
        return f"{name} is less than the published {published}: {number_of}. {open_}"
    why = f"; {cause(row)}" if row["reason"] else ""
    takes = f"; it needs {it}" if (it := needed(row)) else ""
    return Unresolved(f"{name} is not resolved: {number_of}{why}{takes}.")


def _seen(row: Row) -> str:
    ends = interval(row["low_holm"], row["high_holm"])
    return _number(row["estimate"]) and number(row["estimate"]) + ends


def contrasts_summary(rows: Sequence[Row]) -> Sentences:
    """One sentence on the number of contrasts that are answered; none without contrasts."""
    before = [row for row in rows if not row["added_after"]]
    if not before:
        return ()
    answered = [row for row in before if _is_answered(row)]
    kinds = Counter(part for row in answered for part in _verdicts(row) if part != NO_ROOM)
    parts = ", ".join(f"{num} {kind}" for kind, num in kinds.items())
    what = num_of(len(before), "contrast", "contrasts")
    are = "is" if len(answered) == 1 else "are"
    return (
        f"Of {what} asked beforehand {len(answered)} {are} answered{f': {parts}' * bool(parts)}.",
    )


def _figure(context: ReportContext) -> Figure | None:
    """The contrasts of the study's own metric, with what was published."""
    table = context.compute(contrasts)
    rows = table[(table["metric"] == context.data.metric) & table["low"].notna()]
    if rows.empty:
        return None
    rows = rows.reset_index(drop=True)
    frame = charts.ends_frame(rows, "estimate", "low_holm", "high_holm")
    frame["row"], frame["published"] = rows["contrast"], rows["published"].astype(float)
    frame["resolved"] = [_is_answered(row) for row in records_of(rows)]
    x: Any = charts.plain_x(charts.in_points("effect", context.data), zero=True, padding=8)
    chart: Any = charts.forest(frame, context.data, x, line=0.0)
    if frame["published"].notna().any():
        marks = alt.Chart(frame[frame["published"].notna()]).mark_point(
            shape="diamond", size=90, filled=False, color=GREY, yOffset=charts.LOWER
        )
        chart = alt.layer(chart, marks.encode(charts.rows_of(frame["row"]), x=alt.X("published:Q")))
    return Figure(
        name="contrasts",
        title="What was asked",
        caption="A coloured row is answered, a grey one is not resolved. Diamonds are what was "
        f"published. {charts.bands_text(frame, context.data, 'Bars')} They are corrected for all "
        "contrasts (Holm).",
        chart=chart,
        data=rows[["contrast", "estimate", "low_holm", "high_holm", "published", "margin"]],
        is_resolved=bool(frame["resolved"].any()),
    )


_FORMULAS = described(
    analysis.CONTRAST_COLUMNS,
    contrast="its name",
    objective="the first that it is of",
    metric="what it is of",
    what="what is subtracted from what",
    estimate="c = sum_i w_i m_i, in the metric's own sign: a side is the mean of all "
    "configurations with the values asked for",
    low="t-interval of c, over the seeds that all of its configurations have: between objectives "
    "by the contrast at each seed, within one by the residual of its configurations, seeds being "
    "blocks. In a sample its configurations count too. For new images where trials keep which they "
    "have right",
    low_holm="the same, corrected as p_holm: of level 1 - .05/k, where k contrasts were left at "
    "its step, or at the step where Holm stopped. 0 lies outside where an effect is shown",
    num_seeds="seeds that it rests on, of the objective with fewest",
    p="two-sided, of c = 0",
    p_holm="p, corrected for all contrasts of a study that were asked beforehand (Holm). One that "
    "came later is corrected for all",
    margin="a smaller effect counts as none",
    p_margin="of |c| >= margin: twice the larger of two one-sided tests, corrected likewise",
    published="the effect that a paper found",
    room="how far the first side could go from where it is without the effect: to the largest mean "
    "that a configuration of the study has, or to the smallest where the effect that was "
    "published, or else c, is negative",
    p_published="of an effect as large as published or larger, twice one-sided, likewise",
    shown="whether p_holm <= 1 - confidence: there is an effect",
    equivalent="whether p_margin is: it is too small to matter",
    excluded="whether p_published is: it is smaller than published, or goes the other way",
    detectable="smallest true effect found with 80 % power: (t_.975 + t_.8) SE",
    needs_seeds="so many seeds would show an effect as large as seen; NaN when resolved, or when "
    "seeds alone do not help; inf: more than 10,000",
    needs_configs="so many configurations of an objective would, of a sample of the space",
    needs_low="the same for the far end of its 80 % interval",
    needs_high="and for the near end",
    added_after="trials that had ended when it was asked; 0: it was asked before",
)
CONTRASTS = Statistic(
    name="contrasts",
    title="What was asked by name, with 95 % intervals{images}",
    table=contrasts,
    columns=(
        Column("contrast"),
        Column("what", drop_order=5, means="what is subtracted from what"),
        Column("metric", lambda row: row["metric"], drop_order=4),
        Column("effect", _seen, "its interval is corrected for all contrasts (Holm)"),
        Column("p Holm", p_of("p_holm"), drop_order=2),
        Column("margin", lambda row: _number(row["margin"]), drop_order=1,
               means="a smaller effect counts as none"),
        Column("published", lambda row: _number(row["published"])),
        Column("room", lambda row: _number(row["room"]), drop_order=3,
               means="from the other side to the study's best setting, or of a loss to its worst"),
        Column("seeds", "num_seeds", drop_order=3),
        Column("needs seeds", lambda row: needed(row, "needs_seeds"), drop_order=6,
               means="how many would show it in four of five studies, an 80 % interval"),
        Column("needs configs", lambda row: needed(row, "needs_configs"), drop_order=7),
        Column("verdict", outcome, "corrected for all contrasts (Holm). Shown: there is an effect. "
               "No room: no setting of the study is as far away as was published"),
    ),
    page_drops=0,
    intro="a side is the mean of all settings with the values asked for",
    sentences=lambda context: tuple(map(sentence, records_of(context.compute(contrasts)))),
    figures=lambda context: [_figure(context)],
    formulas={"contrasts": _FORMULAS},
)  # fmt: skip


def _number(value: float) -> str:
    return number(value) if known(value) else ""
