"""Which encoders and checkpoints stay in a results folder: whatever an interruption left, from rows and files alone."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from clsweep.results.store import ResultsFolder

Row = Mapping[str, Any]


class KeptFiles:
    """Applies a study's rules to what its trials have stored.

    Args:
        folder: a results folder that this run holds.
        rows: of the trials that have ended.
        encoders: all | best | none; `best` is that of each objective, and none keeps no further ones.
        checkpoints: last | best | none; of trials that have ended, `best` keeps that of each objective's best. Those
            of failed trials stay, for another attempt.
        metric, mode: what is best. Only a finished trial can be: it has had all its epochs.
    """

    def __init__(
        self, folder: ResultsFolder, rows: Iterable[Row], *, encoders: str, checkpoints: str, metric: str, mode: str
    ):
        self._folder, self._encoders, self._checkpoints, self._metric = folder, encoders, checkpoints, metric
        self._sign = 1 if mode == "max" else -1
        self._rows: dict[str, tuple[str, str, float]] = {}  # trial id -> objective, status, score: larger is better
        for row in rows:
            self._note(row)

    def record(self, row: Row) -> None:
        """After the row of a trial was written: remove what it supersedes, or its own files."""
        self._note(row)
        if self._encoders == "best" or row["status"] == "failed":
            self._prune_encoders()
        if self._checkpoints != "none":
            self._prune_checkpoints()

    def settle(self) -> None:
        """While no trial runs: remove also what trials left that were stopped before they had a row."""
        self._folder.remove_unfinished()
        for trial_id in self._folder.encoders():
            if trial_id not in self._rows:
                self._folder.remove_encoder(trial_id)
        self._prune_encoders()
        self._prune_checkpoints()

    def _note(self, row: Row) -> None:
        score = row.get(self._metric)
        known = self._sign * score if score is not None and math.isfinite(score) else -math.inf
        self._rows[row["trial_id"]] = (row["objective"], row["status"], known)

    def _prune_encoders(self) -> None:
        stored = [trial_id for trial_id in self._folder.encoders() if trial_id in self._rows]
        winners = self._best_of(stored)
        for trial_id in stored:
            is_failed = self._rows[trial_id][1] == "failed"
            if is_failed or (self._encoders == "best" and trial_id not in winners):
                self._folder.remove_encoder(trial_id)

    def _prune_checkpoints(self) -> None:
        stored = [trial_id for trial_id in self._folder.checkpoints() if trial_id in self._rows]
        winners = self._best_of(stored) if self._checkpoints == "best" else set()
        for trial_id in stored:
            if trial_id not in winners and self._rows[trial_id][1] != "failed":
                self._folder.remove_checkpoint(trial_id)

    def _best_of(self, trial_ids: Sequence[str]) -> set[str]:
        """The best finished trial of each objective; of equals the first by id, in whatever order they end."""
        best: dict[str, tuple[float, str]] = {}
        for trial_id in trial_ids:
            objective, status, score = self._rows[trial_id]
            if status == "finished" and (objective not in best or score > best[objective][0]):
                best[objective] = (score, trial_id)
        return {trial_id for _, trial_id in best.values()}
