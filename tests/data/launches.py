"""What work on a device without values asks of it: how many operations, and how much memory."""

from __future__ import annotations

import weakref
from typing import Any

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class Launches(TorchDispatchMode):
    """Counts the operations on tensors of the meta device that are no views, and the bytes of its
    tensors that lived at the same time; those that live inside an operation are not seen.
    """

    def __init__(self) -> None:
        super().__init__()
        self.count = self.peak_bytes = 0
        self._tensors: list[weakref.ref[Tensor]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        new = [t for t in tree_leaves(result) if isinstance(t, Tensor) and t.device.type == "meta"]
        if new:
            self.count += not (func.is_view or func.name().startswith("aten::empty"))
            self._tensors += map(weakref.ref, new)
            self._measure()
        return result

    def _measure(self) -> None:
        living = [(ref, tensor) for ref in self._tensors if (tensor := ref()) is not None]
        self._tensors = [ref for ref, _ in living]
        storages = (tensor.untyped_storage() for _, tensor in living)
        self.peak_bytes = max(
            self.peak_bytes, sum({s._cdata: s.nbytes() for s in storages}.values())
        )
