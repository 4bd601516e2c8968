"""What a trial costs beyond its own work: clsweep's engine beside the documented Ray pattern, in
one run; and whether the driver grows with the trials.

Both train a small encoder for an epoch of 256 digits, of one seed: what is scored without training,
beside the trials, is little. The documented pattern wraps `TorchTrainer.fit()` with a
`TuneReportCallback` in a Tune function. A trial's own work is measured by itself; the overhead is
the rest of the time between two results, times the trials that run at once. Of clsweep it is that
of the second half of the trials, by the real command line, with the driver sampled meanwhile.

`--cpus` makes a cluster of several nodes on this machine. The real cores are few, so the trials a
second say what a trial costs in all, and not how long a cluster would take.

    python tests/benchmarks/overhead.py [--trials 200] [--documented-trials 4]
    python tests/benchmarks/overhead.py --trials 1000 --cpus 64 --documented-trials 0
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

import psutil
import pyarrow.parquet as pq
import yaml
from _machine import CLSWEEP, machine, options

sys.path.insert(0, str(Path(__file__).parents[2]))

from clsweep.display.printing import print_table
from clsweep.machine import num_cores
from tests.cluster.fake_cluster import static_cluster

NODE_CPUS = 16
Row = dict[str, Any]
STUDY: Row = {
    "name": "overhead",
    "dataset": {"name": "digits", "num_train": 256},
    "seeds": [0],
    "base": {"encoder": "conv4", "width": 8, "epochs": 1, "batch_size": 64, "knn_k": 20},
    "space": {"lr": {"low": 0.001, "high": 1.0, "log": True}},
    "objectives": {"simclr": {"framework": "simclr", "loss": "infonce"}},
}
OWN_WORK = """
import time, torch, clsweep, sys
from clsweep.study.design import plan_row, plan_trials
from clsweep.train.loop import train_trial
torch.set_num_threads(1)
study = clsweep.load_study(sys.argv[1])
row = plan_row(study, plan_trials(study)[0])
train_trial(row, lambda _: None)
start = time.perf_counter()
for _ in range(20): train_trial(row, lambda _: None)
print((time.perf_counter() - start) / 20)
"""


def write_study(folder: Path, num_trials: int) -> Path:
    search = {"method": "random", "trials_per_objective": num_trials}
    (folder / "study.yaml").write_text(yaml.safe_dump({**STUDY, "search": search}))
    return folder / "study.yaml"


def python(*words: object) -> str:
    """What a python command prints. None of clsweep's settings are in its environment."""
    command = [sys.executable, *map(str, words)]
    return subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True
    ).stdout


