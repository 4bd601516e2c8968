"""The `meta` device, made to take about the host time of a real one: tensors of shapes alone, whose
operations cost the host what they cost it on CUDA, a dispatch and a short call.

Torch works out the shape of a result in Python, in up to a hundred times that time. Here it does so
once for each operation and shapes of inputs, and is remembered.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import torch
import torch._meta_registrations  # fills the kernels that are replaced
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

META = torch.device("meta")
_KEY = torch._C.DispatchKey.Meta
# On CUDA one operation for all parameters; meta has none, or one after another.
_OF_ALL = ("_fused_sgd_", "_fused_sgd_.tensor_lr", "_foreach_add_.List")


class EnoughError(Exception):
    """The steps wanted are done; an epoch's end would ask meta tensors for numbers."""


@contextlib.contextmanager
def like_a_device(*runs: Callable[[], object]) -> Iterator[None]:
    """What meta tensors lack is there, and operations that `runs` take are quick, as long as it
    lasts. Autocast can be entered, and leaves meta tensors alone.
    """
    library = torch.library.Library("aten", "IMPL")
    autocast, is_enabled = torch.autocast, torch.is_autocast_enabled

    def entered(kind: str, *rest: Any, **named: Any) -> torch.autocast:
        return autocast("cpu" if kind == "meta" else kind, *rest, **named)

    def enabled(kind: str) -> bool:
        return kind != "meta" and is_enabled(kind)

    library.impl("nonzero", _off_diagonal, "Meta", allow_override=True)
    library.impl("_to_copy", _copied, "Meta", allow_override=True)
    for name in _OF_ALL:
        library.impl(name, _nothing_done, "Meta", allow_override=True)
    try:
        with (
            mock.patch.object(torch, "autocast", entered),
            mock.patch.object(torch, "is_autocast_enabled", enabled),
        ):
            for operation in _taken(runs):
                quick = _remembered(operation)
                library.impl(operation.name()[6:], quick, "Meta", allow_override=True)
            yield
    finally:
        library._destroy()


def _taken(runs: tuple[Callable[[], object], ...]) -> list[Any]:
    """Operations of which torch works out the result in Python."""
    seen: set[Any] = set()

    class Seen(TorchDispatchMode):
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            seen.add(func)
            return func(*args, **(kwargs or {}))

    for run in runs:
        with Seen():
            run()
    asks = torch.ops.aten._local_scalar_dense.default  # a number, of which meta has none
    return [func for func in seen if _KEY in func.py_kernels and func is not asks]


def _remembered(operation: Any) -> Callable[..., Any]:
    """The operation's kernel, which works out each shape once."""
    kernel, results = operation.py_kernels[_KEY], dict[Any, Any]()
    changed = [argument.name for argument in operation._schema.arguments if argument.is_out]
    if changed:
        return lambda *_, **named: named[changed[0]]
    if operation._schema.name.endswith("_"):
        return lambda first, *_, **__: first

    def run(*args: Any, **named: Any) -> Any:
        key = _key(args), *named.items()
        if key not in results:
            results[key] = _shape(kernel(*args, **named))
        return _made(results[key])

    return run


def _key(x: Any) -> Any:
    if isinstance(x, Tensor):
        return x.shape, x.stride(), x.dtype
    return tuple(map(_key, x)) if isinstance(x, list | tuple) else x


def _shape(result: Any) -> Any:
    """A tensor as the arguments that make one like it."""
    if isinstance(result, list | tuple):
        return [_shape(x) for x in result]
    return result if result is None else (result.shape, result.stride(), result.dtype)


def _made(shape: Any) -> Any:
    if isinstance(shape, list):
        return tuple(map(_made, shape))
    return shape and torch.empty_strided(*shape[:2], dtype=shape[2], device=META)


def _off_diagonal(mask_NN: Tensor) -> Tensor:
    """Where a mask of all but the diagonal is true: (N (N - 1), 2)."""
    num = len(mask_NN)
    return torch.empty(num * (num - 1), 2, dtype=torch.int64, device=META)


def _copied(x: Tensor, *, dtype: Any = None, device: Any = None, **named: Any) -> Tensor:
    """Of another type, or from the CPU, or on the CPU, where its numbers are 0."""
    to = {"dtype": dtype or x.dtype, "device": device or x.device}
    if torch.device(to["device"]).type == "cpu":
        return torch.zeros(x.shape, **to)
    return torch.empty_like(x, **to, memory_format=named.get("memory_format"))


def _nothing_done(*_: Any, **__: Any) -> None:
    """The parameters stay as they are."""
