"""Every component, hyperparameter, data set, metric and diagnostic, by name. Needs neither torch
nor Ray.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from functools import partial
from typing import Any

from clsweep.catalog import builtin
from clsweep.catalog.builtin import FINETUNE_SHARES, MIN_TSNE_POINTS
from clsweep.catalog.open_encoders import EncoderTable
from clsweep.catalog.plugin_guard import MADE_PARTS
from clsweep.catalog.rows import (
    DIAGNOSED_ENCODER,
    DIAGNOSED_STEP,
    LABEL_FREE,
    OBJECTIVE_PARTS,
    SELECTED_PARTS,
    CatalogRow,
    Component,
    Dataset,
    Diagnostic,
    Kind,
    Metric,
    Param,
    Part,
    Value,
    implementation,
    named,
)
from clsweep.catalog.trainers import trainer

__all__ = [
    "COMPONENT", "DATASET", "DATASETS", "DIAGNOSTIC", "DIAGNOSTICS", "FINETUNE_SHARES", "METRIC",
    "METRICS", "MIN_TSNE_POINTS", "OBJECTIVE_PARTS", "PARAM", "PARAMS", "SELECTED_PARTS",
    "CatalogRow", "Component", "Dataset", "Diagnostic", "Kind", "Metric", "Param", "Part", "Value",
    "check", "implementation", "install", "named", "trainer",
]  # fmt: skip

PARAM = {p.name: p for p in builtin.PARAMS}
DATASET = {d.name: d for d in builtin.DATASETS}
METRIC = {m.name: m for m in builtin.METRICS}
DIAGNOSTIC = {d.name: d for d in builtin.DIAGNOSTICS}
COMPONENT: dict[str, dict[str, Component]] = {"encoder": EncoderTable()}
for _component in builtin.COMPONENTS:
    COMPONENT.setdefault(_component.part, {})[_component.name] = _component

# The rows in catalog order, those installed later too.
PARAMS, DATASETS = PARAM.values(), DATASET.values()
METRICS, DIAGNOSTICS = METRIC.values(), DIAGNOSTIC.values()
_TABLES: dict[type, dict[str, Any]] = {
    Param: PARAM,
    Dataset: DATASET,
    Metric: METRIC,
    Diagnostic: DIAGNOSTIC,
}
_COLUMNS = (PARAM, METRIC, DIAGNOSTIC)  # their rows name columns, beside these
FIXED_COLUMNS = frozenset((
    "trial_id", "study", "objective", "framework", "loss", "regularizer", "views", "config", "seed",
    "sampler", "plugins", "dataset", "score_on", "val_fraction", "image_size", "store_size",
    "store_as", "channels", "num_train", "num_unlabeled", "num_classes", "images_digest", "status",
    "train_loss", "base_loss", "regularizer_loss", "lr_peak", "num_crop_only", "pairs_per_image",
    "compute_per_image", "pairs_per_compute", "num_images", "epochs_trained", "num_resumes",
    "images_per_s", "wall_time_s", "compile_s", "peak_memory_gib", "skipped_because", "error_class",
    "error_message", "error_traceback", "device", "workers", "gpus_per_worker", "cpus_per_worker",
    "started_at", "search_seed", "clsweep_version", "torch_version", "ray_version",
    "optuna_version", "git_commit", "epoch", "time_s", "earlier_s", "reference", "histograms",
    "points", "hits", "normalisation", "transfer_store_as",
))  # fmt: skip


def install(rows: Iterable[CatalogRow]) -> Callable[[], None]:
    """Add rows to the catalog of this process; returns what takes them out again.

    A row behind a hyperparameter that selects by name, such as an encoder, is offered there too, an
    encoder's blocks as `feature_layer` and a data set as `transfer_dataset`.

    Raises:
        ValueError: a name that is taken, or a row that names what there is not.
    """
    before = [(table, copy.copy(table)) for table in (*_TABLES.values(), *COMPONENT.values())]

    def undo() -> None:
        for table, rows_before in before:
            table.clear()
            table.update(rows_before)

    rows = list(rows)
    try:
        for row in rows:
            _add(row)
        for row in rows:
            check_row(row)
    except ValueError:
        undo()
        raise
    return undo


def _kind(row: CatalogRow) -> str:
    return row.part if isinstance(row, Component) else type(row).__name__.lower()


def _add(row: CatalogRow) -> None:
    kind = _kind(row)
    table: dict[str, Any] = COMPONENT[kind] if isinstance(row, Component) else _TABLES[type(row)]
    if isinstance(row, Param | Metric) and table.get(row.name) == row:
        return  # two trainers may have it in common
    rivals = _COLUMNS if isinstance(row, Param | Metric | Diagnostic) else (table,)
    is_column = rivals is _COLUMNS and (row.name in FIXED_COLUMNS or row.name.startswith("test_"))
    if is_column or any(row.name in each for each in rivals):
        raise ValueError(f"{kind} '{row.name}': expected a new name, given one that is taken")
    offered: dict[str, tuple[str, ...]] = {}  # further choices of hyperparameters
    if isinstance(row, Component):
        offered["feature_layer"] = row.blocks
        if kind in SELECTED_PARTS:
            offered[kind] = (row.name,)
    if isinstance(row, Dataset) and row.kind == "images":
        offered["transfer_dataset"] = (row.name,)
    for param, names in offered.items():
        choices = dict.fromkeys((*PARAM[param].choices, *names))
        PARAM[param] = replace(PARAM[param], choices=tuple(choices))
    table[row.name] = row


def check_row(row: CatalogRow) -> None:
    """Refuse what would otherwise be passed over without a word, or fail in every trial.

    Raises:
        ValueError: the row names what there is not, or lacks what its kind needs.
    """
    place = f"{_kind(row)} '{row.name}'"
    for key, names, noun, known in _named_in(row):
        unknown = [name for name in names if name not in known]
        if unknown:
            raise ValueError(f"{place}: {key}: no {noun} '{unknown[0]}'")
    if isinstance(row, Dataset) and row.kind == "images" and row.owns:
        raise ValueError(f"{place}: owns: expected of kind pairs alone; nothing else reads it")
    if isinstance(row, Metric) and not (row.impl or row.part or row.of == "trainer"):
        raise ValueError(f"{place}: expected impl or part, given neither")
    if isinstance(row, Component) and row.part == "encoder":
        first, *_ = row.num_features if isinstance(row.num_features, tuple) else [row.num_features]
        if first < 1:
            raise ValueError(f"{place}: num_features: expected 1 and more, given {first}")
    if isinstance(row, Component) and row.num_draws < 0:
        raise ValueError(f"{place}: num_draws: expected 0 and more, given {row.num_draws}")
    if isinstance(row, Component) and row.is_trainer and {*row.owns} & {*SELECTED_PARTS}:
        one = next(name for name in row.owns if name in SELECTED_PARTS)
        raise ValueError(
            f"{place}: uses: expected a Param of its own, given '{one}', a part of ours"
        )
    if isinstance(row, Component):
        for name, value in row.defaults.items():
            try:
                PARAM[name].coerce(value)
            except ValueError as error:
                raise ValueError(f"{place}: defaults: {name}: {error}") from None
        needed: set[str] = set()  # what is applied outside of the function
        if row.part == "views" and row.name != "two":
            needed = set(COMPONENT["views"]["all_pairs"].owns)
        if row.part == "regularizer" and row.impl:
            needed = {"lam"}
        if missing := needed - set(row.owns):
            raise ValueError(f"{place}: owns: expected also {', '.join(sorted(missing))}")


def _named_in(row: CatalogRow) -> list[tuple[str, Iterable[str], str, Collection[str]]]:
    """Names in a row: the key they stand under, the names, their noun, and those that there are."""
    if isinstance(row, Param):
        return []
    if isinstance(row, Diagnostic):
        known = DIAGNOSED_STEP if row.summary else DIAGNOSED_ENCODER
        return [("takes", row.takes, "value", known)]
    owns: tuple[str, Iterable[str], str, Collection[str]] = ("owns", row.owns, "parameter", PARAM)
    if isinstance(row, Metric):
        return [owns, ("takes", row.takes, "value", LABEL_FREE)]
    if not isinstance(row, Component):
        return [owns]
    second = [f"second_{name}" for name in COMPONENT["views"]["two"].owns]
    return [
        owns,
        *([("owns", row.owns, "parameter of second views", second)] * (row.part == "recipe")),
        *(("owns_with", names, "parameter", PARAM) for names in row.owns_with.values()),
        ("owns_with", row.owns_with, "loss", COMPONENT["loss"]),
        ("defaults", row.defaults, "parameter", PARAM),
        ("losses", row.losses, "loss", COMPONENT["loss"]),
        ("on", row.on, "framework", COMPONENT["framework"]),
    ]


# How a function is called: how many arguments by position, and which by name.
Call = tuple[int, tuple[str, ...]]

_SCORE: Call = (4, ("num_classes",))
_CALLS: dict[str, Call] = {
    "framework": (0, ("encoder", "comparison")), "framework of pairs": (0, ("dim", "criterion")),
    "regularizer": (2, ()), "regularizer of all views": (1, ("generator",)),
    "loss": (2, ()), "views": (1, ()), "encoder": (0, ()), "optimizer": (1, ("lr",)),
    "lr_schedule": (1, ()), "augmentation": (2, ()), "augmentation that mixes": (3, ()),
    "linear_probe": _SCORE, "knn_weights": _SCORE, "finetune": _SCORE,
    "Metric": _SCORE, "Metric of pairs": (2, ()),
    "Dataset": (2, ()), "Dataset of pairs": (1, ("generator",)),
}  # fmt: skip


def signature_mismatch(
    row: CatalogRow, function: Callable[..., Any], beside: Iterable[CatalogRow] = ()
) -> str:
    """Why a function or class cannot be called as its row is; empty if it can, or if it cannot be
    told. A framework among the rows `beside` may call its losses with more.
    """
    if isinstance(row, Param) or (isinstance(row, Component) and row.part not in _CALLS):
        return ""
    num_positional, named = _call_of(row)
    maybe = _given_in_some_studies(row)
    own = [r for r in beside if isinstance(r, Component) and r.part == "framework"]
    called_by_own = (
        isinstance(row, Component)
        and row.part == "loss"
        and any(row.name in framework.losses or framework.name in row.on for framework in own)
    )
    if not (isinstance(function, type) and getattr(row, "part", "") in MADE_PARTS):
        return _misfit(function, num_positional, named, maybe, called_by_own)
    # made of what it owns; its instance is called with the rest
    owned = [name for name in named if name in row.owns]  # type: ignore[union-attr]
    rest = [name for name in named if name not in owned]
    call = partial(getattr(function, "forward", function.__call__), None)  # of an instance
    return _misfit(function, 0, owned, maybe) or _misfit(
        call, num_positional, rest, maybe, called_by_own
    )


def _misfit(
    function: Callable[..., Any],
    num_positional: int,
    named: Collection[str],
    maybe: Iterable[str],
    is_partial: bool = False,
) -> str:
    """Why a call does not fit a function; `maybe`: names that it is given where it has them."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # of some functions in C
        return ""
    more = [name for name in maybe if name in signature.parameters]
    try:
        if is_partial:
            signature.bind_partial(**dict.fromkeys(named))
        else:
            signature.bind(*range(num_positional), **dict.fromkeys((*named, *more)))
    except TypeError as error:
        by_position = [f"{num_positional} by position"] if num_positional else []
        shown = ", ".join([*by_position, *named]) or "nothing"
        return f"{error}: it is called with {shown}"
    return ""


def _call_of(row: Component | Dataset | Metric | Diagnostic) -> Call:
    if isinstance(row, Diagnostic) or (isinstance(row, Metric) and row.takes):
        return len(row.takes), ()
    if isinstance(row, Component) and row.is_trainer:
        return 1, ()
    kind = row.part if isinstance(row, Component) else type(row).__name__
    kind += " of pairs" if row.kind == "pairs" and kind != "loss" else ""
    kind += " of all views" if getattr(row, "of_all_views", False) else ""
    kind += " that mixes" if getattr(row, "mixes", False) else ""
    num_positional, named = _CALLS[kind]
    applied_outside = {
        "regularizer": ("lam",),
        "optimizer": ("decay_exclude", "grad_clip"),
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
