"""Tune's events, passed on to the recorder."""

from __future__ import annotations

import os
from collections.abc import Callable

from ray.tune import Callback
from ray.tune.experiment import Trial

from clsweep.catalog.rows import Row
from clsweep.cluster.recorder import Recorder


class TuneBridge(Callback):
    """Every trial ends in exactly one row: with its outcome, or with the error of a process that
    was lost too often.

    Args:
        is_lost_too_often: of a trial by its id.
    """

    def __init__(self, recorder: Recorder, is_lost_too_often: Callable[[str], bool]):
        self._recorder, self._is_lost_too_often = recorder, is_lost_too_often
        self._ended: set[str] = set()

    def __getstate__(self) -> Row:
        return {}  # Tune pickles its callbacks for a restore that never happens

    def on_step_begin(self, iteration: int, trials: list[Trial], **info: object) -> None:
        self._recorder.require_held()

    def on_trial_start(
        self, iteration: int, trials: list[Trial], trial: Trial, **info: object
    ) -> None:
        self._recorder.started(trial.config["row"])

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
            self._crashed(trial)
        _forget(trial)

    def on_trial_error(
        self, iteration: int, trials: list[Trial], trial: Trial, **info: object
    ) -> None:
        if trial.trial_id not in self._ended:
            if self._is_lost_too_often(trial.config["row"]["trial_id"]):
                self._crashed(trial)
            else:
                self._ended.add(trial.trial_id)  # this attempt
                self._recorder.lost(trial.config["row"])
        _forget(trial)

    def _crashed(self, trial: Trial) -> None:
        self._ended.add(trial.trial_id)
        self._recorder.crashed(trial.config["row"], _error_of(trial))


def _forget(trial: Trial) -> None:
    """Drop what is not needed of a trial that is over: Tune keeps the objects of all trials to the
    end of the study.
    """
    trial.config = trial.evaluated_params = {}
    trial.run_metadata.metric_analysis.clear()
    trial.run_metadata.metric_n_steps.clear()


def _error_of(trial: Trial) -> BaseException | None:
    """The error that Tune noted for a trial: a file of our own cluster, in the driver's own staging
    folder.
    """
    from ray import cloudpickle

    path = trial.pickled_error_file
    if not path or not os.path.exists(path):
        return None
    with open(path, "rb") as file:
        error = cloudpickle.load(file)
    return error if isinstance(error, BaseException) else None
