"""MLflow's stores: recorded ones, of files and as a database; files whose writer died."""

from __future__ import annotations

import math
import shutil
import sqlite3

import pytest

from clsweep.errors import RequestError
from clsweep.sweeps.from_mlflow import read_mlflow
from tests.sweeps.recorded import unpack

META = "run_id: {0}\nrun_name: {0}\nstatus: 3\nlifecycle_stage: active\nstart_time: {1}\n"


def write_run(of, name, params=(), parent=None, start=0, **metrics):
    """A run as MLflow lays it out, of an experiment's folder."""
    texts = {f"params/{name}": str(value) for name, value in dict(params).items()}
    texts |= {f"metrics/{metric}": f"5 {value} 0\n" for metric, value in metrics.items()}
    texts |= {"tags/mlflow.parentRunId": parent} if parent else {}
    for file, text in (texts | {"meta.yaml": META.format(name, start)}).items():
        (of / name / file).parent.mkdir(parents=True, exist_ok=True)
        (of / name / file).write_text(text)


@pytest.mark.parametrize("name", ["store", "base.db"])
def test_a_recorded_store(name, tmp_path):
    """Two configurations with two folds each, one run without folds, one that failed and one that
    goes on. One run and one experiment were deleted. A step of `acc` came three times.
    """
    source = unpack("mlflow.tar.gz", tmp_path) / name
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    whole, *folds, lost, going = read_mlflow(source, "tau").trials
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before
    assert (whole.group, whole.status) == ("tau", "finished")
    assert (whole.settings, whole.labels) == ({"lr": 0.05, "amp": True}, {"run_name": "whole"})
    assert whole.results == {"val/acc": 80.5, "acc": 80.5}
    inherited = {"opt": "sgd", "size": "64_64", "id": "007"}
    assert [(trial.settings, trial.results, trial.labels["fold"]) for trial in folds] == [
        ({"lr": lr, **inherited, "seed": fold}, {"acc": 84.0 + fold} | loss, fold)
        for lr in (0.1, 0.2)
        for fold, loss in enumerate(({}, {"loss": -math.inf}))
    ]
    assert (lost.status, going.status) == ("failed", "running")
    (own,) = read_mlflow(source, "own").trials
    assert (own.status, own.results) == ("stopped", {"acc": 71.0})
    nested, names = read_mlflow(source, None).notes
    assert nested == "left out: runs that others are nested in (2)"
    assert {*names.rpartition(": ")[2].split(", ")} == {"lr", *inherited}
    with pytest.raises(RequestError, match=r"no experiment with runs 'tao'\. Did you mean 'tau'"):
        read_mlflow(source, "tao")


def test_a_sweep_of_optuna_in_mlflows_storage(tmp_path):
    """16 trials, whose pruned ones MLflow calls KILLED; None is a choice of `clip`."""
    sweep = read_mlflow(unpack("mlflow-optuna.db.gz", tmp_path), None)
    states = "finished finished stopped stopped finished stopped failed failed stopped failed"
    states = [*states.split(), "stopped", *["finished"] * 5]  # as the study says of its trials
    assert [trial.status for trial in sweep.trials] == states
    assert (sweep.metric, sweep.modes) == ("value", {"value": "max"})
    first, second = sweep.trials[:2]
    assert (first.settings, first.results) == (
        {"lr": 0.044303752452182654, "clip": None}, {"value": 0.6221518762260914}
    )  # fmt: skip
    assert second.settings["clip"] == 1.0
    assert {*first.labels} == {"run_name"}


def test_values_without_steps_are_reports_in_their_order(tmp_path):
    """Of those of one millisecond MLflow has the largest as the last, and returns them by value."""
    source = unpack("mlflow.tar.gz", tmp_path) / "base.db"
    with sqlite3.connect(source) as base:
        (run,) = base.execute("SELECT run_uuid FROM runs WHERE name = 'whole'").fetchone()
        for time, value in ((1, 3.0), (2, 5.0), (2, 1.0), (2, 2.0)):
            row = {"key": "loss", "value": value, "timestamp": time, "run_uuid": run, "step": 0,
                   "is_nan": False}  # fmt: skip
            given = ", ".join(f":{name}" for name in row)
            base.execute(f"INSERT INTO metrics ({', '.join(row)}) VALUES ({given})", row)
        latest = row | {"value": 5.0}
        base.execute(f"INSERT INTO latest_metrics ({', '.join(row)}) VALUES ({given})", latest)
    base.close()
    whole = read_mlflow(source, "tau").trials[0]
    assert whole.results["loss"] == 2.0
    assert [report["loss"] for report in whole.reports] == [3.0, 5.0, 1.0, 2.0]


def test_a_database_with_views_is_refused(tmp_path):
    source = unpack("mlflow.tar.gz", tmp_path) / "base.db"
    with sqlite3.connect(source) as base:
        base.execute("CREATE VIEW endless AS SELECT 1")
    base.close()
    with pytest.raises(RequestError, match="expected tables, found a view"):
        read_mlflow(source, None)


