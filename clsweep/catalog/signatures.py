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
_CALLS: dict[str, Call] = {
    "framework": (0, ("encoder", "comparison")), "framework of pairs": (0, ("dim", "criterion")),
    "regularizer": (2, ()), "regularizer of all views": (1, ("generator",)),
    "loss": (2, ()), "views": (1, ()), "encoder": (0, ()), "optimizer": (1, ("lr",)),
    "lr_schedule": (1, ()), "linear_probe": _SCORE, "knn_weights": _SCORE, "finetune": _SCORE,
    "Metric": _SCORE, "Metric of pairs": (2, ()),
    "Dataset": (2, ()), "Dataset of pairs": (1, ("generator",)),
}  # fmt: skip


def mismatch(row: CatalogRow, function: Callable[..., Any]) -> str:
    """Why a function or class cannot be called as its row is; empty if it can, or if it cannot be
    told.
    """
    if isinstance(row, Param) or (isinstance(row, Component) and row.part not in _CALLS):
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
    kind = row.part if isinstance(row, Component) else type(row).__name__
    kind += " of pairs" if row.kind == "pairs" and kind != "loss" else ""
    kind += " of all views" if getattr(row, "of_all_views", False) else ""
    num_positional, named = _CALLS[kind]
    applied_outside = {
        "regularizer": ("lam",),
        "optimizer": ("decay_exclude",),
        "views": COMPONENT["views"]["all_pairs"].owns,
    }.get(kind.partition(" ")[0], ())
    owned = (
        name for name in (*row.owns, *getattr(row, "takes", ())) if name not in applied_outside
    )
    return num_positional, (*named, *owned)


def _given_in_some_studies(row: CatalogRow) -> list[str]:
    if not isinstance(row, Component):
        return []
    names = [name for owned in row.owns_with.values() for name in owned]
    if "weighting" in row.owns:
        names += [name for each in COMPONENT["weighting"].values() for name in each.owns]
    return [*names, *(("negatives", "index_NK", "skip_own") if row.part == "loss" else ())]
