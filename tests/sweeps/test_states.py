"""What the states of other tools become, as the documentation tables it: each word by an export."""

from __future__ import annotations

import json
import re
from functools import partial
from pathlib import Path

import optuna
import pytest
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import TrialState, create_trial
from ray.tune.experiment import Trial

from clsweep.sweeps.from_mlflow import read_mlflow
from clsweep.sweeps.from_optuna import read_optuna
from clsweep.sweeps.from_ray import read_ray
from clsweep.sweeps.from_trackio import read_trackio
from clsweep.sweeps.from_wandb import read_wandb
from tests.sweeps.recorded import unpack
from tests.sweeps.test_from_mlflow import write_run
from tests.sweeps.test_from_ray import ray_state, ray_trial

RunStatus = pytest.importorskip("mlflow.entities").RunStatus
RunState = pytest.importorskip("wandb.sdk.sweeps.run_state").RunState
PAGE = Path(__file__).parents[2] / "docs" / "trials-from-elsewhere.md"
COLUMNS = ("finished", "stopped", "failed", "running")


def documented() -> dict[str, dict[str, str]]:
    """Tool -> its word -> ours, by the table of the page."""
    _, _, table = PAGE.read_text("utf-8").partition("| what tells it |")
    rows = [line.split("|")[1:] for line in table.partition("\n\n")[0].splitlines()[2:]]
    return {
        row[0].strip().strip("`"): {
            word: ours
            for cell, ours in zip(row[1:5], COLUMNS, strict=True)
            for word in re.findall("`(.*?)`", cell)
        }
        for row in rows
    }


TABLE = documented()
OF_MLFLOW = {RunStatus.to_string(number): number for number in RunStatus.all_status()}


def of_optuna(word, folder):
    study = optuna.create_study(storage=JournalStorage(JournalFileBackend(str(folder / "a.log"))))
    state = TrialState[word]
    study.add_trial(create_trial(state=state, value=1.0 if word == "COMPLETE" else None))
    return read_optuna(folder / "a.log", None)


def of_ray(word, folder):
    ray_trial(folder, "t", {"lr": 0.1}, [80.0], done=True)
    ray_trial(folder, "other", {"lr": 0.2}, [80.0])  # beside which none is paused for good
    ray_state(folder, t=word, other="RUNNING")
    sweep = read_ray(folder)
    sweep.trials = [trial for trial in sweep.trials if trial.settings["lr"] == 0.1]
    return sweep


def of_mlflow(word, folder, tags=()):
    write_run(folder / "1", "r", {"lr": 0.1}, acc=80.0)
    meta = folder / "1" / "r" / "meta.yaml"
    meta.write_text(meta.read_text().replace("status: 3", f"status: {OF_MLFLOW[word]}"))
    for tag in tags:
        (folder / "1" / "r" / "tags").mkdir()
        (folder / "1" / "r" / "tags" / tag).write_text("{}")
    return read_mlflow(folder, None)


def of_wandb(word, folder):
    run = {"state": word, "config": {"lr": 0.1}, "summary": {"acc": 80.0}}
    (folder / "a.json").write_text(json.dumps([run]))
    return read_wandb(folder / "a.json")


def of_table(word, folder):
    (folder / "a.csv").write_text(f"status,lr,acc\n{word},0.1,80\n")
    return read_wandb(folder / "a.csv")


WORDS = {
    "Optuna 5.0": (of_optuna, {state.name for state in TrialState}),
    "Ray Tune 2.60": (
        of_ray,
        {Trial.PENDING, Trial.RUNNING, Trial.PAUSED, Trial.TERMINATED, Trial.ERROR},
    ),
    "MLflow 3.17": (of_mlflow, {*OF_MLFLOW}),
    "mlflow.optuna.storage": (partial(of_mlflow, tags=("param_directions",)), {*OF_MLFLOW}),
    "W&B 0.31": (of_wandb, {state.value for state in RunState} - {"unknown"}),
    "a table, in `state` or `status": (of_table, None),
}  # fmt: skip


@pytest.mark.parametrize(("tool", "word"), [(tool, word) for tool in WORDS for word in TABLE[tool]])
def test_a_state_becomes_what_the_page_says(tool, word, tmp_path):
    (trial,) = WORDS[tool][0](word, tmp_path).trials
    assert trial.status == TABLE[tool][word]


def test_the_page_has_every_state_of_the_tools_themselves():
    for tool, (_, words) in WORDS.items():
        assert words is None or {*TABLE[tool]} == words, tool
    assert {*TABLE} - {*WORDS} == {"hydra-optuna-sweeper 1.3", "trackio 0.43"}


def test_a_recorded_sweep_of_hydra(tmp_path):
    """Of hydra-optuna-sweeper 1.3.0: one job raised; where one returned NaN, the sweep ended."""
    sweep = read_optuna(unpack("hydra.db.gz", tmp_path), None)
    states = ["COMPLETE", "FAIL", *["COMPLETE"] * 4, "RUNNING"]
    known = TABLE["hydra-optuna-sweeper 1.3"]
    assert {*states} == {*known}
    assert [trial.status for trial in sweep.trials] == [known[state] for state in states]
    assert sweep.trials[0].settings == {"lr": 0.047531980423231666, "opt": "sgd", "seed": 0}
    assert (sweep.metric, sweep.modes, sweep.continuous) == ("value", {"value": "max"}, {"lr"})


def test_trackio_has_no_states(tmp_path):
    assert TABLE["trackio 0.43"] == {}
    trials = read_trackio(unpack("trackio.db.gz", tmp_path), None).trials
    assert {trial.status for trial in trials} == {"finished"}
