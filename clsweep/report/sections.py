"""What stands in a report: its first screen, and a section of each chapter that says something."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pandas as pd

from clsweep.analysis import reasons
from clsweep.display.numbers import count
from clsweep.questions.answers import Answers, Asked, ask_ahead, cell_name, in_cell, told_of
from clsweep.questions.column import plain
from clsweep.questions.model import Figure, Open, Table, slug, told
from clsweep.questions.registry import CHAPTERS, Chapter, ahead, formulas
from clsweep.report import first
from clsweep.report.glossary import terms_in
from clsweep.report.model import Report, Section

Say = Callable[[str], None]
Made = Callable[[Sequence[Figure]], object]

_MODEL = (
    "Scores are modelled as level of the configuration + noise of the seed, with one variance of "
    "the noise in an objective. A grid is the whole space: its uncertainty is the seeds'. A qmc or "
    "random design is a sample of the space: its configurations are resampled too. Intervals are "
    "95 %."
)


def build_report(
    findings: Answers,
    *,
    within: float | None = None,
    progress: Say | None = None,
    made: Made = lambda _: None,
) -> Report:
    """Everything that is to be said of `findings`, one or several studies.

    `within` is how far from the best still counts as good, as in `Findings.robustness`; `progress`
    is called with a word on what is computed next, `made` with figures as soon as they are there.
    """
    near = findings.near(within)
    say = progress or (lambda _: None)
    asked = Asked(answers=findings, within=near, say=say)
    if findings.cells:
        each = [_report(Asked(answers=cell, within=near, say=say)) for cell in findings.cells]
        reproduction = section_of(CHAPTERS[0], asked)
        report = _of_cells(findings.cells, each, reproduction, first.board_table(asked))
    else:
        report = _report(asked, made)
    material = asked.material
    counts = material.trials["status"].value_counts()
    facts = {
        "Results": ", ".join(material.sources),
        "Metric": f"{material.metric} ({material.unit or 'no unit'}), {material.mode} is best"
        f"{', of the test split' if material.on_test else ''}",
        "Trials": ", ".join(f"{count(num)} {status}" for status, num in counts.items()),
        **({"Cells": _named(findings.cells)} if findings.cells else {}),
        "Near the best": f"within {asked.words.amount(asked.within)}",
        "Made": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
    }
    return replace(
        report,
        title=material.title,
        facts=facts,
        sources=material.sources,
        on_test=material.on_test,
        terms=terms_in(_texts(report)),
    )


def _report(asked: Asked, made: Made = lambda _: None) -> Report:
    """What is to be said of trials that are compared with each other."""
    made(())
    ask_ahead(asked.answers, ahead(asked))
    hero, sections = first.hero(asked), []
    made(hero)
    above = {figure.name for figure in hero}
    for chapter in (*CHAPTERS, None):
        part = section_of(chapter, asked) if chapter else _appendix(asked)
        part = replace(part, figures=tuple(f for f in part.figures if f.name not in above))
        made(part.figures)
        if not part.is_empty:
            sections.append(part)
    return Report(
        title=asked.material.title,
        question=first.question(asked),
        verdicts=first.verdicts(asked),
        notes=first.notes(asked),
        board=first.board_table(asked),
        hero=hero,
        steps=first.next_steps(asked),
        open=first.unresolved(asked, sections),
        sections=tuple(sections),
    )


def section_of(chapter: Chapter, asked: Asked) -> Section:
    """What its questions say, parted into what is told and what stays open, and show, if asked."""
    if not chapter.is_asked(asked):
        return Section(id=chapter.id, title=chapter.title)
    asked.say(chapter.id)
    questions = chapter.questions
    said = tuple(sentence for question in questions for sentence in question.say(asked))
    notes = [note for question in questions for note in question.notes_of(asked)]
    figures = (figure for question in questions for figure in question.draw(asked))
    return Section(
        id=chapter.id,
        title=chapter.title,
        sentences=told(said),
        open=tuple(sentence for sentence in said if isinstance(sentence, Open)),
        notes=tuple(dict.fromkeys(notes)),
        tables=tuple(table for question in questions for table in question.tables_of(asked)),
        figures=tuple(figure for figure in figures if figure is not None),
    )


def _texts(report: Report) -> Iterator[str]:
    """Whatever a reader may ask the meaning of."""
    yield from (*report.verdicts, *report.notes, *report.open)
    for part in report.sections:
        yield from (*part.sentences, *part.open)
    for table in report.tables:
        yield from (table.title, table.caption, *map(str, table.shown.columns))
        yield from map(str, table.shown.iloc[:, 0] if table.shown.shape[1] else ())
    yield from (figure.caption for figure in report.figures)


def _appendix(asked: Asked) -> Section:
    """Numbers of trials, and every formula."""
    asked.say("formulas")
    rows = [
        {"table": table, "column": column, "meaning": meaning}
        for table, columns in formulas().items()
        for column, meaning in columns.items()
        if meaning
        and (columns is reasons.REASON_COLUMNS or meaning != reasons.REASON_COLUMNS.get(column))
    ]
    tables = [
        ("samples", "What was measured", "One row per objective.", _samples(asked)),
        ("formulas", "Columns of the tables", "", pd.DataFrame(rows)),
    ]
    return Section(
        id="appendix",
        title="How is every number computed?",
        notes=(_MODEL,),
        tables=tuple(
            Table(name=name, title=title, caption=caption, frame=frame, shown=plain(frame))
            for name, title, caption, frame in tables
            if not frame.empty
        ),
    )


def _samples(asked: Asked) -> pd.DataFrame:
    sweeps = asked.material.sweeps
    is_raced = any(sweep.num_skipped for sweep in sweeps)
    rows = [
        {
            "objective": sweep.objective,
            "design": ", ".join(sweep.samplers),
            "configurations": len(sweep.configs),
            "of planned": sweep.num_planned,
            "seeds": len(sweep.seeds),
            "trials": sweep.num_trials,
            "failed": sweep.num_failed,
            "stopped": sweep.num_stopped,
            **({"skipped": sweep.num_skipped} if is_raced else {}),
            "scores": int(pd.notna(sweep.measured.scores).sum()),
            "swept": ", ".join(f"{name} ({sweep.scales[name]})" for name in sweep.params),
        }
        for sweep in sweeps
    ]
    return pd.DataFrame(rows)


# A study with factors


def _named(cells: Sequence[Answers]) -> str:
    """`4 of dataset and encoder: digits, conv4; ...`."""
    return f"{len(cells)} of {' and '.join(cells[0].levels)}: {'; '.join(map(cell_name, cells))}"


def _of_cells(
    cells: Sequence[Answers], reports: Sequence[Report], reproduction: Section, board: Table
) -> Report:
    """One report of all cells from that of each; a paper's tables and the board span cells."""
    each = dict(zip(map(cell_name, cells), reports, strict=True))
    levels = {cell_name(cell): cell.levels for cell in cells}
    asked = list(dict.fromkeys(report.question for report in reports))
    parts: dict[str, dict[str, Section]] = {}  # id -> cell -> its section
    for name, report in each.items():
        for section in report.sections:
            parts.setdefault(section.id, {})[name] = section
    parts.pop(reproduction.id, None)
    return replace(
        reports[0],
        question=asked[0] if len(asked) == 1 else f"{asked[0]} {_named(cells)}.",
        **_told(each, "verdicts", "notes", "open"),
        board=board,
        hero=tuple(_figure(f, name) for name, report in each.items() for f in report.hero[:1]),
        steps=tuple({s.sentence: s for report in reports for s in report.steps}.values()),
        sections=(
            *(() if reproduction.is_empty else (reproduction,)),
            *(_section(found, levels) for found in parts.values()),
        ),
    )


