"""A thousand trials at once on as many logical CPUs as a cluster would have: does anything grow
with their number?

Trials of one epoch (128 digits, conv4 of width 8) on a cluster of several nodes on this
machine, by the real command line. The real cores are few, so the trials a second say what a trial
costs in all, and not how long a cluster would take. The driver's memory is sampled as the trials
end; its growth is what it keeps of each.

`--sleep SECONDS` makes each trial sleep so long in its one step, as those on Ray's own page on the
overhead of Tune do. Then some run by Tune alone, as there, and only sleep. With `--resume`, the run
is interrupted in the middle (Ctrl-C) and goes on.

`--simulate` leaves Ray away: the driver's own parts (plan, journal, rows, compaction, heartbeats)
work through made-up trials of many epochs, a thousand under way. From two sizes the table draws
each part on to 100,000 trials, by the power law through both.

    python tests/benchmarks/scale.py [--trials 1000] [--cpus 64] [--sleep 1] [--resume]
    python tests/benchmarks/scale.py --simulate 1000 10000 [--epochs 100]
"""

from __future__ import annotations

import argparse
import io
import math
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow.parquet as pq
import yaml

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from _machine import CLSWEEP, machine, python_seconds  # noqa: E402

from tests.cluster.conftest import COMMAND  # noqa: E402
from tests.cluster.fake_cluster import FakeCluster, static_cluster  # noqa: E402

NODE_CPUS = 16
SAMPLES = 10
MIB = 2**20
STUDY = {
    "name": "scale",
    "dataset": {"name": "digits", "num_train": 128},
    "seeds": [0],
    "base": {"encoder": "conv4", "width": 8, "epochs": 1, "batch_size": 32, "knn_k": 20},
    "space": {"lr": {"low": 0.001, "high": 1.0, "log": True}},
    "objectives": {"simclr": {"framework": "simclr", "loss": "infonce"}},
}

SLEEPING = """
import time
from clsweep.catalog import Component

def sleeping(z1_ND, z2_ND, tau, **memory):
    from clsweep.objective.losses import infonce  # which loads torch: not in the driver

    time.sleep({seconds})
    return infonce(z1_ND, z2_ND, tau=tau, **memory)

ROWS = [Component(part="loss", name="sleeping", impl="sleeping", owns=("tau",), on=("simclr",),
                  source="-", doc="InfoNCE, late")]
"""
BARE = """
import sys, time, ray
from ray import tune
address, num_trials, seconds, folder = sys.argv[1:]
def sleep(config):
    tune.report({"score": config["score"]})
    time.sleep(float(seconds))

ray.init(address)
ended = []
class Ended(tune.Callback):
    def on_trial_complete(self, **info):
        ended.append(time.perf_counter())
tune.Tuner(
    tune.with_resources(sleep, {"CPU": 1}), param_space={"score": tune.uniform(0, 1)},
    tune_config=tune.TuneConfig(num_samples=int(num_trials), reuse_actors=True),
    run_config=tune.RunConfig(storage_path=folder, verbose=0, callbacks=[Ended()]),
).fit()
print("bare", (ended[-1] - ended[0]) / (len(ended) - 1))
"""


def measure_bare(nodes: list[int], sleep_s: float, folder: Path) -> float:
    """Seconds a trial of 100 that only sleep, from the first result of Tune alone to its last."""
    with static_cluster(nodes) as cluster:
        words = [sys.executable, "-c", BARE, cluster.address, 100, sleep_s, folder / "bare"]
        ran = subprocess.run(
            [*map(str, words)], env=os.environ | cluster.environment, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, text=True, check=True,
        )  # fmt: skip
    return float(ran.stdout.rpartition("bare ")[2])


