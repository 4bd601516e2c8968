"""What becomes of a trial that goes wrong or loses its process or machine: its error out of Ray's
wrappers, and whether it goes on, has failed, or stays open. What a machine does is no score.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from clsweep.catalog.rows import Row

AGAIN, FAILED, OPEN = "again", "failed", "open"
MEMORY, NODE, RAY = "out of memory", "its node is gone", "Ray has ended"
# In classes and texts of Ray. "OOM killer" is in the text of every death, as one of its guesses.
_SAID = {
    "OutOfMemoryError": MEMORY, "low on memory": MEMORY, "OutOfDiskError": "disk full",
    "NodeDiedError": NODE, "node has died": NODE, "node was terminated": NODE,
    "owner has died": RAY,
}  # fmt: skip
PAUSE_S, LONGEST_PAUSE_S = 5.0, 60.0  # for memory to be free again; each time twice as long
MOST_TEXT = 8 * 1024  # bytes of an error's text that are kept
MOST_ALONE = 3  # trials in a row that memory was missing for though nothing else ran


class StalledError(RuntimeError):
    """A trial said nothing for too long, and its process was ended."""


class Losses:
    """Of one run.

    Attributes:
        actors: of the trials that run, by id.
        open: trials that stay without a row in this run, and why.
        limit: trials at once, by what memory has allowed.
        is_ray_lost: whether Ray itself is gone.
    """

    def __init__(self, max_restarts: int):
        self._max_restarts, self._num = max_restarts, Counter[tuple[str, bool]]()
        self._stalled: dict[str, str] = {}
        self._num_killed, self._pause_s, self._pause_end = _num_killed(), PAUSE_S, 0.0
        self._num_alone = 0
        self.actors: dict[str, Any] = {}
        self.open: dict[str, str] = {}
        self.limit, self.is_ray_lost = sys.maxsize, lambda: ""

    @property
    def waits(self) -> bool:
        """Whether memory has just run out, so that nothing should be started."""
        return time.monotonic() < self._pause_end

    @property
    def is_hopeless(self) -> bool:
        """Whether the next trials would lack memory, too."""
        return self._num_alone >= MOST_ALONE

    def ended(self) -> None:
        """A trial has come to its end."""
        self._num_alone = 0

    def stall(self, trial_id: str, message: str) -> None:
        """End the process of a trial that says nothing any more."""
        import ray

        self._stalled[trial_id] = message
        with contextlib.suppress(Exception):  # of Ray: it is gone, which others see
            ray.kill(self.actors[trial_id])

    def fate(
        self, trial_id: str, error: BaseException | None, num_running: int
    ) -> tuple[str, str, BaseException | None]:
        """What becomes of a trial that was lost, one of so many that ran; why; and its error."""
        if message := self._stalled.pop(trial_id, ""):
            return FAILED, message, StalledError(message)
        reason = self._reason(error)
        is_own = reason != RAY
        if reason == MEMORY:
            is_own = num_running == 1 and not self.waits
            if not self.waits:  # else one of several that were stopped at once
                self.limit = max(1, num_running * 3 // 4)
                reason = f"{MEMORY} with {num_running} at once; going on with {self.limit}"
                self._pause_end = time.monotonic() + self._pause_s
                self._pause_s = min(2 * self._pause_s, LONGEST_PAUSE_S)
        self._num[trial_id, bool(reason)] += is_own
        if self._num[trial_id, bool(reason)] <= self._max_restarts:
            return AGAIN, reason, error
        if reason:
            self.open[trial_id] = reason.partition(" with ")[0]
            self._num_alone += reason.startswith(MEMORY)
        return OPEN if reason else FAILED, reason, error

    def _reason(self, error: BaseException | None) -> str:
        """What the machine has done; empty where the trial's own process may be to blame."""
        if self.is_ray_lost():
            return RAY
        try:
            os.getcwd()
        except OSError:  # no process starts any more
            return "the working folder is gone"
        for cause in causes(error) if error else ():
            if type(cause).__module__.startswith("ray."):
                text = f"{type(cause).__name__} {cause}"
                if reason := next((why for said, why in _SAID.items() if said in text), ""):
                    return reason
        before, self._num_killed = self._num_killed, _num_killed()
        return MEMORY if self._num_killed > before else ""


