"""One report of a study with factors: the sections of its cells side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pandas as pd

from clsweep.questions.answers import Answers, cell_name, in_cell, told_of
from clsweep.questions.model import Figure, Table, slug
from clsweep.report.model import Report, Section

ALIKE = ("formulas",)  # tables that say the same of every cell


def of_cells(
    cells: Sequence[Answers],
    reports: Sequence[Report],
    reproduction: Section,
    board: Table,
) -> Report:
    """One report of all cells.

    Args:
        cells: the cells.
        reports: of each.
        reproduction: the paper's tables, which may span cells.
        board: the leaderboard of all cells.
    """
    names = [cell_name(cell) for cell in cells]
    parts = side_by_side(cells, [report.sections for report in reports])
    others = tuple(part for part in parts if part.id != reproduction.id)
    return replace(
        reports[0],
        question=_common([report.question for report in reports], named(cells)),
        verdicts=told_of({n: r.verdicts for n, r in zip(names, reports, strict=True)}),
        notes=told_of({n: r.notes for n, r in zip(names, reports, strict=True)}),
        board=board,
        hero=tuple(
            _figure(figure, name)
            for name, report in zip(names, reports, strict=True)
            for figure in report.hero[:1]
        ),
        steps=tuple({s.sentence: s for report in reports for s in report.steps}.values()),
        open=told_of({n: r.open for n, r in zip(names, reports, strict=True)}),
        sections=(*(() if reproduction.is_empty else (reproduction,)), *others),
    )


def _common(questions: Sequence[str], cells: str) -> str:
    """What all cells ask; of several questions the first, with the cells."""
    asked = dict.fromkeys(questions)
    return next(iter(asked)) if len(asked) == 1 else f"{next(iter(asked))} {cells}."


def named(cells: Sequence[Answers]) -> str:
    """`4 of dataset and encoder: digits, conv4; ...`."""
    return f"{len(cells)} of {' and '.join(cells[0].levels)}: {'; '.join(map(cell_name, cells))}"


def side_by_side(
    cells: Sequence[Answers], made: Sequence[Sequence[Section]]
) -> tuple[Section, ...]:
    """The sections of all cells: a table has the factors as columns, a sentence and a figure the
    cell in front.

    Args:
        cells: the cells.
        made: the sections of each.
    """
    found = {cell_name(cell): sections for cell, sections in zip(cells, made, strict=True)}
    levels = {cell_name(cell): cell.levels for cell in cells}
    ids = dict.fromkeys(section.id for sections in made for section in sections)
    return tuple(_section(id_, found, levels) for id_ in ids)


def _section(
    id_: str, made: Mapping[str, Sequence[Section]], levels: Mapping[str, Mapping[str, str]]
) -> Section:
    found = {
        name: section
        for name, sections in made.items()
        for section in sections
        if section.id == id_
    }
    names = dict.fromkeys(table.name for section in found.values() for table in section.tables)
    return replace(
        next(iter(found.values())),
        sentences=told_of({name: section.sentences for name, section in found.items()}),
        open=told_of({name: section.open for name, section in found.items()}),
        notes=told_of({name: section.notes for name, section in found.items()}),
        tables=tuple(_table(name, found, levels) for name in names),
        figures=tuple(
            _figure(figure, name) for name, section in found.items() for figure in section.figures
        ),
    )


def _table(
    name: str, sections: Mapping[str, Section], levels: Mapping[str, Mapping[str, str]]
) -> Table:
    found = {
        cell: table
        for cell, section in sections.items()
        for table in section.tables
        if table.name == name
    }
    first = next(iter(found.values()))
    if name in ALIKE:
        return first
    frames = [in_cell(table.frame, levels[cell]) for cell, table in found.items()]
    shown = [in_cell(table.shown, levels[cell]) for cell, table in found.items()]
    return replace(
        first,
        frame=pd.concat(frames, ignore_index=True),
        shown=pd.concat(shown, ignore_index=True).astype(object).fillna(""),
    )


def _figure(figure: Figure, cell: str) -> Figure:
    return replace(figure, name=f"{figure.name}-{slug(cell)}", title=f"{cell}: {figure.title}")
