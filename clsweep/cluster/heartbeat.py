"""A trial's heartbeat: it tells its run how far it is, and hears when it is to save."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from clsweep.catalog.rows import Row
from clsweep.train.save_request import SaveRequest

RELAY_S = 6.0  # for the first worker to hear and to save


class TrialHeartbeat:
    """Of one worker.

    Args:
        tell: lets the run know how far the trial is, and the latest demand that it has met; returns
            what the run asks, if it could be told.
        relay: asks all trials for a checkpoint: of a worker that is not the first of its group,
            which alone tells and saves.
    """

    def __init__(
        self, tell: Callable[[Row, str], str | None], relay: Callable[[str], object] | None = None
    ):
        self._tell = tell
        self._state: Row = {}
        self._request = self._saved = ""
        self.notice = SaveRequest(self._answer) if relay is None else _RelayedRequest(relay)

    def tell(self, state: Row) -> None:
        """Say how far the trial is; a demand that was not heard before gives notice."""
        self._state = state
        request = self._tell(state, self._saved)
        if request and request != self._request:
            self._request = request
            self.notice.give()

    def _answer(self) -> None:
        self._saved = self._request
        if self._state:
            self._tell(self._state, self._saved)


class _RelayedRequest(SaveRequest):
    """Of a worker that saves nothing: it asks the first one, by way of the run."""

    def __init__(self, relay: Callable[[str], object]):
        super().__init__()
        self._relay = relay

    def give(self) -> None:
        self._relay(f"worker {os.getpid()} {time.time_ns()}")

    def wait(self, timeout_s: float) -> bool:
        time.sleep(min(timeout_s, RELAY_S))
        return True
