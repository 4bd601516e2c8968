"""What a table of statistics comes to in words, for where it is read without a report."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any

import pandas as pd

from clsweep.display.cells import records_of
from clsweep.report import first_screen
from clsweep.report.content import Step
from clsweep.statistics import compare as pairs
from clsweep.statistics import contrast as asked_by_name
from clsweep.statistics import pair_sentences as sentences
from clsweep.statistics import robustness as spreads
from clsweep.statistics.computed import ReportContext, Statistics, context_of, of_each
from clsweep.statistics.leaderboard import (
    TUNED,
    UNTUNED,
    best,
    cautions,
    each_yardstick,
    lead_of,
    leaderboard_rows,
    settings,
)
from clsweep.statistics.recommend import confirmed
from clsweep.statistics.report_objects import Sentences, resolved_only
from clsweep.statistics.search import importance as searched
from clsweep.statistics.search import importances
from clsweep.statistics.sensitivity import effects
from clsweep.statistics.sensitivity import sensitivity as shares
from clsweep.sweeps.notes import is_measured

MANY_CONTRASTS = 4  # more have their numbers in the table alone


def answer_of(findings: Statistics) -> tuple[Sentences, tuple[Step, ...]]:
    """The verdicts and the next steps of the report, without what they would be shown in."""
    parts = [context_of(part) for part in findings.cells or (findings,)]
    steps = {step.sentence: step for part in parts for step in first_screen.next_steps(part)}
    return of_each(findings, first_screen.verdicts), tuple(steps.values())


def _of_each(say: Callable[..., Sentences]) -> Callable[..., Sentences]:
    """What is said of all trials, or of each cell of a study with factors."""

    @wraps(say)
    def told(
        findings: Statistics, *given: str, within: float | None = None, **options: Any
    ) -> Sentences:
        return of_each(findings, lambda context: say(context, *given, **options), within)

    return told


@_of_each
def robustness(context: ReportContext, *, by: str | None = None) -> Sentences:
    """Who is best without tuning, who depends least on its settings; of one of them its band."""
    found = context.compute(spreads.robustness, by=by, within=context.within)
    if by is not None:
        said = spreads.bands(found, context.words)
        return said or spreads.unmeasured(context.data.spaces)
    least = spreads.spread(found, context.words) or sentences.robust(pairs.spreads(context))
    is_swept = bool(context.swept) and context.says_of_space
    means = pairs.means(context) if is_swept else pd.DataFrame(columns=["a", "b"])
    said = (*best(leaderboard_rows(context), means, context.words, UNTUNED), *least)
    return said or spreads.unmeasured(context.data.spaces)


@_of_each
def sensitivity(context: ReportContext, *names: str) -> Sentences:
    """What matters, of each objective."""
    return effects(context.compute(shares, *names), context.words)


@_of_each
def importance(context: ReportContext) -> Sentences:
    """What matters to a search, of each objective."""
    return importances(context.compute(searched, within=context.within), context.words)


@_of_each
def compare(
    context: ReportContext, *pair: str, stat: str = "mean", by: str | None = None
) -> Sentences:
    """Which objective is ahead, by the statistic of the table; by value, of few pairs."""
    frame = context.compute(pairs.compare, *pair, stat=stat, by=by, within=context.within)
    if frame.empty:
        return ("One objective has trials: there is nothing to compare.",)
    if by is not None:
        said = sentences.by_value(frame, by, stat, context.words)
        return said if len(said) <= sentences.FEW_PAIRS else ()
    if len(frame) == 1:
        return sentences.compared(frame, stat, context.words)
    if stat in (senses := {"mean": UNTUNED, "tuned": TUNED}):
        return each_yardstick(
            leaderboard_rows(context), lambda rows: best(rows, frame, context.words, senses[stat])
        )
    if stat == "std":
        return sentences.robust(frame)
    near = f"within {context.words.amount(context.within)} of its best"
    none = f"No objective is shown to have more of its settings {near} than another."
    is_any = any(map(is_measured, frame["reason"]))
    return resolved_only(sentences.compared(frame, "within", context.words)) or (none,) * is_any


@_of_each
def contrasts(
    of: ReportContext, *, more: Mapping[str, Mapping[str, Any]] | None = None
) -> Sentences:
    """How many of them are answered; of few, each."""
    rows = records_of(of.compute(asked_by_name.contrasts, more=more))
    each = map(asked_by_name.sentence, rows)
    return asked_by_name.summary(rows) if len(rows) > MANY_CONTRASTS else tuple(each)


@_of_each
def recommend(context: ReportContext) -> Sentences:
    """Who is best when tuned, the best settings, and what they keep on fresh seeds if known."""
    frame, kept = pairs.tuned(context), confirmed(context)

    def of(rows: pd.DataFrame) -> Sentences:
        named = best(rows, frame, context.words, TUNED)
        return (*named, *(() if kept else settings(rows, context.words, lead_of(rows, frame))))

    beside = cautions(leaderboard_rows(context), context.words, is_search=context.is_search)
    return (*each_yardstick(leaderboard_rows(context), of), *kept, *beside)


@_of_each
def pareto(context: ReportContext) -> Sentences:
    """Who is best when tuned, whatever it costs; of one objective its best setting."""
    frame, words = pairs.tuned(context), context.words
    return each_yardstick(
        leaderboard_rows(context),
        lambda rows: best(rows, frame, words, TUNED) or settings(rows, words),
    )
