"""One report of a study with factors: the sections of its cells side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pandas as pd

from clsweep.findings.statistics import CellFindings, in_cell
from clsweep.report.model import Figure, Section, Table, slug

ALIKE = ("formulas",)  # tables that say the same of every cell


def side_by_side(
    cells: Sequence[CellFindings], made: Sequence[Sequence[Section]]
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


def cell_name(cell: CellFindings) -> str:
    """`stl10, resnet18`."""
    return ", ".join(cell.levels.values())


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
        sentences=told({name: section.sentences for name, section in found.items()}),
        notes=told({name: section.notes for name, section in found.items()}),
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


def told(said: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """Every line with the cells that say it in front, unless all do."""
    about: dict[str, list[str]] = {}
    for name, lines in said.items():
        for line in lines:
            about.setdefault(line, []).append(name)
    return tuple(
        line if len(names) == len(said) else f"{'; '.join(names)}: {line}"
        for line, names in about.items()
    )
