"""A trial's line to its run: how far it is, and whether it is to save now."""

from __future__ import annotations

import os
import time
from typing import Protocol

from clsweep.catalog.rows import Row
from clsweep.train.notice import Notice

RELAY_S = 6.0  # for the first worker to hear and to save


class Ends(Protocol):
    """The other end, see `TrialContext`."""

    def tell(self, trial_id: str, state: Row, saved: str = "") -> str: ...

    def ask_to_save(self, demand: str) -> None: ...


class Line:
    """Of one worker.

    Args:
        speaks: it is the first of its group, which tells and saves.
    """

    def __init__(self, run: Ends, trial_id: str, *, speaks: bool):
        self._run, self._trial_id, self.speaks = run, trial_id, speaks
        self._state: Row = {}
        self._asked = self._saved = ""
        self.notice: Notice = Notice(self._answer) if speaks else _Relayed(run)

    def tell(self, state: Row) -> None:
        """Say how far the trial is; a demand that was not heard before gives notice."""
        self._state = state
        asked = self._run.tell(self._trial_id, state, self._saved)
        if asked and asked != self._asked:
            self._asked = asked
            self.notice.give()

    def _answer(self) -> None:
        self._saved = self._asked
        if self._state:
            self._run.tell(self._trial_id, self._state, self._saved)


class _Relayed(Notice):
    """Of a worker that saves nothing: it asks the first one, by way of the run."""

    def __init__(self, run: Ends):
        super().__init__()
        self._run = run

    def give(self) -> None:
        self._run.ask_to_save(f"worker {os.getpid()} {time.time_ns()}")

    def wait(self, timeout_s: float) -> bool:
        time.sleep(min(timeout_s, RELAY_S))
        return True