@pytest.mark.parametrize(
    ("file", "text", "scores"),
    [
        ("b/metrics/acc", "5 70.0\n7 81.5\n", [81.5, 80.5]),  # before MLflow 1.0
        ("b/metrics/acc", "5 70.0 0\n6 81.5 1\n7 8", [81.5, 80.5]),  # cut off
        ("b/metrics/acc", "5 70.0 0\n6 81.5 1\n7", [81.5, 80.5]),
        ("b/metrics/acc", "5 70.0 0\n7 80.5 2\n6 75.0 1\n", [80.5, 80.5]),  # by the step
        ("b/metrics/acc", "5 70.0 2\n5 81.5 2\n5 75.0 2\n", [81.5, 80.5]),  # as MLflow has it
        ("b/metrics/acc", "5 70.0 0\n5 81.5 0\n5 75.0 0\n", [75.0, 80.5]),  # without steps
        ("b/metrics/acc", "", [None, 80.5]),
        ("b/metrics/acc", "1 70.0 0 cifar 5f\n2 81.5 9\n3 75.0 5 cifar 5f\n", [81.5, 80.5]),
        ("b/metrics/.acc.swp", "", [80.5, 80.5]),
        ("b/meta.yaml", "run_id: b\nsta", [80.5]),
        ("b/meta.yaml", "a: &a [1]\nb: *a\n", [80.5]),  # which can stand for any number of values
        ("b/meta.yaml", None, [80.5]),
        ("meta.yaml", None, [80.5, 80.5]),
    ],
)
def test_files_whose_writer_died(file, text, scores, tmp_path):
    of = tmp_path / "1234"
    for start, name in enumerate("ba"):
        write_run(of, name, {"lr": 0.1}, start=start, acc=80.5)
    (of / "meta.yaml").write_text("experiment_id: '1234'\nname: tau\n")
    (of / file).unlink(missing_ok=True)
    if text is not None:
        (of / file).write_text(text)
    for place in (tmp_path, of) if file != "meta.yaml" else (tmp_path,):
        sweep = read_mlflow(place, None)
        assert [trial.results.get("acc") for trial in sweep.trials] == scores
        lost = "left out: 1 runs whose meta.yaml is damaged or gone"
        assert (lost in sweep.notes) == (len(scores) == 1)


def test_a_run_has_the_settings_of_one_in_another_experiment(tmp_path):
    write_run(tmp_path / "1", "p", {"data": "cifar10", "lr": 0.5}, acc=1.0)
    write_run(tmp_path / "2", "a", {"lr": 0.1}, parent="p", acc=80.5)
    write_run(tmp_path / "2", "b", {"lr": 0.2}, parent="p", acc=80.5)
    for name in ("2", None):
        settings = [trial.settings for trial in read_mlflow(tmp_path, name).trials]
        assert settings == [{"data": "cifar10", "lr": lr} for lr in (0.1, 0.2)]
    shutil.rmtree(tmp_path / "2")
    assert len(read_mlflow(tmp_path, "1").trials) == 1


def test_what_a_search_has_found_is_no_setting_of_its_runs(tmp_path):
    """As scikit-learn's autolog has it: the parent's best_C is an outcome of the runs' C."""
    write_run(tmp_path / "1", "p", {"best_C": 1.0, "cv": 3}, acc=1.0)
    for name, C in (("a", 0.1), ("b", 1.0)):
        write_run(tmp_path / "1", name, {"C": C}, parent="p", acc=80.5)
    settings = [trial.settings for trial in read_mlflow(tmp_path, None).trials]
    assert settings == [{"cv": 3, "C": C} for C in (0.1, 1.0)]


def test_a_registered_model_is_no_damaged_run(tmp_path):
    write_run(tmp_path / "1", "a", {"lr": 0.1}, acc=80.5)
    (tmp_path / "models" / "net").mkdir(parents=True)
    (tmp_path / "models" / "net" / "meta.yaml").write_text("name: net\n")
    assert read_mlflow(tmp_path, None).notes == []


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
def test_runs_that_only_evaluate_are_no_trials(inside, accs, tests, tmp_path):
    write_run(tmp_path / "1", "sweep")
    write_run(tmp_path / "1", "r0", {"lr": 0.5}, parent="sweep", acc=80.0)
    for start, values in enumerate(inside, 1):
        params = {"lr": values["lr"]} if "lr" in values else {}
        metrics = {name: value for name, value in values.items() if name != "lr"}
        write_run(tmp_path / "1", f"r{start}", params, parent="r0", start=start, **metrics)
    trials = read_mlflow(tmp_path, None).trials
    assert [trial.results.get("acc") for trial in trials] == accs
    assert [trial.results.get("test_acc") for trial in trials] == tests
