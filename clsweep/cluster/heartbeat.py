"""What a run does every few seconds, whatever its trials do."""

from __future__ import annotations

import contextlib
import threading
import time
from typing import Any

from clsweep.cluster.leftovers import Leftovers
from clsweep.cluster.progress import Progress
from clsweep.cluster.said import heard
from clsweep.cluster.sharing import Share
from clsweep.errors import RequestError
from clsweep.results.folder import ResultsFolder

INTERVAL_S = 2.0
JOURNAL_INTERVAL_S = 30.0  # between copies of the Optuna journal to an object store


class Heartbeat:
    """A context manager: says that the study is alive and what runs, and follows the other studies
    of the cluster.
    """

    def __init__(
        self, folder: ResultsFolder, progress: Progress, share: Share, leftovers: Leftovers
    ):
        self._folder, self._progress, self._share = folder, progress, share
        self._leftovers = leftovers
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._beat, daemon=True)

    def __enter__(self) -> Heartbeat:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _beat(self) -> None:
        journal_kept = time.monotonic()
        while not self._ended.wait(INTERVAL_S):
            running = self._progress.running
            states = heard(self._folder.scratch, running)
            self._progress.heard(states)
            headline = self._progress.headline()
            self._say(
                {"state": "running", "running": running, "headline": headline, "trials": states}
            )
            # of Ray: the cluster is going away, and the trials will tell
            with contextlib.suppress(Exception):
                self._share.update(running)
            self._leftovers.note()
            if time.monotonic() - journal_kept > JOURNAL_INTERVAL_S:
                journal_kept = time.monotonic()
                with contextlib.suppress(RequestError):  # its last copy, at the end, must succeed
                    self._folder.keep_journal()
        self._say({"state": "ended", "running": []})

    def _say(self, state: dict[str, Any]) -> None:
        # A full disk is reported by the first row that does not fit, and so is a folder that
        # another run has taken.
        with contextlib.suppress(RequestError):
            self._folder.beat({**state, "time": time.time()})
