"""The cells of a study with factors, each with data of its own, and all of them together."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd

from clsweep.errors import RequestError
from clsweep.results.reading import CellTables, StudyTables
from clsweep.study.factors import FACTORS, FactorCell, factor_cells, merged_lines
from clsweep.sweeps.from_studies import of_studies
from clsweep.sweeps.study_data import StudyData


@dataclass(frozen=True, kw_only=True)
class CellData:
    """The data of one cell; `tables` are those of a results folder, where it is of one."""

    levels: Mapping[str, str]
    data: StudyData
    tables: CellTables | None = None


def cells_of_study(study: StudyTables, **reading: Any) -> list[CellData]:
    """The cells in which a trial has ended, read as `of_studies` does; none of a study without
    factors. All have the largest tolerance. RequestError where no trial has ended or scored so.
    """
    cells = [CellTables(study.folder, study, cell) for cell in factor_cells(study.study)]
    begun = [tables for tables in cells if tables.trials_table.num_rows]
    begun = begun or cells  # whose complaint is the one to tell
    return _alike(
        [
            CellData(levels=each.cell.levels, data=of_studies([each], **reading), tables=each)
            for each in begun
        ]
    )


def cells_of_table(
    trials: Any, factors: Sequence[str] | None, source: str, read: Callable[[Any], StudyData]
) -> list[CellData]:
    """The cells of a table of trials; none where it has no factor, by default `dataset` if it has
    several names. `read` makes the data of one. RequestError for a column that is no factor, or a
    trial without a level.
    """
    if not isinstance(trials, pd.DataFrame):
        return []  # `read` refuses it
    for name in factors or ():
        if name not in FACTORS or name not in trials:
            known = [name for name in FACTORS if name in trials]
            expected = f"expected of its columns {' or '.join(known) or 'none'}, given {name!r}"
            raise RequestError(f"{source}: factors: {expected}")
    if factors is None:  # numbers may be what a table swept
        given = list(trials["dataset"].dropna()) if "dataset" in trials else []
        is_factor = all(isinstance(value, str) for value in given) and len(set(given)) > 1
        factors = ["dataset"] if is_factor else []
    names = [name for name in FACTORS if name in factors]
    if not names:
        return []
    for name in names:
        if trials[name].isna().any():
            row = int(trials[name].isna().to_numpy().argmax()) + 1
            raise RequestError(f"{source}: {name} of trial {row}: expected a name, given nothing")
    factor = trials[names].astype(str).reset_index(drop=True)  # of tables put together they recur
    cells = [
        CellData(
            levels=dict(zip(names, map(str, values), strict=True)),
            data=read(trials.iloc[rows.index]),
        )
        for values, rows in factor.groupby(names, sort=False)
    ]
    return _alike(cells)


def _alike(cells: Sequence[CellData]) -> list[CellData]:
    """The cells with one tolerance."""
    within = max((cell.data.within for cell in cells), default=1.0)
    return [replace(cell, data=replace(cell.data, within=within)) for cell in cells]


def whole_data(
    cells: Sequence[tuple[Mapping[str, str], StudyData]],
    trials: pd.DataFrame,
    planned: Sequence[FactorCell] = (),
) -> StudyData:
    """All cells in which a trial has ended together, of those that are planned, for what is said of
    them as a whole; no statistic is made of it.

    Args:
        cells: levels and data of each.
    """
    parts = [data for _, data in cells]
    begun = [FactorCell(levels) for levels, _ in cells]
    waiting = [cell.name for cell in planned if cell not in begun]
    notes = [f"no trial has ended yet: {', '.join(waiting)}"] if waiting else []
    notes_of = [(cell, each.notes) for cell, each in zip(begun, parts, strict=True)]
    return replace(
        parts[0],
        trials=trials,
        params=tuple(dict.fromkeys(name for each in parts for name in each.params)),
        sweeps=tuple(sweep for each in parts for sweep in each.sweeps),
        yardsticks={},
        confirmable={},
        notes=(*merged_lines(notes_of), *notes),
    )
