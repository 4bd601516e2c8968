"""Numbers, units and lists as a sentence has them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from clsweep.catalog.rows import Row
from clsweep.display.numbers import count
from clsweep.display.numbers import interval as interval
from clsweep.display.numbers import number as number

THRESHOLD = 0.05
_ALPHA = THRESHOLD + 1e-12


def known(*values: Any) -> bool:
    """True if all are finite numbers, numpy's too; a truth value is none."""
    plain = [value.item() if hasattr(value, "item") else value for value in values]
    numbers = [x for x in plain if isinstance(x, int | float) and not isinstance(x, bool)]
    return len(numbers) == len(plain) and all(map(math.isfinite, numbers))


def places_of(
    by: str, rows: Sequence[Row], winners: Sequence[str | None]
) -> dict[str | None, list[str]]:
    """Each winner, or None where there is none -> the values or bins of `by` of its rows."""
    places: dict[str | None, list[str]] = {}
    for winner, row in zip(winners, rows, strict=True):
        places.setdefault(winner, []).append(text_in(row["region"]).removeprefix(f"{by}="))
    return places


def along(by: str, claims: Sequence[str], unresolved: Sequence[str]) -> str:
    """`Along tau, dcl is best at 0.1; at 0.2 and 0.5 it is not resolved.`"""
    rest = f"; at {joined(unresolved)} it is not resolved" if unresolved else ""
    return f"Along {by}, {joined(claims)}{rest}."


def p_value(p: float) -> str:
    """`0.0503`: with as many digits as tell it from the threshold."""
    return number(p, apart_from=THRESHOLD)


def depends(objective: str, param: str, r2: float) -> str:
    """Of the only hyperparameter, whose share of the variance says nothing."""
    return f"{objective} depends on {param}: it predicts settings left out (R2 = {number(r2)})."


def joined(texts: Sequence[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    return f"{', '.join(texts[:-1])} and {texts[-1]}" if len(texts) > 1 else "".join(texts)


def num_of(num: float, one: str, several: str) -> str:
    text = number(num)
    return f"{text} {one if text == '1' else several}"


def needed(row: Row, column: str = "") -> str:
    """The trials that would resolve the row with 80 % power: `15 to 200 seeds (80 % interval; 40 if
    it is as large as it looks)`, `15 seeds or more, ...`; nothing where that is not known. Of a
    column alone: `15 to 200`, `15 or more`.
    """
    name = column or ("needs_configs" if known(row.get("needs_configs")) else "needs_seeds")
    seen, low, high = (row.get(each) for each in (name, "needs_low", "needs_high"))
    if low is None or high is None or not known(low) or (column and seen != seen):  # NaN
        return ""
    unit = "" if column else " seeds" if name == "needs_seeds" else " configurations"
    if seen is None or not known(seen, high):
        return f"{count(low)}{unit} or more{', how many cannot be said yet' if unit else ''}"
    ends = f"{count(low)} to {count(high)}" if low < high else count(low)
    about = f" (80 % interval; {count(seen)} if it is as large as it looks)" if unit else ""
    return f"{ends}{unit}{about}"


def text_in(value: Any) -> str:
    """A cell of text; a missing one is empty."""
    return value if isinstance(value, str) else ""


def is_true(value: Any) -> bool:
    """True if a cell says yes; a missing one does not."""
    return value in (True, 1)


def passes(row: Row, *columns: str) -> bool:
    """The gate of a claim: resolved, with a small corrected p-value and these columns known."""
    needed = known(row["p_holm"], *(row[name] for name in columns))
    return is_true(row["resolved"]) and needed and row["p_holm"] <= _ALPHA
