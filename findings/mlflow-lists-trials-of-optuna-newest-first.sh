#!/usr/bin/env bash
# MLflow 3.17.2 as Optuna's storage: `study.trials` has the newest trial first.
#
# Guess:     `study.trials[n].number == n`, as with Optuna's own storages: in memory, SQLite, journal.
# Behaviour: `MlflowStorage.get_all_trials` returns the runs as MLflow's search gives them, by start
#            time, newest first. So `study.trials[0]` is the last trial, and what walks the list, such
#            as a running best over the trials, goes back in time. Numbers and values are right.
#            Runs of pruned trials have MLflow's status KILLED, and beside `intermediate_value` the
#            metric `value`: read as MLflow's, a pruned trial is one that somebody killed.
# Where it meets this field: sweeps that log to MLflow take its storage to see trials in one place.
#            Curves of the best so far, and counts of failed runs, are then wrong without an error.
# Source:    mlflow/optuna/storage.py (`get_all_trials`, `optuna_to_mlflow_status`).
#            Way out: sort by `trial.number`; take the state from Optuna, not from the run.
# Seen:      numbers [3, 2, 1, 0] with MLflow, [0, 1, 2, 3] in memory; trial 1 pruned, its run KILLED.
#
# Installs mlflow and optuna into a temporary folder; fails if the behaviour changes.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export MLFLOW_DISABLE_TELEMETRY=true
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check mlflow==3.17.2 optuna==4.5.0
cd "$work"
"$work/venv/bin/python" - <<'PY'
import logging

import mlflow
import optuna
from mlflow.optuna.storage import MlflowStorage

logging.disable(logging.WARNING)
optuna.logging.set_verbosity(optuna.logging.ERROR)


def objective(trial):
    score = trial.suggest_float("lr", 0.0, 1.0) + trial.number
    trial.report(score, 0)
    if trial.number == 1:
        raise optuna.TrialPruned
    return score


def numbers(storage):
    study = optuna.create_study(storage=storage, sampler=optuna.samplers.RandomSampler(seed=0))
    study.optimize(objective, n_trials=4)
    return [trial.number for trial in study.trials]


mlflow.set_tracking_uri("sqlite:///runs.db")
experiment = mlflow.create_experiment("sweep")
theirs, own = numbers(MlflowStorage(experiment_id=experiment)), numbers(None)
runs = mlflow.search_runs([experiment])
pruned = runs[runs["tags.numbers"] == "1"].iloc[0]
print(f"with MLflow {theirs}, in memory {own}; the run of trial 1: {pruned['status']}")
assert own == [0, 1, 2, 3]
assert theirs == [3, 2, 1, 0], "changed: the order of the trials"
assert pruned["status"] == "KILLED", "changed: the status of a pruned trial"
assert pruned["metrics.value"] > 1, "changed: a pruned trial has no value"
print("as described")
PY
