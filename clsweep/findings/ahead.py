"""Statistics that other processes compute beside each other, before they are asked for."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from clsweep.catalog.plugins import Plugin, active, declare
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
    if not are_beside() or len(findings.material.trials) < FEWEST_TRIALS:
        return
    try:
        at_hand = shared(findings.material), shared(active())
    except (pickle.PickleError, TypeError, AttributeError):  # a table of anything at all
        return
    for name, options in questions:
        findings.expect(name, options, beside(_answer, *at_hand, name, options))


def _answer(
    material: Material, plugins: Sequence[Plugin], name: str, options: dict[str, Any]
) -> pd.DataFrame:
    declare(plugins)  # the scores are rows of the catalog
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
