"""What is written while a study runs: a row per trial that ended, a heartbeat, and what the progress view shows."""

from __future__ import annotations

import contextlib
import subprocess
import threading
import time
from datetime import datetime
from importlib.metadata import version
from typing import Any

from clsweep.cluster.encoders import EncoderNotWrittenError
from clsweep.cluster.progress import Progress
from clsweep.cluster.trial import describe
from clsweep.errors import RequestError
from clsweep.results.encoders import KeptEncoders
from clsweep.results.store import PARTS_BEFORE_COMPACTION, ResultsFolder
from clsweep.results.tables import SIDE_SCHEMAS
from clsweep.study.resolve import Study

Row = dict[str, Any]

HEARTBEAT_INTERVAL_S = 2.0


class Recorder:
    """Turns the events of trials into rows and progress; a context manager that keeps the heartbeat going."""

    def __init__(
        self, study: Study, folder: ResultsFolder, progress: Progress, kept: KeptEncoders, *, num_recorded: int
    ):
        self._study, self._folder, self._progress, self._kept = study, folder, progress, kept
        self._num_parts = num_recorded
        self._ended = threading.Event()
        self._beating = threading.Thread(target=self._beat, daemon=True)
        resources = study.sections.resources
        self._constants: Row = {
            "workers": resources.workers,
            "gpus_per_worker": float(resources.gpus_per_worker),
            "cpus_per_worker": resources.cpus_per_worker,
            "search_seed": study.sections.search.seed,
            "clsweep_version": version("clsweep"),
            "ray_version": version("ray"),
            "optuna_version": version("optuna"),
            "git_commit": git_commit(),
        }

    def __enter__(self) -> Recorder:
        self._beating.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._beating.join()

    def started(self, row: Row) -> None:
        self._progress.started(row)

    def reported(self, row: Row, epoch: Row) -> None:
        self._progress.epoch(row, epoch)

    def ended(self, row: Row, outcome: Row) -> None:
        """Write the row of a trial that finished or failed.

        Raises:
            RequestError: it, or the trial's encoder, cannot be written.
        """
        if outcome.get("error_class") == EncoderNotWrittenError.__name__:
            raise EncoderNotWrittenError(outcome["error_message"])
        outcome = dict(outcome)
        side = {name: outcome.pop(name, []) for name in SIDE_SCHEMAS}
        if outcome.get("started_at"):
            outcome["started_at"] = datetime.fromisoformat(outcome["started_at"])
        full = {**row, **self._constants, **outcome}
        self._folder.add_trial(full, **side)
        self._num_parts += 1
        if self._num_parts % PARTS_BEFORE_COMPACTION == 0:
            self._folder.compact()
        self._kept.record(full)
        self._progress.ended({"wall_time_s": None, "num_images": None, **full})

    def crashed(self, row: Row, error: BaseException | None) -> None:
        """A trial whose process died: nothing was reported."""
        error = error or RuntimeError("the trial's process ended without a result")
        outcome = {"status": "failed", **describe(error)}
        self.ended(row, outcome)

    def _beat(self) -> None:
        """Say every few seconds, whatever the trials do, that the study is alive and what runs."""
        while not self._ended.wait(HEARTBEAT_INTERVAL_S):
            state = {"state": "running", "time": time.time(), "running": self._progress.running}
            self._say({**state, "headline": self._progress.headline()})
        self._say({"state": "ended", "time": time.time(), "running": []})

    def _say(self, state: Row) -> None:
        with contextlib.suppress(RequestError):  # a full disk is reported by the first row that does not fit
            self._folder.beat(state)


def git_commit() -> str | None:
    """Commit of the working directory, with `+` if it has changes; None outside of a repository."""
    try:
        command = ["git", "describe", "--always", "--abbrev=40", "--exclude=*", "--dirty=+"]
        result = subprocess.run(command, capture_output=True, text=True, timeout=5, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return result.stdout.strip() or None
