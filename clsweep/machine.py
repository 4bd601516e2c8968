"""The cores that this process may use, and the machine's processes, told apart for good: the
system gives an id again, but never with the same start.
"""

from __future__ import annotations

import os
import socket
from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup")
NICENESS = 15  # of Ray's workers by default
Start = float  # clock ticks since the boot where there is a /proc, else seconds since 1970


def num_cores(cgroups: Path = CGROUPS) -> int:
    """Cores that this process may use: a scheduler or `taskset` may have pinned it to some, and a
    container may have a quota of their time, of which the whole cores count.
    """
    pinned = getattr(os, "sched_getaffinity", None)
    cores = len(pinned(0)) if pinned else os.cpu_count() or 1
    try:  # of the second version of cgroups
        quota, period = map(float, (cgroups / "cpu.max").read_text().split())
    except (OSError, ValueError):  # "max" where there is no limit
        return cores
    return max(min(cores, int(quota / period)), 1) if quota > 0 and period > 0 else cores


def stand_back() -> None:
    """Give way to what else the machine does, as a trial in one of Ray's workers."""
    if (missing := NICENESS - os.nice(0)) > 0:
        os.nice(missing)


def living() -> dict[int, Start]:
    """When each process that lives has started, by id."""
    if os.path.exists("/proc/self/stat"):
        ids = [int(name) for name in os.listdir("/proc") if name.isdecimal()]
        return {pid: start for pid in ids if (start := _linux(pid)) is not None}
    import psutil

    return {
        process.pid: process.info["create_time"]
        for process in psutil.process_iter(["create_time"])
        if process.info["create_time"] is not None
    }


def temporary_prefix() -> str:
    """Of the names of this process's temporary folders: it says whose they are."""
    pid = os.getpid()
    return f"clsweep-{pid}-{living()[pid]}-"


def here() -> str:
    """The name of a place where process ids count anew, as far as the system says."""
    return machine() or socket.gethostname()


def machine() -> str | None:
    """A boot of a machine, or a container of it; None where the system does not say."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            return f"{file.read().strip()}-{os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return None


def _linux(pid: int) -> Start | None:
    """None for a process that has ended, also if nobody has asked how yet."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # after the command's name, which may hold anything
            state, *more = file.read().rpartition(b") ")[2].split()
    except (OSError, ValueError):
        return None
    return None if state in (b"Z", b"X") else int(more[18])
