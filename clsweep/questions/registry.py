"""Every question, in the order of a reader: a row here is a statistic's place in the report."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache

from clsweep.analysis import reasons
from clsweep.questions import (
    comparison,
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


@dataclass(frozen=True, kw_only=True)
class Chapter:
    """A section of the report: what a reader asks, and the questions that answer it.

    Attributes:
        is_asked: whether the trials can answer it at all.
        doing: what a report says while it makes this.
    """

    id: str
    title: str
    questions: tuple[Question, ...]
    is_asked: Callable[[Asked], bool] = lambda _: True
    doing: str = ""


def _says_of_space(asked: Asked) -> bool:
    return asked.says_of_space


CHAPTERS = (
    Chapter(
        id="reproduction",
        title="Does it agree with the paper?",
        questions=(reproduction.QUESTION,),
    ),
    Chapter(
        id="comparison",
        title="Which objective is better, and where?",
        questions=(comparison.MEANS, comparison.SPREADS, comparison.SHARES, winners.QUESTION),
        is_asked=_says_of_space,
    ),
    Chapter(
        id="robustness",
        title="How much depends on the settings?",
        questions=(robustness.QUESTION, robustness.MORE, robustness.BY, robustness.TOLERANCE),
        is_asked=_says_of_space,
    ),
    Chapter(
        id="sensitivity",
        title="Which hyperparameter matters?",
        questions=(sensitivity.QUESTION, marginals.QUESTION),
        is_asked=_says_of_space,
    ),
    Chapter(
        id="recommendation",
        title="What should be set?",
        questions=(recommend.REPORTED, pareto.QUESTION, recommend.CONFIRMATION),
    ),
    Chapter(
        id="search",
        title="What did the search try and find?",
        questions=(search.HISTORY, search.TOP, search.IMPORTANCE, search.SAVED),
        is_asked=lambda asked: asked.is_search,
    ),
    Chapter(
        id="tuning",
        title="How many tries does tuning take?",
        questions=(tuning.QUESTION, tuning.BEST_OF_K),
        is_asked=_says_of_space,
        doing="tuning cost",
    ),
    Chapter(
        id="learning",
        title="How did training go?",
        questions=(learning.QUESTION,),
        doing="learning curves",
    ),
    Chapter(
        id="mechanism",
        title="What goes with the scores?",
        questions=(mechanism.QUESTION, mechanism.LINKS),
    ),
    Chapter(
        id="picks",
        title="What would be picked without labels?",
        questions=(picks.QUESTION,),
        doing="without labels",
    ),
    Chapter(
        id="trials",
        title="What did every trial give?",
        questions=(trials.QUESTION,),
    ),
    Chapter(
        id="health",
        title="What did it cost, and what failed?",
        questions=(health.QUESTION, health.ERRORS, health.REGIONS),
        doing="cost and failures",
    ),
)


def questions() -> Iterator[Question]:
    """All of them, that of the first screen first."""
    yield leaderboard.QUESTION
    for chapter in CHAPTERS:
        yield from chapter.questions


def ahead(asked: Asked) -> Iterator[Expected]:
    """What takes time, in the order in which a report asks."""
    for chapter in CHAPTERS:
        if chapter.is_asked(asked):
            for question in chapter.questions:
                yield from question.expected(asked)


@cache
def formulas() -> Mapping[str, Mapping[str, str]]:
    """What the appendix and the documentation explain: the name of a table -> its columns."""
    found = {"most tables": reasons.COLUMNS}
    return found | {name: each for q in questions() for name, each in q.formulas.items()}