def _told(made: Mapping[str, object], *parts: str) -> dict[str, Any]:
    """What each cell says, part by part."""
    return {p: told_of({name: getattr(x, p) for name, x in made.items()}) for p in parts}


def _section(made: Mapping[str, Section], levels: Mapping[str, Mapping[str, str]]) -> Section:
    """One section of all cells: tables have the factors as columns, all else the cell in front."""
    tables: dict[str, dict[str, Table]] = {}  # name -> cell -> its table
    for cell, section in made.items():
        for table in section.tables:
            tables.setdefault(table.name, {})[cell] = table
    return replace(
        next(iter(made.values())),
        **_told(made, "sentences", "open", "notes"),
        tables=tuple(_table(name, found, levels) for name, found in tables.items()),
        figures=tuple(_figure(f, cell) for cell, section in made.items() for f in section.figures),
    )


def _table(name: str, found: Mapping[str, Table], levels: Mapping[str, Mapping[str, str]]) -> Table:
    first = next(iter(found.values()))
    if name == "formulas":  # which say the same of every cell
        return first
    frames = [in_cell(table.frame, levels[cell]) for cell, table in found.items()]
    shown = [in_cell(table.shown, levels[cell]) for cell, table in found.items()]
    return replace(
        first,
        frame=pd.concat(frames, ignore_index=True),
        shown=pd.concat(shown, ignore_index=True).astype(object).fillna(""),
        anchors=tuple(anchor for table in found.values() for anchor in table.anchors),
        more=sum(table.more for table in found.values()),
    )


def _figure(figure: Figure, cell: str) -> Figure:
    return replace(figure, name=f"{figure.name}-{slug(cell)}", title=f"{cell}: {figure.title}")
