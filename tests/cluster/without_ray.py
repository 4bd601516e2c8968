"""`clsweep run` without Ray, for tests of what lies around it: Ray is gone, and Tune and Ray Train
are a loop in this process. All else is a run's own.
"""

import contextlib
import os
import signal
import tempfile
from itertools import count
from types import SimpleNamespace

import pytest
import torch
from ray import tune

from clsweep.catalog.plugins import activate
from clsweep.cluster import runner, trial
from clsweep.cluster.resources import Cluster
from clsweep.cluster.watchdog import Watchdog
from clsweep.display.printing import say
from clsweep.errors import RequestError
from clsweep.results.folder import ResultsFolder
from clsweep.study.design import placed_baselines


class Loop:
    """Tune's `Tuner`: one trial after the other, each told of as Tune does."""

    def __init__(self, _, *, tune_config, run_config):
        self._searcher, [self._bridge] = tune_config.search_alg, run_config.callbacks

    def fit(self):
        for number in map(str, count()):
            if (given := self._searcher.suggest(number)) == "FINISHED":
                return
            try:
                self._run(number, given)
            except RequestError as error:
                raise tune.TuneError(str(error))  # noqa: B904  # as Tune does

    def _run(self, number, given):
        reported, state = [], SimpleNamespace(ray_actor=None)
        each = SimpleNamespace(trial_id=number, config=given, temporary_state=state)
        self._bridge.on_trial_start(0, [], each)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(tune, "report", reported.append)
            trial.run_trial(given)
        [result] = reported
        flat = {f"outcome/{name}": value for name, value in result["outcome"].items()}
        self._searcher.on_trial_result(number, flat)
        self._bridge.on_trial_result(0, [], each, result)
        self._searcher.on_trial_complete(number)
        self._bridge.on_trial_complete(0, [], each)


@contextlib.contextmanager
def without_ray(outcome=None):
    """Meanwhile runs need no Ray. Trials train here, or end as `outcome` says of their rows."""

    @contextlib.contextmanager
    def session(*_, **__):
        say("Starting Ray ...")
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            yield folder

    def fit(row, context, _):
        return trial._train(row, context) if outcome is None else {**outcome(row)}

    def score(study, planned, context):
        return trial._score(placed_baselines(study, planned), context)

    num_threads, on_term = torch.get_num_threads(), signal.getsignal(signal.SIGTERM)
    with pytest.MonkeyPatch.context() as patch, contextlib.ExitStack() as after:
        after.callback(signal.signal, signal.SIGTERM, on_term)
        after.callback(torch.set_num_threads, num_threads)
        after.callback(activate, ())
        patch.setenv("CUDA_VISIBLE_DEVICES", os.environ.get("CUDA_VISIBLE_DEVICES", ""))
        patch.setattr(runner, "ray_session", session)
        patch.setattr(runner, "running_cluster", lambda: Cluster(up=[{"CPU": 1}]))
        patch.setattr(runner, "score_references", score)
        patch.setattr(runner, "keep_references", ResultsFolder.add_references)
        patch.setattr(Watchdog, "_answers", lambda _: True)
        patch.setattr(trial, "node_id", lambda: "here")
        patch.setattr(trial, "_fit", fit)
        patch.setattr(trial, "has_freed", lambda: True)  # of this process there is much to look at
        patch.setattr(tune, "Tuner", Loop)
        yield
