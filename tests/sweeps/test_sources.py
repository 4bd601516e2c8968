"""Sweeps of other tools, written by the tools themselves where they are installed."""

from __future__ import annotations

import gzip
import hashlib
import json
import math
import sqlite3
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
from clsweep.sweeps.foreign_sweep import ForeignTrial
from clsweep.sweeps.from_mlflow import read_mlflow
from clsweep.sweeps.from_optuna import read_optuna
from clsweep.sweeps.from_ray import read_ray
from clsweep.sweeps.from_wandb import read_wandb
from clsweep.sweeps.import_table import import_sweep

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
    assert (sweep.metric, sweep.mode) == ("value", "max")
    assert (sweep.scales, sweep.continuous) == ({"lr": "", "depth": "linear"}, {"lr"})
    assert read_optuna(path, "tau").scales["lr"] == "log"
    status = {"COMPLETE": "finished", "PRUNED": "stopped", "FAIL": "failed"}
    expected = [
        (status.get(trial.state.name, "running"), trial.params, trial.values, trial.user_attrs)
        for trial in study.trials
    ]
    *read, copied = sweep.trials
    assert [
        (t.status, t.settings, list(t.results.values()) or None, t.labels) for t in read
    ] == expected
    assert {t.group for t in read} == {"tau"}
    found = copied.group, copied.settings, copied.results
    assert found == ("other", {"lr": 0.25}, {"value": 7.5})
    assert len(read_optuna(path, "other").trials) == 1
    with pytest.raises(RequestError, match=r"no study 'tua'\. Did you mean 'tau'"):
        read_optuna(path, "tua")


def test_a_storage_of_an_earlier_optuna_is_read_without_a_word(tmp_path):
    """Optuna 2.10 has written it. What Alembic logs it tells where nothing else logs."""
    path = tmp_path / "sweep.db"
    path.write_bytes(gzip.decompress((Path(__file__).parent / "optuna-2.10.db.gz").read_bytes()))
    sweep = read_optuna(path, None)
    kept = {(t.settings["lr"], t.status, t.labels["seed"], t.sampler) for t in sweep.trials}
    assert kept == {(0.1, "finished", 0, "grid"), (0.2, "stopped", 0, "grid")}
    assert [t.results for t in sweep.trials if t.results] == [{"value": 80.1}]
    asked = [sys.executable, "-m", "clsweep", "import", "optuna", path, "--out", tmp_path / "out"]
    told = subprocess.run(asked, capture_output=True, text=True, check=True)
    assert told.stderr == ""


def test_a_named_metric_and_a_journal_that_was_cut_off(tmp_path):
    path = tmp_path / "sweep.log"
    study = optuna.create_study(storage=journal(path))
    with pytest.warns(optuna.exceptions.ExperimentalWarning):
        study.set_metric_names(["error"])
    study.optimize(lambda trial: trial.suggest_float("lr", 0, 1), n_trials=2)
    whole = path.read_text()
    path.write_text(whole[: whole.rindex("datetime_complete")])
    sweep = read_optuna(path, None)
    assert (sweep.metric, sweep.mode) == ("error", "min")
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
    several = r"study 'two': expected one metric, found several\. Name one with --study: up, down"
    with pytest.raises(RequestError, match=several):
        read_optuna(tmp_path / "a.db", "two")


OWN = {"trial_id": "a", "objective": "dcl", "config": 0}


