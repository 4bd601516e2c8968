"""The recommended settings, and their scores on fresh seeds."""

from __future__ import annotations

import math
from dataclasses import replace

import pandas as pd

from clsweep.analysis import confirmation
from clsweep.analysis import recommend as analysis
from clsweep.catalog.rows import Row
from clsweep.display.numbers import Wording, interval, known, num_of
from clsweep.statistics import charts
from clsweep.statistics.computed import ReportContext, Statistics
from clsweep.statistics.report_objects import Figure, Sentences, described
from clsweep.statistics.statistic import Column, Statistic, between, half, level_cell, whole_number
from clsweep.sweeps.notes import records_of
from clsweep.sweeps.study_data import StudyData

SCORED_ON = {"search": "search", "fresh": "fresh seeds", "test": "test split"}
_FRESH = ("fresh", "fresh_low", "fresh_high", "test", "test_low", "test_high")


def recommend(of: Statistics) -> pd.DataFrame:
    """The best configuration of each objective, and the one whose worst neighbour is best."""
    return analysis.recommend(of.data.sweeps)


def fresh_sentences(context: ReportContext) -> Sentences:
    """Sentences on the best settings on fresh seeds, and on picks that these overturn."""
    confirmation, words = context.data.confirmation, context.words
    if confirmation.empty:
        return ()
    picked = context.compute(recommend)
    rows = {(row["objective"], row["config"]): row for row in records_of(confirmation)}
    firsts = {row["objective"]: row for row in rows.values() if row["rank"] == 1}
    best = {row["objective"]: row for row in records_of(picked[picked["kind"] == "best"])}
    out = []
    for name in dict.fromkeys(confirmation["objective"]):
        named = best.get(name, {})
        row, first = rows.get((name, named.get("config", -1))), firsts.get(name)
        if row and first and named["preferred_at"]:
            num = sum(objective == name for objective, _ in rows)
            out.append(_preferred(named, first, words, num=num))
        if sentence := _confirmed(named | row, words) if row else "":
            out.append(sentence)
    return tuple(out)


def _preferred(named: Row, first: Row, words: Wording, *, num: int) -> str:
    """The setting that fresh seeds name in place of the search's first, resolved or not.

    num: settings of the objective that ran again: the interval is over all their leads.
    """
    lead, low, high = (named[f"over_first{end}"] for end in ("", "_low", "_high"))
    better, seen = named["preferred_at"], words.amount(lead)
    seen += interval(low, high) if known(low, high) else ""
    among = f", among {num} settings" * (known(low, high) and num > 2)
    if low > 0:
        return (
            f"Fresh seeds overturn the pick of {named['objective']}: {better} is {seen} "
            f"better than {first['at']}, the search's first{among}."
        )
    return (
        f"Fresh seeds prefer {better} to {first['at']}, the search's pick of "
        f"{named['objective']}, by {seen}{among}, which is not resolved."
    )


def _confirmed(row: Row, words: Wording) -> str:
    """The score on fresh seeds beside the search's, and the excess of that beyond its noise.
    `row` has the interval of the search's score as `low` and `high`.
    """
    row = {"fresh_seeds": math.nan, "fresh_failed": math.nan, **row}
    name, fresh, low, high = (row[key] for key in ("objective", "fresh", "fresh_low", "fresh_high"))
    num, search = row["fresh_seeds"], row["search"]
    if not known(fresh):
        all_failed = known(row["fresh_failed"]) and row["fresh_failed"] > 0
        return f"The best {name} setting failed on every fresh seed." if all_failed else ""
    seeds = num_of(num, "fresh seed", "fresh seeds") if known(num) else "fresh seeds"
    out = f"The best {name} setting keeps {words.level(fresh, low, high)} on {seeds}"
    if known(search):
        out += f"; the search said {words.level(search)}"
    ends = row.get("low", math.nan), row.get("high", math.nan)
    if known(search, low, high, *ends):
        excess = (search - fresh) * (1 if words.mode == "max" else -1)
        # The longer sides: the others may end where the metric ends.
        half = math.hypot(max(fresh - low, high - fresh), max(search - ends[0], ends[1] - search))
        if excess > half:
            seen = interval(excess - half, excess + half, apart_from=0.0)
            out += f", {words.amount(excess)} too good{seen}"
    if known(row.get("test")):
        on_test = words.level(row["test"], row["test_low"], row["test_high"])
        out += f"; the test split says {on_test}"
    return f"{out}."


