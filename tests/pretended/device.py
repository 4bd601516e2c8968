"""The pretended device: its tensors, what it refuses, and the log of what it is asked to do."""

from __future__ import annotations

import contextlib
import ctypes
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor
from torch.optim import optimizer
from torch.utils._python_dispatch import TorchDispatchMode

ROOT = Path(__file__).parents[2]
DEVICE = torch.device("cuda", 0)
BACKWARD = "backward"  # autograd's own operations, in a thread without a line of Python
Place = str  # the innermost line of the project: "train/loop.py:train_epoch", or with its number


class MixedDevicesError(RuntimeError):
    """An operation of tensors on two devices."""


class Call(NamedTuple):
    """An operation on the device: its name, the shapes of its tensors, and its numbers."""

    op: str
    shapes: tuple[tuple[int, ...], ...]
    scalars: tuple[str, ...]


@dataclass
class Log:
    """What the device was asked to do while somebody watched.

    Attributes:
        launches: operations that are no view, each at "file:line".
        waits: what the host waits for, each at "file:function".
        pageable: copies that say they do not wait, of memory that is not pinned.
        draws: random numbers drawn on the device.
        doubles: operations that give float64.
        calls: every launch in its order, if that was asked for.
    """

    launches: Counter[tuple[str, Place]] = field(default_factory=Counter)
    waits: Counter[tuple[str, Place]] = field(default_factory=Counter)
    pageable: Counter[tuple[str, Place]] = field(default_factory=Counter)
    draws: Counter[tuple[str, Place]] = field(default_factory=Counter)
    doubles: Counter[tuple[str, Place]] = field(default_factory=Counter)
    calls: list[Call] | None = None

    @property
    def num_launches(self) -> int:
        return self.launches.total()


_logs: list[Log] = []


@contextlib.contextmanager
def watched(*, calls: bool = False) -> Iterator[Log]:
    """A log of what happens inside; `calls`: with each operation in its order."""
    log = Log(calls=[] if calls else None)
    _logs.append(log)
    try:
        yield log
    finally:
        _logs.remove(log)


def place(*, line: bool = False) -> Place:
    """Where the innermost frame of the package is, or of the tests outside of this file."""
    frame, of_tests = sys._getframe(1), ""
    ours = (f"{ROOT}/clsweep/", f"{ROOT}/tests/")  # an environment may lie beside them
    while frame is not None:
        file = frame.f_code.co_filename
        if file.startswith(ours) and file != __file__:
            where = frame.f_lineno if line else frame.f_code.co_qualname.partition(".<locals>")[0]
            name = file.removeprefix(f"{ROOT}/").removeprefix("clsweep/")
            if file.startswith(f"{ROOT}/clsweep/"):
                return f"{name}:{where}"
            of_tests = of_tests or f"{name}:{where}"
        frame = frame.f_back
    return of_tests or BACKWARD


def _note(kind: str, what: str) -> None:
    where = place() if _logs else ""
    for log in _logs:
        getattr(log, kind)[what, where] += 1


class Pretended(Tensor):
    """A tensor that says it lies on the device; `values` is what it holds, on the CPU."""

    values: Tensor
    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, values: Tensor) -> Self:
        made = Tensor._make_wrapper_subclass(
            cls,
            values.size(),
            strides=values.stride(),
            storage_offset=values.storage_offset(),
            dtype=values.dtype,
            layout=values.layout,
            device=DEVICE,
        )
        made.values = values
        return made

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return dispatch(func, args, kwargs or {})

    def tolist(self) -> Any:
        _note("waits", "tolist")
        return self.values.tolist()

    def numpy(self, *, force: bool = False) -> Any:
        if not force:
            raise TypeError("can't convert cuda:0 device type tensor to numpy")
        _note("waits", "numpy")
        return self.values.detach().numpy(force=True)

    def __array__(self, *_: Any, **__: Any) -> Any:
        return self.numpy()

    def data_ptr(self) -> int:
        return self.values.data_ptr()

    def __deepcopy__(self, memo: dict[int, Any]) -> Tensor:
        copied: Tensor = Pretended(self.values.detach().clone()).requires_grad_(self.requires_grad)
        if isinstance(self, torch.nn.Parameter):
            copied = torch.nn.Parameter(copied, self.requires_grad)
        memo[id(self)] = copied
        return copied

    def __reduce_ex__(self, protocol: Any) -> Any:
        """What is saved, or sent to another process, is on the CPU."""
        _note("waits", "save")
        return self.values.detach().__reduce_ex__(protocol)

    def __repr__(self) -> str:
        return f"Pretended({self.values!r})"


