"""Which cases of a test run in which tier."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def in_tiers(cases: Iterable[Any], *, fast: Iterable[Any] = (), full: Iterable[Any]) -> list[Any]:
    """The cases as parameters of a test, each in the first tier that has it: fast, full or soak."""
    fast, full = set(fast), set(full)
    marks = {case: () if case in fast else pytest.mark.slow for case in {*fast, *full}}
    return [pytest.param(case, marks=marks.get(case, pytest.mark.soak)) for case in cases]
