"""What this process may use of its machine."""

from __future__ import annotations

import os
from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup")


def num_cores(cgroups: Path = CGROUPS) -> int:
    """Cores that this process may use: a scheduler or `taskset` may have pinned it to some, and a
    container may have a quota of their time, of which the whole cores count.
    """
    pinned = getattr(os, "sched_getaffinity", None)
    cores = len(pinned(0)) if pinned else os.cpu_count() or 1
    quota = _quota(cgroups)
    return cores if quota is None else max(min(cores, int(quota)), 1)


def _quota(cgroups: Path) -> float | None:
    """Cores' worth of time, by the second or the first version of cgroups; None without a limit."""
    for read in (
        lambda: (cgroups / "cpu.max").read_text().split(),
        lambda: [(cgroups / "cpu" / f"cpu.cfs_{of}_us").read_text() for of in ("quota", "period")],
    ):
        try:
            quota, period = map(float, read())  # the second version says "max" where none is
        except (OSError, ValueError):
            continue
        return quota / period if quota > 0 and period > 0 else None
    return None