@pytest.mark.parametrize(
    ("runs", "expected"),
    [
        # the second was cut off
        ([("finished", {"seed": i}, {"_step": n}) for i, n in enumerate((99, 30, 99))],
         ["finished", "stopped", "finished"]),
        ([("finished", {"seed": i}, {"_step": n}) for i, n in enumerate((999, 998, 992))],
         ["finished", "finished", "finished"]),
        # a batch of half the size takes twice as many steps; but not where epochs are told
        ([("finished", {"batch_size": 2**i, "seed": 0}, {"_step": 100 // 2**i}) for i in range(2)],
         ["finished", "finished"]),
        ([("finished", {"batch_size": i, "seed": 0}, {"_step": 9, "epoch": i}) for i in (1, 9)],
         ["stopped", "finished"]),
        ([("finished", {"epochs": i, "seed": 0}, {"_step": 10 * i - 1}) for i in (1, 4)],
         ["finished", "finished"]),
        ([(s, {"seed": i}, {}) for i, s in enumerate(("crashed", "killed", "failed", "running"))],
         ["failed", "failed", "failed"]),
        ([("finished", {"seed": 0}, {"acc": "NaN"}), ("finished", {"seed": 1}, {})],
         ["failed", "finished"]),
        # clsweep's own say themselves how they ended
        ([("finished", OWN | {"seed": i}, {"status": s, "_step": i})
          for i, s in enumerate(("stopped", "finished", "failed"))],
         ["stopped", "finished", "failed"]),
    ],
)  # fmt: skip
def test_how_runs_of_wandb_ended(runs, expected, tmp_path):
    listed = [{"state": s, "config": c, "summary": {"acc": 1.0} | r} for s, c, r in runs]
    (tmp_path / "a.json").write_text(json.dumps(listed))
    found = import_sweep(read_wandb(tmp_path / "a.json"), metric="acc", mode="max")
    assert [row["status"] for row in found.rows] == expected


def test_a_run_of_wandb_that_was_resumed_is_one(tmp_path):
    data = gzip.decompress((Path(__file__).parent / "run.wandb.gz").read_bytes())
    for name, size in (("offline-run-1-x", 71000), ("offline-run-2-x", len(data))):
        (tmp_path / name).mkdir()
        (tmp_path / name / "run-x.wandb").write_bytes(data[:size])
    sweep = read_wandb(tmp_path)
    # the second file begins to count anew, or goes on: how many reports there were is not known
    ended = [(t.status, t.results["acc"], t.length) for t in sweep.trials]
    assert ended == [("finished", 80.5, None)]
    assert sweep.notes == ["left out: 1 earlier rows or files of runs that come again"]


GRID = {"lr": [1e-3, 1e-2, 1e-1], "wd": [0.0, 0.1]}


@pytest.mark.parametrize(("num_trials", "sampler"), [(6, "grid"), (5, "tpe")])
def test_a_grid_of_optuna_is_one_when_it_is_whole(num_trials, sampler, tmp_path):
    sampler_of = optuna.samplers.GridSampler(GRID)
    study = optuna.create_study(storage=journal(tmp_path / "a.db"), sampler=sampler_of)
    study.optimize(
        lambda t: t.suggest_float("lr", 1e-4, 1) + t.suggest_float("wd", 0, 1), n_trials=num_trials
    )
    found = import_sweep(read_optuna(tmp_path / "a.db", None))
    assert {row["sampler"] for row in found.rows} == {sampler}
    assert found.options["scales"] == {}


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
    found = import_sweep(read_optuna(tmp_path / "a.db", None))
    kept = [trial for trial in study.trials if trial.state == TrialState.COMPLETE]
    assert [row["value"] for row in found.rows] == [trial.value for trial in kept]
    # a hyperparameter that is called like the metric is one
    assert [row["value_"] for row in found.rows] == [trial.params["value"] for trial in kept]
    assert found.options["scales"] == {"value_": "linear", "q": "log"}
    assert found.notes[:2] == [
        "left out: 2 failed trials that were run again",
        "2 trials break constraints, which no statistic heeds",
    ]


def test_an_offline_run_of_wandb(tmp_path):
    """The file was written by wandb 0.31.0; a setting of 70,000 letters spans its blocks."""
    data = gzip.decompress((Path(__file__).parent / "run.wandb.gz").read_bytes())
    folder = tmp_path / "wandb" / "offline-run-1"
    folder.mkdir(parents=True)
    (folder / "run-1.wandb").write_bytes(data)
    (trial,) = read_wandb(tmp_path).trials
    assert trial == ForeignTrial(
        group="p",
        status="finished",
        settings={"lr": 0.1, "net.width": 16, "seed": 0, "opt": "sgd", "text": "x" * 70000},
        results={"acc": 80.5, "epoch": 2, "best": 81},
        labels={"id": "1", "name": "first", "group": "dcl"},
        length=3,
    )
    (folder / "run-1.wandb").write_bytes(data[:71000])
    (trial,) = read_wandb(tmp_path).trials
    assert (trial.status, trial.settings["opt"]) == ("running", "sgd")
    (folder / "run-1.wandb").write_bytes(b"else" + data)
    with pytest.raises(RequestError, match="cannot be read as runs of W&B: expected a file that"):
        read_wandb(tmp_path)


def mlflow_files(root: Path) -> Path:
    """A store of files as MLflow 3.17 lays it out."""

    def write(path: Path, text: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    of = root / "1234"
    write(of / "meta.yaml", "experiment_id: '1234'\nlifecycle_stage: active\nname: tau\n")
    write(of / "a" / "tags" / "mlflow.parentRunId", "p")
    runs = [("b", 3, "active"), ("a", 4, "active"), ("c", 3, "deleted"), ("p", 3, "active")]
    for run, status, stage in runs:
        meta = f"run_id: {run}\nstatus: {status}\nlifecycle_stage: {stage}\nstart_time: {status}\n"
        write(of / run / "meta.yaml", f"{meta}run_name: run-{run}\n")
        write(of / run / "params" / "lr", "0.1")
        write(of / run / "params" / "amp", "True")
        write(of / run / "metrics" / "val" / "acc", "5 70.0 0\n7 80.5 2\n6 75.0 1\n")
    return root


def mlflow_database(path: Path) -> Path:
    """The tables that are read, with the columns that are read."""
    with sqlite3.connect(path) as base:
        base.executescript(
            """
            CREATE TABLE experiments (experiment_id, name, lifecycle_stage);
            CREATE TABLE runs (run_uuid, name, status, lifecycle_stage, start_time, experiment_id);
            CREATE TABLE params (run_uuid, key, value);
            CREATE TABLE latest_metrics (run_uuid, key, value, is_nan);
            INSERT INTO experiments VALUES (1, 'tau', 'active'), (2, 'gone', 'deleted');
            INSERT INTO runs VALUES ('b', 'run-b', 'FINISHED', 'active', 3, 1),
                ('a', 'run-a', 'FAILED', 'active', 4, 1), ('c', '', 'FINISHED', 'deleted', 3, 1),
                ('p', 'parent', 'FINISHED', 'active', 1, 1),
                ('d', '', 'FINISHED', 'active', 1, 2);
            CREATE TABLE tags (key, value, run_uuid);
            INSERT INTO tags VALUES ('mlflow.parentRunId', 'p', 'a'),
                ('mlflow.parentRunId', 'b', 'c');
            INSERT INTO params SELECT run_uuid, 'lr', '0.1' FROM runs;
            INSERT INTO params SELECT run_uuid, 'amp', 'True' FROM runs;
            INSERT INTO latest_metrics SELECT run_uuid, 'val/acc', 80.5, 0 FROM runs;
            INSERT INTO latest_metrics VALUES ('a', 'loss', 0.0, 1);
            """
        )
    base.close()
    return path


@pytest.mark.parametrize("make", [mlflow_files, mlflow_database])
def test_an_mlflow_store(make, tmp_path):
    sweep = read_mlflow(make(tmp_path / "store"), None)
    assert sweep.trials == [
        ForeignTrial(
            group="tau",
            status=status,
            settings={"lr": 0.1, "amp": True},
            results={"val/acc": 80.5},
            labels={"run_name": name},
        )
        for status, name in (("finished", "run-b"), ("failed", "run-a"))
    ]
    assert sweep.notes == ["left out: runs that others are nested in (1)"]
    with pytest.raises(RequestError, match=r"no experiment with runs 'tao'\. Did you mean 'tau'"):
        read_mlflow(tmp_path / "store", "tao")


def test_a_run_of_mlflow_has_the_settings_of_one_in_another_experiment(tmp_path):
    of, other = mlflow_files(tmp_path) / "1234", tmp_path / "5678"
    other.mkdir()
    (of / "a").rename(other / "a")
    (other / "meta.yaml").write_text("experiment_id: '5678'\nname: folds\n")
    (of / "p" / "params" / "data").write_text("cifar10")
    for name in ("folds", None):
        trial = read_mlflow(tmp_path, name).trials[-1]
        assert trial.settings == {"data": "cifar10", "lr": 0.1, "amp": True}
    assert len(read_mlflow(tmp_path, "tau").trials) == 1


@pytest.mark.parametrize(
    ("file", "text", "scores"),
    [
        ("b/metrics/val/acc", "5 70.0\n7 81.5\n", [81.5, 80.5]),  # before MLflow 1.0
        ("b/metrics/val/acc", "5 70.0 0\n6 81.5 1\n7 8", [81.5, 80.5]),  # cut off
        ("b/metrics/val/acc", "", [None, 80.5]),
        ("b/metrics/val/acc", "1 70.0 0 cifar 5f\n2 81.5 9\n3 75.0 5 cifar 5f\n", [81.5, 80.5]),
        ("b/metrics/.acc.swp", "", [80.5, 80.5]),
        ("b/meta.yaml", "run_id: b\nsta", [80.5]),
        ("b/meta.yaml", None, [80.5]),
        ("meta.yaml", None, [80.5, 80.5]),
    ],
)
def test_files_of_mlflow_whose_writer_died(file, text, scores, tmp_path):
    of = mlflow_files(tmp_path) / "1234"
    (of / file).unlink(missing_ok=True)
    if text is not None:
        (of / file).write_text(text)
    for place in (tmp_path, of) if file != "meta.yaml" else (tmp_path,):
        sweep = read_mlflow(place, None)
        assert [trial.results.get("val/acc") for trial in sweep.trials] == scores
        lost = "left out: 1 runs whose meta.yaml is damaged or gone"
        assert (lost in sweep.notes) == (len(scores) == 1)


@pytest.mark.parametrize(
    ("inside", "accs", "tests"),
    [
        ([{"test_acc": 70.0}], [80.0], [70.0]),  # an evaluation, by its own metric
        ([{"acc": 9.0}], [80.0], [None]),  # by having no settings
        ([{"test_acc": 70.0}, {"f1": 0.5}], [80.0], [70.0]),
        ([{"lr": 0.1, "test_acc": 70.0}], [80.0], [70.0]),
        ([{"acc": 79.0}, {"acc": 81.0}], [79.0, 81.0], [None, None]),  # folds
        ([{"lr": 0.2, "acc": 79.0}, {"lr": 0.3, "acc": 81.0}], [79.0, 81.0], [None, None]),
    ],
)
def test_runs_that_only_evaluate_are_no_trials(tmp_path, inside, accs, tests):
    with sqlite3.connect(mlflow_database(tmp_path / "store")) as base:
        base.executescript("DELETE FROM params; DELETE FROM latest_metrics; DELETE FROM tags;")
        base.execute("DELETE FROM runs WHERE run_uuid != 'b'")
        for number, told in enumerate([{"lr": 0.5, "acc": 80.0}, *inside]):
            run = f"r{number}"
            row = (run, run, "FINISHED", "active", number, 1)
            base.execute("INSERT INTO runs VALUES (?, ?, ?, ?, ?, ?)", row)
            base.execute("INSERT INTO tags VALUES (?, ?, ?)", ("mlflow.parentRunId", "b", run))
            if number:
                base.execute("UPDATE tags SET value = 'r0' WHERE run_uuid = ?", (run,))
            for name, value in told.items():
                table = "params" if name == "lr" else "latest_metrics"
                cells = (run, name, str(value)) if name == "lr" else (run, name, value, 0)
                marks = ", ".join("?" * len(cells))
                base.execute(f"INSERT INTO {table} VALUES ({marks})", cells)
    base.close()
    trials = read_mlflow(tmp_path / "store", None).trials
    assert [trial.results.get("acc") for trial in trials] == accs
    assert [trial.results.get("test_acc") for trial in trials] == tests


@pytest.mark.parametrize("name", ["files", pytest.param("base.db", marks=pytest.mark.slow)])
def test_an_mlflow_store_by_mlflow(name, tmp_path, monkeypatch):
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    mlflow.set_tracking_uri(f"{'file://' if name == 'files' else 'sqlite:///'}{tmp_path / name}")
    mlflow.set_experiment("tau")
    for lr in (0.1, 0.2):  # a run a configuration, and in it one a fold
        with mlflow.start_run():
            mlflow.log_params({"lr": lr, "opt": "sgd", "size": "64_64", "id": "007"})
            for fold in range(3):
                with mlflow.start_run(nested=True):
                    mlflow.log_param("seed", fold)
                    mlflow.set_tag("fold", fold)
                    for value in (82.0, 84.0, 83.0):  # at one time: MLflow says 84
                        mlflow.log_metric("acc", value + fold, step=1, timestamp=1)
                    mlflow.log_metric("loss", -math.inf if fold else math.nan)
    mlflow.set_experiment("own")
    with mlflow.start_run(tags={"clsweep.status": "stopped"}):
        mlflow.log_metrics({"acc": 70.0, "result/acc": 71.0})
    sweep = read_mlflow(tmp_path / name, "tau")
    assert sweep.notes == [
        "left out: runs that others are nested in (2)",
        "nested runs have from those that they are in: id, lr, opt, size"
        if name == "files" else
        "nested runs have from those that they are in: lr, opt, size, id",
    ]  # fmt: skip
    assert [(t.status, t.settings, t.results["acc"]) for t in sweep.trials] == [
        (
            "finished",
            {"lr": lr, "opt": "sgd", "size": "64_64", "id": "007", "seed": fold},
            84 + fold,
        )
        for lr in (0.1, 0.2)
        for fold in range(3)
    ]
    assert [t.results.get("loss") for t in sweep.trials] == [None, -math.inf, -math.inf] * 2
    assert [t.labels["fold"] for t in sweep.trials] == [0, 1, 2] * 2
    (own,) = read_mlflow(tmp_path / name, "own").trials
    assert (own.status, own.results) == ("stopped", {"acc": 71.0})


@pytest.mark.parametrize("reader", [read_mlflow, read_optuna])
def test_what_is_no_source_is_refused_in_one_line(reader, tmp_path):
    for name, data in (("a", b"\x00\xff\n"), ("b", b"[1]\n"), ("c", b"SQLite format 3\x00 no")):
        (tmp_path / name).write_bytes(data)
        with pytest.raises(RequestError) as error:
            reader(tmp_path / name, None)
        assert str(error.value).startswith(f"{tmp_path / name}: ")
        assert "\n" not in str(error.value)


@pytest.mark.slow
def test_an_experiment_by_ray_tune(tmp_path, monkeypatch):
    import ray
    from ray import tune

    # what a test of clsweep's own runs may have left in this process
    monkeypatch.delenv("TUNE_DISABLE_AUTO_CALLBACK_LOGGERS", raising=False)

    def work(config: dict[str, Any]) -> None:
        for step in range(2):
            if config["lr"] == 0.2 and step:
                raise ValueError("diverged")
            tune.report({"acc": 80 + config["lr"] + step})

    ray.init(address="local", num_cpus=2, include_dashboard=False, logging_level="ERROR")
    try:
        tune.Tuner(
            work,
            param_space={"lr": tune.grid_search([0.1, 0.2]), "net": {"width": 4}},
            tune_config=tune.TuneConfig(metric="acc", mode="max"),
            run_config=tune.RunConfig(name="exp", storage_path=str(tmp_path), verbose=0),
        ).fit()
    finally:
        ray.shutdown()
    sweep = read_ray(tmp_path / "exp")
    found = {t.settings["lr"]: t for t in sweep.trials}
    assert sweep.metric == "acc"
    assert (found[0.1].status, found[0.1].results) == ("finished", {"acc": 81.1})
    assert found[0.2].status == "failed"
    assert math.isclose(found[0.2].results["acc"], 80.2)
    assert found[0.1].settings == {"lr": 0.1, "net.width": 4}
