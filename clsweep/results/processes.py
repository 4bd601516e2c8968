"""Processes of this machine, told apart for good: the system gives an id again, but never with the
same start.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable
from typing import NamedTuple

Start = float  # clock ticks since the boot where there is a /proc, else seconds since 1970


class Process(NamedTuple):
    """One line of the table of processes."""

    parent: int
    start: Start


def living() -> dict[int, Process]:
    """All processes that live, by id."""
    if os.path.exists("/proc/self/stat"):
        ids = [int(name) for name in os.listdir("/proc") if name.isdecimal()]
        return {pid: process for pid in ids if (process := _linux(pid))}
    import psutil

    return {
        process.pid: Process(process.info["ppid"], process.info["create_time"])
        for process in psutil.process_iter(["ppid", "create_time"])
        if process.info["create_time"] is not None
    }


def descendants(pid: int, table: dict[int, Process]) -> set[int]:
    """The children of a process, their children, and so on."""
    found: set[int] = set()
    waiting = {pid}
    while waiting:
        waiting = {child for child, process in table.items() if process.parent in waiting} - found
        found |= waiting
    return found


def alive(noted: Iterable[tuple[int, Start]], table: dict[int, Process]) -> set[tuple[int, Start]]:
    """Those that still live, and are not another process of the same id."""
    return {(pid, start) for pid, start in noted if pid in table and table[pid].start == start}


def temporary_prefix() -> str:
    """Of the names of this process's temporary folders: it says whose they are."""
    pid = os.getpid()
    return f"clsweep-{pid}-{living()[pid].start}-"


def here() -> str:
    """What tells apart all places where process ids count anew, as far as the system says."""
    return machine() or socket.gethostname()


def machine() -> str | None:
    """A boot of a machine, or a container of it; None where the system does not say."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            return f"{file.read().strip()}-{os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return None


def _linux(pid: int) -> Process | None:
    """None for a process that has ended, also if nobody has asked how yet."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # after the command's name, which may hold anything
            state, parent, *more = file.read().rpartition(b") ")[2].split()
    except (OSError, ValueError):
        return None
    return None if state in (b"Z", b"X") else Process(int(parent), int(more[17]))
