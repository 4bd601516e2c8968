"""What the function behind a row is called with, against the parameters that it declares."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from clsweep.catalog import COMPONENT
from clsweep.catalog.rows import CatalogRow, Component, Dataset, Diagnostic, Metric, Param

# How a function is called: how many arguments by position, and which by name.
Call = tuple[int, tuple[str, ...]]

_SCORE: Call = (4, ("num_classes",))
_PARTS: dict[str, Call] = {
    "framework": (0, ("encoder", "comparison")),
    "loss": (2, ()),
    "regularizer": (2, ()),
    "views": (1, ()),
    "encoder": (0, ()),
    "optimizer": (1, ("lr",)),
    "lr_schedule": (1, ()),
    "linear_probe": _SCORE,
    "knn_weights": _SCORE,
    "finetune": _SCORE,
}


def mismatch(row: CatalogRow, function: Callable[..., Any]) -> str:
    """Why a function or class cannot be called as its row is; empty if it can, or if it cannot be
    told.
    """
    if isinstance(row, Param) or (isinstance(row, Component) and row.part not in _PARTS):
        return ""
    num_positional, named = _call_of(row)
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # of some functions in C
        return ""
    maybe = [name for name in _given_in_some_studies(row) if name in signature.parameters]
    try:
        signature.bind(*range(num_positional), **dict.fromkeys((*named, *maybe)))
    except TypeError as error:
        by_position = [f"{num_positional} by position"] if num_positional else []
        shown = ", ".join([*by_position, *named]) or "nothing"
        return f"{error}: it is called with {shown}"
    return ""


def _call_of(row: Component | Dataset | Metric | Diagnostic) -> Call:
    if isinstance(row, Diagnostic) or (isinstance(row, Metric) and row.takes):
        return len(row.takes), ()
    if isinstance(row, Metric):
        return (4, ("num_classes", *row.owns)) if row.kind == "images" else (2, row.owns)
    if isinstance(row, Dataset):
        return (2, ()) if row.kind == "images" else (1, ("generator", *row.owns))
    num_positional, named = _PARTS[row.part]
    if row.part == "framework" and row.kind == "pairs":
        named = ("dim", "criterion")
    if row.part == "regularizer" and row.of_all_views:
        num_positional, named = 1, ("generator",)
    applied_outside = {
        "regularizer": ("lam",),
        "optimizer": ("decay_exclude",),
        "views": COMPONENT["views"]["all_pairs"].owns,
    }.get(row.part, ())
    owned = (name for name in (*row.owns, *row.takes) if name not in applied_outside)
    return num_positional, (*named, *owned)


def _given_in_some_studies(row: CatalogRow) -> list[str]:
    if not isinstance(row, Component):
        return []
    names = [name for owned in row.owns_with.values() for name in owned]
    if "weighting" in row.owns:
        names += [name for each in COMPONENT["weighting"].values() for name in each.owns]
    return [*names, *(("negatives", "index_NK", "skip_own") if row.part == "loss" else ())]
