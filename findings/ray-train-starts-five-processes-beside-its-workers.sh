#!/usr/bin/env bash
# Ray 2.60.0: a trainer with one worker and no datasets starts five further processes, for each `fit`.
#
# Guess:     `DataParallelTrainer(f, scaling_config=ScalingConfig(num_workers=1)).fit()` needs the worker and a
#            controller; what shares datasets among workers, or asks an autoscaler for machines, begins where
#            there are datasets or an autoscaler.
# Behaviour: each of these is an actor, and so a Python process of its own that imports ray.train: controller,
#            coordinator of autoscaling, cleaner of placement groups, barrier of the workers, and a manager of
#            datasets, also where `datasets` is not given.
# Where it meets this field: sweeps have many short trials. On two cores of an AMD EPYC a trial that trains 4.5 s
#            on two workers takes 33 s from start to end, most of it the start of these processes.
# Source:    ray/train/v2/api/data_parallel_trainer.py (_create_default_callbacks),
#            ray/train/v2/_internal/callbacks/datasets.py and placement_group_callback.py.
# Seen:      DatasetManager PlacementGroupCleaner RayTrainWorker SynchronizationActor TrainController
#            _AutoscalingCoordinatorActor
#
# Installs ray into a temporary folder; fails if this changes.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check 'ray[train]==2.60.0' psutil
cat >"$work/fit.py" <<'PY'
import os
import time

EXPECTED = (
    "DatasetManager", "PlacementGroupCleaner", "SynchronizationActor", "TrainController",
    "_AutoscalingCoordinatorActor",
)  # fmt: skip
os.environ["RAY_TRAIN_V2_ENABLED"] = "1"
import ray
from ray.train import RunConfig, ScalingConfig
from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer


def look(config):
    import psutil

    names = set()
    for _ in range(60):  # the last of them may still be starting
        lines = [" ".join(each.info["cmdline"] or ()) for each in psutil.process_iter(["cmdline"])]
        titles = [line.strip().partition("::")[2] for line in lines if line.startswith("ray::")]
        names |= {title.partition(".")[0] for title in titles}
        if len(names & set(EXPECTED)) == len(EXPECTED):
            break
        time.sleep(0.5)
    with open(config["file"], "w") as file:
        print(*sorted(names - {"IDLE", "DashboardAgent", "RuntimeEnvAgent"}), file=file)


folder = os.environ["FOLDER"]
ray.init(num_cpus=2, include_dashboard=False, object_store_memory=100 * 2**20)
file = f"{folder}/seen"
DataParallelTrainer(
    look,
    train_loop_config={"file": file},
    scaling_config=ScalingConfig(num_workers=1),
    run_config=RunConfig(storage_path=folder, name="fit"),
).fit()
PY
FOLDER=$work "$work/venv/bin/python" "$work/fit.py" >"$work/log" 2>&1 || { tail "$work/log"; exit 1; }
seen=$(cat "$work/seen")
echo "ray 2.60.0, one worker, no datasets: $seen"
for name in DatasetManager PlacementGroupCleaner SynchronizationActor TrainController _AutoscalingCoordinatorActor; do
  [[ " $seen " == *" $name "* ]] || { echo "changed: no $name"; exit 1; }
done
echo "as described"
