#!/usr/bin/env bash
# MLflow 3.17.2: a metric's "last" value is the largest of those that one millisecond has.
#
# Guess:     `run.data.metrics["loss"]`, and the column of `search_runs`, is what was logged last.
# Behaviour: it is the largest by step, then time, then VALUE. Without `step=` all have step 0, and time
#            is in whole milliseconds. A run that is logged after its end in one `log_batch`, or with
#            `synchronous=False`, gives many values one time: a falling loss then keeps its worst value.
#            `get_metric_history` returns them by value too, so a falling curve rises.
# Where it meets this field: sweeps whose trials log an epoch's loss without a step. Trials are then
#            ranked by a loss that they left behind. Metrics that rise, as an accuracy, look right.
# Source:    mlflow/store/tracking/sqlalchemy_store.py (`_update_latest_metrics_if_necessary`, its order
#            is `(step, timestamp, value)`; `get_metric_history`).
#            Way out: give `step`.
# Seen:      losses 3, 2, 1 in one batch: last 3.0, history [1.0, 2.0, 3.0]; with steps last 1.0,
#            history [3.0, 2.0, 1.0]. Of 20 runs of 50 falling losses each, logged with
#            `synchronous=False`, the last was not the smallest in 17.
#
# Installs mlflow-skinny and its database's libraries into a temporary folder; fails if this changes.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export MLFLOW_DISABLE_TELEMETRY=true
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check \
  mlflow-skinny==3.17.2 sqlalchemy==2.0.43 alembic==1.16.5 pandas==2.3.2
cd "$work"
"$work/venv/bin/python" - <<'PY'
import logging
import time

import mlflow
from mlflow.entities import Metric

logging.disable(logging.WARNING)
mlflow.set_tracking_uri("sqlite:///runs.db")
client = mlflow.MlflowClient()
sweep = mlflow.create_experiment("sweep")


def logged(steps):
    with mlflow.start_run(experiment_id=sweep) as run:
        now = int(time.time() * 1000)
        losses = zip((3.0, 2.0, 1.0), steps)
        client.log_batch(run.info.run_id, [Metric("loss", x, now, step) for x, step in losses])
    history = client.get_metric_history(run.info.run_id, "loss")
    return mlflow.get_run(run.info.run_id).data.metrics["loss"], [m.value for m in history]


def last_of_a_loop():
    with mlflow.start_run(experiment_id=sweep) as run:
        for loss in range(50, 0, -1):
            mlflow.log_metric("loss", loss, synchronous=False)
        mlflow.flush_async_logging()
    return mlflow.get_run(run.info.run_id).data.metrics["loss"]


without, with_steps = logged((0, 0, 0)), logged((0, 1, 2))
wrong = sum(last_of_a_loop() != 1 for _ in range(20))
print(f"without steps {without}, with steps {with_steps}; loops whose last is another: {wrong} of 20")
assert with_steps == (1.0, [3.0, 2.0, 1.0])
assert without == (3.0, [1.0, 2.0, 3.0]), "changed: values of one step and millisecond"
print("as described")
PY
