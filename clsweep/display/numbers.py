"""Every number that clsweep shows is made a text here: settings, scores, intervals, counts, sizes,
durations, columns of them, and what stands beside them in a sentence.

A hyperparameter's value reads the same wherever it stands. Imports nothing but the standard
library, so that every layer may use it.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from numbers import Integral, Real
from typing import Any

THRESHOLD = 0.05  # of a corrected p-value, from which on a claim is none
SMALL, LARGE = 1e-4, 1e9  # from there on in scientific notation
_ROUNDING = 1e-9  # of the largest number of a column: anything smaller is a computed zero
_MOST = 12
TYPED_DIGITS = 6  # significant digits that a person gives a setting; a value with more was drawn
DRAWN_DIGITS = 4  # digits of a drawn value that is mentioned alone
EXACT_DIGITS = 17  # digits that tell any two floats apart
_UNITS = {"GiB": 2**30, "MiB": 2**20, "KiB": 2**10}


# A hyperparameter's value


def setting(value: Any) -> str:
    """The shortest exact text: `65536`, `0.996`, `1e20`, `1e-05`, `true`, `simclr`.

    Different numbers have different texts, and `float` of a text is the number. A whole number
    reads the same as `int` and as `float`. A missing value, None or NaN, has no text.
    """
    if isinstance(value, str):
        return value
    if value is None or (isinstance(value, Real) and math.isnan(value)):
        return ""
    text = str(value)  # of a numpy number: the digits that its own type needs
    if text in ("True", "False"):
        return text.lower()
    return _shortest(text) if isinstance(value, Real) and math.isfinite(value) else text


def setting_column(values: Sequence[Any]) -> list[str]:
    """A column of settings: as `setting`, but of drawn values, with more digits than anyone types
    (`TYPED`), at least `DRAWN` digits, and as many as keep all different values of the column
    different.
    """
    exact = [setting(value) for value in values]
    different = dict(zip(exact, values, strict=True))
    for digits in range(DRAWN_DIGITS, EXACT_DIGITS):
        texts = {text: _cut(text, value, digits) for text, value in different.items()}
        if len(set(texts.values())) == len(different):
            return [texts[text] for text in exact]
    return exact


def mentioned(value: Any) -> str:
    """One setting in passing: exact, but of a drawn value only `DRAWN` digits."""
    return setting_column([value])[0]


def _cut(text: str, value: Any, digits: int) -> str:
    """The text of a setting, to so many significant digits if its value was drawn."""
    if isinstance(value, Integral) or not isinstance(value, Real) or not math.isfinite(value):
        return text
    number = Decimal(text)
    if number == number.to_integral_value() or len(number.as_tuple().digits) <= TYPED_DIGITS:
        return text
    return _shortest(f"{number:.{digits}g}")


def _shortest(text: str) -> str:
    """The text of a finite number without zeros that say nothing, plain or with an exponent."""
    number = Decimal(text)
    if not number:
        return "0"
    size = number.adjusted()  # power of ten of the first figure
    plain = f"{number:f}"
    plain = plain.rstrip("0").rstrip(".") if "." in plain else plain
    figures = "".join(map(str, number.as_tuple().digits)).strip("0")
    short = f"{'-' * (number < 0)}{figures[0]}{'.' * (len(figures) > 1)}{figures[1:]}e"
    if 10.0**size < SMALL:
        return f"{short}{size:03d}"
    short += str(size)
    return short if size >= 9 and len(short) < len(plain) else plain


# One number


def fixed(value: float, digits: int = 2) -> str:
    """With so many decimals; a number too small for them in scientific notation: `4.0e-03`."""
    if value == 0 or abs(value) >= 10**-digits:
        return f"{value:.{digits}f}"
    return f"{value:.1e}"


def number(value: float, *, apart_from: float | None = None) -> str:
    """Three significant digits; more where `value` would otherwise read as the number that it is
    `apart_from`. From a thousand on a whole number: `12,345`.
    """
    if abs(value) >= 999.5:
        return count(value)
    text = f"{value:.3g}"
    for digits in range(4, 8):
        if apart_from is None or value == apart_from or float(text) != apart_from:
            break
        text = f"{value:.{digits}g}"
    return "0" if float(text) == 0 else text


def interval(low: float, high: float, *, apart_from: float | None = None) -> str:
    """` [0.35, 0.78]`, or nothing where an end is not known."""
    if not known(low, high):
        return ""
    return f" [{number(low, apart_from=apart_from)}, {number(high, apart_from=apart_from)}]"


def count(value: float) -> str:
    """A whole number: `1,234`."""
    return f"{value:,.0f}"


def duration(seconds: float) -> str:
    """`45 s`, `3 min`, `2 h 05 min`."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"


