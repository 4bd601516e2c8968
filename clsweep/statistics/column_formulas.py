"""Formulas of the columns of full tables, for `Statistic.formulas`."""

from __future__ import annotations

from collections.abc import Iterable

REASON_COLUMNS = {
    "reason": "why nothing was measured or resolved; empty where something was",
    "note": "that, what is missing, and what to beware of",
}


def described(names: Iterable[str], /, **formulas: str) -> dict[str, str]:
    """Each column of a table with its formula. A lower end is the interval of the column before it,
    and an upper one has no text, where nothing else is given; `objective` is a name.
    """
    texts = {"objective": "name, in order of first appearance"} | formulas | REASON_COLUMNS
    before = ""
    for name in names:
        texts.setdefault(name, f"interval of {before}" if name.endswith("low") else "")
        before = name
    return {name: texts[name] for name in names}
