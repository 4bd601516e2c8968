"""What is written while a study runs: a row for each trial that has ended, what the progress view
shows, and every few seconds that the run is alive.
"""

from __future__ import annotations

import contextlib
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from importlib.metadata import version
from typing import Any

from clsweep.catalog.rows import Row
from clsweep.cluster.desk import FolderUnreachableError, ask_to_save, forget, heard, reported
from clsweep.cluster.loggers import Loggers
from clsweep.cluster.losses import Losses, describe
from clsweep.cluster.progress import Progress
from clsweep.cluster.search import SKIPPED
from clsweep.errors import RequestError
from clsweep.results.folder import PARTS_BEFORE_COMPACTION, SHARE_BEFORE_COMPACTION, ResultsFolder
from clsweep.results.retention import Retention
from clsweep.results.schemas import SIDE_TABLES
from clsweep.study.design import Study
from clsweep.study.schema import LIVE_METHODS
from clsweep.version import VERSION


class Recorder:
    """Turns the events of trials into rows and progress."""

    def __init__(
        self,
        study: Study,
        folder: ResultsFolder,
        progress: Progress,
        kept: Retention,
        loggers: Loggers,
    ):
        self.folder, self._progress = folder, progress
        self._kept, self._loggers = kept, loggers
        self._is_live = study.sections.search.method in LIVE_METHODS
        self.trial_ids: set[str] = set()  # that have a row of this run
        self._num_parts = 0  # written since the last compaction
        resources = study.sections.resources
        self._constants: Row = {
            "workers": resources.workers,
            "gpus_per_worker": float(resources.gpus_per_worker),
            "cpus_per_worker": resources.cpus_per_worker,
            "search_seed": study.sections.search.seed,
            "clsweep_version": VERSION,
            "ray_version": version("ray"),
            "optuna_version": version("optuna"),
            "git_commit": git_commit(),
        }

    def started(self, row: Row) -> None:
        self._progress.started(row)
        self._loggers.started(row)

    def ended(self, row: Row, outcome: Row) -> None:
        """Write the row of a trial that has ended.

        Raises:
            RequestError: it cannot be written, or a file of the trial could not be.
        """
        if outcome.get("error_class") == FolderUnreachableError.__name__:
            raise FolderUnreachableError(f"{row['trial_id']}: {outcome['error_message']}")
        outcome = dict(outcome)
        side = {name: outcome.pop(name, []) for name in SIDE_TABLES}
        if outcome.get("started_at"):
            outcome["started_at"] = datetime.fromisoformat(outcome["started_at"])
        if self._is_live:  # what has been chosen and judged must not be older than the rows
            self.folder.keep_journal()
        full = self._add(row, outcome, side)
        self._loggers.ended(row, {**outcome, "epochs": side["epochs"]})
        self._show(full)

    def skipped(self, row: Row, reason: str) -> None:
        """Write the row of a planned trial that does not run."""
        self._show(self._add(row, {"status": SKIPPED, "skipped_because": reason}, {}))

    def _add(self, row: Row, outcome: Row, side: Mapping[str, Sequence[Row]]) -> Row:
        """Write a trial's row, and return it whole."""
        full = {**row, **self._constants, **outcome}
        self.folder.add_trial(full, **side)
        self.trial_ids.add(row["trial_id"])
        self._num_parts += 1
        share = SHARE_BEFORE_COMPACTION * self._progress.tally.num_done
        if self._num_parts >= max(PARTS_BEFORE_COMPACTION, share):
            self.folder.compact()
            self._num_parts = 0
        return full

    def _show(self, full: Row) -> None:
        self._kept.record(full)
        self._progress.ended({"wall_time_s": None, "num_images": None, **full})

    def crashed(self, row: Row, error: BaseException | None) -> None:
        """A trial whose process died: nothing was reported."""
        error = error or RuntimeError("the trial's process ended without a result")
        self.ended(row, {"status": "failed", **describe(error)})

    def lost(self, row: Row, reason: str, *, goes_on: bool) -> None:
        """A trial whose process or machine was lost; it goes on elsewhere, or stays open."""
        forget(self.folder.scratch, row["trial_id"])
        self._progress.lost(row, reason, goes_on=goes_on)


def git_commit() -> str | None:
    """Commit of the working directory, with `+` if it has changes; None outside of a repository."""
    try:
        command = ["git", "describe", "--always", "--abbrev=40", "--exclude=*", "--dirty=+"]
        result = subprocess.run(command, capture_output=True, text=True, timeout=5, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return result.stdout.strip() or None


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
        loggers: Loggers,
        losses: Losses,
        *,
        is_alone: bool,
    ):
        self._folder, self._progress = folder, progress
        self._loggers, self._losses, self._is_alone = loggers, losses, is_alone
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
            # of Ray: the cluster is going away, and the trials will tell
            with contextlib.suppress(Exception):
                self._losses.free_groups()
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
            self._folder.held.beat({**state, "time": time.time()})
            return True
        return False
