"""What the function behind a row is called with, against the parameters that it declares."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

from clsweep.catalog import COMPONENT
from clsweep.catalog.rows import CatalogRow, Component, Dataset, Diagnostic, Metric, Param

_BY_POSITION = {inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD}
_BY_NAME = {inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD}


class Call(NamedTuple):
    """How a function is called.

    Attributes:
        positional: arguments given by position.
        named: those given by name.
        maybe: those given by name in some studies.
    """

    positional: int
    named: tuple[str, ...] = ()
    maybe: tuple[str, ...] = ()


_SCORE = Call(4, ("num_classes",))
_PARTS = {
    "framework": Call(0, ("encoder", "comparison")),
    "loss": Call(2, (), ("negatives", "index_NK", "skip_own")),
    "regularizer": Call(2),
    "views": Call(1),
    "encoder": Call(0),
    "optimizer": Call(1, ("lr",)),
    "lr_schedule": Call(1),
    "linear_probe": _SCORE,
    "knn_weights": _SCORE,
    "finetune": _SCORE,
}


def call_of(row: CatalogRow) -> Call | None:
    """How the function of a row is called; None of a row that has no function."""
    if isinstance(row, Param) or not row.impl:
        return None
    if isinstance(row, Diagnostic) or (isinstance(row, Metric) and row.takes):
        return Call(len(row.takes))
    if isinstance(row, Metric):
        return Call(4 if row.kind == "images" else 2, (*_named(row), *row.owns))
    if isinstance(row, Dataset):
        return Call(2) if row.kind == "images" else Call(1, ("generator", *row.owns))
    return _call_of_part(row)


def _named(row: Metric) -> tuple[str, ...]:
    return ("num_classes",) if row.kind == "images" else ()


def _call_of_part(row: Component) -> Call | None:
    call = _PARTS.get(row.part)
    if call is None:
        return None
    if row.part == "framework" and row.kind == "pairs":
        call = Call(0, ("dim", "criterion"))
    if row.part == "regularizer" and row.of_all_views:
        call = Call(1, ("generator",))
    applied_outside = {
        "regularizer": {"lam"},
        "optimizer": {"decay_exclude"},
        "views": set(COMPONENT["views"]["all_pairs"].owns),
    }.get(row.part, set())
    owned = [name for name in (*row.owns, *row.takes) if name not in applied_outside]
    beside = [name for names in row.owns_with.values() for name in names]
    if "weighting" in row.owns:
        beside += [name for each in COMPONENT["weighting"].values() for name in each.owns]
    return Call(call.positional, (*call.named, *owned), (*call.maybe, *beside))


def mismatch(row: CatalogRow, function: Callable[..., Any]) -> str:
    """Why a function or class cannot be called as its row is; empty if it can, or if it cannot be
    told.
    """
    call = call_of(row)
    try:
        given = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # of some functions in C
        return ""
    if call is None:
        return ""
    kinds = {each.kind for each in given}
    ordered = [each.name for each in given if each.kind in _BY_POSITION]
    by_position = ordered[: call.positional]
    if len(by_position) < call.positional and inspect.Parameter.VAR_POSITIONAL not in kinds:
        names = ", ".join(ordered) or "none"
        return f"expected {call.positional} arguments by position, given {names}"
    by_name = {each.name for each in given if each.kind in _BY_NAME} - {*by_position}
    missing = [name for name in call.named if name not in by_name]
    if missing and inspect.Parameter.VAR_KEYWORD not in kinds:
        return f"expected an argument {missing[0]}: it is called with {_shown(call)}"
    single = [each for each in given if each.kind in _BY_POSITION | _BY_NAME]
    required = {each.name for each in single if each.default is each.empty}
    if unknown := required - {*by_position, *call.named, *call.maybe}:
        return f"argument {min(unknown)}: nothing gives it; it is called with {_shown(call)}"
    return ""


def _shown(call: Call) -> str:
    count = [f"{call.positional} by position"] if call.positional else []
    return ", ".join([*count, *call.named]) or "nothing"
