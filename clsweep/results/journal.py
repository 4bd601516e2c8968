"""The Optuna journal: every trial as Optuna sees it, readable by optuna-dashboard while the study
runs.

It says nothing that the recorded rows do not say, but for the values of configurations that have
been chosen and not finished yet, and what a scheduler has decided: a lost journal is written again
from the rows.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import optuna
from optuna.distributions import BaseDistribution
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock
from optuna.storages.journal._file import get_lock_file
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState, create_trial

from clsweep.catalog.rows import SECONDS, Row
from clsweep.errors import RequestError

optuna.logging.set_verbosity(optuna.logging.ERROR)

_TAIL_BYTES = 2**14  # which the last line does not exceed, most often
_DIRECTIONS = {"max": StudyDirection.MAXIMIZE, "min": StudyDirection.MINIMIZE}
_STATES = {"finished": TrialState.COMPLETE, "stopped": TrialState.PRUNED, "failed": TrialState.FAIL}


def open_storage(path: str, *, alone: bool = False) -> JournalStorage:
    """The journal in a file, made if it is not there, which several processes may have open;
    RequestError where it cannot be read or written.

    If `alone`, no other process has it: what looks locked then was locked by one that was killed,
    for which Optuna would wait half a minute.
    """
    try:
        if alone:
            for leftover in Path(path).parent.glob(f"{Path(path).name}.lock*"):
                leftover.unlink(missing_ok=True)
        return JournalStorage(_JournalFile(path))
    except OSError as error:
        raise RequestError(f"{path}: cannot be opened: {error.strerror}") from None
    except Exception as error:  # Optuna plays the lines back without looking at them
        raise _damaged(path, str(error)) from None


def _damaged(path: str, reason: str) -> RequestError:
    rebuilt = "Move it away: the same command writes it again from the results"
    return RequestError(
        f"{path}: expected an Optuna journal, given a damaged one ({reason}). {rebuilt}"
    )


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The end of a trial, or of a configuration on all its seeds."""

    status: str | None  # as in the tables; None: it left no word
    score: float | None = None
    epoch: int | None = None  # at which it was stopped
    second: float | None = None  # what a search weighs beside the score, if anything

    @classmethod
    def of(cls, row: Row, metric: str, second: str = "", *, workers: int = 1) -> Outcome:
        """End of a trial, as its row of the tables says it.

        Args:
            second: another metric, or the seconds of all workers; "": nothing. A trial without it
                counts as one without a score.
            workers: where the row does not say how many.
        """
        value = row.get("wall_time_s" if second == SECONDS else second)
        times = (row.get("workers") or workers) if second == SECONDS else 1
        value = None if value is None or math.isnan(value) else float(value * times)
        score = None if second and value is None else row.get(metric)
        status, epoch = row.get("status"), row.get("epochs_trained")
        return cls(status=status, score=score, epoch=epoch, second=value)

    @property
    def state(self) -> TrialState:
        scored = self.score is not None and not math.isnan(self.score)
        return _STATES[self.status] if self.status and scored else TrialState.FAIL

    @property
    def is_complete(self) -> bool:
        return self.state == TrialState.COMPLETE

    @property
    def value(self) -> float | None:
        return None if self.state == TrialState.FAIL else self.score


