"""The loggers through their processes, read back by the package's readers or the clients' own; and
what goes wrong.
"""

import contextlib
import os
import time
from types import SimpleNamespace

import pytest

from clsweep.cluster import loggers as module
from clsweep.cluster.loggers import Loggers, sink_place, wanted_loggers
from clsweep.errors import RequestError
from clsweep.study.schema import LoggerSection
from clsweep.sweeps.from_wandb import read_wandb
from clsweep.sweeps.wandb_records import read_records, values_of_items

STUDY = SimpleNamespace(sections=SimpleNamespace(name="tau-study", loggers=()))
ROW = {
    "trial_id": "dcl-0003-s1", "objective": "dcl", "config": 3, "seed": 1, "loss": "dcl",
    "tau": 0.25, "batch_size": 64, "sigma": None,
}  # fmt: skip
LOGGED = [(1, 51.0), (2, 52.0), (3, 53.0)]  # the epochs of a trial, with their scores
OUTCOME = {"status": "finished", "knn_top1": 71.5, "wall_time_s": 3.0, "device": "cpu"}


def epochs(last):
    return [{"epoch": e, "train_loss": 1.0 / e, "knn_top1": 50.0 + e} for e in range(1, last + 1)]


@contextlib.contextmanager
def run_of(place, name, lines, **options):
    """A run of one logger at a folder, which prints into `lines`."""
    logger = LoggerSection(name=name, options=options)
    with Loggers([logger], STUDY, str(place), lines.append) as loggers:
        yield loggers


def log_trial(loggers, row=ROW, *, last=3, ends=True):
    """Of its last epoch the outcome alone knows."""
    loggers.started(row)
    rows = epochs(last)
    for num in range(1, last + (not ends)):
        loggers.reported(row["trial_id"], rows[:num])
    if ends:
        loggers.ended(row, {**OUTCOME, "epochs": rows})


def log_and_resume(place, name, **options):
    """A trial that was cut off after two epochs, one that another seed of it ran, and in a second
    run the first one again, whose epochs come again. The lines that are printed.
    """
    lines = []
    with run_of(place, name, lines, **options) as loggers:
        log_trial(loggers, last=2, ends=False)
        log_trial(loggers, {**ROW, "trial_id": "dcl-0003-s2", "seed": 2})
    with run_of(place, name, lines, **options) as loggers:
        log_trial(loggers)
    return lines


# TensorBoard.


def events_of(folder):
    """By the format: length, its checksum, the event, its checksum."""
    from tensorboardX.proto.event_pb2 import Event

    [file] = folder.glob("events.out.tfevents.*")
    data = file.read_bytes()
    while data:
        size = int.from_bytes(data[:8], "little")
        event = Event()
        event.ParseFromString(data[12 : 12 + size])
        yield event
        data = data[16 + size :]


def scalars_of(folder):
    return [
        (value.tag, event.step, value.simple_value)
        for event in events_of(folder)
        for value in event.summary.value
        if value.HasField("simple_value")
    ]


def test_tensorboard_has_each_epoch_once_and_the_effective_values(tmp_path):
    there = tmp_path / "there"  # else in the results
    assert log_and_resume(tmp_path / "results", "tensorboard", path=str(there)) == []
    assert not (tmp_path / "results").exists()
    group = there / "dcl" / "config-3"
    assert {folder.name for folder in group.iterdir()} == {"seed-1", "seed-2"}
    for seed in ("seed-1", "seed-2"):
        scalars = scalars_of(group / seed)
        assert [(step, value) for tag, step, value in scalars if tag == "knn_top1"] == LOGGED
        assert ("result/knn_top1", 3, 71.5) in scalars
    from tensorboardX.proto.plugin_hparams_pb2 import HParamsPluginData

    summaries = [value for event in events_of(group / "seed-1") for value in event.summary.value]
    start_info = next(value for value in summaries if value.tag == "_hparams_/session_start_info")
    data = HParamsPluginData.FromString(start_info.metadata.plugin_data.content)
    values = data.session_start_info.hparams
    assert values["tau"].number_value == 0.25
    assert values["loss"].string_value == "dcl"
    assert "sigma" not in values


def test_results_of_one_name_in_two_stores_have_places_of_their_own():
    a, b = sink_place("s3://a/tau", "tau"), sink_place("s3://b/tau", "tau")
    assert a != b
    assert sink_place("s3://a/tau", "tau") == a


# W&B and MLflow.


