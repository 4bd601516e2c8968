"""What a table of statistics comes to in words, for where it is read without a report."""

from __future__ import annotations

from collections.abc import Callable

from clsweep.findings.statistics import Findings
from clsweep.report import cells, first
from clsweep.report.computed import Tables, words_of
from clsweep.report.model import Step
from clsweep.report.sentences import answer, objectives, pairs
from clsweep.report.sentences.words import Sentences, told

_OF_PAIRS = {"mean": pairs.means, "std": pairs.spreads, "within": pairs.shares}


def answer_of(findings: Findings) -> tuple[Sentences, tuple[Step, ...]]:
    """The verdicts and the next steps of the report, without what they would be shown in."""
    tables = [_tables(part) for part in findings.cells or (findings,)]
    steps = {step.sentence: step for part in tables for step in first.next_steps(part)}
    return _of_each(findings, first.verdicts), tuple(steps.values())


def robustness(
    findings: Findings, *, by: str | None = None, within: float | None = None
) -> Sentences:
    """Who depends least on its settings; of one hyperparameter its usable band."""

    def ask(tables: Tables) -> Sentences:
        if by is None:
            alone = objectives.spread(
                tables.findings.robustness(within=tables.within), words_of(tables)
            )
            return alone or answer.robust(tables.spreads)
        marginal = tables.findings.robustness(by=by, within=tables.within)
        return objectives.bands(marginal, words_of(tables))

    return _of_each(findings, ask, within)


def sensitivity(findings: Findings, *names: str) -> Sentences:
    """What matters, of each objective."""
    return _of_each(
        findings, lambda tables: objectives.effects(tables.findings.sensitivity(*names))
    )


def comparison(
    findings: Findings,
    *pair: str,
    stat: str = "mean",
    by: str | None = None,
    within: float | None = None,
) -> Sentences:
    """Which objective is ahead, by the statistic of the table; by value, of few pairs."""

    def ask(tables: Tables) -> Sentences:
        words = words_of(tables)
        frame = tables.findings.compare(*pair, stat=stat, by=by, within=tables.within)
        if by is not None:
            said = pairs.by_value(frame, by, stat=stat)
            return said if len(said) <= pairs.FEW_PAIRS else ()
        if len(frame) == 1:
            return _OF_PAIRS[stat](frame, words)
        if stat == "mean":
            return answer.best(tables.board, frame, words)
        if stat == "std":
            return answer.robust(frame)
        near = f"within {words.amount(words.within)} of its best"
        none = f"No objective is shown to have more of its settings {near} than another."
        return told(pairs.shares(frame, words)) or (none,)

    return _of_each(findings, ask, within)


def recommendation(findings: Findings) -> Sentences:
    """The best setting there is, and what it keeps on fresh seeds where that is known."""

    def ask(tables: Tables) -> Sentences:
        words = words_of(tables)
        kept = objectives.confirmed(tables.material.confirmation, words)
        return kept or answer.best_settings(tables.board, words)

    return _of_each(findings, ask)


def _of_each(
    findings: Findings, ask: Callable[[Tables], Sentences], within: float | None = None
) -> Sentences:
    """What is said of all trials, or of each cell of a study with factors."""
    if not findings.cells:
        return ask(_tables(findings, within))
    return cells.told(
        {cells.cell_name(cell): ask(_tables(cell, within)) for cell in findings.cells}
    )


def _tables(findings: Findings, within: float | None = None) -> Tables:
    near = findings.material.within if within is None else within
    return Tables(findings=findings, within=near, say=lambda _: None)