def measure(
    num_trials: int, num_cpus: int, folder: Path, sleep_s: float, *, resume: bool
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The run in one row, and the driver as the trials end."""
    study, out = folder / "study.yaml", folder / "out"
    tree = STUDY | {"search": {"method": "random", "trials_per_objective": num_trials}}
    if sleep_s:
        (folder / "sleeping.py").write_text(SLEEPING.format(seconds=sleep_s))
        tree["objectives"] = {"sleeping": {"framework": "simclr", "loss": "sleeping"}}
        tree |= {"plugins": ["sleeping.py"], "base": tree["base"] | {"batch_size": 64}}  # one step
    study.write_text(yaml.safe_dump(tree))
    nodes = [min(NODE_CPUS, num_cpus - taken) for taken in range(0, num_cpus, NODE_CPUS)]
    with static_cluster(nodes) as cluster, (folder / "log").open("w") as log:
        command = [*COMMAND, "run", str(study), "--address", cluster.address, "--out", str(out)]
        start, samples = time.perf_counter(), list[dict[str, Any]]()
        for stop_at in [num_trials // 2] * resume + [math.inf]:
            driver = subprocess.Popen(
                command, env=os.environ | cluster.environment, stdout=log, stderr=log
            )
            began = len(samples)  # CPU seconds are those of the last driver and of its processes
            for sample in watch(psutil.Process(driver.pid), cluster, out, num_trials):
                samples.append({"s": time.perf_counter() - start, **sample})
                if sample["trials"] >= stop_at:
                    driver.send_signal(signal.SIGINT)
                    break
            assert driver.wait() == 130 * (stop_at < math.inf), (folder / "log").read_text()
        total_s = time.perf_counter() - start
    rows = pq.read_table(out / "trials.parquet").to_pandas()
    assert (rows["status"] == "finished").all()
    assert rows["trial_id"].nunique() == num_trials
    times = rows["started_at"].astype("int64") / 1000 + rows["wall_time_s"]  # of their ends
    last = samples[began:]
    half = last[len(last) // 2]
    beside: dict[str, float] = {}
    if sleep_s:
        named = {"report": ("--out", folder / "report"), "status": (), "trials": ()}
        beside = {f"{n} s": python_seconds(*CLSWEEP, n, out, *more) for n, more in named.items()}
        beside["Tune alone s / trial"] = measure_bare(nodes, sleep_s, folder)
    return {
        "trials": num_trials,
        "CPUs": num_cpus,
        "total s": total_s,
        "s / trial": float(np.ptp(times)) / max(num_trials - 1, 1),
        **{
            f"{who} / trial": (max(sample[who] for sample in last) - last[0][who])
            / max(last[-1]["trials"] - last[0]["trials"], 1)
            for who in ("driver CPU s", "cluster CPU s")
        },
        "driver KiB / trial": 1024
        * (last[-1]["driver MiB"] - half["driver MiB"])
        / max(last[-1]["trials"] - half["trials"], 1),
        "driver peak MiB": max(sample["driver MiB"] for sample in samples),
        "cluster peak GiB": max(sample["cluster GiB"] for sample in samples),
        "processes": max(sample["processes"] for sample in samples),
        **beside,
    }, samples


def watch(
    driver: psutil.Process, cluster: FakeCluster, out: Path, num_trials: int
) -> Iterator[dict[str, Any]]:
    """A sample at the first result, then at each tenth of the trials."""
    due = num_rows(out) + 1
    while driver.is_running() and driver.status() != psutil.STATUS_ZOMBIE:
        finished = min(num_rows(out), num_trials)
        if finished >= due:
            due = finished + max(num_trials // SAMPLES, 1)
            yield {"trials": finished, **memory(driver, cluster)}
        time.sleep(0.2)


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
        "driver CPU s": sum(driver.cpu_times()[:2]),
        "cluster CPU s": sum(map(cpu_seconds, processes)),
        "driver MiB": driver.memory_info().rss / MIB,
        "cluster GiB": sum(shares) / 2**30,
        "processes": len(processes),
    }


def pss(process: psutil.Process) -> int:
    try:
        return int(process.memory_full_info().pss)
    except psutil.Error:
        return 0


def cpu_seconds(process: psutil.Process) -> float:
    with suppress(psutil.Error):
        return float(sum(process.cpu_times()[:2]))
    return 0.0


AT_ONCE = 1000
TRIAL_S, BEAT_S, EPOCHS_S = 600.0, 2.0, 10.0  # a trial's length; pauses of the heartbeat
TARGET = 100_000
SUGGESTIONS = (100, 300)  # of a live search, which is too slow for more
SIMULATED = {
    **STUDY,
    "name": "simulated",
    "dataset": {"name": "digits"},
    "seeds": [0, 1],
    "base": {"encoder": "conv4"},
    "space": {"tau": {"low": 0.01, "high": 1.0, "log": True}, "lr": {"low": 0.01, "high": 1.0}},
}


def cpu_s() -> float:
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + ended.ru_utime + ended.ru_stime


class Clock:
    """Seconds of the processor by part, those of commands included: a busy machine changes little
    in them.
    """

    def __init__(self) -> None:
        self.seconds: Counter[str] = Counter()

    @contextmanager
    def __call__(self, part: str) -> Iterator[None]:
        start = cpu_s()
        yield
        self.seconds[part] += cpu_s() - start


def counting_disk(folder: str, calls: Counter[str]) -> Any:
    """A disk that counts what an object store would be asked."""
    from clsweep.results.disk import Disk

    class Counting(Disk):
        def is_file(self, name: str) -> bool:
            calls["HEAD"] += 1
            return super().is_file(name)

        def names(self, folder: str) -> list[str]:
            found = super().names(folder)
            calls["LIST"] += max(1, math.ceil(len(found) / 1000))  # keys of a page
            return found

        def read(self, name: str) -> bytes:
            calls["GET"] += 1
            return super().read(name)

        def write(self, name: str, data: Any, *, durable: bool = True) -> None:
            calls["PUT"] += 1
            super().write(name, data, durable=durable)

        def remove(self, name: str) -> None:
            calls["DELETE"] += 1
            super().remove(name)

    return Counting(folder)


def study_of(folder: Path, num_trials: int, method: str) -> Any:
    from clsweep.study.resolve import load_study

    search = {"method": method, "trials_per_objective": num_trials // 2}
    path = folder / f"{method}.yaml"
    path.write_text(yaml.safe_dump({**SIMULATED, "search": search}))
    return load_study(path)


def outcome_of(row: dict[str, Any], num_epochs: int) -> dict[str, Any]:
    epochs = [
        {"epoch": i, "train_loss": 5.0 / i, "lr": 0.1, "time_s": 1.0}
        for i in range(1, num_epochs + 1)
    ]
    score = 50.0 + int(row["trial_id"].encode().hex(), 16) % 4999 / 100
    told = {"status": "finished", "knn_top1": score, "wall_time_s": TRIAL_S}
    return {**told, "epochs": epochs, "epochs_trained": num_epochs, "num_images": 1e6}


def simulate(num_trials: int, num_epochs: int, root: Path) -> dict[str, float]:
    """Seconds in all by part, of a study of so many trials; and bytes, and requests."""
    from rich.console import Console

    import clsweep
    from clsweep.cluster.loggers import Loggers
    from clsweep.cluster.progress import Estimate, Progress
    from clsweep.cluster.recorder import Recorder
    from clsweep.cluster.search import PlanSearch
    from clsweep.results.folder import ResultsFolder
    from clsweep.results.journal import open_storage
    from clsweep.results.ranking import KeptFiles, Tally
    from clsweep.study.design import plan_row, plan_trials

    clock, calls = Clock(), Counter[str]()
    with clock("plan"):
        study = study_of(root, num_trials, "random")
        trials = plan_trials(study)
        rows = [plan_row(study, trial) for trial in trials]
    folder = ResultsFolder(str(root / "out"))
    folder.files = counting_disk(folder.files.folder, calls)
    folder.create(study.document.dump(), rows)
    best: dict[str, Any] = {"metric": "knn_top1", "mode": "max"}
    kept = KeptFiles(folder, rows, [], encoders="best", checkpoints="best", **best)
    tally = Tally(rows, [], axes={"simclr": ("tau", "lr")}, **best)
    console = Console(file=io.StringIO())
    progress = Progress(tally, Estimate(rows), concurrent=AT_ONCE, console=console)
    recorder = Recorder(study, folder, progress, kept, Loggers([], study, folder.path, print))
    storage = open_storage(folder.journal_path, alone=True)
    search = PlanSearch(study, trials, [], storage)
    folder.compact = lambda: None  # type: ignore[method-assign]  # by itself, see `compaction`
    under_way: deque[dict[str, Any]] = deque()
    calls.clear()
    for i in range(num_trials + AT_ONCE):
        if i < num_trials:
            with clock("journal"):
                row = search.next_row()
            assert row is not None
            under_way.append(row)
            with clock("progress"):
                recorder.started(row)
        if i == min(num_trials, AT_ONCE) - 1:
            beats(folder, progress, num_epochs, num_trials, clock)
        if i >= AT_ONCE and under_way:
            row = under_way.popleft()
            outcome = outcome_of(row, num_epochs)
            with clock("rows"):
                recorder.ended(row, outcome)
            with clock("journal"):
                search.tell(row, {**outcome, **row})
    for row in under_way:  # of a study of fewer trials than places
        recorder.ended(row, outcome_of(row, num_epochs))
    found = dict(clock.seconds)
    found |= {f"requests: {name}": float(num) for name, num in calls.items()}
    with clock("open_results of parts"):
        clsweep.open_results(folder.path).trials  # noqa: B018
    with clock("resume"):
        PlanSearch(study, [], folder.trials().to_pylist(), open_storage(folder.journal_path))
    found |= {name: clock.seconds[name] for name in clock.seconds if name not in found}
    found["journal MiB"] = os.path.getsize(folder.journal_path) / MIB
    folder.remove_scratch()
    return found


def compaction(num_trials: int, num_epochs: int, num_parts: int, root: Path) -> dict[str, float]:
    """Seconds of one compaction of parts into tables of so many trials, and of what reads them."""
    import pyarrow as pa

    import clsweep
    from clsweep.results.folder import ResultsFolder
    from clsweep.results.schemas import param_fields, side_schema, to_table, trials_schema
    from clsweep.study.design import plan_row, plan_trials

    study = study_of(root, num_trials + num_parts, "random")
    rows = [plan_row(study, trial) for trial in plan_trials(study)]
    folder, calls = ResultsFolder(str(root / "out")), Counter[str]()
    folder.create(study.document.dump(), rows)
    old, new = rows[:num_trials], rows[num_trials:]
    told = {k: v for k, v in outcome_of(rows[0], num_epochs).items() if k != "epochs"}
    schema = trials_schema(param_fields({*rows[0]}))
    folder._write_table("trials.parquet", to_table([{**row, **told} for row in old], schema))
    epochs = side_schema("epochs")
    one = to_table(
        [{"trial_id": "x", **e} for e in outcome_of(rows[0], num_epochs)["epochs"]], epochs
    )
    many = pa.concat_tables([one] * len(old)).combine_chunks()
    ids = pa.array([row["trial_id"] for row in old for _ in range(num_epochs)], pa.string())
    at = epochs.get_field_index("trial_id")
    folder._write_table("epochs.parquet", many.set_column(at, epochs.field(at), ids))
    for row in new:
        folder.add_trial({**row, **told}, epochs=outcome_of(row, num_epochs)["epochs"])
    folder.files, clock = counting_disk(folder.files.folder, calls), Clock()  # type: ignore[union-attr]
    with clock(f"a compaction of {num_parts} parts"):
        folder.compact()
    found = {f"requests of it: {name}": float(num) for name, num in calls.items()}
    with clock("open_results"):
        clsweep.open_results(folder.path).trials  # noqa: B018
    with clock("status"):
        command = [*COMMAND, "status", folder.path]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    sizes = [path.stat().st_size for path in Path(folder.path).glob("*.parquet")]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {**clock.seconds, **found, "tables MiB": sum(sizes) / MIB, "peak MiB": peak}


def beats(folder: Any, progress: Any, num_epochs: int, num_trials: int, clock: Clock) -> None:
    """What heartbeats take, with trials under way that have half their epochs: once, times their
    number in a study of trials of ten minutes.
    """
    import json

    from clsweep.cluster.desk import heard, report, reported, say

    state = {"epoch": 1, "epochs": num_epochs, "step": 1, "steps": 9, "loss": 1.0}
    for name in progress.running:
        say(folder.scratch, name, {**state, "images_per_s": 1e3})
        report(folder.scratch, name, {}, is_first=True)
        with open(f"{folder.scratch}/epochs/{name}", "w") as file:
            for i in range(1, num_epochs // 2 + 1):
                epoch = {"epoch": i, "train_loss": 5.0 / i, "lr": 0.1, "time_s": 1.0}
                file.write(json.dumps(epoch) + "\n")
    study_s = num_trials * TRIAL_S / AT_ONCE
    here = Clock()
    with here("heartbeat"):
        states = heard(folder.scratch, progress.running)
        progress.heard(states)
    with here("headline"):
        progress.headline()
    with here("heartbeat"):
        folder.held.beat({"state": "running", "running": progress.running, "trials": states})
    with here("epochs under way"):
        folder.keep_running(reported(folder.scratch, progress.running))
    for name, seconds in here.seconds.items():
        pause = max(EPOCHS_S, seconds / 0.05) if name == "epochs under way" else BEAT_S
        clock.seconds[name] += seconds * study_s / pause


def suggestions(num: int, root: Path) -> float:
    """CPU seconds of all configurations that `tpe` chooses, each told before the next."""
    from clsweep.cluster.search import PlanSearch
    from clsweep.results.journal import open_storage
    from clsweep.study.design import plan_trials

    study = study_of(root, 2 * num, "tpe")
    search = PlanSearch(study, plan_trials(study), [], open_storage(str(root / f"j{num}")))
    start = cpu_s()
    while (row := search.next_row()) is not None:
        search.tell(row, {**outcome_of(row, 1), **row})
    return cpu_s() - start


def drawn_on(sizes: tuple[int, ...], values: tuple[float, ...]) -> dict[str, float]:
    """The power law through two sizes, at TARGET."""
    (n, m), (a, b) = sizes, values
    power = math.log(b / a) / math.log(m / n) if a > 0 and b > 0 else 0.0
    return {"power": power, f"at {TARGET:,}": b * (TARGET / m) ** power}


def simulation(sizes: tuple[int, int], num_epochs: int) -> list[dict[str, Any]]:
    found = []
    for size in sizes:
        with tempfile.TemporaryDirectory() as folder:
            found.append(simulate(size, num_epochs, Path(folder)))
        with tempfile.TemporaryDirectory() as folder:
            found[-1] |= compaction(size, num_epochs, 250, Path(folder))
    table = []
    for part in found[-1]:
        values = (found[0].get(part, 0.0), found[1][part])
        told = {f"at {n:,}": v for n, v in zip(sizes, values, strict=True)}
        table.append({"part": part, **told, **drawn_on(sizes, values)})
    with tempfile.TemporaryDirectory() as folder:
        values = tuple(suggestions(num, Path(folder)) for num in SUGGESTIONS)
    part = f"tpe, {SUGGESTIONS[0]} and {SUGGESTIONS[1]} configurations"
    told = {f"at {n:,}": v for n, v in zip(sizes, values, strict=True)}
    return [*table, {"part": part, **told, **drawn_on(SUGGESTIONS, values)}]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=1000)
    parser.add_argument("--cpus", type=int, default=64)
    parser.add_argument("--sleep", type=float, default=0.0, metavar="SECONDS")
    parser.add_argument("--resume", action="store_true", help="after an interruption halfway")
    parser.add_argument("--simulate", type=int, nargs=2, metavar="TRIALS")
    parser.add_argument("--epochs", type=int, default=100)
    arguments = parser.parse_args()
    from clsweep.display.printing import print_table

    if arguments.simulate:
        named, table = machine(), simulation((*arguments.simulate,), arguments.epochs)
        title = f"\nCPU seconds in all, {arguments.epochs} epochs a trial; {named}"
        print_table(table, title=title, digits=2)
        return

    with tempfile.TemporaryDirectory() as folder:
        sizes = arguments.trials, arguments.cpus, Path(folder), arguments.sleep
        row, samples = measure(*sizes, resume=arguments.resume)
    print_table(samples, title=f"\nThe driver as the trials end; {machine()}", digits=1)
    print_table([row], title="\nThe run", digits=2)


if __name__ == "__main__":
    main()
