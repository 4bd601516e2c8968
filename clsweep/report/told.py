"""What a table of statistics comes to in words, for where it is read without a report."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from clsweep.display.cells import records_of
from clsweep.questions import comparison as pairs
from clsweep.questions import contrasts as asked_by_name
from clsweep.questions import pairs as sentences
from clsweep.questions import robustness as spreads
from clsweep.questions.answers import Answers, Asked, asked_of, of_each
from clsweep.questions.leaderboard import cautions, standing
from clsweep.questions.model import Sentences, told
from clsweep.questions.named import TUNED, UNTUNED, among, best, each_yardstick, lead_of, settings
from clsweep.questions.recommend import confirmed
from clsweep.questions.search import importance as searched
from clsweep.questions.search import importances
from clsweep.questions.sensitivity import effects
from clsweep.questions.sensitivity import sensitivity as shares
from clsweep.report import first
from clsweep.report.model import Step

MANY_CONTRASTS = 4  # more have their numbers in the table alone
_OF_PAIRS = {
    "tuned": sentences.tuned,
    "mean": sentences.means,
    "std": sentences.spreads,
    "within": sentences.shares,
}


def answer_of(findings: Answers) -> tuple[Sentences, tuple[Step, ...]]:
    """The verdicts and the next steps of the report, without what they would be shown in."""
    parts = [asked_of(part) for part in findings.cells or (findings,)]
    steps = {step.sentence: step for part in parts for step in first.next_steps(part)}
    return of_each(findings, first.verdicts), tuple(steps.values())


def robustness(
    findings: Answers, *, by: str | None = None, within: float | None = None
) -> Sentences:
    """Who is best without tuning, and who depends least on its settings; of one hyperparameter its
    usable band.
    """

    def say(asked: Asked) -> Sentences:
        found = asked.ask(spreads.robustness, by=by, within=asked.within)
        if by is not None:
            return spreads.bands(found, asked.words)
        least = spreads.spread(found, asked.words) or sentences.robust(pairs.spreads(asked))
        is_swept = bool(asked.swept) and asked.says_of_space
        means = pairs.means(asked) if is_swept else pd.DataFrame()
        said = (*best(asked.ask(standing), means, asked.words, UNTUNED), *least)
        return said or spreads.unmeasured(asked.material.spaces)

    return of_each(findings, say, within)


def sensitivity(findings: Answers, *names: str) -> Sentences:
    """What matters, of each objective."""
    return of_each(findings, lambda asked: effects(asked.ask(shares, *names), asked.words))


def importance(findings: Answers, *, within: float | None = None) -> Sentences:
    """What matters to a search, of each objective."""

    def say(asked: Asked) -> Sentences:
        return importances(asked.ask(searched, within=asked.within), asked.words)

    return of_each(findings, say, within)


def compare(
    findings: Answers,
    *pair: str,
    stat: str = "mean",
    by: str | None = None,
    within: float | None = None,
) -> Sentences:
    """Which objective is ahead, by the statistic of the table; by value, of few pairs."""

    def say(asked: Asked) -> Sentences:
        frame = asked.ask(pairs.compare, *pair, stat=stat, by=by, within=asked.within)
        if frame.empty:
            return ("One objective has trials: there is nothing to compare.",)
        if by is not None:
            said = sentences.by_value(frame, by, stat=stat)
            return said if len(said) <= sentences.FEW_PAIRS else ()
        if len(frame) == 1:
            return _OF_PAIRS[stat](frame, asked.words)
        if stat in (senses := {"mean": UNTUNED, "tuned": TUNED}):
            return each_yardstick(
                asked.ask(standing),
                lambda rows: best(rows, among(frame, rows), asked.words, senses[stat]),
            )
        if stat == "std":
            return sentences.robust(frame)
        near = f"within {asked.words.amount(asked.within)} of its best"
        none = f"No objective is shown to have more of its settings {near} than another."
        return told(sentences.shares(frame, asked.words)) or (none,)

    return of_each(findings, say, within)


def contrasts(
    findings: Answers, *, asked: Mapping[str, Mapping[str, Any]] | None = None
) -> Sentences:
    """How many of them are answered; of few, each."""

    def say(of: Asked) -> Sentences:
        rows = records_of(of.ask(asked_by_name.contrasts, asked=asked))
        each = map(asked_by_name.sentence, rows)
        return asked_by_name.summary(rows) if len(rows) > MANY_CONTRASTS else tuple(each)

    return of_each(findings, say)


def recommend(findings: Answers) -> Sentences:
    """Who is best when tuned, the best settings, and what they keep on fresh seeds where that is
    known.
    """

    def say(asked: Asked) -> Sentences:
        frame = pairs.tuned(asked)
        kept = confirmed(asked)

        def of(rows: pd.DataFrame) -> Sentences:
            own = among(frame, rows)
            named = best(rows, own, asked.words, TUNED)
            return (*named, *(() if kept else settings(rows, asked.words, lead_of(own))))

        beside = cautions(asked.ask(standing), asked.words, is_search=asked.is_search)
        return (*each_yardstick(asked.ask(standing), of), *kept, *beside)

    return of_each(findings, say)


def pareto(findings: Answers) -> Sentences:
    """Who is best when tuned, whatever it costs; of one objective its best setting."""

    def say(asked: Asked) -> Sentences:
        frame, words = pairs.tuned(asked), asked.words
        return each_yardstick(
            asked.ask(standing),
            lambda rows: best(rows, among(frame, rows), words, TUNED) or settings(rows, words),
        )

    return of_each(findings, say)