def confirmation_figure(data: StudyData) -> Figure | None:
    """Scores of the confirmed configurations: in the search, on fresh seeds, on the test split."""
    table = data.confirmation
    if table.empty:
        return None
    parts = [
        charts.ends_frame(table, column, f"{column}_low", f"{column}_high").assign(
            kind=kind, row=_ranks(table), at=table["at"]
        )
        for column, kind in SCORED_ON.items()
        if column in table.columns
    ]
    frame = charts.by_objective_order(pd.concat(parts).dropna(subset=["x"]), data)
    if frame.empty:
        return None
    order = {row: place for place, row in enumerate(_ranks(table))}
    frame = frame.sort_values("row", key=lambda rows: rows.map(order), kind="stable")
    title = data.metric_title
    tips = charts.tips(
        row="configuration", at="setting", kind="scored on", x=title, **charts.END_TIPS
    )
    x = charts.plain_x(title, zero=False, padding=12)
    return Figure(
        name="confirmation",
        title="The best settings on fresh seeds",
        caption="The score of the search was picked for being good. The fresh seeds took no part "
        f"in the picking. {charts.bands_text(frame, data, 'Bars')}",
        chart=charts.dots(frame, x, list(SCORED_ON.values()), tips),
        data=table,
    )


def _ranks(table: pd.DataFrame) -> list[str]:
    """`dcl, 2nd of the search`: what a confirmed configuration is called."""
    pairs = zip(table["objective"], table["rank"], strict=True)
    return [f"{name} #{int(rank)}" for name, rank in pairs]


def with_fresh(frame: pd.DataFrame, data: StudyData) -> pd.DataFrame:
    """Beside the study's scores, what fresh seeds and the test say."""
    again = data.confirmation
    if again.empty:
        return frame
    keys = ["objective", "config"]
    again = again.assign(only_on=fewer_fresh(again))
    names = [name for name in (*_FRESH, "only_on") if name in again]
    return frame.merge(again[[*keys, *names]], how="left", on=keys)


def fewer_fresh(confirmation: pd.DataFrame) -> pd.Series:
    """`3 of 6 seeds`, where another one of the objective ran on more, which do not compare."""
    num = confirmation["fresh_seeds"]
    most = num.groupby(confirmation["objective"]).transform("max")
    return (num.astype(str) + " of " + most.astype(str) + " seeds").where(num < most)


ONLY_ON = Column(
    "only on",
    lambda row: row.get("only_on"),
    "fewer fresh seeds than others of its objective ran on, so their means do not compare",
)


