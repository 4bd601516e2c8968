"""Memory of one trial, also where several trials run in one process after another: its peak, and
its reuse.
"""

from __future__ import annotations

import ctypes
from pathlib import Path

import torch

_MMAP_MAX, _TRIM_THRESHOLD = -4, -1  # of glibc's mallopt
_STATUS, _RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def keep_freed_memory() -> None:
    """Let glibc reuse freed memory: it would map every tensor above 32 MiB anew, with a page fault
    each 4 KiB.

    By measurement a fifth to a third of a CPU step. What the process has kept goes back when the
    next trial starts.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:  # another C library
        mallopt(_MMAP_MAX, 0)
        mallopt(_TRIM_THRESHOLD, 2**31 - 1)


class PeakMemory:
    """Counts from its construction: what PyTorch reserves on a GPU, resident memory of the process
    on a CPU (Linux).
    """

    def __init__(self, device: torch.device):
        self._device = device
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
            return
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim(0)  # what an earlier trial of this process left free is none of this one's
        try:
            _RESET.write_text("5")  # resets the high-water mark of this process
            self._measurable = True
        except OSError:
            self._measurable = False

    def peak_gib(self) -> float | None:
        """Peak in GiB, or None where the system does not tell."""
        if self._device.type == "cuda":
            return float(torch.cuda.max_memory_reserved(self._device)) / 2**30
        if not self._measurable:
            return None
        line = next(line for line in _STATUS.read_text().splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) / 2**20
