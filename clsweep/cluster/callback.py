"""Tune's events, passed on to the recorder."""

from __future__ import annotations

import os
from typing import Any

from ray.tune import Callback

from clsweep.cluster.recorder import Recorder


class TuneBridge(Callback):
    """Every trial that starts ends in exactly one row: with its outcome, or with the error of its process."""

    def __init__(self, recorder: Recorder):
        self._recorder = recorder
        self._open: set[str] = set()

    def __getstate__(self) -> dict[str, Any]:
        return {}  # Tune pickles its callbacks for a restore that never happens

    def on_trial_start(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        self._open.add(trial.trial_id)
        self._recorder.started(trial.config["row"])

    def on_trial_result(self, iteration: int, trials: list[Any], trial: Any, result: Any, **info: Any) -> None:
        if "outcome" in result:
            self._end(trial, result["outcome"])
        elif "epoch" in result:
            self._recorder.reported(trial.config["row"], result["epoch"])

    def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        if trial.trial_id in self._open:  # a trial that never reported would otherwise be lost
            self.on_trial_error(iteration, trials, trial)

    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        if trial.trial_id in self._open:
            self._open.discard(trial.trial_id)
            self._recorder.crashed(trial.config["row"], _error_of(trial))

    def _end(self, trial: Any, outcome: dict[str, Any]) -> None:
        self._open.discard(trial.trial_id)
        self._recorder.ended(trial.config["row"], outcome)


def _error_of(trial: Any) -> BaseException | None:
    """The error that Tune noted for a trial: a file of our own cluster, in the driver's own staging folder."""
    from ray import cloudpickle

    path = trial.pickled_error_file
    if not path or not os.path.exists(path):
        return None
    with open(path, "rb") as file:
        error = cloudpickle.load(file)
    return error if isinstance(error, BaseException) else None