class Journal:
    """The Optuna study of one objective, made if it is not there: of the metric, or of it and a
    second goal. An entry is a trial of ours or, where a live search chooses the values, a
    configuration, which the user attribute `key` names. Only its latest counts: Optuna reopens
    none, so what is run again has a new one. Of `conditional` hyperparameters it may have no value.
    """

    def __init__(
        self,
        storage: JournalStorage,
        objective: str,
        modes: Sequence[str],
        space: Mapping[str, BaseDistribution],
        *,
        key: str,
        conditional: Collection[str] = (),
    ):
        self._storage, self._space, self._key = storage, dict(space), key
        # what was drawn beforehand may be older than a hyperparameter that its grid has gained
        self._required = set(space) - {*conditional} if key == "config" else set()
        self.directions = [_DIRECTIONS[mode] for mode in modes]
        if objective not in {study.study_name for study in storage.get_all_studies()}:
            storage.create_new_study(self.directions, objective)
        self._study_id = storage.get_study_id_from_name(objective)
        self._require_whole()
        self._latest = {name: entry._trial_id for name, entry in self.entries().items()}

    def entry(self, name: str | int) -> FrozenTrial | None:
        """The latest entry, as it is now."""
        return self._storage.get_trial(self._latest[name]) if name in self._latest else None

    def entries(self) -> dict[str | int, FrozenTrial]:
        """The latest entry of each name, in the order of the names."""
        return latest_entries(self._storage, self._study_id, self._key)

    def note(self, name: str) -> Any:
        """A value that was kept beside the entries; None if there is none."""
        return self._storage.get_study_user_attrs(self._study_id).get(name)

    def keep_note(self, name: str, value: object) -> None:
        """Keep a plain value beside the entries."""
        self._storage.set_study_user_attr(self._study_id, name, value)

    def _require_whole(self) -> None:
        """Refuse entries that this study cannot have made."""
        kind, reason = str if self._key == "trial_id" else int, ""
        try:
            if self._storage.get_study_directions(self._study_id) != self.directions:
                reason = "another direction"
            for entry in self._storage.get_all_trials(self._study_id, deepcopy=False):
                if not isinstance(entry.user_attrs.get(self._key), kind):
                    reason = reason or f"entry {entry.number} has no {self._key}"
                if not self._required <= set(entry.params):
                    reason = reason or f"entry {entry.number} lacks a value"
        except Exception as error:  # of whatever stands in place of an entry's fields
            reason = f"{type(error).__name__}: {error}"
        if reason:
            raise _damaged(getattr(self._storage._backend, "_file_path", "journal"), reason)

    def start(self, attributes: Mapping[str, Any], params: Mapping[str, Any]) -> None:
        """Note that it runs; what an earlier session left running goes on under its number."""
        entry = self.entry(attributes[self._key])
        if entry is None or entry.state.is_finished():
            self._add(attributes, params, Outcome(status=None), running=True)

    def finish(
        self, attributes: Mapping[str, Any], params: Mapping[str, Any], outcome: Outcome
    ) -> None:
        """Note how it ended, unless the journal says so already."""
        entry, ended = self.entry(attributes[self._key]), (outcome.state, self._values(outcome))
        if entry is not None and entry.state == TrialState.RUNNING:
            self._storage.set_trial_state_values(entry._trial_id, *ended)
        elif entry is None or (entry.state, entry.values) != ended:
            self._add(attributes, params, outcome)

    def _values(self, outcome: Outcome) -> list[float] | None:
        if outcome.value is None:
            return None
        if len(self.directions) == 1:
            return [outcome.value]
        assert outcome.second is not None, "a trial with a score has both"
        return [outcome.value, outcome.second]

    def _add(
        self,
        attributes: Mapping[str, Any],
        params: Mapping[str, Any],
        outcome: Outcome,
        *,
        running: bool = False,
    ) -> None:
        """A new entry in one write: no kill leaves half of one."""
        name = attributes[self._key]
        former = self.entry(name)
        known, history = {}, {}
        scores: dict[int, float] = {}
        if former:  # the rest is what Optuna's own callback for retried trials notes
            known, scores = former.user_attrs, dict(former.intermediate_values)
            earlier = former.system_attrs
            history = {
                "failed_trial": earlier.get("failed_trial", former.number),
                "retry_history": [*earlier.get("retry_history", []), former.number],
            }
        epoch, score = outcome.epoch, outcome.score
        if outcome.state == TrialState.PRUNED and epoch is not None and score is not None:
            scores[epoch] = score
        template = create_trial(
            state=TrialState.RUNNING if running else outcome.state,
            values=self._values(outcome),
            params={name: params[name] for name in self._space if name in params},
            distributions={name: each for name, each in self._space.items() if name in params},
            user_attrs={**known, **attributes},
            system_attrs=history,
            intermediate_values=scores,
        )
        self._latest[name] = self._storage.create_new_trial(self._study_id, template_trial=template)


def entries_running(storage: JournalStorage) -> Iterator[FrozenTrial]:
    """The entries of all objectives that have not ended."""
    for study in storage.get_all_studies():
        yield from storage.get_all_trials(study._study_id, False, states=(TrialState.RUNNING,))


def latest_entries(
    storage: JournalStorage, study_id: int, key: str
) -> dict[str | int, FrozenTrial]:
    """The latest entry of each value of the user attribute `key`, in the order of the values."""
    entries = storage.get_all_trials(study_id, deepcopy=False)
    return dict(sorted({t.user_attrs[key]: t for t in entries if key in t.user_attrs}.items()))


class _JournalFile(JournalFileBackend):
    """A file that outlives its writers; none that has come in its place."""

    def __init__(self, path: str):
        super().__init__(path, lock_obj=JournalFileOpenLock(path))
        # kept open: no other file gets its inode meanwhile
        self._opened = open(path, "rb")  # noqa: SIM115

    def __del__(self) -> None:
        if hasattr(self, "_opened"):
            self._opened.close()

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        path = self._file_path
        try:
            if not os.path.samestat(os.stat(path), os.fstat(self._opened.fileno())):
                raise RequestError(f"{path}: cannot be written: another file has come in its place")
            with get_lock_file(self._lock):
                lines = (json.dumps(log, separators=(",", ":")) + "\n" for log in logs)
                with open(path, "r+b") as file:
                    _cut_off_half_line(file)
                    file.write("".join(lines).encode())
                    file.flush()
                    os.fsync(file.fileno())
        except OSError as error:
            raise RequestError(f"{path}: cannot be written: {error.strerror}") from None


def _cut_off_half_line(file: BinaryIO) -> None:
    """Set it to its end: behind a half line there, which a kill has left, Optuna would write."""
    end = file.seek(0, os.SEEK_END)
    for start in (max(0, end - _TAIL_BYTES), 0):
        file.seek(start)
        if (newline := file.read().rfind(b"\n")) >= 0:
            break
    file.seek(file.truncate(start + newline + 1))
