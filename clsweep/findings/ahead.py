"""Statistics that other processes compute beside each other, before they are asked for."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from clsweep.findings.statistics import Findings
from clsweep.processes import are_beside, beside, shared

if TYPE_CHECKING:
    import pandas as pd

    from clsweep.findings.material import Material

Question = tuple[str, dict[str, Any]]  # a method of `Findings` and its options

FEWEST_TRIALS = 200  # of fewer, the answers are there before such processes are


def ask_ahead(findings: Findings, questions: Iterable[Question]) -> None:
    """Have these answered beside each other, the first ones first, where there are processes for
    that and trials enough to be worth it.

    The questions are such as need nothing but `Findings.material`.
    """
    if are_beside() and len(findings.material.trials) >= FEWEST_TRIALS:
        material = shared(findings.material)
        for name, options in questions:
            findings.expect(name, options, beside(_answer, material, name, options))


def _answer(material: Material, name: str, options: dict[str, Any]) -> pd.DataFrame:
    answer: pd.DataFrame = getattr(_of(material), name)(**options)
    return answer


@lru_cache(maxsize=1)
def _of(material: Material) -> Findings:
    return _OfMaterial(material)


class _OfMaterial(Findings):
    def __init__(self, material: Material):
        self._material = material

    @property
    def material(self) -> Material:
        return self._material
