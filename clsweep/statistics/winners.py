"""Which objective is ahead where along a hyperparameter."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from clsweep.analysis import region_winners
from clsweep.analysis.sweep import as_far_as_levels
from clsweep.catalog.rows import Row
from clsweep.display.numbers import Wording, joined, number
from clsweep.display.theme import GREY
from clsweep.statistics import charts
from clsweep.statistics.charts import alt
from clsweep.statistics.computed import ReportContext, Statistics
from clsweep.statistics.pair_sentences import along, places_of
from clsweep.statistics.report_objects import Figure, Sentences, Unresolved, described
from clsweep.statistics.statistic import Column, Statistic, between, half, level_cell, p_of
from clsweep.sweeps.notes import cause, passes, records_of, status_text, winner_or_status
from clsweep.sweeps.study_data import StudyData

REGION_HEIGHT = 30


def winners(of: Statistics, *, by: str) -> pd.DataFrame:
    """One row per value of one hyperparameter, see `analysis.region_winners`."""
    groups = list(of.data.scored_alike(of.data.spaces).values())
    counts = [sum(by in sweep.params for sweep in group) for group in groups]
    enough = min(max(counts), 2)  # where one alone sweeps it there is nothing to win
    competing = [group for group, num in zip(groups, counts, strict=True) if num >= enough]
    frames = [as_far_as_levels(region_winners.region_winners(x, by=by), x) for x in competing]
    return pd.concat(frames, ignore_index=True)


def _by_each(context: ReportContext) -> pd.DataFrame:
    frames = [context.compute(winners, by=name) for name in context.shared]
    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame(columns=["by"])


def best_regions(winners: pd.DataFrame, words: Wording) -> Sentences:
    """Which objective is best where, from `winners`: one sentence for every hyperparameter."""
    return tuple(
        _regions(str(by), records_of(rows), words) for by, rows in winners.groupby("by", sort=False)
    )


def _regions(by: str, rows: Sequence[Row], words: Wording) -> str:
    winners = [
        row["winner"] if passes(row, "lead", "low") and row["lead"] > 0 and row["low"] > 0 else None
        for row in rows
    ]
    places = places_of(by, rows, winners)
    unresolved = places.pop(None, [])
    if not places:
        return Unresolved(f"Which objective is ahead is not resolved at any value of {by}.")
    if len(places) == 1 and not unresolved and len(rows) > 1:
        leads = [row["lead"] for row in rows]
        span = f"{number(min(leads))} to {words.amount(max(leads))}"
        return f"{winners[0]} is ahead at every value of {by}, {span} before the next."
    ahead = [f"{name} is ahead at {joined(at)}" for name, at in places.items()]
    return along(by, ahead, unresolved)


def _figure(slug: str, by: str, rows: pd.DataFrame, data: StudyData) -> Figure:
    """The best objective in each region of a hyperparameter, in a dashed frame if not resolved."""
    unit = charts.points_unit(data)
    names = {"winner": "objective", "objective": "best", "runner_up": "second", "region": "region"}
    frame = rows[list(names)].rename(columns=names).fillna("").astype(str).reset_index(drop=True)
    for name in ("mean", "lead", "low", "high"):
        frame[name] = charts.float_column(rows, name)
    frame["resolved"] = rows["resolved"].to_numpy(dtype=bool)
    frame["text"] = [
        f"{row['objective']}, by {number(row['lead'])} {unit}".rstrip()
        if row["resolved"]
        else f"{status_text(row['reason'])}{f': {cause(row)}' if row['reason'] else ''}"
        for row in records_of(rows)
    ]
    hue, _ = charts.looks(data, frame, legend=False)
    order = alt.Scale(domain=list(dict.fromkeys(frame["region"])))
    y = alt.Y("region:N", title=None, scale=order, axis=alt.Axis(ticks=False, domain=False))
    called = {"region": "region", "best": "best mean", "mean": data.metric_title}
    called |= {"second": "runner-up", "lead": charts.in_points("lead", data), **charts.END_TIPS}
    base = alt.Chart(frame).encode(y, x=alt.value(0), tooltip=charts.tips("best", **called))
    band, width = {"band": 0.86}, alt.value("width")
    cell = base.transform_filter("datum.resolved").mark_rect(opacity=0.35, height=band)
    open_cell = base.transform_filter("!datum.resolved").mark_rect(
        filled=False, stroke=GREY, strokeDash=[4, 3], height=band
    )
    limit = alt.ExprRef("width - 16")
    text = base.mark_text(align="left", dx=10, limit=limit, style="ink").encode(text="text:N")
    return Figure(
        name=slug,
        title=f"Who wins where along {charts.param_title(by)}",
        caption=f"The objective with the best mean {data.metric} in each region of {by}. In a "
        "dashed frame its lead over some other one is not resolved. A lead was picked for being "
        "the largest, and so is a little too large.",
        chart=charts.layers(
            [cell.encode(hue, x2=width), open_cell.encode(x2=width), text],
            height=REGION_HEIGHT * frame["region"].nunique() + 10,
        ),
        data=rows.reset_index(drop=True),
        is_resolved=bool(frame["resolved"].any()),
    )


def _draw(context: ReportContext) -> list[Figure]:
    groups = _by_each(context).groupby("by", sort=False)
    tables = {str(by): rows for by, rows in groups if rows["objective"].notna().any()}
    return charts.each("winners", tables, _figure, context.data)


_FORMULAS = described(
    region_winners.WINNER_COLUMNS,
    by="the hyperparameter",
    region='a value or a bin of it, such as "tau=0.1" or "tau=0.05..0.08"',
    value_low="edges of the bin, equal for a value; NaN for a category",
    objective="the one with the best mean there, over all its configurations in the region",
    mean="its mean, in the metric's own sign",
    runner_up="the second best mean",
    lead="mean difference of best and runner-up over their pairs, positive = better; best was "
    "picked for it, so optimistic",
    low="interval of the lead",
    p_holm="the largest p of best against each of the others, corrected for all regions (Holm)",
    winner="the objective, where it is resolved against every other; else empty",
    resolved="whether there is one",
)
WINNERS = Statistic(
    name="winners",
    is_apart=True,
    title="Who is ahead at each value",
    caption="lead: over the next objective, with its 95 % interval{images}. p is adjusted by Holm "
    "over the values. `compare --by` adjusts it over all pairs as well, and so may resolve less.",
    frame=_by_each,
    ahead=lambda context: [(winners, {"by": name}) for name in context.shared],
    columns=(
        Column("region"),
        Column("ahead", "objective"),
        Column("mean", level_cell("mean", half("lead", ""))),
        Column("next", "runner_up"),
        Column("lead", between("lead", "")),
        Column("p Holm", p_of("p_holm")),
        Column("verdict", winner_or_status),
        Column("why", cause),
    ),
    levels="mean",
    has_notes=False,
    sentences=lambda context: best_regions(_by_each(context), context.words),
    figures=_draw,
    formulas={"winners": _FORMULAS},
)
