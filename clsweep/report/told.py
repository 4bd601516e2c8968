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
        return of_each(findings, lambda asked: say(asked, *given, **options), within)

    return told


@_of_each
def robustness(asked: ReportContext, *, by: str | None = None) -> Sentences:
    """Who is best without tuning, who depends least on its settings; of one of them its band."""
    found = asked.ask(spreads.robustness, by=by, within=asked.within)
    if by is not None:
        said = spreads.bands(found, asked.words)
        return said or spreads.unmeasured(asked.material.spaces)
    least = spreads.spread(found, asked.words) or sentences.robust(pairs.spreads(asked))
    is_swept = bool(asked.swept) and asked.says_of_space
    means = pairs.means(asked) if is_swept else pd.DataFrame(columns=["a", "b"])
    said = (*best(leaderboard_rows(asked), means, asked.words, UNTUNED), *least)
    return said or spreads.unmeasured(asked.material.spaces)


@_of_each
def sensitivity(asked: ReportContext, *names: str) -> Sentences:
    """What matters, of each objective."""
    return effects(asked.ask(shares, *names), asked.words)


@_of_each
def importance(asked: ReportContext) -> Sentences:
    """What matters to a search, of each objective."""
    return importances(asked.ask(searched, within=asked.within), asked.words)


@_of_each
def compare(
    asked: ReportContext, *pair: str, stat: str = "mean", by: str | None = None
) -> Sentences:
    """Which objective is ahead, by the statistic of the table; by value, of few pairs."""
    frame = asked.ask(pairs.compare, *pair, stat=stat, by=by, within=asked.within)
    if frame.empty:
        return ("One objective has trials: there is nothing to compare.",)
    if by is not None:
        said = sentences.by_value(frame, by, stat, asked.words)
        return said if len(said) <= sentences.FEW_PAIRS else ()
    if len(frame) == 1:
        return sentences.compared(frame, stat, asked.words)
    if stat in (senses := {"mean": UNTUNED, "tuned": TUNED}):
        return each_yardstick(
            leaderboard_rows(asked), lambda rows: best(rows, frame, asked.words, senses[stat])
        )
    if stat == "std":
        return sentences.robust(frame)
    near = f"within {asked.words.amount(asked.within)} of its best"
    none = f"No objective is shown to have more of its settings {near} than another."
    is_any = any(map(is_measured, frame["reason"]))
    return resolved_only(sentences.compared(frame, "within", asked.words)) or (none,) * is_any


@_of_each
def contrasts(
    of: ReportContext, *, asked: Mapping[str, Mapping[str, Any]] | None = None
) -> Sentences:
    """How many of them are answered; of few, each."""
    rows = records_of(of.ask(asked_by_name.contrasts, asked=asked))
    each = map(asked_by_name.sentence, rows)
    return asked_by_name.summary(rows) if len(rows) > MANY_CONTRASTS else tuple(each)


@_of_each
def recommend(asked: ReportContext) -> Sentences:
    """Who is best when tuned, the best settings, and what they keep on fresh seeds if known."""
    frame, kept = pairs.tuned(asked), confirmed(asked)

    def of(rows: pd.DataFrame) -> Sentences:
        named = best(rows, frame, asked.words, TUNED)
        return (*named, *(() if kept else settings(rows, asked.words, lead_of(rows, frame))))

    beside = cautions(leaderboard_rows(asked), asked.words, is_search=asked.is_search)
    return (*each_yardstick(leaderboard_rows(asked), of), *kept, *beside)


@_of_each
def pareto(asked: ReportContext) -> Sentences:
    """Who is best when tuned, whatever it costs; of one objective its best setting."""
    frame, words = pairs.tuned(asked), asked.words
    return each_yardstick(
        leaderboard_rows(asked),
        lambda rows: best(rows, frame, words, TUNED) or settings(rows, words),
    )