# Levels are in the metric's own sign.
_FORMULAS = described(
    analysis.RECOMMEND_COLUMNS,
    kind='"best": the best when tuned, the highest mean over the seeds, unless fresh seeds '
    'overturn it; "robust": the highest neighbourhood_worst. Of the configurations with a score on '
    "every planned seed, or on as many as any has, where such a one is eligible",
    config="number of the configuration within its objective",
    at="its swept hyperparameters",
    score="its mean over the seeds; picked on its own noise, so optimistic",
    low="t-interval of score, without failed trials: its half width is the root of the sum of "
    "two squares, t^2 MS_b / (n S_i) of the seeds and t^2 MS_e (1 - 1 / n) / S_i of the residual, "
    "each t with its own degrees of freedom. Where noise is uneven MS_e is the setting's own. It "
    "knows nothing of the picking and ends where the metric ends",
    num_seeds="seeds that the score rests on",
    when_tuned="level of the best without the luck of the pick: one part of the seeds picks it, "
    "another scores it (of compare --tuned); on the fresh seeds once there are any",
    preferred_at="where another has a better mean over the fresh seeds that all share than the "
    "best of the study's own: which one. Above over_first_low = 0 it is the best",
    over_first="by how much that one is better on average, over these fresh seeds",
    over_first_low="its t-interval of the differences at each seed, at 95 % over all that ran "
    "again (Bonferroni)",
    neighbourhood_worst="lowest level of the configuration and its neighbours, each mean m_j "
    "shrunk towards that of its own neighbourhood: a_j + b (m_j - a_j), b = max(0, 1 - noise "
    "variance of m_j - a_j / its mean square). Neighbours: on a grid one step in one numeric "
    "hyperparameter; else, of d numeric ones, the 2 d nearest within a fifth of the axes, root "
    "mean square. Categories are the same. A neighbour that failed on every seed counts as failed "
    "trials do, or rules the place out",
    num_neighbours="neighbours that it rests on",
)
RECOMMEND = Statistic(
    name="recommendation",
    title="The best setting when tuned, and the one whose worst neighbour is best",
    header="Settings by {metric}, with 95 % intervals{images}",
    table=recommend,
    ahead=True,
    columns=(
        Column("objective"),
        Column("pick", "kind"),
        Column("config", whole_number("config"), drop_order=2),
        Column("at"),
        Column(
            "score",
            between("score", ""),
            "mean over the study's seeds. The setting was picked by it, so it is optimistic",
        ),
        Column(
            "worst neighbour",
            level_cell("neighbourhood_worst", half("score", "")),
            "the worst level among the setting and its neighbours. Each level is drawn towards the "
            "mean around it, by as much as seed noise explains",
            drop_order=4,
        ),
        Column(
            "neighbours",
            whole_number("num_neighbours"),
            "one step away on a grid, else the nearest",
            drop_order=1,
        ),
        Column(
            "when tuned",
            level_cell("when_tuned", half("score", "")),
            "level of the best without the luck of the pick, of which the lead is said: on the "
            "fresh seeds once there are any",
            drop_order=5,
        ),
        Column("fresh seeds", between("fresh")),
        ONLY_ON,
        Column("test", between("test"), drop_order=3),
    ),
    levels="score",
    rows=with_fresh,
    formulas={"recommendation": _FORMULAS},
)
RECOMMEND_IN_REPORT = replace(
    RECOMMEND,
    rows=lambda frame, data: with_fresh(frame[frame["config"].notna()], data),
    sentences=fresh_sentences,
    figures=lambda context: [confirmation_figure(context.data)],
)
_FRESH_FORMULAS = described(
    confirmation.FRESH_COLUMNS,
    fresh="mean of the metric over the fresh seeds that finished",
    fresh_low="95 % t-interval of that mean, as far as the metric goes; none with one seed. For "
    "new images it reaches further by what the picking owes to the images "
    "(score_table.selection_bias)",
    fresh_high="its upper end",
    fresh_seeds="fresh seeds that finished",
    fresh_failed="fresh seeds that failed, which count in no mean",
    test="mean of the metric on the test split over the same seeds; none where there is no test "
    "split",
    test_low="95 % t-interval of that mean",
    test_high="its upper end",
    difference="search - fresh: by how much the search's score is too good",
)
CONFIRMATION = Statistic(
    name="confirmation",
    title="On fresh seeds and the test set",
    header="The best by {metric} on fresh seeds, with 95 % intervals{images}",
    frame=lambda context: context.data.confirmation,
    columns=(
        Column("objective"),
        Column("config", drop_order=3),
        Column("at"),
        Column(
            "search",
            level_cell("search", half("fresh")),
            "mean over the study's seeds, by which the best were picked, which flatters them",
        ),
        Column("seeds", "search_seeds", drop_order=1),
        Column(
            "fresh",
            between("fresh"),
            "on seeds that took no part in picking the best. For new images the t-interval "
            "reaches further by what the picking owes to those scored",
        ),
        Column("fresh seeds", "fresh_seeds", drop_order=2),
        Column("failed", lambda row: row["fresh_failed"] or None),
        Column("test", between("test"), "the fresh trials on the test split"),
        Column("search - fresh", level_cell("difference", half("fresh")), drop_order=4),
    ),
    formulas={"confirmation": _FRESH_FORMULAS},
)
