"""What a trial costs beyond its own work: clsweep's engine beside the documented Ray pattern, in
one run.

Both train a small encoder for an epoch of 256 digits, of one seed: what is scored without training,
beside the trials, is little. The documented pattern wraps
`TorchTrainer.fit()` with a `TuneReportCallback` in a Tune function. A trial's own work is measured
inside of it; the overhead is the rest of the time between two results, times the trials that run at
once. Of clsweep it is that of the second half of the trials.

    python tests/benchmarks/overhead.py [--trials 200] [--documented-trials 4]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml
from _machine import machine

from clsweep.machine import num_cores

STUDY = {
    "name": "overhead",
    "dataset": {"name": "digits", "num_train": 256},
    "seeds": [0],
    "base": {"encoder": "conv4", "width": 8, "epochs": 1, "batch_size": 64, "knn_k": 20},
    "space": {"lr": {"low": 0.001, "high": 1.0, "log": True}},
    "objectives": {"simclr": {"framework": "simclr", "loss": "infonce"}},
    "search": {"method": "random", "trials_per_objective": 1},
}


def measure_clsweep(num_trials: int, folder: Path) -> dict[str, Any]:
    """Trials of one study by `clsweep.run` on this machine."""
    import clsweep

    path = folder / "study.yaml"
    search = {"method": "random", "trials_per_objective": num_trials}
    path.write_text(yaml.safe_dump({**STUDY, "search": search}))
    start = time.perf_counter()
    trials = clsweep.run(clsweep.load_study(path), out=folder / "out").trials
    total_s = time.perf_counter() - start
    assert (trials["status"] == "finished").all()
    ended = trials["started_at"].astype("int64") / 1000 + trials["wall_time_s"]
    return overhead(
        "clsweep",
        ended.sort_values().tolist()[num_trials // 2 :],  # by then all processes have started
        total_s,
        clsweep_own_work(),
        concurrent=num_cores(),
    )


def clsweep_own_work(repeats: int = 20) -> float:
    """Seconds of `train_trial` alone, without Ray, in a process that has run it before."""
    code = (
        "import time, torch, clsweep, sys\n"
        "from clsweep.study.design import plan_row, plan_trials\n"
        "from clsweep.train.loop import train_trial\n"
        "torch.set_num_threads(1)\n"
        "study = clsweep.load_study(sys.argv[1])\n"
        "row = plan_row(study, plan_trials(study)[0])\n"
        "train_trial(row, lambda _: None)\n"
        "start = time.perf_counter()\n"
        f"for _ in range({repeats}): train_trial(row, lambda _: None)\n"
        f"print((time.perf_counter() - start) / {repeats})\n"
    )
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        yaml.safe_dump(STUDY, file)
        file.flush()
        result = subprocess.run(
            [sys.executable, "-c", code, file.name], capture_output=True, text=True, check=True
        )
    return float(result.stdout)


def measure_documented(num_trials: int, folder: Path) -> dict[str, Any]:
    """The pattern of Ray's documentation: a Tune function that fits a TorchTrainer of one worker
    per trial.
    """
    path = folder / "study.yaml"
    path.write_text(yaml.safe_dump(STUDY))
    code = [sys.executable, __file__, "--documented-child", str(num_trials), str(path), str(folder)]
    # None of clsweep's settings: a user who follows the documentation has none of them.
    result = subprocess.run(
        code, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True
    )
    measured = json.loads(result.stdout.splitlines()[-1])
    return overhead(
        "documented", measured["ended"], measured["total_s"], clsweep_own_work(), concurrent=1
    )


def documented_child(num_trials: int, study: str, folder: str) -> None:
    import ray
    import ray.train
    from ray import tune
    from ray.train.torch import TorchTrainer
    from ray.tune.integration.ray_train import TuneReportCallback

    def train_function(config: dict[str, Any]) -> None:
        import clsweep
        from clsweep.study.design import plan_row, plan_trials
        from clsweep.train.loop import train_trial

        loaded = clsweep.load_study(config["study"])
        result = train_trial(
            plan_row(loaded, plan_trials(loaded)[0]) | {"seed": config["seed"]}, lambda _: None
        )
        ray.train.report({"knn_top1": result["knn_top1"]})

    def driver(config: dict[str, Any]) -> None:
        TorchTrainer(
            train_function,
            train_loop_config={"study": study, "seed": config["seed"]},
            scaling_config=ray.train.ScalingConfig(num_workers=1, resources_per_worker={"CPU": 1}),
            run_config=ray.train.RunConfig(
                name=f"trial-{config['seed']}",
                storage_path=f"{folder}/train",
                callbacks=[TuneReportCallback()],
            ),
        ).fit()

    ended: list[float] = []

    class Ended(tune.Callback):
        def on_trial_complete(
            self, iteration: int, trials: list[Any], trial: Any, **info: Any
        ) -> None:
            ended.append(time.perf_counter())

    ray.init(
        "local"
    )  # plain init() may try to join the cluster of the first half, which is just shutting down
    start = time.perf_counter()
    tune.Tuner(
        tune.with_resources(driver, {"CPU": 1}),
        param_space={"seed": tune.grid_search(list(range(num_trials)))},
        tune_config=tune.TuneConfig(max_concurrent_trials=1),
        run_config=tune.RunConfig(name="tune", storage_path=f"{folder}/tune", callbacks=[Ended()]),
    ).fit()
    print(json.dumps({"total_s": time.perf_counter() - start, "ended": ended}))


def overhead(
    name: str, ended: Sequence[float], total_s: float, own_s: float, *, concurrent: int
) -> dict[str, Any]:
    """ended: when each trial did, in order."""
    per_trial_s = (ended[-1] - ended[0]) / (len(ended) - 1) * concurrent
    return {
        "pattern": name,
        "trials": len(ended),
        "at once": concurrent,
        "total s": total_s,
        "own work s / trial": own_s,
        "overhead s / trial": per_trial_s - own_s,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument("--documented-trials", type=int, default=4)
    parser.add_argument("--documented-child", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.documented_child:
        num_trials, study, folder = arguments.documented_child
        documented_child(int(num_trials), study, folder)
        return
    from clsweep.display.printing import print_table

    rows = []
    for measure, num_trials in (
        (measure_clsweep, arguments.trials),
        (measure_documented, arguments.documented_trials),
    ):
        with tempfile.TemporaryDirectory() as folder:
            rows.append(measure(num_trials, Path(folder)))
    print_table(rows, title=f"\nTrial overhead on {machine()}", digits=3)
    ours, documented = (row["overhead s / trial"] for row in rows)
    print(f"ratio {documented / max(ours, 1e-3):,.0f} : 1")


if __name__ == "__main__":
    main()
