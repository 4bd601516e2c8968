"""Every question, in the order of a reader: a row here is a statistic's place in the report."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from operator import attrgetter

from clsweep.statistics import (
    ablation,
    compare,
    contrast,
    fidelity,
    health,
    leaderboard,
    learning,
    marginals,
    mechanism,
    optimum,
    pareto,
    picks,
    recommend,
    reproduce,
    robustness,
    search_history,
    sensitivity,
    trial_table,
    tuning,
    winners,
)
from clsweep.statistics.computed import ReportContext, TableRequest
from clsweep.statistics.report_objects import REASON_COLUMNS
from clsweep.statistics.statistic import Statistic


@dataclass(frozen=True)
class SectionOutline:
    """A section of the report: what a reader asks, the questions that answer it, and whether the
    trials can answer it at all (`is_asked`).
    """

    id: str
    title: str
    questions: tuple[Statistic, ...]
    applies: Callable[[ReportContext], bool] = lambda _: True


_of_space: Callable[[ReportContext], bool] = attrgetter("says_of_space")
SECTIONS = (
    SectionOutline(
        "reproduction",
        "Does it agree with the paper?",
        (reproduce.REPRODUCTION, reproduce.DIFFERENCES),
    ),
    SectionOutline(
        "contrasts",
        "What was asked beforehand?",
        (contrast.CONTRASTS,),
        lambda context: bool(context.data.contrasts),
    ),
    SectionOutline(
        "comparison",
        "Which objective is better, and where?",
        (compare.MEANS, compare.SPREADS, compare.SHARES, winners.WINNERS),
        _of_space,
    ),
    SectionOutline(
        "robustness",
        "How much depends on the settings?",
        (
            robustness.ROBUSTNESS,
            robustness.ROBUSTNESS_MORE,
            robustness.ROBUSTNESS_BY,
            robustness.TOLERANCE,
        ),
        _of_space,
    ),
    SectionOutline(
        "sensitivity",
        "Which hyperparameter matters?",
        (sensitivity.SENSITIVITY, marginals.MARGINALS),
        _of_space,
    ),
    SectionOutline("optimum", "Does the best value move?", (optimum.OPTIMUM, optimum.OPTIMA)),
    SectionOutline(
        "recommendation",
        "What should be set?",
        (recommend.RECOMMEND_IN_REPORT, pareto.PARETO, pareto.FRONT, recommend.CONFIRMATION),
    ),
    SectionOutline(
        "search",
        "What did the search try and find?",
        (
            search_history.HISTORY,
            search_history.TOP,
            search_history.IMPORTANCE,
            marginals.MARGINALS_OF_SEARCH,
            search_history._SAVED,
        ),
        attrgetter("is_search"),
    ),
    SectionOutline(
        "tuning",
        "How many tries does tuning take?",
        (tuning.TUNING_COST, tuning.BEST_OF_K),
        _of_space,
    ),
    SectionOutline("ablation", "Which change gains?", (ablation.ABLATION,)),
    SectionOutline("learning", "How did training go?", (learning.LEARNING,)),
    SectionOutline("fidelity", "Can settings be chosen early?", (fidelity.FIDELITY,)),
    SectionOutline(
        "mechanism", "What goes with the scores?", (mechanism.MECHANISM, mechanism.LINKS)
    ),
    SectionOutline("picks", "What would be picked without labels?", (picks.PICKS,)),
    SectionOutline("trials", "What did every trial give?", (trial_table.TRIALS,)),
    SectionOutline(
        "health",
        "What did it cost, and what failed?",
        (health.HEALTH, health.FAILURE_MESSAGES, health.FAILURE_REGIONS),
    ),
)


def all_statistics() -> Iterator[Statistic]:
    """All of them, that of the first screen first."""
    yield leaderboard.LEADERBOARD
    for chapter in SECTIONS:
        yield from chapter.questions


def requests(context: ReportContext) -> Iterator[TableRequest]:
    """Tables that take time, in the order in which a report needs them."""
    for question in (q for each in SECTIONS if each.applies(context) for q in each.questions):
        if callable(question.ahead):
            yield from question.ahead(context)
        elif question.ahead and question.table:
            yield question.table, question.options(context)


@cache
def formulas() -> Mapping[str, Mapping[str, str]]:
    """Name of a table -> its columns, as appendix and documentation explain them."""
    columns = {"most tables": REASON_COLUMNS}
    return columns | {name: each for q in all_statistics() for name, each in q.formulas.items()}
