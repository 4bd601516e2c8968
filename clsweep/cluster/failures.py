"""A trial that goes wrong or loses its process or machine: retried, failed, or left open. What a
machine does is no score.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from clsweep.cluster.error_causes import causes
from clsweep.cluster.leftovers import remove_orphaned_groups

RETRY, FAILED, OPEN = "retry", "failed", "open"
Decision = tuple[str, str, BaseException | None]
MEMORY, NODE, RAY = "out of memory", "its node is gone", "Ray has ended"
# In classes and texts of Ray. "OOM killer" is in the text of every death, as one of its guesses.
_REASONS = {
    "OutOfMemoryError": MEMORY, "low on memory": MEMORY, "OutOfDiskError": "disk full",
    "NodeDiedError": NODE, "node has died": NODE, "node was terminated": NODE,
    "owner has died": RAY,
}  # fmt: skip
PAUSE_S, LONGEST_PAUSE_S = 5.0, 60.0  # for memory to be free again; each time twice as long
MOST_ALONE = 3  # trials in a row that memory was missing for though nothing else ran


class StalledError(RuntimeError):
    """A trial said nothing for too long, and its process was ended."""


class FailurePolicy:
    """Decides on the lost trials of one run: retry, fail, or leave open.

    Attributes:
        actors: of the trials that run, by id.
        open: trials that stay without a row in this run, and why.
        limit: trials at once, by what memory has allowed.
        is_ray_lost: the part of Ray that is gone, empty if none.
    """

    def __init__(self, max_restarts: int):
        self._max_restarts, self._num = max_restarts, Counter[tuple[str, bool]]()
        self._stalled: dict[str, str] = {}
        self._num_killed, self._pause_s, self._pause_end = _num_killed(), PAUSE_S, 0.0
        self._num_alone, self._has_lost = 0, False
        self.actors: dict[str, Any] = {}
        self.open: dict[str, str] = {}
        self.limit, self.is_ray_lost = sys.maxsize, lambda: ""

    @property
    def waits(self) -> bool:
        """True if memory has just run out, so that nothing should be started."""
        return time.monotonic() < self._pause_end

    @property
    def is_hopeless(self) -> bool:
        """True if the next trials would lack memory, too."""
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

    def decide(self, trial_id: str, error: BaseException | None, num_running: int) -> Decision:
        """RETRY, OPEN or FAILED for a lost trial, one of so many that ran; why; its error."""
        self._has_lost = True
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
            return RETRY, reason, error
        if reason:
            self.open[trial_id] = reason.partition(" with ")[0]
            self._num_alone += reason.startswith(MEMORY)
        return OPEN if reason else FAILED, reason, error

    def free_groups(self) -> None:
        """Give back what the worker groups of lost trials still hold: else no other would start."""
        if self._has_lost:
            remove_orphaned_groups()

    def _reason(self, error: BaseException | None) -> str:
        """The machine's part in it; empty where the trial's own process may be to blame."""
        if self.is_ray_lost():
            return RAY
        try:
            os.getcwd()
        except OSError:  # no process starts any more
            return "the working folder is gone"
        for cause in causes(error) if error else ():
            if type(cause).__module__.startswith("ray."):
                text = f"{type(cause).__name__} {cause}"
                if reason := next((why for words, why in _REASONS.items() if words in text), ""):
                    return reason
        before, self._num_killed = self._num_killed, _num_killed()
        return MEMORY if self._num_killed > before else ""


def _num_killed() -> int:
    """Processes that the kernel has killed here for lack of memory, as far as it says."""
    with contextlib.suppress(OSError):
        _, _, more = Path("/proc/vmstat").read_text().partition("\noom_kill ")
        return int(more.partition("\n")[0] or 0)
    return 0
