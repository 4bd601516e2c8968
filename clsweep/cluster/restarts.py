"""Trials whose process or machine was lost: they go on from their checkpoint, so many times."""

from __future__ import annotations

from collections import Counter


class Restarts:
    """Counts the losses of each trial in a run; a trial that was lost more often than `allowed` has failed."""

    def __init__(self, allowed: int):
        self._allowed = allowed
        self._lost: Counter[str] = Counter()

    def note(self, trial_id: str) -> None:
        self._lost[trial_id] += 1

    def has_failed(self, trial_id: str) -> bool:
        return self._lost[trial_id] > self._allowed
