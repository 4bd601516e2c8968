"""Values as other tools write them: numbers in texts, and nested settings under one name each."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any

_INTEGER = re.compile(r"[+-]?(0|[1-9][0-9]{0,17})")
_DECIMAL = re.compile(
    r"[+-]?((0|[1-9][0-9]*)\.[0-9]*|\.[0-9]+|(0|[1-9][0-9]*)(?=[eE]))([eE][+-]?[0-9]{1,4})?"
)
UNWRITABLE = re.compile("[\0\ud800-\udfff]")  # NUL, and halves of a surrogate pair
ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")  # of functions among settings
_TENSOR = re.compile(r"tensor\((.+?)(, .*)?\)")  # a number, as text


def flatten(tree: Mapping[str, Any], root: str = "", separator: str = ".") -> dict[str, Any]:
    """Nested settings under one name each; a list is a text.

    Raises:
        ValueError: `{"a.b": 5, "a": {"b": 1}}` has two values of one name.
    """
    flat: dict[str, Any] = {}
    for name, value in tree.items():
        key = f"{root}{name}"
        plain = json.dumps(value) if isinstance(value, list | tuple) else value
        is_nested = isinstance(value, Mapping)
        new = flatten(value, f"{key}{separator}", separator) if is_nested else {key: plain}
        if twice := [each for each in new if repr(flat.get(each, new[each])) != repr(new[each])]:
            raise ValueError(f"two values are called {twice[0]}")
        flat |= new
    return flat


def numeric_results(tree: Mapping[str, Any], separator: str = ".") -> dict[str, float]:
    """The numbers among nested results, which may stand as texts; true and false are none."""
    values = {
        name: parse_text(_TENSOR.sub(r"\1", value)) if isinstance(value, str) else value
        for name, value in flatten(tree, separator=separator).items()
    }
    return {
        name: float(value)
        for name, value in values.items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    }


def parse_text(text: str) -> Any:
    """The number, truth value or text that a tool wrote as text. 64_64, 007 and 12e4567 are texts,
    which Python's own reading would make 6464, 7 and infinity of.
    """
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    if text in ("None", "null", ""):
        return None
    if _INTEGER.fullmatch(text):
        return int(text)
    if _DECIMAL.fullmatch(text) and math.isfinite(float(text)):
        return float(text)
    return float(text) if text.lower().lstrip("+-") in ("nan", "inf", "infinity") else text
