"""A GPU below torch's own Python: what torch asks of its C++ and of the driver is answered here.
What it checks before it asks, it checks. No tensor lies on it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
import torch

GIB = 2**30


@dataclass
class Driver:
    """Of one GPU, the current device of its process.

    Attributes:
        shares: the memory fractions that were set, in order; the last one holds.
        reserved: bytes that torch's allocator holds.
    """

    total: int = 80 * GIB
    free: int = 79 * GIB
    reserved: int = 0
    shares: list[float] = field(default_factory=list)

    def install(self, patch: pytest.MonkeyPatch) -> Driver:
        counts = {"reserved_bytes": {"all": {"current": self.reserved, "peak": self.reserved}}}
        for module in (torch.cuda, torch.cuda.memory):
            patch.setattr(module, "_lazy_init", lambda: None)
        patch.setattr(torch.cuda.memory, "is_initialized", lambda: True)
        of_c: dict[str, Any] = {
            "_cuda_getDevice": lambda: 0,
            "_cuda_getDeviceCount": lambda: 1,
            "_cuda_setMemoryFraction": lambda share, _: self.shares.append(share),
            "_cuda_getMemoryFraction": lambda _: self.shares[-1] if self.shares else 1.0,
            "_cuda_memoryStats": lambda _: counts,
            "_cuda_resetPeakMemoryStats": lambda _: None,
        }
        for name, answer in of_c.items():
            patch.setattr(torch._C, name, answer, raising=False)
        runtime = SimpleNamespace(cudaMemGetInfo=lambda _: (self.free, self.total))
        patch.setattr(torch.cuda, "cudart", lambda: runtime)
        return self
