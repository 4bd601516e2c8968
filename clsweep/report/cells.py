"""A frame as texts: what the page, the Markdown report and the command line show of one cell is the same."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from clsweep.console import cell, is_numeric
from clsweep.report.theme import legible


@dataclass(frozen=True, kw_only=True)
class Cells:
    """The texts of a table.

    Attributes:
        is_numeric: of every column, whether it is set to the right.
        left: rows that are not among `rows`.
    """

    columns: tuple[str, ...]
    is_numeric: tuple[bool, ...]
    rows: tuple[tuple[str, ...], ...]
    left: int


def cells_of(frame: pd.DataFrame, *, limit: int | None = None, digits: int | None = 2) -> Cells:
    """The first `limit` rows of a frame as texts.

    Floats have `digits` decimals; with None, up to four significant digits, which keeps the values of parameters.
    Columns of whole numbers have no decimals.
    """
    head = frame if limit is None else frame.head(limit)
    texts = [texts_of_values(head.iloc[:, i].tolist(), digits) for i in range(head.shape[1])]
    return Cells(
        columns=tuple(legible(str(name)) for name in frame.columns),
        is_numeric=tuple(is_numeric(column) for column in texts),
        rows=tuple(zip(*texts, strict=True)),
        left=len(frame) - len(head),
    )


def texts_of_values(values: Sequence[Any], digits: int | None = None) -> list[str]:
    """The texts of one column, as `cells_of` has them."""
    plain = [_plain(value) for value in values]
    floats = [value for value in plain if isinstance(value, float)]
    # A parameter such as batch_size is made of floats wherever one objective does not have it.
    whole = all(value.is_integer() and abs(value) < 1e15 for value in floats)
    if whole:
        return [cell(int(value) if isinstance(value, float) else value) for value in plain]
    if digits is not None:
        return [cell(value, digits) for value in plain]
    decimals = _decimals(floats)
    return [_significant(value, decimals) if isinstance(value, float) else cell(value) for value in plain]


def _decimals(floats: Sequence[float]) -> int | None:
    """Decimals that all of a column can have, or None where their sizes differ too much."""
    sizes = [abs(value) for value in floats if value]
    texts = [_significant(value, None) for value in floats]
    if max(sizes) > 10 * min(sizes) or any("e" in text for text in texts):
        return None
    return max(len(text.partition(".")[2]) for text in texts)


def _significant(value: float, decimals: int | None) -> str:
    if decimals is not None:
        return f"{value:.{decimals}f}"
    return f"{value:.4g}" if abs(value) < 1e4 else f"{value:.0f}"


def _plain(value: Any) -> Any:
    """A Python value; None for whatever stands for no value; a sign in words for what is no number."""
    if isinstance(value, bool) or type(value).__name__ in ("bool", "bool_"):
        return "yes" if value else "no"
    if pd.api.types.is_scalar(value) and pd.isna(value):
        return None
    if hasattr(value, "item"):
        value = value.item()
    if isinstance(value, float) and math.isinf(value):
        return "inf" if value > 0 else "-inf"
    return legible(value) if isinstance(value, str) else value
