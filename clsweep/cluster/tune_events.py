"""Tune's events, passed on to the recorder, with the errors that Tune has for them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from ray.air.execution._internal import RayActorManager
from ray.exceptions import ActorDiedError, RayActorError, RayTaskError
from ray.tune import Callback
from ray.tune.experiment import Trial

from clsweep.catalog.rows import Row
from clsweep.cluster.losses import AGAIN, FAILED, Losses
from clsweep.cluster.recorder import Recorder
from clsweep.cluster.searcher import Dispatch
from clsweep.cluster.session import _replaced


class TuneBridge(Callback):
    """Every trial ends in exactly one row: with its outcome, or with the error of a process that
    was lost too often. It has none where its machine is to blame.
    """

    def __init__(self, recorder: Recorder, dispatch: Dispatch, losses: Losses):
        self._recorder, self._dispatch, self._losses = recorder, dispatch, losses
        self._ended: set[str] = set()

    def __getstate__(self) -> Row:
        return {}  # Tune pickles its callbacks for a restore that never happens

    def on_step_begin(self, iteration: int, trials: list[Trial], **info: object) -> None:
        self._recorder.require_held()

    def on_trial_start(
        self, iteration: int, trials: list[Trial], trial: Trial, **info: object
    ) -> None:
        row = trial.config["row"]
        self._losses.actors[row["trial_id"]] = trial.temporary_state.ray_actor
        self._recorder.started(row)

    def on_trial_result(
        self, iteration: int, trials: list[Trial], trial: Trial, result: Row, **info: object
    ) -> None:
        # Taken out: Tune keeps the last result of every trial to the end of the study.
        if outcome := result.pop("outcome", None):
            result["status"] = outcome["status"]  # of an empty result Tune prints that it is empty
            self._ended.add(trial.trial_id)
            self._recorder.ended(trial.config["row"], outcome)

    def on_trial_complete(
        self, iteration: int, trials: list[Trial], trial: Trial, **info: object
    ) -> None:
        if trial.trial_id not in self._ended:  # it never said how it ended
            self._recorder.crashed(trial.config["row"], None)
        _forget(trial)

    def on_trial_error(
        self, iteration: int, trials: list[Trial], trial: Trial, **info: object
    ) -> None:
        if trial.trial_id not in self._ended:
            self._ended.add(trial.trial_id)  # this attempt
            row = trial.config["row"]
            fate, reason, error = self._dispatch.lost(row, trial.__dict__.pop(_ERROR, None))
            if fate == FAILED:
                self._recorder.crashed(row, error)
            else:
                self._recorder.lost(row, reason, goes_on=fate == AGAIN)
        _forget(trial)


def _forget(trial: Trial) -> None:
    """Drop what is not needed of a trial that is over: Tune keeps the objects of all trials to the
    end of the study.
    """
    trial.config = trial.evaluated_params = {}
    trial.run_metadata.metric_analysis.clear()
    trial.run_metadata.metric_n_steps.clear()


_ERROR = "lost_by"  # of a trial, from Tune's note of an error to `TuneBridge.on_trial_error`


@contextlib.contextmanager
def errors_kept() -> Iterator[None]:
    """Meanwhile each error by which a trial is lost comes to `TuneBridge`.

    Tune keeps those of two classes, and gives up at others: that a machine lacks memory is one.
    """
    note, fail = Trial.handle_error, RayActorManager._actor_task_failed

    def handle_error(trial: Trial, error: Any = None) -> None:
        trial.__dict__[_ERROR] = error
        note(trial, error)

    def failed(manager: RayActorManager, tracked_actor_task: Any, exception: Exception) -> None:
        if not isinstance(exception, RayActorError | RayTaskError):
            cause, exception = exception, ActorDiedError()
            exception.__dict__["cause"] = cause
        fail(manager, tracked_actor_task, exception)

    with (
        _replaced(Trial, handle_error=handle_error),
        _replaced(RayActorManager, _actor_task_failed=failed),
    ):
        yield
