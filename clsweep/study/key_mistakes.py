"""Mistakes in the keys of a study file: pydantic's errors in the words of such a file."""

from __future__ import annotations

from typing import Any, get_args, get_origin

from clsweep.catalog import COMPONENT, DATASET, PARAM
from clsweep.catalog.other_names import OTHER_NAMES
from clsweep.catalog.ownership import aliases
from clsweep.display.numbers import setting
from clsweep.errors import did_you_mean, nearest
from clsweep.study.document import Keys, dotted

# pydantic's error types in the words of a study file; the others speak for themselves.
_EXPECTED = {
    "int_type": "an integer",
    "float_type": "a number",
    "finite_number": "a finite number",
    "string_type": "a text",
    "bool_type": "true or false",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "tuple_type": "a list",
    "list_type": "a list",
    "string_pattern_mismatch": "letters, digits, '.', '_' and '-' only",
}
_BOUNDS = {
    "greater_than": ("gt", ">"),
    "greater_than_equal": ("ge", ">="),
    "less_than": ("lt", "<"),
    "less_than_equal": ("le", "<="),
}


def explained(error: Any, model: Any, section: Keys = ()) -> tuple[Keys, str]:
    """Keys and message of one pydantic error, of a whole study or of an entry of a section; `model`
    is that of a study.
    """
    keys: Keys = error["loc"]
    kind, given, context = error["type"], error["input"], error.get("ctx", {})
    if kind == "extra_forbidden":
        known = _known_keys(model, section or keys[:-1])
        return keys, f"unknown key.{_nearest_key(keys, known)} Expected: {', '.join(known)}"
    known = [*(DATASET if keys == ("dataset", "name") else COMPONENT.get(str(keys[-1]), ()))]
    named = f". Expected one of: {', '.join(known)}" if known else ""
    if kind == "missing":
        return keys, f"this key is missing{named}"
    if kind == "value_error":
        return keys, str(context["error"])
    if kind == "literal_error":
        known = context["expected"].replace(" or ", ", ").replace("'", "").split(", ")
        hint = nearest(given, known, OTHER_NAMES) if isinstance(given, str) else ""
        return keys, f"expected {context['expected']}, given {given!r:.80}.{hint}"
    if kind in _BOUNDS:
        bound, sign = _BOUNDS[kind]
        return keys, f"expected a value {sign} {setting(context[bound])}, given {given!r:.80}"
    if kind == "too_short":
        least = context["min_length"]
        entries = "one entry" if least == 1 else f"{least} entries"
        return keys, f"expected at least {entries}, given {given!r:.80}"
    if kind == "too_long":
        return keys, f"expected at most {context['max_length']:,} entries, given {len(given):,}"
    if kind == "string_too_long":
        expected = f"expected at most {context['max_length']} characters"
        return keys, f"{expected}, given {len(given):,}: {given!r:.80}"
    named = named if kind == "string_type" else ""
    return keys, f"expected {_EXPECTED.get(kind, error['msg'])}, given {given!r:.80}{named}"


def _nearest_key(keys: Keys, known: list[str]) -> str:
    """The key that may be meant: of a hyperparameter, where it would be one."""
    name, others = str(keys[-1]), aliases()
    if "base" in known and (name in PARAM or name in others):
        return did_you_mean([dotted((*keys[:-1], "base", own)) for own in others.get(name, [name])])
    return nearest(name, known, OTHER_NAMES)


def _known_keys(model: Any, section: Keys) -> list[str]:
    """The keys that the section at these keys may have."""
    keys = iter(section)
    for key in keys:
        if str(key) not in model.model_fields:  # a place in a list
            continue
        annotation = model.model_fields[str(key)].annotation
        inside = get_args(annotation) or (annotation,)  # of a mapping of sections its sections
        model = next((part for part in inside if hasattr(part, "model_fields")), model)
        if get_origin(annotation) is dict:
            next(keys, None)  # the name of one of them
    return [field.alias or name for name, field in model.model_fields.items()]
