"""A frame as texts: the page, the Markdown report and the command line show the same."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from clsweep.display import numbers
from clsweep.display.printing import cell, is_numeric, legible


@dataclass(frozen=True, kw_only=True)
class Cells:
    """The texts of a table: `is_numeric` columns are set to the right, `left` rows are not among
    `rows`.
    """

    columns: tuple[str, ...]
    is_numeric: tuple[bool, ...]
    rows: tuple[tuple[str, ...], ...]
    left: int


def frame_cells(frame: pd.DataFrame, *, limit: int) -> Cells:
    """The first `limit` rows of a frame as texts. Floats have two decimals, whole numbers none."""
    head = frame.head(limit)
    texts = [texts_of_values(head.iloc[:, i].tolist(), 2) for i in range(head.shape[1])]
    return Cells(
        columns=tuple(legible(str(name)) for name in frame.columns),
        is_numeric=tuple(is_numeric(column) for column in texts),
        rows=tuple(zip(*texts, strict=True)),
        left=len(frame) - len(head),
    )


def texts_of_values(values: Sequence[Any], digits: int | None = None) -> list[str]:
    """The texts of one column of measured values, as `frame_cells` has them."""
    plain = [_plain(value) for value in values]
    form = numbers.form_of([value for value in plain if isinstance(value, float)], digits)
    return [form(value) if isinstance(value, float) else cell(value) for value in plain]


def _plain(value: Any) -> Any:
    """A Python value; None for whatever stands for no value; a word for what is no number."""
    if pd.api.types.is_scalar(value) and pd.isna(value):
        return None
    if hasattr(value, "item"):
        value = value.item()
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float) and math.isinf(value):
        return "inf" if value > 0 else "-inf"
    return legible(value) if isinstance(value, str) else value
