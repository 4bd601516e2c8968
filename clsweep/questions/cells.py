"""A study with factors: its cells as studies of their own, and what stands over all of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from clsweep.errors import RequestError
from clsweep.findings.from_studies import of_studies, side_table
from clsweep.findings.material import Material
from clsweep.questions.findings import CellFindings
from clsweep.results.reading import CellResults, StudyResults
from clsweep.study.factors import FACTORS, Cell, cells_of, factors_of, told_of_cells

if TYPE_CHECKING:
    import pandas as pd


def require_alone(studies: Sequence[StudyResults]) -> None:
    """Refuse a study with factors among several folders.

    Raises:
        RequestError: there is one.
    """
    for study in studies if len(studies) > 1 else ():
        if factors := factors_of(study.study):
            raise RequestError(
                f"{study.path}: a study with factors ({', '.join(factors)}) is analysed alone, "
                f"given {len(studies)} folders"
            )


def cells_of_study(
    study: StudyResults, *, metric: str | None, mode: str | None, failed: str
) -> tuple[CellFindings, ...]:
    """The cells in which a trial has ended; none of a study without factors.

    All have one tolerance: where it follows from the scores, the largest of theirs.

    Raises:
        RequestError: no trial has ended, or there is no such metric.
    """
    cells = [(cell, CellResults(study.folder, study, cell)) for cell in cells_of(study.study)]
    begun = [(cell, results) for cell, results in cells if results.trials_table.num_rows]
    if cells and not begun:
        begun = cells  # whose complaint is the one to tell

    def found(results: CellResults) -> CellFindings:
        material = of_studies([results], metric=metric, mode=mode, failed=failed)
        side = partial(side_table, [results], metric=material.metric)
        return CellFindings(results.cell.levels, material, side)

    return _alike([found(results) for _, results in begun])


def cells_of_table(
    trials: Any, factors: Sequence[str] | None, source: str, read: Callable[[Any], Material]
) -> tuple[CellFindings, ...]:
    """The cells of a table of trials; none where it has no factor.

    Args:
        trials: the table.
        factors: the columns that are factors; by default `dataset`, where it has several names.
        source: what messages call it.
        read: makes the material of one cell.

    Raises:
        RequestError: no such column, or one that cannot be a factor.
    """
    import pandas as pd

    if not isinstance(trials, pd.DataFrame):
        return ()  # `read` refuses it
    for name in factors or ():
        if name not in FACTORS or name not in trials:
            known = [name for name in FACTORS if name in trials]
            expected = f"expected of its columns {' or '.join(known) or 'none'}, given {name!r}"
            raise RequestError(f"{source}: factors: {expected}")
    if factors is None:
        factors = ["dataset"] if _is_named(trials.get("dataset")) else []
    names = [name for name in FACTORS if name in factors]
    if not names:
        return ()
    texts = trials[names].astype(str)
    found = []
    for values, rows in texts.groupby(names, sort=False):
        levels = dict(zip(names, map(str, values), strict=True))
        found.append(CellFindings(levels, read(trials.loc[rows.index]), lambda _: pd.DataFrame()))
    return _alike(found)


def _is_named(column: Any) -> bool:
    """Whether a column has several names: numbers may be what a table swept."""
    if column is None or not all(isinstance(value, str) for value in column):
        return False
    return len(set(column)) > 1


def _alike(cells: Sequence[CellFindings]) -> tuple[CellFindings, ...]:
    """The cells with one tolerance."""
    within = max((cell.material.within for cell in cells), default=1.0)
    return tuple(
        CellFindings(cell.levels, replace(cell.material, within=within), cell.side_table)
        for cell in cells
    )


def whole_material(
    cells: Sequence[CellFindings], trials: pd.DataFrame, planned: Sequence[Cell] = ()
) -> Material:
    """All cells together, for what is said of them as a whole; no statistic is made of it.

    Args:
        cells: those in which a trial has ended.
        trials: of all of them.
        planned: all cells of the study.
    """
    materials = [cell.material for cell in cells]
    begun = [Cell(cell.levels) for cell in cells]
    waiting = [cell.name for cell in planned if cell not in begun]
    notes = [f"no trial has ended yet: {', '.join(waiting)}"] if waiting else []
    said = [(cell, each.notes) for cell, each in zip(begun, materials, strict=True)]
    return replace(
        materials[0],
        trials=trials,
        params=tuple(dict.fromkeys(name for each in materials for name in each.params)),
        diagnostics=tuple(dict.fromkeys(n for each in materials for n in each.diagnostics)),
        sweeps=tuple(sweep for each in materials for sweep in each.sweeps),
        chance=None,
        defaults={},
        yardsticks={},
        confirmable={},
        notes=(*told_of_cells(said), *notes),
    )