class _Mode(TorchDispatchMode):
    """Sees what no argument gives away, as a tensor that is made on the device."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return dispatch(func, args, kwargs or {})


def install() -> None:
    """Have this process, beside the stand-ins for CUDA's libraries, pretend for good."""
    # What is set here is an option of torch or a list of what it knows; its functions stay.
    torch.backends.cudnn.enabled = False  # batch norm would ask it for its own operations
    cuda = torch.backends.cuda  # attention by its formula: the CPU has none of a GPU's kernels
    for enable in (cuda.enable_flash_sdp, cuda.enable_mem_efficient_sdp, cuda.enable_cudnn_sdp):
        enable(False)
    torch.__future__.set_swap_module_params_on_conversion(True)  # a module's type changes with it
    torch._C._set_only_lift_cpu_tensors(True)  # `torch.tensor` copies where it is seen
    optimizer._foreach_supported_types.append(Pretended)
    torch.cuda.init()
    ctypes.CDLL(None).pretended_listen(_synchronized)
    _Mode().__enter__()


@ctypes.CFUNCTYPE(None)
def _synchronized() -> None:
    _note("waits", "synchronize")  # of the device, a stream or an event


# What torch does on a GPU.

_NO_LAUNCH = {
    "empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "_unsafe_view",
    "_reshape_alias", "detach", "is_same_size", "record_stream", "is_pinned", "sym_size", "set_",
}  # fmt: skip
# The host waits for what an operation's result, or the shape of it, depends on; torch has tags for
# that. Some wait inside: for whether the solver has converged.
_ON_VALUES = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape}
_ALSO = {"_linalg_check_errors", "_linalg_svd", "_linalg_eigh", "linalg_lstsq", "histc"}
_SAID = {
    "_local_scalar_dense": "item", "_unique2": "unique", "unique_dim": "unique",
    "unique_consecutive": "unique", "_linalg_check_errors": "linalg", "_linalg_svd": "svd",
    "_linalg_eigh": "eigh",
}  # fmt: skip
# A tensor of no dimension on the CPU may stand for a number in these, and wherever each element is
# computed on its own.
_NUMBERS = {"fill", "fill_", "masked_fill", "masked_fill_", "index_put", "index_put_", "copy_"}
_INDEXED = {"index", "index_put", "index_put_", "_index_put_impl_", "_unsafe_index"}


@cache
def _launches(func: Any) -> bool:
    """Whether an operation is more than another look at the same memory."""
    returned = [each.alias_info for each in func._schema.returns]
    is_view = any(alias is not None and not alias.is_write for alias in returned)
    return not is_view and _name(func) not in _NO_LAUNCH


@cache
def _written(func: Any) -> tuple[int, ...]:
    """Positions of the arguments that it writes to."""
    arguments = func._schema.arguments
    return tuple(i for i, a in enumerate(arguments) if a.alias_info and a.alias_info.is_write)


@cache
def _name(func: Any) -> str:
    return str(func._schema.name.removeprefix("aten::"))


