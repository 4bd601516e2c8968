"""Epochs beside a table of trials: written by hand, and by the import of a tool that keeps them."""

import numpy as np
import pandas as pd
import pytest

import clsweep
from clsweep.errors import RequestError
from tests.planted import planted


@pytest.fixture
def folder(tmp_path):
    """Trials whose score at the end is in front at each of four epochs, less what is missing."""
    trials = planted(lambda at: 80 - 10 * at["tau"], grid={"tau": [0.1, 0.2, 0.5, 1.0]})
    trials.to_parquet(tmp_path / "trials.parquet")
    rows = trials.loc[trials.index.repeat(4)].reset_index(drop=True)
    rows["epoch"] = 5 * (np.arange(len(rows)) % 4 + 1)
    rows["knn_top1"] -= 20 - rows["epoch"]
    rows[["objective", "config", "seed", "epoch", "knn_top1"]].to_parquet(
        tmp_path / "epochs.parquet"
    )
    return tmp_path


def test_epochs_beside_a_table_are_those_of_its_trials(folder):
    results = clsweep.open_results(folder)
    frame = results.fidelity()
    assert frame["epoch"].tolist() == [5, 10, 15]
    assert frame["budget"].tolist() == [0.25, 0.5, 0.75]
    assert frame["rho"].tolist() == pytest.approx([1, 1, 1])
    assert frame["regret"].tolist() == [0, 0, 0]
    assert len(results.learning())
    alone = clsweep.analyse(pd.read_parquet(folder / "trials.parquet")).fidelity()
    assert alone["reason"].tolist() == ["no_early_score"]


def test_epochs_without_the_metric_are_refused(folder):
    file = folder / "epochs.parquet"
    pd.read_parquet(file).drop(columns="knn_top1").to_parquet(file)
    with pytest.raises(RequestError, match=r"epochs\.parquet: expected columns knn_top1, found"):
        clsweep.open_results(folder).fidelity()


def test_an_import_keeps_the_reports_of_finished_trials(tmp_path, cli_command):
    optuna = pytest.importorskip("optuna")
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    storage = f"sqlite:///{tmp_path / 'a.db'}"
    grid = {"lr": [0.1, 0.2, 0.3], "seed": [0, 1, 2]}
    study = optuna.create_study(
        storage=storage, direction="maximize", sampler=optuna.samplers.GridSampler(grid)
    )

    def score(trial):
        lr, seed = trial.suggest_float("lr", 0.1, 0.3), trial.suggest_int("seed", 0, 2)
        for step in range(4):
            trial.report(lr * (step + 1) + 0.01 * seed, step)
        return 4 * lr + 0.01 * seed

    study.optimize(score, n_trials=9)
    out = tmp_path / "out"
    source = str(tmp_path / "a.db")
    code, _, errors = cli_command("import", "optuna", source, "--out", str(out), "--seed", "seed")
    assert code == 0, errors
    frame = clsweep.open_results(out).fidelity()
    assert frame["epoch"].tolist() == [1, 2, 3]
    assert frame["num_trials"].tolist() == [9, 9, 9]
    assert frame["rho"].tolist() == pytest.approx([1, 1, 1])
