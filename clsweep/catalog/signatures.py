"""What the function behind a row is called with, against the parameters that its text declares."""

from __future__ import annotations

import ast
import copy
from typing import NamedTuple

from clsweep.catalog import COMPONENT
from clsweep.catalog.rows import CatalogRow, Component, Dataset, Diagnostic, Metric, Param


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


def mismatch(row: CatalogRow, definition: ast.stmt) -> str:
    """Why a definition cannot be called as its row is; empty if it can, or if it cannot be told."""
    call, given = call_of(row), _parameters(definition)
    if call is None or given is None:
        return ""
    names = [arg.arg for arg in (*given.posonlyargs, *given.args)]
    by_position = names[: call.positional]
    if len(by_position) < call.positional and given.vararg is None:
        return (
            f"expected {call.positional} arguments by position, given {', '.join(names) or 'none'}"
        )
    by_name = {*names[call.positional :], *(arg.arg for arg in given.kwonlyargs)}
    missing = [name for name in call.named if name not in by_name]
    if missing and given.kwarg is None:
        return f"expected an argument {missing[0]}: it is called with {_shown(call)}"
    unknown = _required(given) - {*by_position, *call.named, *call.maybe}
    if unknown:
        name = min(unknown)
        return f"argument {name}: nothing gives it; it is called with {_shown(call)}"
    return ""


def _shown(call: Call) -> str:
    count = [f"{call.positional} by position"] if call.positional else []
    return ", ".join([*count, *call.named]) or "nothing"


def _parameters(definition: ast.stmt) -> ast.arguments | None:
    """The parameters of a function or a class, `self` left out; None where they are not seen."""
    if isinstance(definition, ast.FunctionDef) and not definition.decorator_list:
        return definition.args
    if isinstance(definition, ast.ClassDef):
        for each in definition.body:
            if isinstance(each, ast.FunctionDef) and each.name == "__init__":
                given = copy.deepcopy(each.args)
                del (given.posonlyargs or given.args)[:1]
                return given
    return None


def _required(given: ast.arguments) -> set[str]:
    by_place = [arg.arg for arg in (*given.posonlyargs, *given.args)]
    named = zip(given.kwonlyargs, given.kw_defaults, strict=True)
    return {
        *by_place[: len(by_place) - len(given.defaults)],
        *(arg.arg for arg, default in named if default is None),
    }