@pytest.mark.slow
def test_wandb_offline_has_one_run_a_trial(tmp_path, monkeypatch):
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setattr(module, "CLOSE_S", 120.0)
    assert log_and_resume(tmp_path, "wandb", project="mine") == []
    sweep = read_wandb(tmp_path)
    assert sweep.notes == [], "one file a trial"
    assert {trial.labels["name"] for trial in sweep.trials} == {"dcl-0003-s1", "dcl-0003-s2"}
    for trial in sweep.trials:
        assert (trial.group, trial.labels["group"]) == ("mine", "dcl config-3")
        assert (trial.settings["tau"], trial.settings["loss"]) == (0.25, "dcl")
    for file in tmp_path.glob("wandb/offline-run-*/*.wandb"):
        records = [record.history.item for record in read_records(file)]
        history = [values_of_items(items) for items in records if items]
        assert [(values["_step"], values["knn_top1"]) for values in history] == LOGGED


@pytest.mark.slow
def test_mlflow_has_seeds_inside_of_configurations(tmp_path, monkeypatch):
    pytest.importorskip("mlflow")
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.setattr(module, "CLOSE_S", 120.0)
    assert log_and_resume(tmp_path, "mlflow") == []
    from mlflow.tracking import MlflowClient

    client = MlflowClient(tracking_uri=f"sqlite:///{tmp_path}/mlflow.db")
    experiment = client.get_experiment_by_name("tau-study")
    runs = {run.info.run_name: run for run in client.search_runs([experiment.experiment_id])}
    assert set(runs) == {"dcl config-3", "dcl-0003-s1", "dcl-0003-s2"}
    group = runs["dcl config-3"].info
    assert group.status == "FINISHED", "no trial of it is open"
    parent = group.run_id
    for name in ("dcl-0003-s1", "dcl-0003-s2"):
        run = runs[name]
        assert run.data.tags["mlflow.parentRunId"] == parent
        assert (run.data.params["tau"], run.data.params["loss"]) == ("0.25", "dcl")
        assert run.info.status == "FINISHED"
        history = client.get_metric_history(run.info.run_id, "knn_top1")
        assert sorted((m.step, m.value) for m in history) == LOGGED
        assert run.data.metrics["result/knn_top1"] == 71.5


# What goes wrong.


def test_a_logger_that_fails_says_one_line(tmp_path):
    (tmp_path / "tensorboard").write_text("no folder")
    lines = []
    with run_of(tmp_path, "tensorboard", lines) as loggers:
        for _ in range(9):
            log_trial(loggers)
    [line] = lines
    assert line.startswith("tensorboard logs no more, the study goes on: ")
    assert "tensorboard" in line.partition(": ")[2]


@pytest.fixture
def instead(tmp_path, monkeypatch):
    """Another module of a name, for the processes of loggers."""
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}")
    return lambda name, text: (tmp_path / f"{name}.py").write_text(text)


def test_a_logger_that_is_not_installed_says_so(tmp_path, instead):
    instead("wandb", "raise ImportError(\"No module named 'wandb'\")")
    lines = []
    with run_of(tmp_path, "wandb", lines) as loggers:
        log_trial(loggers)
    [line] = lines
    assert "No module named 'wandb'" in line
    assert "pip install 'clsweep[wandb]'" in line


def test_a_logger_that_hangs_holds_nobody_up(tmp_path, monkeypatch, instead):
    instead("tensorboardX", "import time; time.sleep(600)")
    monkeypatch.setattr(module, "CLOSE_S", 1.0)
    start, lines = time.monotonic(), []
    with run_of(tmp_path, "tensorboard", lines) as loggers:
        for _ in range(5000):  # more than it will read
            log_trial(loggers)
        process = loggers._processes["tensorboard"]
    assert time.monotonic() - start < 15
    assert len(lines) == 1
    assert process is not None
    assert process.returncode is not None, "nothing is left behind"


def test_a_study_and_a_command_name_loggers():
    assert LoggerSection.model_validate("wandb").name == "wandb"
    named = LoggerSection.model_validate({"mlflow": {"uri": "http://there"}})
    assert (named.name, named.options) == ("mlflow", {"uri": "http://there"})
    assert [logger.name for logger in wanted_loggers(STUDY, ["wandb"])] == ["wandb"]
    with pytest.raises(RequestError, match=r"--log: unknown logger 'mlfow'.*'mlflow'"):
        wanted_loggers(STUDY, ["mlfow"])