def measure_clsweep(num_trials: int, num_cpus: int, folder: Path) -> Row:
    """Trials of one study, on this machine or on a cluster of so many CPUs."""
    study, out = write_study(folder, num_trials), folder / "out"
    nodes = [min(NODE_CPUS, num_cpus - taken) for taken in range(0, num_cpus, NODE_CPUS)]
    command = [sys.executable, *CLSWEEP, "run", str(study), "--out", str(out)]
    with static_cluster(nodes) if nodes else nullcontext() as cluster:
        if cluster:
            command += ["--address", cluster.address]
        env = os.environ | (cluster.environment if cluster else {})
        start = time.perf_counter()
        driver = psutil.Popen(command, env=env, stdout=subprocess.DEVNULL)
        samples = list(watch(driver, cluster, out, num_trials))
        assert driver.wait() == 0
        total_s = time.perf_counter() - start
    rows = pq.read_table(out / "trials.parquet").to_pandas()
    assert (rows["status"] == "finished").all()
    assert rows["trial_id"].nunique() == num_trials
    ended = (rows["started_at"].astype("int64") / 1000 + rows["wall_time_s"]).sort_values()
    second_half = ended.tolist()[num_trials // 2 :]  # by then all processes have started
    own_s, at_once = float(python("-c", OWN_WORK, study)), num_cpus or num_cores()
    row = overhead("clsweep", second_half, total_s, own_s, at_once=at_once)
    half, last = samples[len(samples) // 2], samples[-1]
    seen = max(last["trials"] - half["trials"], 1)
    return row | {
        "driver CPU s / trial": (last["CPU s"] - half["CPU s"]) / seen,
        "driver KiB / trial": 1024 * (last["MiB"] - half["MiB"]) / seen,
        "driver peak MiB": max(sample["MiB"] for sample in samples),
        "peak GiB of all": max(sample["GiB of all"] for sample in samples),
    }


def watch(driver: psutil.Popen, cluster: Any, out: Path, num_trials: int) -> Iterator[Row]:
    """The driver at each tenth of the trials, and the memory of all processes with it, what they
    share counted once.
    """
    due = 0
    while driver.is_running() and driver.status() != psutil.STATUS_ZOMBIE:
        ended = num_rows(out)
        if ended >= due:
            due = ended + max(num_trials // 10, 1)
            others = cluster.processes() if cluster else driver.children(recursive=True)
            yield {
                "trials": ended,
                "CPU s": sum(driver.cpu_times()[:2]),
                "MiB": driver.memory_info().rss / 2**20,
                "GiB of all": sum(map(pss, [driver, *others])) / 2**30,
            }
        time.sleep(0.2)


def num_rows(out: Path) -> int:
    """Trials that have a row; some twice while a compaction is under way."""
    table = out / "trials.parquet"
    compacted = pq.read_metadata(table).num_rows if table.exists() else 0
    return compacted + sum(1 for _ in (out / "parts" / "trials").glob("*.parquet"))


def pss(process: psutil.Process) -> int:
    with suppress(psutil.Error):
        return int(process.memory_full_info().pss)
    return 0


def measure_documented(num_trials: int, folder: Path) -> Row:
    """The pattern of Ray's documentation: a Tune function that fits a TorchTrainer of one worker
    per trial.
    """
    study = write_study(folder, 1)
    printed = python(__file__, "--documented-child", num_trials, study, folder)
    measured = json.loads(printed.splitlines()[-1])
    return overhead("documented", *measured, float(python("-c", OWN_WORK, study)), at_once=1)


def documented_child(num_trials: int, study: str, folder: str) -> None:
    import ray
    import ray.train
    from ray import tune
    from ray.train.torch import TorchTrainer
    from ray.tune.integration.ray_train import TuneReportCallback

    def train_function(config: Row) -> None:
        import clsweep
        from clsweep.study.design import plan_row, plan_trials
        from clsweep.train.loop import train_trial

        loaded = clsweep.load_study(config["study"])
        row = plan_row(loaded, plan_trials(loaded)[0]) | {"seed": config["seed"]}
        ray.train.report({"knn_top1": train_trial(row, lambda _: None)["knn_top1"]})

    def driver(config: Row) -> None:
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
        def on_trial_complete(self, **info: Any) -> None:
            ended.append(time.perf_counter())

    ray.init("local")  # plain init() may join the cluster of the first half, which is shutting down
    start = time.perf_counter()
    tune.Tuner(
        tune.with_resources(driver, {"CPU": 1}),
        param_space={"seed": tune.grid_search(list(range(num_trials)))},
        tune_config=tune.TuneConfig(max_concurrent_trials=1),
        run_config=tune.RunConfig(name="tune", storage_path=f"{folder}/tune", callbacks=[Ended()]),
    ).fit()
    print(json.dumps([ended, time.perf_counter() - start]))


def overhead(
    name: str, ended: Sequence[float], total_s: float, own_s: float, *, at_once: int
) -> Row:
    """ended: when each trial did, in order."""
    per_trial_s = (ended[-1] - ended[0]) / (len(ended) - 1) * at_once
    return {
        "pattern": name,
        "at once": at_once,
        "total s": total_s,
        "own work s / trial": own_s,
        "overhead s / trial": per_trial_s - own_s,
    }


def main() -> None:
    given = options(__doc__, trials=200, cpus=0, documented_trials=4, documented_child=[])
    if given.documented_child:
        num_trials, study, folder = given.documented_child
        documented_child(int(num_trials), study, folder)
        return
    with tempfile.TemporaryDirectory() as folder:
        rows = [measure_clsweep(given.trials, given.cpus, Path(folder))]
    print_table(rows, title=f"\nTrial overhead on {machine()}", digits=3)
    if given.documented_trials:
        with tempfile.TemporaryDirectory() as folder:
            rows.append(measure_documented(given.documented_trials, Path(folder)))
        print_table(rows[1:], digits=3)
        ours, documented = (row["overhead s / trial"] for row in rows)
        print(f"ratio {documented / max(ours, 1e-3):,.0f} : 1")


if __name__ == "__main__":
    main()
