"""The row of a trial that has ended: what its numbers depend on stands beside them."""

import errno
import os
from importlib.metadata import version
from types import SimpleNamespace

import pytest

from clsweep.cluster import recorder as recorder_module
from clsweep.cluster import runner, tune_bridge
from clsweep.cluster.recorder import Recorder
from clsweep.errors import RequestError
from clsweep.results.folder import ResultsFolder
from clsweep.results.journal import open_storage
from clsweep.study.design import plan_row, plan_trials
from clsweep.study.resolve import load_study
from tests.planted import study_at


class Silent:
    """Takes what it is told."""

    tally = SimpleNamespace(num_done=0)

    def ended(self, *_): ...
    def record(self, row): ...


def recorder_of(study, folder, progress):
    return Recorder(study, folder, progress, Silent(), Silent())


def test_a_row_has_the_version_of_optuna(tmp_path):
    search = {"method": "tpe", "trials_per_objective": 3}
    study = load_study(study_at(tmp_path / "study.yaml", search=search))
    folder = ResultsFolder(str(tmp_path / "out"))
    row = plan_row(study, plan_trials(study)[0], {"tau": 0.1})
    folder.create(study.document.dump(), [row])
    with folder.lock():
        recorder = recorder_of(study, folder, Silent())
        recorder.ended(row, {"status": "finished", "knn_top1": 50.0})
    [recorded] = folder.trials().to_pylist()
    assert recorded["optuna_version"] == version("optuna")


@pytest.mark.parametrize(("num_done", "compactions"), [(0, 4), (130, 4), (300, 2), (10_000, 0)])
def test_a_large_study_is_compacted_less_often(tmp_path, monkeypatch, num_done, compactions):
    """Every 5 parts, and later whenever 3 % of the trials that have ended are parts."""
    monkeypatch.setattr(recorder_module, "PARTS_BEFORE_COMPACTION", 5)
    study = load_study(study_at(tmp_path / "study.yaml"))
    folder = ResultsFolder(str(tmp_path / "out"))
    row = plan_row(study, plan_trials(study)[0])
    progress, seen = Silent(), []
    progress.tally = SimpleNamespace(num_done=num_done)
    monkeypatch.setattr(folder, "add_trial", lambda *_, **__: None)
    monkeypatch.setattr(folder, "compact", lambda: seen.append(len(recorder.trial_ids)))
    recorder = recorder_of(study, folder, progress)
    for i in range(20):
        progress.tally.num_done = num_done + i
        recorder.ended({**row, "trial_id": str(i)}, {"status": "finished"})
    assert len(seen) == compactions == len({*seen})


def test_a_full_disk_ends_a_run_with_a_sentence(tmp_path, cli_command, monkeypatch):
    """What the callback raises comes wrapped by Tune."""
    from ray.tune import TuneError

    def refuse(_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def session(run):
        def fit():
            row = plan_row(run._study, run._planned[0])
            try:
                with monkeypatch.context() as patch:
                    patch.setattr(os, "fsync", refuse)
                    run._folder.add_trial({**row, "status": "finished"})
            except RequestError as error:
                raise TuneError(str(error))  # noqa: B904  # as Tune does

        monkeypatch.setattr(tune_bridge, "tuner", lambda *_: SimpleNamespace(fit=fit))
        run.lay_out()
        journal = open_storage(run._folder.journal_path, alone=True)
        recorder = SimpleNamespace(trial_ids=set())
        run._run_all(1, None, journal, recorder, None)

    monkeypatch.setattr(runner._Run, "_session", session)
    path = study_at(tmp_path / "study.yaml")
    code, _, error = cli_command("run", str(path), "--out", str(tmp_path / "out"))
    assert code == 2
    assert "No space left on device" in error
    assert "The study stopped. What has finished is kept; the same command continues it." in error
    assert "Traceback" not in error
