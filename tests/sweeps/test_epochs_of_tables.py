"""Epochs beside a table of trials: written by hand, and by the import of a tool that keeps them."""

import numpy as np
import pandas as pd
import pytest

import clsweep
from clsweep.errors import RequestError
from clsweep.sweeps.foreign_sweep import reports_by_epoch
from tests.planted import planted
from tests.sweeps.recorded import wandb_log


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


GRID = [(lr, seed) for lr in (0.1, 0.2, 0.3) for seed in (0, 1, 2)]


def score(lr, seed, step):
    return lr * (step + 1) + 0.01 * seed


def run_optuna(folder):
    optuna = pytest.importorskip("optuna")
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    sampler = optuna.samplers.GridSampler({"lr": [0.1, 0.2, 0.3], "seed": [0, 1, 2]})
    file = folder / "a.db"
    study = optuna.create_study(storage=f"sqlite:///{file}", direction="maximize", sampler=sampler)

    def objective(trial):
        lr, seed = trial.suggest_float("lr", 0.1, 0.3), trial.suggest_int("seed", 0, 2)
        for step in range(4):
            trial.report(score(lr, seed, step), step)
        return score(lr, seed, 3)

    study.optimize(objective, n_trials=9)
    return file


def log_to_mlflow(uri):
    """Each report beside a loss of every batch, which is no score of an epoch."""
    mlflow = pytest.importorskip("mlflow")
    client = mlflow.MlflowClient(uri)
    experiment = client.create_experiment("a")
    for lr, seed in GRID:
        run = client.create_run(experiment).info.run_id
        for name, value in (("lr", lr), ("seed", seed)):
            client.log_param(run, name, value)
        for step in range(4):
            client.log_metric(run, "value", score(lr, seed, step), step=step)
        for step in range(20):
            client.log_metric(run, "loss", step, step=step)
        client.set_terminated(run)


def run_mlflow_files(folder):
    log_to_mlflow((folder / "mlruns").as_uri())
    return folder / "mlruns"


def run_mlflow_database(folder):
    pytest.importorskip("sqlalchemy")
    log_to_mlflow(f"sqlite:///{folder / 'mlflow.db'}")
    return folder / "mlflow.db"


def run_wandb(folder):
    """The records that an offline run writes, by W&B's own protocol buffers."""
    record_of = pytest.importorskip("wandb.proto.wandb_internal_pb2").Record
    for number, (lr, seed) in enumerate(GRID):
        records = [record_of() for _ in range(6)]
        for name, value in (("lr", lr), ("seed", seed)):
            records[0].config.update.add(key=name, value_json=str(value))
        for step in range(4):
            for name, value in (("value", score(lr, seed, step)), ("epoch", step), ("_step", step)):
                records[1 + step].history.item.add(key=name, value_json=str(value))
        records[5].exit.exit_code = 0
        (folder / f"run-{number}.wandb").write_bytes(wandb_log(records))
    return folder


def run_wandb_table(folder):
    """`run.history()` of each run beside its settings, one behind the other."""
    rows = [
        {"lr": lr, "seed": seed, "_step": step, "value": score(lr, seed, step)}
        for lr, seed in GRID for step in range(4)
    ]  # fmt: skip
    pd.DataFrame(rows).to_csv(folder / "a.csv")
    return folder / "a.csv"


@pytest.fixture
def imported(tmp_path, cli_command, monkeypatch):
    """The folder of what a tool ran."""
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")

    def import_of(run):
        tool, source, out = run.__name__.split("_")[1], run(tmp_path), tmp_path / "out"
        options = ("--seed", "seed", "--metric", "value", "--mode", "max")
        code, _, errors = cli_command("import", tool, str(source), "--out", str(out), *options)
        assert code == 0, errors
        return out

    return import_of


@pytest.mark.parametrize(
    "run", [run_optuna, run_mlflow_files, run_mlflow_database, run_wandb, run_wandb_table]
)
def test_an_import_keeps_the_reports_of_finished_trials(run, imported):
    out = imported(run)
    frame = clsweep.open_results(out).fidelity()
    assert frame["epoch"].tolist() == [1, 2, 3]
    assert frame["num_trials"].tolist() == [9, 9, 9]
    assert frame["rho"].tolist() == pytest.approx([1, 1, 1])
    epochs = pd.read_parquet(out / "epochs.parquet")
    assert sorted(epochs["value"]) == pytest.approx(
        sorted(score(lr, seed, step) for lr, seed in GRID for step in range(4))
    )


def test_what_is_reported_at_each_step_has_no_epochs():
    """Else a sweep of long runs would fill the memory with the losses of their batches."""
    reports = [{"loss": 1.0, "acc": 2.0} if i % 100 == 0 else {"loss": 1.0} for i in range(20_000)]
    assert [r for r in reports_by_epoch(reports) if r] == [{"acc": 2.0}] * 200


@pytest.mark.parametrize("run", [run_mlflow_files, run_mlflow_database])
def test_an_epoch_without_a_finite_value_keeps_its_number(run, imported, monkeypatch):
    plain = score
    monkeypatch.setitem(
        globals(), "score", lambda lr, seed, step: np.nan if step == 1 else plain(lr, seed, step)
    )
    epochs = pd.read_parquet(imported(run) / "epochs.parquet")
    assert epochs[epochs["value"].isna()]["epoch"].tolist() == [2] * 9
    assert sorted(epochs[epochs["epoch"] == 3]["value"]) == pytest.approx(
        sorted(plain(lr, seed, 2) for lr, seed in GRID)
    )