def dispatch(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """Run an operation: as it is on the CPU, on the values on the device."""
    given = [x for x in _flat((args, kwargs)) if isinstance(x, Tensor)]
    mine = [x for x in given if isinstance(x, Pretended)]
    wanted = _device(kwargs)
    if not mine and (wanted is None or wanted.type != "cuda"):
        return func(*args, **kwargs)
    name = _name(func)
    if name in ("_to_copy", "copy_"):
        return _copy(func, name, args, kwargs)
    _require_one_device(func, args, kwargs, given)
    _note_waits(func, name, args, kwargs)
    if torch.Tag.nondeterministic_seeded in func.tags and _draws(name, args):
        _note("draws", name)
    made = func(*_mapped(_values, args), **_on_host(kwargs))
    _note_launch(func, args, kwargs, made)
    if wanted is not None and wanted.type != "cuda":
        return made
    # what was written to is returned itself
    known = {id(x.values): x for x in mine}
    return _mapped(lambda x: _pretended(x, known), made)


def _copy(func: Any, name: str, args: Any, kwargs: dict[str, Any]) -> Any:
    """To the device, from it or on it."""
    is_into = name == "copy_"
    source, wanted = args[1 if is_into else 0], _device(kwargs)
    made = func(*_mapped(_values, args), **_on_host(kwargs))
    if is_into:
        target = args[0]
    else:
        to_device = isinstance(source, Pretended) if wanted is None else wanted.type == "cuda"
        target = Pretended(made) if to_device else made
    non_blocking = kwargs.get("non_blocking", is_into and len(args) > 2 and args[2])
    _note_copy(source, target, non_blocking=bool(non_blocking))
    if isinstance(target, Pretended):
        _note_launch(func, args, kwargs, made)
    return target


def _note_copy(source: Tensor, target: Tensor, *, non_blocking: bool) -> None:
    to_device, from_device = (isinstance(x, Pretended) for x in (target, source))
    if to_device == from_device:
        return
    what = f"copy {'to' if to_device else 'from'} the device"
    if not non_blocking:
        _note("waits", what)
    # what changes its type or its order goes by way of memory that is not pinned
    elif to_device and not (
        source.is_pinned()
        and source.dtype == target.dtype
        and (source.stride() == target.stride() or source.numel() < 2)
    ):
        _note("pageable", what)


def _require_one_device(func: Any, args: Any, kwargs: Any, given: list[Tensor]) -> None:
    """Raise if an operation on the device has a tensor of the host that is more than a number."""
    name = _name(func)
    if name.endswith("_like") or name.startswith("new_"):  # it looks at shape and type alone
        return
    others = [x for x in given if not isinstance(x, Pretended)]
    if name in _INDEXED and isinstance(args[0], Pretended):  # the device fetches its indices
        others = [x for x in others if not any(x is index for index in args[1])]
    written = [x for i in _written(func) if i < len(args) for x in _flat(args[i])]
    is_number = torch.Tag.pointwise in func.tags or name in _NUMBERS
    for x in others:
        if x.dim() > 0 or not is_number or any(x is each for each in written):
            where = ", ".join(f"{each.device}{list(each.shape)}" for each in given)
            raise MixedDevicesError(
                f"Expected all tensors to be on the same device: {func} at {place()}, given {where}"
            )
    generator = kwargs.get("generator")
    if generator is not None and generator.device.type != "cuda":
        raise MixedDevicesError(f"{func} at {place()}: expected a generator of the device")


def _note_waits(func: Any, name: str, args: Any, kwargs: dict[str, Any]) -> None:
    is_known = kwargs.get("output_size") is not None or name in _INDEXED
    if name in _ALSO or (_ON_VALUES & set(func.tags) and not is_known):
        _note("waits", _SAID.get(name, name))
    if name not in _INDEXED:
        return
    for index in args[1]:
        if index is None:
            continue
        if not isinstance(index, Pretended):
            _note("waits", "index of the host")
        # one number of the host is filled in where the mask is true
        is_filled = len(args) > 2 and args[2].numel() == 1 and not isinstance(args[2], Pretended)
        if index.dtype in (torch.bool, torch.uint8) and not is_filled:
            _note("waits", "index by booleans")


def _draws(name: str, args: Any) -> bool:
    """Whether it draws this time: dropout does not in evaluation, nor of nothing."""
    if name == "native_dropout":
        return bool(args[1] and args[2] is not False)
    return True


def _note_launch(func: Any, args: Any, kwargs: dict[str, Any], made: Any) -> None:
    if not _logs or not _launches(func):
        return
    name, where = _name(func), place(line=True)
    if name == "clone" and where == BACKWARD:
        return  # of a gradient, which a GPU's parameter takes as it is: Python holds this one too
    is_double = any(isinstance(x, Tensor) and x.dtype == torch.float64 for x in _flat(made))
    for log in _logs:
        log.launches[name, where] += 1
        if is_double:
            log.doubles[name, where] += 1
        if log.calls is not None:
            given = [x for x in _flat((args, kwargs)) if x is not None]
            shapes = tuple(tuple(x.shape) for x in given if isinstance(x, Tensor))
            # as text, in which what is not a number equals itself
            scalars = tuple(str(x) for x in given if isinstance(x, int | float | str | torch.dtype))
            log.calls.append(Call(name, shapes, scalars))


def _device(kwargs: dict[str, Any]) -> torch.device | None:
    if (device := kwargs.get("device")) is None:
        return None
    device = torch.device(device)
    if device.type == "cuda" and device.index:
        raise RuntimeError(f"CUDA error: invalid device ordinal {device.index}")
    return device


def _on_host(kwargs: dict[str, Any]) -> dict[str, Any]:
    """The same keywords for the values."""
    moved = {name: _mapped(_values, value) for name, value in kwargs.items()}
    if moved.get("device") is not None:
        moved["device"] = torch.device("cpu")
    for name in ("pin_memory", "generator"):
        if name in moved:
            moved[name] = None
    moved.pop("non_blocking", None)
    return moved


def _values(x: Any) -> Any:
    if isinstance(x, Pretended):
        return x.values
    if isinstance(x, torch.device) and x.type == "cuda":
        return torch.device("cpu")
    return x


def _pretended(x: Any, known: dict[int, Pretended]) -> Any:
    if not isinstance(x, Tensor) or isinstance(x, Pretended):
        return x
    return known[id(x)] if id(x) in known else Pretended(x)


def _mapped(function: Callable[[Any], Any], x: Any) -> Any:
    """`function` of everything in lists, tuples and dictionaries."""
    if isinstance(x, list | tuple):
        return type(x)(_mapped(function, each) for each in x)
    if isinstance(x, dict):
        return {name: _mapped(function, each) for name, each in x.items()}
    return function(x)


def _flat(x: Any) -> Iterator[Any]:
    if isinstance(x, list | tuple):
        for each in x:
            yield from _flat(each)
    elif isinstance(x, dict):
        yield from _flat(list(x.values()))
    else:
        yield x