def work(hours: float) -> str:
    """Worker hours: `45 s`, `3 min`, `12.5 hours`."""
    return duration(3600 * hours) if hours < 1 else f"{number(hours)} hours"


def byte_size(num_bytes: float, digits: int = 2) -> str:
    """`20 GiB`, `340 MiB`, `5 B`: rounded to so many significant digits."""
    larger = ((unit, scale) for unit, scale in _UNITS.items() if num_bytes >= scale)
    unit, scale = next(larger, ("B", 1))
    return f"{float(f'{num_bytes / scale:.{digits}g}'):,.10g} {unit}"


# A column


@dataclass(frozen=True, kw_only=True)
class Number:
    """A number of a table, with its interval if it has one."""

    value: float
    low: float = math.nan
    high: float = math.nan
    # What decides how fine it is to be read where there is no interval, such as the spread of its
    # column; its own size by default.
    spread: float = math.nan
    # Two digits of the spread are shown. Otherwise `least` decimals do wherever they show one.
    is_fine: bool | None = None  # `texts_of` is told
    least: int = 2  # decimals in fixed notation
    most: int = _MOST

    @classmethod
    def of(cls, value: Any, **options: Any) -> Number | None:
        """None where `value` is no number."""
        return cls(value=value, **options) if is_number(value) else None

    @property
    def size(self) -> float:
        parts = (self.value, self.low, self.high)
        return max((abs(part) for part in parts if math.isfinite(part)), default=0.0)

    @property
    def resolution(self) -> float:
        """The half width of the interval, or what stands for it."""
        parts = ((self.high - self.low) / 2, abs(self.spread), abs(self.value))
        return next((part for part in parts if math.isfinite(part) and part > 0), 0.0)


def texts_of(numbers: Sequence[Number | None], *, is_fine: bool = False) -> list[str]:
    """`0.48 [0.40, 0.55]` of each number of a column; None is an empty cell. The decimals keep two
    digits of the median resolution and one of the least, so that the ends of every interval are
    told apart. Numbers below 1e-4 or from 1e9 on stand in scientific notation, unless they are zero
    but for rounding.
    """
    there = [number for number in numbers if number is not None]
    nothing = _ROUNDING * max((number.size for number in there), default=0.0)

    def is_strange(number: Number) -> bool:
        return number.size > nothing and not SMALL <= number.size < LARGE

    decimals = _decimals([n for n in there if not is_strange(n)], nothing, is_fine=is_fine)
    strange = [n for n in there if is_strange(n) and n.resolution > nothing]
    digits = max((_place(n.resolution) - _place(n.size) + 1 for n in strange), default=1)
    forms = {False: f".{decimals}f", True: f".{min(max(1, digits), _MOST)}e"}
    return [_text(n, forms[is_strange(n)]) if n is not None else "" for n in numbers]


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and value == value


