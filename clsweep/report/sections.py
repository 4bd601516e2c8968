"""The report: its first screen, and each section that has something to say."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pandas as pd

from clsweep.display.numbers import count
from clsweep.report import first_screen
from clsweep.report.content import Report, Section
from clsweep.report.glossary import terms_in
from clsweep.statistics.computed import ReportContext, Statistics, cell_name, merged_cells, prefetch
from clsweep.statistics.registry import SECTIONS, SectionOutline, formulas, requests
from clsweep.statistics.report_objects import Figure, Table, Unresolved, as_slug, resolved_only
from clsweep.sweeps.notes import in_cell, version_notes

Progress = Callable[[str], None]
Made = Callable[[Sequence[Figure]], object]

_MODEL = (
    "Scores are modelled as level of the configuration + noise of the seed, with one variance of "
    "the noise in an objective. A grid is the whole space: its uncertainty is the seeds'. A qmc or "
    "random design is a sample of the space: its configurations are resampled too. Intervals are "
    "95 %."
)
_NUMBERS = Section(id="appendix", title="How is every number computed?", sentences=(_MODEL,))


def build_report(
    findings: Statistics,
    *,
    within: float | None = None,
    progress: Progress | None = None,
    made: Made = lambda _: None,
) -> Report:
    """Everything that is to be said of `findings`, one or several studies.

    `within` is how far from the best still counts as good, as in `Results.robustness`; `progress`
    is called with a word on what is computed next, `made` with figures as soon as they are there.
    """
    near, say = findings.near(within), progress or (lambda _: None)
    context = ReportContext(statistics=findings, within=near, say=say)
    if findings.cells:
        each = [_report(replace(context, statistics=cell)) for cell in findings.cells]
        report = _of_cells(findings.cells, each, context)
    else:
        report = _report(context, made)
    data, trained = context.data, findings.side_table("versions")
    of_versions = version_notes(data.trials if trained.empty else trained)
    counts = data.trials["status"].value_counts()
    facts = {
        "Results": ", ".join(data.sources),
        "Metric": f"{data.metric} ({data.unit or 'no unit'}), {data.mode} is best"
        f"{', of the test split' if data.on_test else ''}",
        "Trials": ", ".join(f"{count(num)} {status}" for status, num in counts.items()),
        **({"Cells": _named(findings.cells)} if findings.cells else {}),
        "Near the best": f"within {context.words.amount(context.within)}",
        "Made": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
    }
    return replace(
        report,
        title=data.title,
        notes=(*report.notes, *data.notes, *of_versions),
        facts=facts,
        sources=data.sources,
        on_test=data.on_test,
        terms=terms_in(_texts(report)),
    )


def _report(context: ReportContext, made: Made = lambda _: None) -> Report:
    """The report of trials that are compared with each other."""
    made(())
    prefetch(context.statistics, requests(context))
    hero, sections = first_screen.headline_figures(context), []
    made(hero)
    above = {figure.name for figure in hero}
    for chapter in (*SECTIONS, None):
        part = section_of(chapter, context) if chapter else _appendix(context)
        part = replace(part, figures=_one_shown(f for f in part.figures if f.name not in above))
        made(part.figures)
        if not part.is_empty:
            sections.append(part)
    return Report(
        title=context.data.title,
        question=first_screen.question_line(context),
        verdicts=first_screen.verdicts(context),
        notes=first_screen.limits(context),
        board=first_screen.board_table(context),
        hero=hero,
        steps=first_screen.next_steps(context),
        open=first_screen.unresolved(context, sections),
        sections=tuple(sections),
    )


def section_of(chapter: SectionOutline, context: ReportContext) -> Section:
    """Sentences, notes, tables and figures of its statistics, if it applies."""
    if not chapter.applies(context):
        return Section(id=chapter.id, title=chapter.title)
    context.say(chapter.id)
    questions = chapter.questions
    sentences = tuple(each for question in questions for each in question.sentences(context))
    notes = [note for question in questions for note in question.notes_of(context)]
    figures = (figure for question in questions for figure in question.figures(context))
    return Section(
        id=chapter.id,
        title=chapter.title,
        sentences=resolved_only(sentences),
        open=tuple(sentence for sentence in sentences if isinstance(sentence, Unresolved)),
        notes=tuple(dict.fromkeys(notes)),
        tables=tuple(table for question in questions for table in question.tables_of(context)),
        figures=tuple(figure for figure in figures if figure is not None),
    )


def _one_shown(figures: Iterable[Figure]) -> tuple[Figure, ...]:
    """The figures of a section, of which the page shows the first that is resolved and of all
    objectives.
    """
    shown, all_of_them = False, []
    for figure in figures:
        is_next = not figure.is_apart and figure.is_resolved
        all_of_them.append(replace(figure, is_apart=figure.is_apart or (is_next and shown)))
        shown |= is_next
    return tuple(all_of_them)


def _texts(report: Report) -> Iterator[str]:
    """Whatever a reader may ask the meaning of."""
    yield from (*report.verdicts, *report.notes, *report.open)
    for part in report.sections:
        yield from (*part.sentences, *part.open)
    for table in report.tables:
        if not table.is_apart:
            yield from (table.title, table.caption, *map(str, table.shown.columns))
            yield from map(str, table.shown.iloc[:, 0] if table.shown.shape[1] else ())
    yield from (figure.caption for figure in report.own_figures)


def _appendix(context: ReportContext) -> Section:
    """Numbers of trials; every formula has a page of its own."""
    samples = _samples(context)
    measured = Table(
        name="samples", title="What was measured", caption="", frame=samples, shown=samples,
        is_apart=True,
    )  # fmt: skip
    return replace(
        _NUMBERS,
        tables=(measured,) * (not samples.empty),
        pages={"the formula of each column": "formulas.html"},
    )


def formula_report(title: str) -> Report:
    """The formula of each column of a report's files, as a report by itself."""
    common = formulas()["most tables"]
    rows = [
        {"table": table, "column": column, "meaning": meaning}
        for table, columns in formulas().items()
        for column, meaning in columns.items()
        if meaning and (columns is common or meaning != common.get(column))
    ]
    frame = pd.DataFrame(rows)
    table = Table(
        name="formulas", title="Columns of the tables", caption="", frame=frame, shown=frame,
        limit=len(frame),
    )  # fmt: skip
    return Report(title=title, sections=(replace(_NUMBERS, tables=(table,)),))


