"""A thousand trials at once on as many logical CPUs as a cluster would have: does anything grow
with their number?

Trials of no epochs (`epochs: 0` on digits, conv4 of width 8) on a cluster of several nodes on this
machine, by the real command line. The real cores are few, so the trials a second say what a trial
costs in all, and not how long a cluster would take. The driver's memory is sampled as the trials
end; its growth is what it keeps of each.

    python tests/benchmarks/scale.py [--trials 1000] [--cpus 64]
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil
import pyarrow.parquet as pq
import yaml

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from _machine import machine  # noqa: E402

from tests.cluster.conftest import COMMAND  # noqa: E402
from tests.cluster.fake_cluster import FakeCluster, static_cluster  # noqa: E402

NODE_CPUS = 16
SAMPLES = 10
MIB = 2**20
STUDY = {
    "name": "scale",
    "dataset": {"name": "digits"},
    "base": {"encoder": "conv4", "width": 8, "epochs": 0},
    "objectives": {"untrained": {"framework": "simclr", "loss": "infonce"}},
    "search": {"method": "grid"},
}


def measure(
    num_trials: int, num_cpus: int, folder: Path
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The run in one row, and the driver as the trials end."""
    study, out = folder / "study.yaml", folder / "out"
    study.write_text(yaml.safe_dump({**STUDY, "seeds": list(range(num_trials))}))
    nodes = [min(NODE_CPUS, num_cpus - taken) for taken in range(0, num_cpus, NODE_CPUS)]
    with static_cluster(nodes) as cluster, (folder / "log").open("w") as log:
        command = [*COMMAND, "run", str(study), "--address", cluster.address, "--out", str(out)]
        start = time.perf_counter()
        driver = subprocess.Popen(
            command, env=os.environ | cluster.environment, stdout=log, stderr=log
        )
        samples = watch(psutil.Process(driver.pid), cluster, out, num_trials, start)
        total_s = time.perf_counter() - start
        assert driver.wait() == 0, (folder / "log").read_text()
    rows = pq.read_table(out / "trials.parquet").to_pandas()
    assert (rows["status"] == "finished").all()
    assert rows["trial_id"].nunique() == num_trials
    began, ended = samples[0], samples[-1]
    half = next(sample for sample in samples if sample["trials"] >= num_trials / 2)
    return {
        "trials": num_trials,
        "CPUs": num_cpus,
        "total s": total_s,
        "s / trial": (ended["s"] - began["s"]) / max(ended["trials"] - began["trials"], 1),
        "driver KiB / trial": 1024
        * (ended["driver MiB"] - half["driver MiB"])
        / max(ended["trials"] - half["trials"], 1),
        "driver peak MiB": max(sample["driver MiB"] for sample in samples),
        "cluster peak GiB": max(sample["cluster GiB"] for sample in samples),
        "processes": max(sample["processes"] for sample in samples),
    }, samples


def watch(
    driver: psutil.Process, cluster: FakeCluster, out: Path, num_trials: int, start: float
) -> list[dict[str, Any]]:
    """A sample at the first result, then at each tenth of the trials."""
    samples: list[dict[str, Any]] = []
    due = 1
    while driver.is_running() and driver.status() != psutil.STATUS_ZOMBIE:
        finished = num_rows(out)
        if finished >= due:
            due = finished + max(num_trials // SAMPLES, 1)
            samples.append(
                {"s": time.perf_counter() - start, "trials": finished, **memory(driver, cluster)}
            )
        time.sleep(0.2)
    return samples


def num_rows(out: Path) -> int:
    """Trials that have a row; some twice while a compaction is under way."""
    table = out / "trials.parquet"
    compacted = pq.read_metadata(table).num_rows if table.exists() else 0
    return compacted + sum(1 for _ in (out / "parts" / "trials").glob("*.parquet"))


def memory(driver: psutil.Process, cluster: FakeCluster) -> dict[str, float]:
    """The driver's own, and that of all processes of cluster and driver, what they share counted
    once.
    """
    processes = cluster.processes()
    shares = [pss(process) for process in [driver, *processes]]
    return {
        "driver MiB": driver.memory_info().rss / MIB,
        "cluster GiB": sum(shares) / 2**30,
        "processes": len(processes),
    }


def pss(process: psutil.Process) -> int:
    try:
        return int(process.memory_full_info().pss)
    except psutil.Error:
        return 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=1000)
    parser.add_argument("--cpus", type=int, default=64)
    arguments = parser.parse_args()
    from clsweep.display.printing import print_table

    with tempfile.TemporaryDirectory() as folder:
        row, samples = measure(arguments.trials, arguments.cpus, Path(folder))
    print_table(samples, title=f"\nThe driver as the trials end; {machine()}", digits=1)
    print_table([row], title="\nThe run", digits=2)


if __name__ == "__main__":
    main()
