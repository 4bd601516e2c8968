"""What should be set, and what it is worth on fresh seeds."""

from __future__ import annotations

import math
from dataclasses import replace

import pandas as pd

from clsweep.analysis import confirmation
from clsweep.analysis import recommend as analysis
from clsweep.catalog.rows import Row
from clsweep.display.cells import records_of
from clsweep.findings.material import Material
from clsweep.questions import charts
from clsweep.questions.answers import Answers, Asked
from clsweep.questions.column import Column, Question, half, level, measured, whole
from clsweep.questions.model import Figure, Sentences, Wording
from clsweep.questions.words import counted, interval, known

SCORED_ON = {"search": "search", "fresh": "fresh seeds", "test": "test split"}
_FRESH = ("fresh", "fresh_low", "fresh_high", "test", "test_low", "test_high")


def recommend(of: Answers) -> pd.DataFrame:
    """The best configuration of each objective, and the one whose worst neighbour is best."""
    return analysis.recommend(of.material.sweeps)


def confirmed(asked: Asked) -> Sentences:
    """What each objective's best setting keeps on fresh seeds, and what these overturn."""
    confirmation, words = asked.material.confirmation, asked.words
    if confirmation.empty:
        return ()
    picked = asked.ask(recommend)
    rows: dict[tuple[str, int], Row] = {
        (row["objective"], row["config"]): row for row in records_of(confirmation)
    }
    firsts = {row["objective"]: row for row in rows.values() if row["rank"] == 1}
    best = {row["objective"]: row for row in records_of(picked[picked["kind"] == "best"])}
    out = []
    for name in dict.fromkeys(confirmation["objective"]):
        named = best.get(name, {})
        row, first = rows.get((name, named.get("config", -1))), firsts.get(name)
        if row and first and named["preferred_at"]:
            num = sum(objective == name for objective, _ in rows)
            out.append(_preferred(named, first, words, num=num))
        if said := _confirmed(named | row, words) if row else "":
            out.append(said)
    return tuple(out)


def _preferred(named: Row, first: Row, words: Wording, *, num: int) -> str:
    """What fresh seeds name in place of the search's first, and whether they are sure of it.

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
    """What is kept, beside the search's score, and by how much that is too good beyond its noise.
    `row` has the interval of the search's score as `low` and `high`.
    """
    row = {"fresh_seeds": math.nan, "fresh_failed": math.nan, **row}
    name, fresh, low, high = (row[key] for key in ("objective", "fresh", "fresh_low", "fresh_high"))
    num, search = row["fresh_seeds"], row["search"]
    if not known(fresh):
        all_failed = known(row["fresh_failed"]) and row["fresh_failed"] > 0
        return f"The best {name} setting failed on every fresh seed." if all_failed else ""
    seeds = counted(num, "fresh seed", "fresh seeds") if known(num) else "fresh seeds"
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


def confirmation_figure(material: Material) -> Figure | None:
    """Scores of the confirmed configurations: in the search, on fresh seeds, on the test split."""
    table = material.confirmation
    if table.empty:
        return None
    parts = [
        charts.intervals(table, column, f"{column}_low", f"{column}_high").assign(
            kind=kind, row=_ranks(table), at=table["at"]
        )
        for column, kind in SCORED_ON.items()
        if column in table.columns
    ]
    frame = charts.in_order(pd.concat(parts).dropna(subset=["x"]), material)
    if frame.empty:
        return None
    order = {row: place for place, row in enumerate(_ranks(table))}
    frame = frame.sort_values("row", key=lambda rows: rows.map(order), kind="stable")
    title = material.metric_title
    tips = charts.tips(row="configuration", at="setting", kind="scored on", x=title, **charts.ENDS)
    x = charts.plain_x(title, zero=False, padding=12)
    return Figure(
        name="confirmation",
        title="The best settings on fresh seeds",
        caption="The score of the search was picked for being good. The fresh seeds took no part "
        f"in the picking. {charts.bands_text(frame, material, 'Bars')}",
        chart=charts.dots(frame, x, list(SCORED_ON.values()), tips=tips),
        data=table,
    )


def _ranks(table: pd.DataFrame) -> list[str]:
    """`dcl, 2nd of the search`: what a confirmed configuration is called."""
    pairs = zip(table["objective"], table["rank"], strict=True)
    return [f"{name} #{int(rank)}" for name, rank in pairs]


def with_fresh(frame: pd.DataFrame, material: Material) -> pd.DataFrame:
    """Beside the study's scores, what fresh seeds and the test say."""
    again = material.confirmation
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


QUESTION = Question(
    name="recommendation",
    title="The best setting when tuned, and the one whose worst neighbour is best",
    heading="Settings by {metric}, with 95 % intervals{images}",
    table=recommend,
    ahead=True,
    columns=(
        Column("objective"),
        Column("pick", "kind"),
        Column("config", whole("config"), spare=2),
        Column("at"),
        Column(
            "score",
            measured("score", ""),
            "mean over the study's seeds. The setting was picked by it, so it is optimistic",
        ),
        Column(
            "worst neighbour",
            level("neighbourhood_worst", half("score", "")),
            "the worst level among the setting and its neighbours. Each level is drawn towards the "
            "mean around it, by as much as seed noise explains",
            spare=4,
        ),
        Column(
            "neighbours",
            whole("num_neighbours"),
            "one step away on a grid, else the nearest",
            spare=1,
        ),
        Column(
            "when tuned",
            level("when_tuned", half("score", "")),
            "level of the best without the luck of the pick, of which the lead is said: on the "
            "fresh seeds once there are any",
            spare=5,
        ),
        Column("fresh seeds", measured("fresh")),
        ONLY_ON,
        Column("test", measured("test"), spare=3),
    ),
    levels="score",
    rows=with_fresh,
    formulas={"recommendation": analysis.RECOMMEND_COLUMNS},
)
REPORTED = replace(
    QUESTION,
    rows=lambda frame, material: with_fresh(frame[frame["config"].notna()], material),
    say=confirmed,
    draw=lambda asked: [confirmation_figure(asked.material)],
)
CONFIRMATION = Question(
    name="confirmation",
    title="On fresh seeds and the test set",
    heading="The best by {metric} on fresh seeds, with 95 % intervals{images}",
    frame=lambda asked: asked.material.confirmation,
    columns=(
        Column("objective"),
        Column("config", spare=3),
        Column("at"),
        Column(
            "search",
            level("search", half("fresh")),
            "mean over the study's seeds, by which the best were picked, which flatters them",
        ),
        Column("seeds", "search_seeds", spare=1),
        Column(
            "fresh",
            measured("fresh"),
            "on seeds that took no part in picking the best. For new images the t-interval "
            "reaches further by what the picking owes to those scored",
        ),
        Column("fresh seeds", "fresh_seeds", spare=2),
        Column("failed", lambda row: row["fresh_failed"] or None),
        Column("test", measured("test"), "the fresh trials on the test split"),
        Column("search - fresh", level("difference", half("fresh")), spare=4),
    ),
    formulas={"confirmation": confirmation.FRESH_COLUMNS},
)