def _num_killed() -> int:
    """Processes that the kernel has killed here for lack of memory, as far as it says."""
    with contextlib.suppress(OSError):
        _, _, more = Path("/proc/vmstat").read_text().partition("\noom_kill ")
        return int(more.partition("\n")[0] or 0)
    return 0


def describe(error: BaseException) -> Row:
    """Class, message and traceback of the error at the root of Ray's wrappers."""
    root = _root_cause(error)
    name, place = _cut(type(root).__name__, 200), getattr(root, "plugin_place", "")
    # Ray's own texts hold process ids and advice on Ray; equal failures shall have equal messages.
    message = (_of_ray(root) and _LOST.get(name)) or text_of(root).strip() or name
    message = f"{place}: {name}: {message}" if place else message
    trace = _cut("".join(traceback.format_exception(root)), MOST_TEXT, end=MOST_TEXT // 2)
    return {
        "error_class": name,
        "error_message": _cut(message, MOST_TEXT),
        "error_traceback": trace,
    }


def text_of(error: BaseException) -> str:
    """What an error says; nothing where it fails at that, as one of a user's class may."""
    try:
        return str(error)
    except Exception:
        return ""


def _cut(text: str, most: int, *, end: int = 0) -> str:
    """At most about so many bytes of UTF-8 of a text, `end` of them its last ones: it goes through
    Ray, into a table, and onto screens.
    """
    data = text.encode("utf-8", "backslashreplace")
    if len(data) <= most:
        return data.decode()
    head, tail = (
        part.decode("utf-8", "ignore") for part in (data[: most - end], data[len(data) - end :])
    )
    return f"{head} ... {len(data) - most:,} bytes cut ... {tail}"


def _of_ray(error: BaseException) -> bool:
    return type(error).__module__.startswith("ray.")  # torch has an OutOfMemoryError too


_DIED = "the trial's process died: killed from outside, out of memory, or crashed"
_LOST = {
    "ActorDiedError": _DIED,
    "ActorUnavailableError": _DIED,
    "WorkerCrashedError": _DIED,
    "WorkerHealthCheckFailedError": _DIED,
    "NodeDiedError": "the node of the trial died",
    "OutOfMemoryError": "the node ran out of memory; Ray stopped the trial",
}
# What torch says in the other workers of a group when one of them is gone.
_CUT_OFF = re.compile(
    "connection|broken pipe|timed out|timeout|remote process|peer|shut ?down|aborted|system error",
    re.IGNORECASE,
)
_OF_THE_GROUP = re.compile("gloo|nccl|c10d|distributed|tcpstore", re.IGNORECASE)


def is_lost(error: BaseException) -> bool:
    """Whether a process or a machine was lost, rather than that the trial itself went wrong."""
    root = _root_cause(error)
    return _of_ray(root) or _is_cut_off(root)


def _is_cut_off(error: BaseException) -> bool:
    text = text_of(error)
    return _may_be_torch_s(error) and bool(_OF_THE_GROUP.search(text) and _CUT_OFF.search(text))


def _may_be_torch_s(error: BaseException) -> bool:
    """Whether torch's messages between workers raise such errors; a trial's have other classes."""
    name = type(error).__name__
    return (
        type(error) is RuntimeError or isinstance(error, ConnectionError) or name.startswith("Dist")
    )


def _root_cause(error: BaseException) -> BaseException:
    """What went wrong, out of Ray's wrappers, whose messages repeat tracebacks.

    Of several workers that failed, the one with an error of its own. Where one of them died, the
    others only miss it, in whatever words.
    """
    found = list(causes(error))
    has_died = any(map(_of_ray, found))
    return min(
        found,
        key=lambda cause: (has_died and _may_be_torch_s(cause), _is_cut_off(cause), _of_ray(cause)),
    )


def causes(error: BaseException, depth: int = 10) -> Iterator[BaseException]:
    """What an error of Ray wraps."""
    failures = getattr(error, "worker_failures", None) or {}
    names = ("_base_exc", "cause", "health_check_failure", "controller_failure")
    inner = list(failures.values()) or [getattr(error, name, None) for name in names]
    found = [cause for cause in inner if isinstance(cause, BaseException) and cause is not error]
    if not found or not depth:
        yield error
        return
    for cause in found if failures else found[:1]:
        yield from causes(cause, depth - 1)
