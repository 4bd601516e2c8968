"""Functions of the user's own as they are called: what they are given stays as it is, and what they
give is what their row says. An error carries the row, so that it is told with its file and line.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from typing import Any

from clsweep.errors import UserError

MADE_PARTS = ("loss", "regularizer")  # which may be classes: an instance is then called
LARGEST_SCORE = 1e60  # size of a score: fourth powers of it are still numbers, as statistics need
# Whether values are compared too, where autograd's count of changes can be passed by: with `.data`,
# or through an array of numpy. It takes copies, so only `clsweep check` asks for it.
compares = ContextVar("compares", default=False)


class PartError(UserError):
    """A part of the user's own gives, or does, what its row does not say."""

    def __init__(self, text: str, row: Any = None):
        super().__init__(text)
        self.row = row


def guarded(row: Any, function: Callable[..., Any]) -> Callable[..., Any]:
    """The function of a row, watched; of a class of losses its instances are."""
    part = getattr(row, "part", None) or type(row).__name__
    if isinstance(function, type) and part in MADE_PARTS:

        @functools.wraps(function, updated=())
        def make(**owned: Any) -> Any:
            made = function(**owned)
            if not hasattr(made, "forward"):
                return guarded(row, made)
            made.forward = guarded(row, made.forward)
            return made

        return make

    @functools.wraps(function, updated=())
    def call(*given: Any, **named: Any) -> Any:
        before = [(x, x._version) for x in _tensors((given, named))]
        copies = [(x, x.detach().clone()) for x, _ in before] if compares.get() else []
        try:
            value = function(*given, **named)
            if any(x._version != version for x, version in before) or not all(
                x.nan_to_num().equal(copy.nan_to_num()) for x, copy in copies
            ):
                raise PartError(f"{row.name}: expected to leave what it is given, changed in place")
            if expected := _unlike(part, row, value, given):
                raise PartError(f"{row.name}: expected {expected}, given {value_text(value)}")
        except Exception as error:
            if getattr(error, "row", None) is None:
                error.row = row  # type: ignore[attr-defined]
            raise
        return value

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


def value_text(value: Any) -> str:
    """A value in a message: of a tensor type and shape."""
    if hasattr(value, "dtype"):
        return f"{str(value.dtype).removeprefix('torch.')} of shape {tuple(value.shape)}"
    return f"{type(value).__name__} {' '.join(repr(value).split()):.60}"


def _is_tensor(x: Any) -> bool:
    return hasattr(x, "grad_fn")


def _is_number(x: Any) -> bool:
    is_one = isinstance(x, int | float) or getattr(x, "shape", None) == ()
    return is_one and abs(float(x)) <= LARGEST_SCORE


_SCORES = ("Metric", "linear_probe", "knn_weights", "finetune")
_HAS = {  # what other parts are known by
    "encoder": ("num_features", "a module with num_features and forward"),
    "framework": ("state_dict", "a module"),
    "optimizer": ("param_groups", "an optimizer of torch"),
    "augmentation": ("grad_fn", "a tensor of views"),
    "Diagnostic": ("grad_fn", "a tensor, or None"),
}


def _unlike(part: str, row: Any, value: Any, given: tuple[Any, ...]) -> str:
    """The value expected of a part instead of what it gave; empty if it is that. Only what is taken
    of an epoch waits for the device.
    """
    fits, expected = True, ""
    if part == "Diagnostic" and value is None:
        pass
    elif part == "lr_schedule":
        fits, expected = _is_number(value) and value >= 0, "a finite number from 0 on"
    elif (part == "Diagnostic" and not row.summary) or (part == "Metric" and row.takes):
        low, high = getattr(row, "limits", (-math.inf, math.inf))  # a diagnostic has none
        fits = _is_number(value) and low <= float(value) <= high
        expected = f"a finite number from {low:g} to {high:g}".removesuffix(" from -inf to inf")
    elif part in ("loss", "regularizer"):
        asks = part == "loss" and any(getattr(x, "requires_grad", False) for x in given)
        is_real = _is_tensor(value) and value.is_floating_point()
        fits = is_real and (value.requires_grad or not asks)
        expected = "a scalar tensor of floating point" + ", with a gradient" * asks
    elif part == "views":
        views, pairs = {*range(given[0])}, value if isinstance(value, list | tuple) else ()
        fits = all(isinstance(p, tuple) and len({*p}) == 2 and {*p} <= views for p in pairs or [0])
        expected = "pairs (i, j) of two of the views 0, 1, ..."
    elif part in _SCORES:
        fits = isinstance(value, dict) and all(_is_score(x, given) for x in value.values())
        expected = "{name: a finite number up to 1e60, or whether each image is right}"
    elif part == "Dataset" and row.kind == "images":
        is_pair = isinstance(value, tuple | list) and len(value) == 2
        fits = is_pair and all(hasattr(split, "labels") for split in value)
        expected = "a Split to train on and one to test on"
    elif part in _HAS:
        name, expected = _HAS[part]
        fits = hasattr(value, name)
    return "" if fits else expected


def _is_score(x: Any, given: tuple[Any, ...]) -> bool:
    is_hit = str(getattr(x, "dtype", "")) == "torch.bool" and x.shape == given[-1].shape
    return x is None or is_hit or _is_number(x)