def _samples(context: ReportContext) -> pd.DataFrame:
    sweeps = context.data.sweeps
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


def _named(cells: Sequence[Statistics]) -> str:
    """`4 of dataset and encoder: digits, conv4; ...`."""
    return f"{len(cells)} of {' and '.join(cells[0].levels)}: {'; '.join(map(cell_name, cells))}"


def _of_cells(
    cells: Sequence[Statistics], reports: Sequence[Report], context: ReportContext
) -> Report:
    """One report of all cells from that of each: question, board and a paper's tables span them."""
    each = dict(zip(map(cell_name, cells), reports, strict=True))
    levels = {cell_name(cell): cell.levels for cell in cells}
    reproduction = section_of(SECTIONS[0], context)
    parts: dict[str, dict[str, Section]] = {}  # id -> cell -> its section
    for name, report in each.items():
        for section in report.sections:
            parts.setdefault(section.id, {})[name] = section
    parts.pop(reproduction.id, None)
    return replace(
        reports[0],
        question=f"{first_screen.question_line(context)} {_named(cells)}.",
        **_merged(each, "verdicts", "notes", "open"),
        board=first_screen.board_table(context),
        hero=tuple(_figure(f, name) for name, report in each.items() for f in report.hero[:1]),
        steps=tuple({s.sentence: s for report in reports for s in report.steps}.values()),
        sections=(
            *(() if reproduction.is_empty else (reproduction,)),
            *(_section(section_of_cell, levels) for section_of_cell in parts.values()),
        ),
    )


def _merged(made: Mapping[str, object], *parts: str) -> dict[str, Any]:
    """The sentences of each cell, part by part."""
    return {p: merged_cells({name: getattr(x, p) for name, x in made.items()}) for p in parts}


def _section(made: Mapping[str, Section], levels: Mapping[str, Mapping[str, str]]) -> Section:
    """One section of all cells: tables have the factors as columns, all else the cell in front."""
    tables: dict[str, dict[str, Table]] = {}  # name -> cell -> its table
    for cell, section in made.items():
        for table in section.tables:
            tables.setdefault(table.name, {})[cell] = table
    return replace(
        next(iter(made.values())),
        **_merged(made, "sentences", "open", "notes"),
        tables=tuple(_table(table_of_cell, levels) for table_of_cell in tables.values()),
        figures=tuple(_figure(f, cell) for cell, section in made.items() for f in section.figures),
    )


def _table(table_of_cell: Mapping[str, Table], levels: Mapping[str, Mapping[str, str]]) -> Table:
    first = next(iter(table_of_cell.values()))
    frames = [in_cell(table.frame, levels[cell]) for cell, table in table_of_cell.items()]
    shown = [in_cell(table.shown, levels[cell]) for cell, table in table_of_cell.items()]
    return replace(
        first,
        frame=pd.concat(frames, ignore_index=True),
        shown=pd.concat(shown, ignore_index=True).astype(object).fillna(""),
    )


def _figure(figure: Figure, cell: str) -> Figure:
    return replace(figure, name=f"{figure.name}-{as_slug(cell)}", title=f"{cell}: {figure.title}")
