"""What a run does every few seconds, whatever its trials do."""

from __future__ import annotations

import contextlib
import threading
import time
from typing import Any

from clsweep.cluster.leftovers import Leftovers
from clsweep.cluster.loggers.relay import Loggers
from clsweep.cluster.losses import Losses
from clsweep.cluster.progress import Progress
from clsweep.cluster.said import ask_to_save, heard, reported
from clsweep.errors import RequestError
from clsweep.results.folder import ResultsFolder

INTERVAL_S = 2.0
LOST_S = 5.0  # for an answer of a Ray that is lost
EPOCHS_INTERVAL_S = 10.0  # between two writes of the epochs of trials under way
WRITING_SHARE = 0.05  # of the time that these may take
JOURNAL_INTERVAL_S = 30.0  # between copies of the Optuna journal to an object store
STALL_ADVICE = "A trial that may be silent for longer needs a larger resources.stall_s"


class Heartbeat:
    """A context manager: says that the study is alive and what runs, keeps and logs the epochs of
    trials under way, has trials save where a machine is about to go, and ends those that are silent
    for too long.
    """

    def __init__(
        self,
        folder: ResultsFolder,
        progress: Progress,
        leftovers: Leftovers,
        loggers: Loggers,
        losses: Losses,
        *,
        is_alone: bool,
    ):
        self._folder, self._progress = folder, progress
        self._leftovers, self._loggers, self._is_alone = leftovers, loggers, is_alone
        self._losses = losses
        self._draining: frozenset[str] = frozenset()
        self._next_write = time.monotonic() + EPOCHS_INTERVAL_S
        self._num_epochs: dict[str, int] = {}
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._beat, daemon=True)

    def __enter__(self) -> Heartbeat:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join(LOST_S if self._losses.is_ray_lost() else None)

    def _beat(self) -> None:
        journal_kept = time.monotonic()
        while not self._ended.wait(INTERVAL_S):
            running = self._progress.running
            self._progress.waits = self._losses.waits
            self._progress.heard(heard(self._folder.scratch, running))
            state = {
                "state": "running",
                "running": running,
                "headline": self._progress.headline(),
                "trials": self._progress.states(),
            }
            if self._say(state):  # where we cannot write, trials may have tried in vain, too
                for trial_id, place in self._progress.stalled().items():
                    self._losses.stall(trial_id, f"{place}; its process was ended. {STALL_ADVICE}")
            if not self._is_alone:
                # of Ray: the cluster is going away, and the trials will tell
                with contextlib.suppress(Exception):
                    self._look_for_preemption()
            self._leftovers.note()
            if time.monotonic() >= self._next_write:
                self._keep_epochs()
            if time.monotonic() - journal_kept > JOURNAL_INTERVAL_S:
                journal_kept = time.monotonic()
                with contextlib.suppress(RequestError):  # its last copy, at the end, must succeed
                    self._folder.keep_journal()
        self._keep_epochs()
        self._say({"state": "ended", "running": []})

    def _keep_epochs(self) -> None:
        """Put the epochs of the trials under way into the folder and the loggers, if there are
        others by now.
        """
        start = time.monotonic()
        rows = reported(self._folder.scratch, self._progress.running)
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
            ask_to_save(self._folder.scratch, f"draining {' '.join(sorted(draining))}")
        self._draining = draining

    def _say(self, state: dict[str, Any]) -> bool:
        # A full disk is reported by the first row that does not fit, and so is a folder that
        # another run has taken.
        with contextlib.suppress(RequestError):
            self._folder.beat({**state, "time": time.time()})
            return True
        return False
