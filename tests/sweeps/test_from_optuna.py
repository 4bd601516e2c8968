"""Optuna's storages, by this Optuna and by an earlier one."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import TrialState, create_trial

from clsweep.errors import RequestError
from clsweep.sweeps.from_mlflow import read_mlflow
from clsweep.sweeps.from_optuna import read_optuna
from clsweep.sweeps.import_table import import_sweep
from tests.sweeps.recorded import unpack

optuna.logging.set_verbosity(optuna.logging.ERROR)


def score(trial: optuna.Trial) -> float:
    lr, depth = trial.suggest_float("lr", 1e-3, 1, log=True), trial.suggest_int("depth", 1, 4)
    name = trial.suggest_categorical("opt", ["sgd", "adam", None])
    trial.set_user_attr("seed", trial.number % 2)
    if trial.number == 3:
        raise optuna.TrialPruned
    if trial.number == 4:
        raise ValueError("diverged")
    return lr + depth + (name == "sgd")


def journal(path: Path) -> JournalStorage:
    return JournalStorage(JournalFileBackend(str(path)))


@pytest.fixture(params=["sqlite", "journal"])
def storage(request, tmp_path):
    """A file with two studies by Optuna, and the first of them."""
    path = tmp_path / "sweep.db"
    where: Any = f"sqlite:///{path}" if request.param == "sqlite" else journal(path)
    study = optuna.create_study(study_name="tau", storage=where, direction="maximize")
    study.optimize(score, n_trials=6, catch=ValueError)
    study.enqueue_trial({"lr": 0.5, "depth": 2, "opt": "sgd"})
    other = optuna.create_study(study_name="other", storage=where, direction="maximize")
    space = {"lr": optuna.distributions.FloatDistribution(0, 1, step=0.25)}
    state = TrialState.COMPLETE
    other.add_trial(create_trial(params={"lr": 0.25}, distributions=space, value=7.5, state=state))
    return path, study


def test_an_optuna_storage(storage):
    path, study = storage
    before = hashlib.sha256(path.read_bytes()).hexdigest()
    sweep = read_optuna(path, None)
    assert hashlib.sha256(path.read_bytes()).hexdigest() == before
    assert (sweep.metric, sweep.modes) == ("value", {"value": "max"})
    assert (sweep.scales, sweep.continuous) == ({"lr": "", "depth": "linear"}, {"lr"})
    assert read_optuna(path, "tau").scales["lr"] == "log"
    status = {"COMPLETE": "finished", "PRUNED": "stopped", "FAIL": "failed"}
    *trials, copied = sweep.trials
    for trial, own in zip(trials, study.trials, strict=True):
        assert (trial.group, trial.status) == ("tau", status.get(own.state.name, "running"))
        assert (trial.settings, trial.labels) == (own.params, own.user_attrs)
        assert ([*trial.results.values()] or None) == own.values
    assert (copied.group, copied.settings) == ("other", {"lr": 0.25})
    assert copied.results == {"value": 7.5}
    assert len(read_optuna(path, "other").trials) == 1
    with pytest.raises(RequestError, match=r"no study 'tua'\. Did you mean 'tau'"):
        read_optuna(path, "tua")


def test_a_storage_of_an_earlier_optuna_is_read_without_a_word(tmp_path):
    """What Alembic logs it tells where nothing else logs."""
    path = unpack("optuna-2.10.db.gz", tmp_path)
    sweep = read_optuna(path, None)
    trials = {(t.settings["lr"], t.status, t.labels["seed"], t.sampler) for t in sweep.trials}
    assert trials == {(0.1, "finished", 0, "grid"), (0.2, "stopped", 0, "grid")}
    assert [t.results for t in sweep.trials if t.results] == [{"value": 80.1}]
    command = [sys.executable, "-m", "clsweep", "import", "optuna", path, "--out", tmp_path / "out"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stderr == ""


def test_a_named_metric_and_a_journal_that_was_cut_off(tmp_path):
    path = tmp_path / "sweep.log"
    study = optuna.create_study(storage=journal(path))
    with pytest.warns(optuna.exceptions.ExperimentalWarning):
        study.set_metric_names(["error"])
    study.optimize(lambda trial: trial.suggest_float("lr", 0, 1), n_trials=2)
    whole = path.read_text()
    path.write_text(whole[: whole.rindex("datetime_complete")])
    sweep = read_optuna(path, None)
    assert (sweep.metric, sweep.modes) == ("error", {"error": "min"})
    assert [t.status for t in sweep.trials] == ["finished", "running"]
    path.write_text(whole.replace("\n", "\n{", 1))  # another process went on behind it
    with pytest.raises(RequestError, match=r"sweep\.log:2: cannot be read as a line of an Optuna"):
        read_optuna(path, None)


def test_studies_that_cannot_be_one_table(tmp_path):
    where = journal(tmp_path / "a.db")
    optuna.create_study(study_name="up", storage=where, direction="maximize")
    optuna.create_study(study_name="down", storage=where, direction="minimize")
    with pytest.raises(RequestError, match="Name one with --study: up, down"):
        read_optuna(tmp_path / "a.db", None)
    optuna.create_study(study_name="two", storage=where, directions=["minimize", "maximize"])
    with pytest.raises(RequestError, match="3 studies of several metrics"):
        read_optuna(tmp_path / "a.db", None)


def test_a_study_of_several_metrics_is_read_by_one_of_them(tmp_path):
    directions = ["maximize", "minimize"]
    study = optuna.create_study(storage=journal(tmp_path / "a.db"), directions=directions)

    def run(trial):
        lr = trial.suggest_float("lr", 0, 1)
        trial.set_user_attr("test", 80 - lr)
        trial.set_user_attr("seed", 0)
        return 90 - lr, 1 + lr

    study.optimize(run, n_trials=3)
    for name, mode in (("values_0", "max"), ("values_1", "min")):
        table = import_sweep(read_optuna(tmp_path / "a.db", None), metric=name)
        assert (table.options["metric"], table.options["mode"]) == (name, mode)
        values = [trial.values[int(name[-1])] for trial in study.trials]
        assert [row[name] for row in table.rows] == values
    with pytest.raises(RequestError, match=r"name one with --metric: values_0, values_1$"):
        import_sweep(read_optuna(tmp_path / "a.db", None))
    with pytest.raises(RequestError, match="--mode: expected min for values_1, given max"):
        import_sweep(read_optuna(tmp_path / "a.db", None), metric="values_1", mode="max")
    table = import_sweep(read_optuna(tmp_path / "a.db", None), metric="test", mode="max")
    assert [row["test"] for row in table.rows] == [80 - t.params["lr"] for t in study.trials]


GRID = {"lr": [1e-3, 1e-2, 1e-1], "wd": [0.0, 0.1]}


@pytest.mark.parametrize(("num_trials", "sampler"), [(6, "grid"), (5, "tpe")])
def test_a_grid_of_optuna_is_one_when_it_is_whole(num_trials, sampler, tmp_path):
    sampler_of = optuna.samplers.GridSampler(GRID)
    study = optuna.create_study(storage=journal(tmp_path / "a.db"), sampler=sampler_of)
    study.optimize(
        lambda t: t.suggest_float("lr", 1e-4, 1) + t.suggest_float("wd", 0, 1), n_trials=num_trials
    )
    imported = import_sweep(read_optuna(tmp_path / "a.db", None))
    assert {row["sampler"] for row in imported.rows} == {sampler}
    assert imported.options["scales"] == {}


def test_optuna_trials_that_were_tried_again_and_axes_as_they_were_drawn(tmp_path):
    again = optuna.storages.RetryHeartbeatStaleTrialCallback(max_retry=3)
    where = f"sqlite:///{tmp_path / 'a.db'}"
    sampler = optuna.samplers.TPESampler(seed=0, constraints_func=lambda t: (t.number - 3.5,))
    study = optuna.create_study(storage=where, sampler=sampler)

    def work(trial: optuna.Trial) -> float:
        value = trial.suggest_float("value", 1e-6, 1) + trial.suggest_float("q", 1e-6, 1, log=True)
        if trial.number in (1, 2):
            raise ValueError("lost")
        return value

    def retry(study: optuna.Study, trial: optuna.trial.FrozenTrial) -> None:
        if trial.state == TrialState.FAIL:
            again(study, trial)

    study.optimize(work, n_trials=6, catch=ValueError, callbacks=[retry])
    imported = import_sweep(read_optuna(tmp_path / "a.db", None))
    complete = [trial for trial in study.trials if trial.state == TrialState.COMPLETE]
    assert [row["value"] for row in imported.rows] == [trial.value for trial in complete]
    # a hyperparameter that is called like the metric is one
    assert [row["value_"] for row in imported.rows] == [trial.params["value"] for trial in complete]
    assert imported.options["scales"] == {"value_": "linear", "q": "log"}
    assert imported.notes[:2] == [
        "left out: 2 failed trials that were run again",
        "2 trials break constraints, which no statistic heeds",
    ]


def test_a_file_that_is_no_storage_is_refused_in_one_line(tmp_path):
    for name, data in (("a", b"\x00\xff\n"), ("b", b"[1]\n"), ("c", b"SQLite format 3\x00 no")):
        (tmp_path / name).write_bytes(data)
        for read in (read_optuna, read_mlflow):
            with pytest.raises(RequestError) as refused:
                read(tmp_path / name, None)
            assert str(refused.value).startswith(f"{tmp_path / name}: ")
            assert "\n" not in str(refused.value)
