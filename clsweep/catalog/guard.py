"""Functions of the user's own as they are called: what they are given stays as it is, and what they
give is what their row says. An error carries the row, so that it is told with its file and line.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from clsweep.errors import UserError


class PartError(UserError):
    """A part of the user's own gives, or does, what its row does not say."""

    def __init__(self, text: str, row: Any = None):
        super().__init__(text)
        self.row = row


def guarded(row: Any, function: Callable[..., Any]) -> Callable[..., Any]:
    """The function of a row, watched."""
    part = getattr(row, "part", None) or type(row).__name__

    @functools.wraps(function, updated=())
    def call(*given: Any, **named: Any) -> Any:
        before = [(x, x._version) for x in _tensors((given, named))]
        try:
            found = function(*given, **named)
            if any(x._version != version for x, version in before):
                raise PartError(f"{row.name}: expected to leave what it is given, changed in place")
            if expected := _unlike(part, row, found, given):
                raise PartError(f"{row.name}: expected {expected}, given {_said(found)}")
        except Exception as error:
            if getattr(error, "row", None) is None:
                error.row = row  # type: ignore[attr-defined]
            raise
        return found

    return call


def _tensors(given: Any) -> Iterator[Any]:
    """All tensors among what a function is given, and their gradients."""
    if isinstance(given, Mapping | list | tuple):
        for each in given.values() if isinstance(given, Mapping) else given:
            yield from _tensors(each)
    elif _is_tensor(given):
        yield given
        if given.is_leaf and given.grad is not None:
            yield given.grad


def _said(found: Any) -> str:
    if hasattr(found, "dtype"):
        return f"{str(found.dtype).removeprefix('torch.')} of shape {tuple(found.shape)}"
    return f"{type(found).__name__} {found!r:.60}"


def _is_tensor(x: Any) -> bool:
    return hasattr(x, "grad_fn")


def _is_number(x: Any) -> bool:
    is_one = isinstance(x, int | float) or getattr(x, "shape", None) == ()
    return is_one and math.isfinite(float(x))


def _unlike(part: str, row: Any, found: Any, given: tuple[Any, ...]) -> str:
    """What was expected of a part instead of what it gave; empty if it is that. Only what is taken
    of an epoch waits for the device.
    """

    def is_loss() -> bool:
        is_real = _is_tensor(found) and found.is_floating_point()
        asks = part == "loss" and any(getattr(x, "requires_grad", False) for x in given)
        return bool(is_real and (found.requires_grad or not asks))

    def are_pairs() -> bool:
        views, pairs = {*range(given[0])}, found if isinstance(found, list | tuple) else ()
        return all(isinstance(p, tuple) and len(p) == 2 and {*p} <= views for p in pairs or [0])

    def are_scores() -> bool:
        return isinstance(found, dict) and all(
            x is None
            or _is_number(x)
            or (str(getattr(x, "dtype", "")) == "torch.bool" and x.shape == given[-1].shape)
            for x in found.values()
        )

    def are_splits() -> bool:
        is_pair = isinstance(found, tuple | list) and len(found) == 2
        return row.kind == "pairs" or (is_pair and all(hasattr(s, "labels") for s in found))

    def has(name: str) -> Callable[[], bool]:
        return lambda: hasattr(found, name)

    scores = are_scores, "{name: a finite number, or whether each image is right}"
    number = partial(_is_number, found), "a finite number"
    wanted: dict[str, tuple[Callable[[], bool], str]] = {
        "loss": (is_loss, "a scalar tensor of floating point, with a gradient"),
        "regularizer": (is_loss, "a scalar tensor of floating point"),
        "encoder": (has("num_features"), "a module with num_features and forward"),
        "framework": (has("state_dict"), "a module"),
        "optimizer": (has("param_groups"), "an optimizer of torch"),
        "lr_schedule": number,
        "views": (are_pairs, "pairs (i, j) of the views 0, 1, ..."),
        "Diagnostic": (has("grad_fn"), "a tensor, or None"),
        "Dataset": (are_splits, "a Split to train on and one to test on"),
        **dict.fromkeys(("Metric", "linear_probe", "knn_weights", "finetune"), scores),
    }
    if part == "Diagnostic" and found is None:
        return ""
    if (part == "Diagnostic" and not row.summary) or (part == "Metric" and row.takes):
        wanted[part] = number
    fits, expected = wanted.get(part, (lambda: True, ""))
    return "" if fits() else expected
