"""Numbers of a column as texts: as many decimals as the data bear, and the same ones all down the column."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

SMALL, LARGE = 1e-4, 1e9  # from there on in scientific notation
ROUNDING = 1e-9  # of the largest number of a column: what is smaller is zero that has been computed
MOST = 12


@dataclass(frozen=True, kw_only=True)
class Number:
    """A number of a table, with its interval if it has one.

    Attributes:
        spread: what decides how fine it is to be read where there is no interval, such as the spread of its column;
            its own size by default.
        is_fine: two digits of the spread are shown. Otherwise `least` decimals do wherever they show one.
        least, most: decimals in fixed notation.
    """

    value: float
    low: float = math.nan
    high: float = math.nan
    spread: float = math.nan
    is_fine: bool = False
    least: int = 2
    most: int = MOST

    @property
    def size(self) -> float:
        return max((abs(part) for part in (self.value, self.low, self.high) if math.isfinite(part)), default=0.0)

    @property
    def resolution(self) -> float:
        """The half width of the interval, or what stands for it."""
        parts = ((self.high - self.low) / 2, abs(self.spread), abs(self.value))
        return next((part for part in parts if math.isfinite(part) and part > 0), 0.0)


def texts_of(numbers: Sequence[Number | None]) -> list[str]:
    """`0.48 [0.40, 0.55]` of each number of a column; None is an empty cell.

    The decimals keep two digits of the median resolution and one of the least, so that the ends of every interval are
    told apart. Numbers below 1e-4 or from 1e9 on stand in scientific notation, unless they are zero but for rounding.
    """
    there = [number for number in numbers if number is not None]
    nothing = ROUNDING * max((number.size for number in there), default=0.0)

    def is_strange(number: Number) -> bool:
        return number.size > nothing and not SMALL <= number.size < LARGE

    decimals = _decimals([number for number in there if not is_strange(number)], nothing)
    mantissa = _mantissa([number for number in there if is_strange(number)], nothing)
    forms = {False: f".{decimals}f", True: f".{mantissa}e"}
    return ["" if number is None else _text(number, forms[is_strange(number)]) for number in numbers]


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and value == value


def _decimals(numbers: Sequence[Number], nothing: float) -> int:
    least = max((number.least for number in numbers), default=2)
    seen = sorted((number for number in numbers if number.resolution > nothing), key=lambda number: number.resolution)
    if not seen:
        return least
    smallest, median = seen[0].resolution, statistics.median_high(number.resolution for number in seen)
    needed = _place(smallest)
    if median < 10.0**-least or any(number.is_fine for number in seen):
        needed = max(needed, _place(median) + 1)
    return min(max(least, needed), *(number.most for number in seen), MOST)


def _mantissa(numbers: Sequence[Number], nothing: float) -> int:
    """Decimals before the exponent."""
    seen = [number for number in numbers if number.resolution > nothing]
    needed = max((_place(number.resolution) - _place(number.size) + 1 for number in seen), default=1)
    return min(max(1, needed), MOST)


def _place(size: float) -> int:
    """Decimals that show the first digit of a size: 1 for 0.5, 3 for 0.001, 0 for 3."""
    return -math.floor(math.log10(size))


def _text(number: Number, form: str) -> str:
    text = _signless(format(number.value, form))
    if not (is_number(number.low) and is_number(number.high)):
        return text
    return f"{text} [{_signless(format(number.low, form))}, {_signless(format(number.high, form))}]"


def _signless(text: str) -> str:
    """Without the sign of a zero."""
    return text[1:] if text.startswith("-") and float(text) == 0 else text
