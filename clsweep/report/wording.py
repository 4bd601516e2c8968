"""Numbers, units and lists as a sentence has them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

Row = Mapping[Any, Any]
Sentences = tuple[str, ...]

ALPHA = 0.05 + 1e-12
UNRESOLVED, UNMEASURED = "not resolved", "not measured"


@dataclass(frozen=True, kw_only=True)
class Wording:
    """What the sentences call things.

    Attributes:
        unit: of the metric: "%", "nats" or "".
        mode: "max" or "min", which values of the metric are good.
        within: how far from the best still counts as good, in points.
    """

    metric: str
    unit: str = ""
    mode: str = "max"
    within: float = 1.0

    def level(self, value: float) -> str:
        """A value of the metric: `94.1 %`."""
        return f"{number(value)} {self.unit}".rstrip()

    def amount(self, value: float) -> str:
        """A difference of two values: `1.8 points`, `1 point`."""
        text = number(value)
        unit = {"%": "points", "nats": "nats"}.get(self.unit, self.unit)
        if text in ("1", "-1"):
            unit = unit.removesuffix("s")
        return f"{text} {unit}".rstrip()


def known(*values: Any) -> bool:
    """Whether all are finite numbers."""
    return all(isinstance(value, (int, float)) and math.isfinite(value) for value in map(_plain, values))


def number(value: float, *, apart_from: float | None = None) -> str:
    """Three significant digits; more where `value` would otherwise read as the number that it is `apart_from`."""
    if abs(value) >= 999.5:
        return f"{value:,.0f}"
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


def listed(texts: Sequence[str], last: str = "and") -> str:
    """`a`, `a and b`, `a, b and c`."""
    return f"{', '.join(texts[:-1])} {last} {texts[-1]}" if len(texts) > 1 else "".join(texts)


def counted(num: float, one: str, several: str) -> str:
    text = number(num)
    return f"{text} {one if text == '1' else several}"


def text(value: Any) -> str:
    """A cell of text; a missing one is empty."""
    return value if isinstance(value, str) else ""


def _plain(value: Any) -> Any:
    """A numpy number as a Python one; a truth value is no number."""
    item = value.item() if hasattr(value, "item") else value
    return None if isinstance(item, bool) else item


def records(table: pd.DataFrame) -> list[dict[Any, Any]]:
    return table.to_dict("records")
