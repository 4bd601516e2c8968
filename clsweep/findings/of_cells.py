"""A study with factors: its cells as studies of their own, and what stands over all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from clsweep.errors import RequestError
from clsweep.findings.from_studies import of_studies, side_table
from clsweep.findings.material import Material
from clsweep.findings.statistics import CellFindings
from clsweep.results.reading import CellResults, StudyResults
from clsweep.study.factors import Cell, cells_of, factors_of, told_of_cells


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
    materials = [
        of_studies([results], metric=metric, mode=mode, failed=failed) for _, results in begun
    ]
    within = max((material.within for material in materials), default=1.0)
    return tuple(
        CellFindings(
            cell.levels,
            replace(material, within=within),
            partial(side_table, [results], metric=material.metric),
        )
        for (cell, results), material in zip(begun, materials, strict=True)
    )


def whole_material(study: StudyResults, cells: Sequence[CellFindings]) -> Material:
    """All cells together, for what is said of the study as a whole; no statistic is made of it."""
    materials = [cell.material for cell in cells]
    said = [
        (Cell(cell.levels), material.notes) for cell, material in zip(cells, materials, strict=True)
    ]
    begun = {Cell(cell.levels).name for cell in cells}
    waiting = [cell.name for cell in cells_of(study.study) if cell.name not in begun]
    notes = [f"no trial has ended yet: {', '.join(waiting)}"] if waiting else []
    return replace(
        materials[0],
        trials=study.trials,
        params=tuple(dict.fromkeys(name for each in materials for name in each.params)),
        diagnostics=tuple(dict.fromkeys(n for each in materials for n in each.diagnostics)),
        sweeps=tuple(sweep for each in materials for sweep in each.sweeps),
        chance=None,
        defaults={},
        yardsticks={},
        confirmable={},
        notes=(*told_of_cells(said), *notes),
    )
