"""Small parts that every section is put together from."""

from __future__ import annotations

from collections.abc import Callable

import pandas as pd

from clsweep.findings.notes import is_measured
from clsweep.report.computed import Tables
from clsweep.report.model import Figure, Section, Table
from clsweep.report.sentences.words import Sentences, Wording, left_open, told


def words_of(tables: Tables) -> Wording:
    material = tables.material
    return Wording(
        metric=material.metric, unit=material.unit, mode=material.mode, within=tables.within
    )


def table_of(
    name: str,
    title: str,
    caption: str,
    frame: pd.DataFrame,
    show: Callable[[pd.DataFrame], pd.DataFrame],
) -> Table | None:
    """A table; None where it has no rows, or none that was measured."""
    if frame.empty or ("reason" in frame and not frame["reason"].map(is_measured).any()):
        return None
    return Table(name=name, title=title, caption=caption, frame=frame, shown=show(frame))


def section(
    *,
    id: str,
    title: str,
    said: Sentences = (),
    notes: tuple[str, ...] = (),
    tables: tuple[Table, ...] = (),
    figures: tuple[Figure, ...] = (),
) -> Section:
    """A section whose sentences are parted into what is told and what stays open."""
    return Section(
        id=id,
        title=title,
        sentences=told(said),
        open=left_open(said),
        notes=notes,
        tables=tables,
        figures=figures,
    )


def tables_of(*tables: Table | None) -> tuple[Table, ...]:
    return tuple(table for table in tables if table is not None)


def figures_of(*figures: Figure | None) -> tuple[Figure, ...]:
    return tuple(figure for figure in figures if figure is not None)