def _decimals(numbers: Sequence[Number], nothing: float, *, is_fine: bool) -> int:
    least = max((number.least for number in numbers), default=2)
    seen = [number for number in numbers if number.resolution > nothing]
    if not seen:
        return least
    resolutions = [number.resolution for number in seen]
    needed, median = _place(min(resolutions)), statistics.median_high(resolutions)
    fine = (is_fine if number.is_fine is None else number.is_fine for number in seen)
    if median < 10.0**-least or any(fine):
        needed = max(needed, _place(median) + 1)
    return min(max(least, needed), *(number.most for number in seen), _MOST)


def _place(size: float) -> int:
    """Decimals that show the first digit of a size: 1 for 0.5, 3 for 0.001, 0 for 3."""
    return -math.floor(math.log10(size))


def _text(number: Number, form: str) -> str:
    def text(value: float) -> str:
        text = format(value, form)
        return text.removeprefix("-") if float(text) == 0 else text

    if not (is_number(number.low) and is_number(number.high)):
        return text(number.value)
    return f"{text(number.value)} [{text(number.low)}, {text(number.high)}]"


def form_of(floats: Sequence[float], digits: int | None = None) -> Callable[[float], str]:
    """Format of a column of floats without intervals: whole numbers without decimals, others with
    `digits`. With None: four significant digits, and as many decimals all down a column
    whose numbers are of one size.
    """
    # A parameter such as batch_size is made of floats wherever one objective does not have it.
    if all(value.is_integer() and abs(value) < 1e15 for value in floats):
        return lambda value: str(int(value))
    if digits is not None:
        return lambda value: fixed(value, digits)
    sizes = [abs(value) for value in floats if value]
    texts = [_significant(value) for value in floats]
    if max(sizes) > 10 * min(sizes) or any("e" in text for text in texts):
        return _significant
    decimals = max(len(text.partition(".")[2]) for text in texts)
    return lambda value: f"{value:.{decimals}f}"


def _significant(value: float) -> str:
    return f"{value:.0f}" if 1e4 <= abs(value) < LARGE else f"{value:.4g}"


# In sentences


@dataclass(frozen=True, kw_only=True)
class Wording:
    """Names and units in the sentences."""

    metric: str
    unit: str = ""  # of the metric: "%", "nats" or ""
    mode: str = "max"  # or "min", which values of the metric are good
    within: float = 1.0  # how far from the best still counts as good, in points
    swept: bool = True  # whether any objective has settings to choose from

    def level(self, value: float, low: Any = math.nan, high: Any = math.nan) -> str:
        """A value of the metric with its interval, as in a table: `94.10 % [93.25, 94.95]`."""
        ends = {"low": low, "high": high} if known(low, high) else {}
        level = Number(value=value, spread=value / 100, is_fine=abs(value) <= 1, **ends)
        text, apart, seen = texts_of([level])[0].partition(" ")
        return f"{text} {self.unit}".rstrip() + apart + seen

    def amount(self, value: float) -> str:
        """A difference of two values: `1.8 points`, `1 point`."""
        text = number(value)
        unit = {"%": "points", "nats": "nats"}.get(self.unit, self.unit)
        if text in ("1", "-1"):
            unit = unit.removesuffix("s")
        return f"{text} {unit}".rstrip()


def known(*values: Any) -> bool:
    """True if all are finite numbers, numpy's too; a truth value is none."""
    plain = [value.item() if hasattr(value, "item") else value for value in values]
    numbers = [x for x in plain if isinstance(x, int | float) and not isinstance(x, bool)]
    return len(numbers) == len(plain) and all(map(math.isfinite, numbers))


def p_value(p: float) -> str:
    """`0.0503`: with as many digits as tell it from the threshold."""
    return number(p, apart_from=THRESHOLD)


def joined(texts: Sequence[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    return f"{', '.join(texts[:-1])} and {texts[-1]}" if len(texts) > 1 else "".join(texts)


def num_of(num: float, one: str, several: str) -> str:
    text = number(num)
    return f"{text} {one if text == '1' else several}"
