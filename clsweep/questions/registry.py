"""Every question, in the order of a reader: a row here is a statistic's place in the report."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from operator import attrgetter

from clsweep.analysis import reasons
from clsweep.questions import (
    comparison,
    contrasts,
    health,
    leaderboard,
    learning,
    marginals,
    mechanism,
    pareto,
    picks,
    recommend,
    reproduction,
    robustness,
    search,
    sensitivity,
    trials,
    tuning,
    winners,
)
from clsweep.questions.answers import Asked, Expected
from clsweep.questions.column import Question


@dataclass(frozen=True)
class Chapter:
    """A section of the report: what a reader asks, the questions that answer it, and whether the
    trials can answer it at all (`is_asked`).
    """

    id: str
    title: str
    questions: tuple[Question, ...]
    is_asked: Callable[[Asked], bool] = lambda _: True


_of_space: Callable[[Asked], bool] = attrgetter("says_of_space")
CHAPTERS = (
    Chapter(
        "reproduction",
        "Does it agree with the paper?",
        (reproduction.QUESTION, reproduction.DIFFERENCES),
    ),
    Chapter(
        "contrasts",
        "What was asked beforehand?",
        (contrasts.QUESTION,),
        lambda asked: bool(asked.material.contrasts),
    ),
    Chapter(
        "comparison",
        "Which objective is better, and where?",
        (comparison.MEANS, comparison.SPREADS, comparison.SHARES, winners.QUESTION),
        _of_space,
    ),
    Chapter(
        "robustness",
        "How much depends on the settings?",
        (robustness.QUESTION, robustness.MORE, robustness.BY, robustness.TOLERANCE),
        _of_space,
    ),
    Chapter(
        "sensitivity",
        "Which hyperparameter matters?",
        (sensitivity.QUESTION, marginals.QUESTION),
        _of_space,
    ),
    Chapter(
        "recommendation",
        "What should be set?",
        (recommend.REPORTED, pareto.QUESTION, recommend.CONFIRMATION),
    ),
    Chapter(
        "search",
        "What did the search try and find?",
        (search.HISTORY, search.TOP, search.IMPORTANCE, marginals.SEARCHED, search.SAVED),
        attrgetter("is_search"),
    ),
    Chapter(
        "tuning", "How many tries does tuning take?", (tuning.QUESTION, tuning.BEST_OF_K), _of_space
    ),
    Chapter("learning", "How did training go?", (learning.QUESTION,)),
    Chapter("mechanism", "What goes with the scores?", (mechanism.QUESTION, mechanism.LINKS)),
    Chapter("picks", "What would be picked without labels?", (picks.QUESTION,)),
    Chapter("trials", "What did every trial give?", (trials.QUESTION,)),
    Chapter(
        "health",
        "What did it cost, and what failed?",
        (health.QUESTION, health.ERRORS, health.REGIONS),
    ),
)


def questions() -> Iterator[Question]:
    """All of them, that of the first screen first."""
    yield leaderboard.QUESTION
    for chapter in CHAPTERS:
        yield from chapter.questions


def ahead(asked: Asked) -> Iterator[Expected]:
    """What takes time, in the order in which a report asks."""
    for question in (q for each in CHAPTERS if each.is_asked(asked) for q in each.questions):
        if callable(question.ahead):
            yield from question.ahead(asked)
        elif question.ahead and question.table:
            yield question.table, question.options(asked)


@cache
def formulas() -> Mapping[str, Mapping[str, str]]:
    """What the appendix and the documentation explain: the name of a table -> its columns."""
    found = {"most tables": reasons.REASON_COLUMNS}
    return found | {name: each for q in questions() for name, each in q.formulas.items()}
