"""Where the row of a trial that has ended is written."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from datetime import datetime
from importlib.metadata import version

from clsweep.catalog.rows import Row
from clsweep.cluster.driver_actor import FolderUnreachableError
from clsweep.cluster.error_causes import describe
from clsweep.cluster.loggers import Loggers
from clsweep.cluster.mailbox import drop_state
from clsweep.cluster.progress import RunProgress
from clsweep.cluster.schedulers.racing import SKIPPED
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
        progress: RunProgress,
        retention: Retention,
        loggers: Loggers,
    ):
        self.folder, self._progress = folder, progress
        self._retention, self._loggers = retention, loggers
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
        self._retention.record(full)
        self._progress.ended({"wall_time_s": None, "num_images": None, **full})

    def crashed(self, row: Row, error: BaseException | None) -> None:
        """A trial whose process died: nothing was reported."""
        error = error or RuntimeError("the trial's process ended without a result")
        self.ended(row, {"status": "failed", **describe(error)})

    def lost(self, row: Row, reason: str, *, goes_on: bool) -> None:
        """A trial whose process or machine was lost; it goes on elsewhere, or stays open."""
        drop_state(self.folder.scratch, row["trial_id"])
        self._progress.lost(row, reason, goes_on=goes_on)


def git_commit() -> str | None:
    """Commit of the working directory, with `+` if it has changes; None outside of a repository."""
    try:
        command = ["git", "describe", "--always", "--abbrev=40", "--exclude=*", "--dirty=+"]
        result = subprocess.run(command, capture_output=True, text=True, timeout=5, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return result.stdout.strip() or None
