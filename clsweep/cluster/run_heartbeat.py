"""The heartbeat of a run: every few seconds that it is alive and what runs."""

from __future__ import annotations

import contextlib
import threading
import time
from typing import Any

from clsweep.cluster.failures import FailurePolicy
from clsweep.cluster.loggers import Loggers
from clsweep.cluster.mailbox import read_epochs, read_states, request_checkpoints
from clsweep.cluster.progress import RunProgress
from clsweep.errors import RequestError
from clsweep.results.folder import ResultsFolder

BEAT_S = 2.0
LOST_S = 5.0  # for an answer of a Ray that is lost
EPOCHS_INTERVAL_S = 10.0  # between two writes of the epochs of trials under way
WRITING_SHARE = 0.05  # of the time that these may take
JOURNAL_INTERVAL_S = 30.0  # between copies of the Optuna journal to an object store
STALL_ADVICE = "A trial that may be silent for longer needs a larger resources.stall_s"


class RunHeartbeat:
    """A context manager: says that the study is alive and what runs, keeps and logs the epochs of
    trials under way, has trials save where a machine is about to go, and ends those that are silent
    for too long.
    """

    def __init__(
        self,
        folder: ResultsFolder,
        progress: RunProgress,
        loggers: Loggers,
        failures: FailurePolicy,
        *,
        is_alone: bool,
    ):
        self._folder, self._progress = folder, progress
        self._loggers, self._failures, self._is_alone = loggers, failures, is_alone
        self._draining: frozenset[str] = frozenset()
        self._next_write = time.monotonic() + EPOCHS_INTERVAL_S
        self._num_epochs: dict[str, int] = {}
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._beat, daemon=True)

    def __enter__(self) -> RunHeartbeat:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join(LOST_S if self._failures.is_ray_lost() else None)

    def _beat(self) -> None:
        journal_kept = time.monotonic()
        while not self._ended.wait(BEAT_S):
            running = self._progress.running
            self._progress.waits = self._failures.waits
            self._progress.heard(read_states(self._folder.scratch, running))
            state = {
                "state": "running",
                "running": running,
                "headline": self._progress.headline(),
                "trials": self._progress.states(),
            }
            if self._say(state):  # where we cannot write, trials may have tried in vain, too
                for trial_id, place in self._progress.stalled().items():
                    message = f"{place}; its process was ended. {STALL_ADVICE}"
                    self._failures.stall(trial_id, message)
            # of Ray: the cluster is going away, and the trials will tell
            with contextlib.suppress(Exception):
                self._failures.free_groups()
                if not self._is_alone:
                    self._look_for_preemption()
            if time.monotonic() >= self._next_write:
                self._keep_epochs()
            if time.monotonic() - journal_kept > JOURNAL_INTERVAL_S:
                journal_kept = time.monotonic()
                with contextlib.suppress(RequestError):  # its last copy, at the end, must succeed
                    self._folder.keep_journal()
        self._keep_epochs()
        self._say({"state": "ended", "running": []})

    def _keep_epochs(self) -> None:
        """Put the epochs of trials under way into folder and loggers, where there are new ones."""
        start = time.monotonic()
        rows = read_epochs(self._folder.scratch, self._progress.running)
        num_epochs = {trial_id: len(epochs) for trial_id, epochs in rows.items()}
        if num_epochs != self._num_epochs or self._ended.is_set():
            self._num_epochs = num_epochs
            for trial_id, epochs in rows.items():
                self._loggers.reported(trial_id, epochs)
            with contextlib.suppress(RequestError):  # they come once more with their trials
                self._folder.keep_running(rows)
        end = time.monotonic()
        self._next_write = end + max(EPOCHS_INTERVAL_S, (end - start) / WRITING_SHARE)

    def _look_for_preemption(self) -> None:
        """Ask for checkpoints where a machine is about to be taken away: Ray knows by its
        autoscaler, or by `ray drain-node`.
        """
        from ray._private.state import state  # as Ray Train's own watcher does

        draining = frozenset(state.get_draining_nodes())
        if draining - self._draining:
            request_checkpoints(self._folder.scratch, f"draining {' '.join(sorted(draining))}")
        self._draining = draining

    def _say(self, state: dict[str, Any]) -> bool:
        # A full disk is reported by the first row that does not fit, and so is a folder that
        # another run has taken.
        with contextlib.suppress(RequestError):
            self._folder.held.beat({**state, "time": time.time()})
            return True
        return False
