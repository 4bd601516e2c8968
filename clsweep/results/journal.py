"""The Optuna journal: every trial as Optuna sees it, readable by optuna-dashboard while the study runs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import optuna
from optuna.distributions import BaseDistribution
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState

optuna.logging.set_verbosity(optuna.logging.ERROR)


def open_storage(path: str) -> JournalStorage:
    return JournalStorage(JournalFileBackend(path))


class Journal:
    """The Optuna study of one objective whose design was drawn beforehand: trials are noted, not suggested."""

    def __init__(self, storage: JournalStorage, objective: str, mode: str, space: Mapping[str, BaseDistribution]):
        self._storage, self._space = storage, dict(space)
        direction = StudyDirection.MAXIMIZE if mode == "max" else StudyDirection.MINIMIZE
        optuna.create_study(storage=storage, study_name=objective, direction=direction, load_if_exists=True)
        self._study_id = storage.get_study_id_from_name(objective)
        self._open = {t.user_attrs["trial_id"]: t._trial_id for t in self._running()}

    def start(self, trial_id: str, params: Mapping[str, Any], attributes: Mapping[str, Any]) -> None:
        """Note that a trial runs; one that an earlier session left running goes on under its number."""
        if trial_id in self._open:
            return
        template = FrozenTrial(
            number=-1,
            trial_id=-1,
            state=TrialState.RUNNING,
            value=None,
            datetime_start=datetime.now(),
            datetime_complete=None,
            params={name: params[name] for name in self._space},
            distributions=self._space,
            user_attrs={"trial_id": trial_id, **attributes},
            system_attrs={},
            intermediate_values={},
        )
        self._open[trial_id] = self._storage.create_new_trial(self._study_id, template_trial=template)

    def finish(self, trial_id: str, score: float | None) -> None:
        """Note the score of a trial, or that it failed (None or NaN)."""
        if trial_id not in self._open:
            return
        failed = score is None or math.isnan(score)
        state, values = (TrialState.FAIL, None) if failed else (TrialState.COMPLETE, [float(score or 0.0)])
        self._storage.set_trial_state_values(self._open.pop(trial_id), state, values)

    def _running(self) -> list[FrozenTrial]:
        return self._storage.get_all_trials(self._study_id, deepcopy=False, states=(TrialState.RUNNING,))
