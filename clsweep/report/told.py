"""What a table of statistics comes to in words, for where it is read without a report."""

from __future__ import annotations

from clsweep.questions import comparison as pairs
from clsweep.questions import pairs as sentences
from clsweep.questions import robustness as spreads
from clsweep.questions.answers import Answers, Asked, asked_of, of_each
from clsweep.questions.leaderboard import best, best_settings, board
from clsweep.questions.model import Sentences, told
from clsweep.questions.recommend import confirmed
from clsweep.questions.search import importance as searched
from clsweep.questions.search import importances
from clsweep.questions.sensitivity import effects
from clsweep.questions.sensitivity import sensitivity as shares
from clsweep.report import first
from clsweep.report.model import Step

_OF_PAIRS = {"mean": sentences.means, "std": sentences.spreads, "within": sentences.shares}


def answer_of(findings: Answers) -> tuple[Sentences, tuple[Step, ...]]:
    """The verdicts and the next steps of the report, without what they would be shown in."""
    parts = [asked_of(part) for part in findings.cells or (findings,)]
    steps = {step.sentence: step for part in parts for step in first.next_steps(part)}
    return of_each(findings, first.verdicts), tuple(steps.values())


def robustness(
    findings: Answers, *, by: str | None = None, within: float | None = None
) -> Sentences:
    """Who depends least on its settings; of one hyperparameter its usable band."""

    def say(asked: Asked) -> Sentences:
        found = asked.ask(spreads.robustness, by=by, within=asked.within)
        if by is not None:
            return spreads.bands(found, asked.words)
        return spreads.spread(found, asked.words) or sentences.robust(pairs.spreads(asked))

    return of_each(findings, say, within)


def sensitivity(findings: Answers, *names: str) -> Sentences:
    """What matters, of each objective."""
    return of_each(findings, lambda asked: effects(asked.ask(shares, *names)))


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
        if by is not None:
            said = sentences.by_value(frame, by, stat=stat)
            return said if len(said) <= sentences.FEW_PAIRS else ()
        if len(frame) == 1:
            return _OF_PAIRS[stat](frame, asked.words)
        if stat == "mean":
            return best(board(asked), frame, asked.words)
        if stat == "std":
            return sentences.robust(frame)
        near = f"within {asked.words.amount(asked.within)} of its best"
        none = f"No objective is shown to have more of its settings {near} than another."
        return told(sentences.shares(frame, asked.words)) or (none,)

    return of_each(findings, say, within)


def recommend(findings: Answers) -> Sentences:
    """The best setting there is, and what it keeps on fresh seeds where that is known."""

    def say(asked: Asked) -> Sentences:
        kept = confirmed(asked.material.confirmation, asked.words)
        return kept or best_settings(board(asked), asked.words)

    return of_each(findings, say)
