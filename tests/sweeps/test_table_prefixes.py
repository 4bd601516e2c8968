"""Exported tables whose tool names settings by a prefix: that settles what is a setting."""

import json
import random

import pytest

from clsweep.errors import RequestError
from clsweep.sweeps.from_optuna import read_optuna
from clsweep.sweeps.from_wandb import read_wandb
from clsweep.sweeps.import_table import import_sweep

OPTUNA = ("params_{}", "value", {"number": 7, "duration": "0 days", "system_attrs_grid_id": 3})
MLFLOW = ("params.{}", "metrics.acc", {"tags.mlflow.source.git.commit": "ab", "end_time": "x"})
WANDB = ("config.{}", "summary.acc", {"summary._step": 9, "summary.epoch": 3, "state": "finished"})
RAY = ("config/{}", "acc", {"training_iteration": 5, "time_this_iter_s": 0.1, "done": True})


def table(path, rows):
    columns = list(dict.fromkeys(name for row in rows for name in row))
    lines = [",".join(str(row.get(name, "")) for name in columns) for row in rows]
    path.write_text("\n".join([",".join(columns), *lines]))
    return path


def imported(path, metric):
    return import_sweep(read_wandb(path), metric=metric, mode="max")


@pytest.mark.parametrize(("of", "metric", "beside"), [OPTUNA, MLFLOW, WANDB, RAY])
def test_a_random_search_keeps_its_rates_and_is_no_grid(tmp_path, of, metric, beside):
    draws = random.Random(0)
    rows = [
        beside | {of.format("lr"): draws.random(), of.format("act"): "relu", metric: draws.random()}
        for _ in range(20)
    ]
    rows[3][of.format("act")] = "silu"
    read = imported(table(tmp_path / "a.csv", rows), metric)
    assert read.options["params"] == [of.format("lr"), of.format("act")]
    assert {row["sampler"] for row in read.rows} == {"tpe"}


@pytest.mark.parametrize(("of", "metric", "beside"), [OPTUNA, MLFLOW, WANDB, RAY])
def test_a_grid_is_of_the_settings_alone_and_finds_its_seed(tmp_path, of, metric, beside):
    rows = [
        beside
        | {of.format("lr"): lr, of.format("wd"): wd, of.format("seed"): seed, metric: lr + seed}
        for lr in (0.1, 0.2) for wd in (0, 1) for seed in (0, 1)
    ]  # fmt: skip
    for number, row in enumerate(rows):  # what varies beside the settings is none
        row |= {name: f"{number % 2}" for name in beside if "tags" in name or "attrs" in name}
    read = imported(table(tmp_path / "a.csv", rows), metric)
    assert read.options["params"] == [of.format("lr"), of.format("wd")]
    assert read.options["seed"] == of.format("seed")
    assert {row["sampler"] for row in read.rows} == {"grid"}


def test_a_seed_may_be_an_attribute_of_optunas_trials(tmp_path):
    rows = [
        {"params_lr": lr, "user_attrs_seed": seed, "value": seed + lr}
        for lr in (0.1, 0.2) for seed in (0, 1, 2)
    ]  # fmt: skip
    read = imported(table(tmp_path / "a.csv", rows), "value")
    assert (read.options["seed"], read.options["params"]) == ("user_attrs_seed", ["params_lr"])


@pytest.mark.parametrize("name", ["params_m", "config.name", "config/file"])
def test_a_column_that_only_looks_like_a_prefix_hides_no_setting(name, tmp_path):
    """A model's size in millions, or the file of its config."""
    rows = [{"lr": lr, "seed": s, name: 11.2, "acc": lr + s} for lr in (0.1, 0.2) for s in (0, 1)]
    read = imported(table(tmp_path / "a.csv", rows), "acc")
    assert (read.options["params"], read.options["seed"]) == (["lr"], "seed")


def test_a_run_that_others_are_nested_in_is_no_trial_of_the_table(tmp_path):
    rows = [{"run_id": "p", "params.opt": "sgd"}] + [
        {"run_id": f"r{n}", "params.lr": n / 10, "metrics.acc": n, "tags.mlflow.parentRunId": "p"}
        for n in (1, 2, 3)
    ]
    read = imported(table(tmp_path / "a.csv", rows), "metrics.acc")
    assert len(read.rows) == 3
    assert read.options["params"] == ["params.lr"]
    assert "left out: runs that others are nested in (1)" in read.notes


def test_the_best_rows_of_tune_are_no_shorter_trials(tmp_path):
    rows = [
        {"config/lr": lr, "acc": 10 - n, "training_iteration": 2 + n, "time_this_iter_s": 0.1,
         "done": n == 3}
        for lr in (0.1, 0.2) for n in (1, 2, 3)
    ]  # fmt: skip
    read = imported(table(tmp_path / "a.csv", rows), "acc")
    assert {row["status"] for row in read.rows} == {"finished"}
    assert any(note.startswith("4 of 6 rows are no last report") for note in read.notes)


def test_a_config_of_json_stands_beside_flat_metrics(tmp_path):
    lines = [
        json.dumps({"name": f"r{n}", "config": json.dumps({"lr": n / 10, "seed": n}), "acc": n})
        for n in (1, 2)
    ]
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    read = imported(tmp_path / "a.jsonl", "acc")
    assert (read.options["params"], read.options["seed"]) == (["lr"], "seed")


def test_the_store_of_optuna_is_a_file(tmp_path):
    with pytest.raises(RequestError, match="expected a journal or a SQLite file, given a folder"):
        read_optuna(tmp_path, None)
    file = table(tmp_path / "a.csv", [{"value": 1}])
    with pytest.raises(RequestError, match="given a table, which clsweep import wandb reads"):
        read_optuna(file, None)
