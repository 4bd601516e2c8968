"""Peak memory of one trial, also where several trials run in one process after another."""

from __future__ import annotations

from pathlib import Path

import torch

_STATUS, _RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")


class PeakMemory:
    """Counts from its construction: device memory on a GPU, resident memory of the process on a CPU (Linux)."""

    def __init__(self, device: torch.device):
        self._device = device
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
            return
        try:
            _RESET.write_text("5")  # resets the high-water mark of this process
            self._measurable = True
        except OSError:
            self._measurable = False

    def peak_gib(self) -> float | None:
        """Peak in GiB, or None where the system does not tell."""
        if self._device.type == "cuda":
            return float(torch.cuda.max_memory_allocated(self._device)) / 2**30
        if not self._measurable:
            return None
        line = next(line for line in _STATUS.read_text().splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) / 2**20
