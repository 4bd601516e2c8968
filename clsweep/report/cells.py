"""One report of a study with factors: the reports of its cells, section by section side by side."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import pandas as pd

from clsweep.findings.statistics import CellFindings, in_cell
from clsweep.report.model import Figure, Report, Section, Table, slug

ALIKE = ("formulas",)  # tables that say the same of every cell


def side_by_side(
    cells: Sequence[CellFindings], build: Callable[[CellFindings], Report]
) -> tuple[tuple[str, ...], tuple[Section, ...]]:
    """The verdicts of all cells, and their sections: a table has the factors as columns, a sentence
    and a figure the cell in front.
    """
    reports = {cell_name(cell): build(cell) for cell in cells}
    levels = {cell_name(cell): cell.levels for cell in cells}
    verdicts = _told({name: report.verdicts for name, report in reports.items()})
    ids = dict.fromkeys(s.id for report in reports.values() for s in report.sections)
    return verdicts, tuple(_section(id_, reports, levels) for id_ in ids)


def cell_name(cell: CellFindings) -> str:
    """`stl10, resnet18`."""
    return ", ".join(cell.levels.values())


def _section(
    id_: str, reports: Mapping[str, Report], levels: Mapping[str, Mapping[str, str]]
) -> Section:
    found = {
        name: section
        for name, report in reports.items()
        for section in report.sections
        if section.id == id_
    }
    names = dict.fromkeys(table.name for section in found.values() for table in section.tables)
    return replace(
        next(iter(found.values())),
        sentences=_told({name: section.sentences for name, section in found.items()}),
        notes=_told({name: section.notes for name, section in found.items()}),
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


def _told(said: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """Every line with the cells that say it in front, unless all do."""
    about: dict[str, list[str]] = {}
    for name, lines in said.items():
        for line in lines:
            about.setdefault(line, []).append(name)
    return tuple(
        line if len(names) == len(said) else f"{'; '.join(names)}: {line}"
        for line, names in about.items()
    )
