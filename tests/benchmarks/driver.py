"""What the driver of a large study does without Ray: plan, journal, rows, compaction, heartbeats.

They work through made-up trials of many epochs, a thousand under way. From two sizes the table
draws each part on to 100,000 trials, by the power law through both.

    python tests/benchmarks/driver.py [--trials 1000 10000] [--epochs 100]
"""

from __future__ import annotations

import io
import json
import math
import os
import resource
import tempfile
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from _machine import machine, options
from commands import epochs_of, finished, large_study, make_results
from rich.console import Console

import clsweep
from clsweep.cluster.loggers import Loggers
from clsweep.cluster.mailbox import append_epoch, read_epochs, read_states, write_state
from clsweep.cluster.progress import Estimate, RunProgress
from clsweep.cluster.recorder import Recorder
from clsweep.cluster.search import PlanSearch
from clsweep.display.printing import print_table
from clsweep.results.folder import ResultsFolder
from clsweep.results.journal import open_storage
from clsweep.results.retention import Retention
from clsweep.results.standings import TrialCounts
from clsweep.study.design import plan_row, plan_trials

AT_ONCE = 1000
TRIAL_S, BEAT_S, EPOCHS_S = 600.0, 2.0, 10.0  # a trial's length; pauses of the heartbeat
TARGET = 100_000
SUGGESTIONS = (100, 300)  # of a live search, which is too slow for more
NUM_PARTS = 250  # of a compaction
MIB = 2**20
REQUESTS = {"is_file": "HEAD", "names": "LIST", "read": "GET", "write": "PUT", "remove": "DELETE"}


class Clock(Counter[str]):
    """Seconds of the processor by part: a busy machine changes little in them."""

    @contextmanager
    def __call__(self, part: str) -> Iterator[None]:
        start = time.process_time()
        yield
        self[part] += time.process_time() - start


def count_requests(files: Any, calls: Counter[str]) -> None:
    """Count what an object store would be asked in place of this disk."""

    def counted(request: str, method: Callable[..., Any], *args: Any, **options: Any) -> Any:
        found = method(*args, **options)
        pages = max(1, math.ceil(len(found) / 1000)) if request == "LIST" else 1
        calls[f"requests: {request}"] += pages
        return found

    for name, request in REQUESTS.items():
        setattr(files, name, partial(counted, request, getattr(files, name)))


def simulate(num_trials: int, num_epochs: int, root: Path) -> dict[str, float]:
    """Seconds in all by part, of a study of so many trials; and bytes, and requests."""
    clock, calls = Clock(), Counter[str]()
    with clock("plan"):
        study = large_study(root / "study.yaml", "random", num_trials)
        trials = plan_trials(study)
        rows = [plan_row(study, trial) for trial in trials]
    folder = ResultsFolder(str(root / "out"))
    folder.create(study.document.dump(), rows)
    count_requests(folder.files, calls)
    best: dict[str, Any] = {"metric": "knn_top1", "mode": "max"}
    kept = Retention(folder, rows, [], encoders="best", checkpoints="best", **best)
    tally = TrialCounts(
        rows, [], axes=dict.fromkeys(study.sections.objectives, ("tau", "lr")), **best
    )
    console = Console(file=io.StringIO())
    progress = RunProgress(tally, Estimate(rows), concurrent=AT_ONCE, console=console)
    recorder = Recorder(study, folder, progress, kept, Loggers([], study, folder.path, print))
    search = PlanSearch(study, trials, [], open_storage(folder.journal_path, alone=True))
    folder.compact = lambda: None  # type: ignore[method-assign]  # by itself, see `compaction`
    under_way: deque[dict[str, Any]] = deque()
    for i in range(len(rows) + AT_ONCE):
        if i < len(rows):
            with clock("journal"):
                row = search.next_row()
            assert row is not None
            under_way.append(row)
            with clock("progress"):
                recorder.started(row)
        if i == min(len(rows), AT_ONCE) - 1:
            beats(folder, progress, num_epochs, num_trials, clock)
        if i >= AT_ONCE and under_way:
            row = under_way.popleft()
            outcome = {**finished({}, i), "epochs": epochs_of(num_epochs), "wall_time_s": TRIAL_S}
            with clock("rows"):
                recorder.ended(row, outcome)
            with clock("journal"):
                search.tell(row, {**outcome, **row})
    with clock("resume"):
        PlanSearch(study, [], folder.trials().to_pylist(), open_storage(folder.journal_path))
    journal = os.path.getsize(folder.journal_path) / MIB
    folder.remove_scratch()
    return {**clock, **calls, "journal MiB": journal}


def beats(folder: Any, progress: Any, num_epochs: int, num_trials: int, clock: Clock) -> None:
    """What heartbeats take, with trials under way that have half their epochs: once, times their
    number in a study of trials of ten minutes.
    """
    state = {"epoch": 1, "epochs": num_epochs, "step": 1, "steps": 9, "loss": 1.0}
    for name in progress.running:
        write_state(folder.scratch, name, {**state, "images_per_s": 1e3})
        append_epoch(folder.scratch, name, {}, is_first=True)
        with open(f"{folder.scratch}/epochs/{name}", "w") as file:
            file.writelines(json.dumps(epoch) + "\n" for epoch in epochs_of(num_epochs // 2))
    here = Clock()
    with here("heartbeats"):
        states = read_states(folder.scratch, progress.running)
        progress.heard(states)
        progress.headline()
        folder.held.beat({"state": "running", "running": progress.running, "trials": states})
    with here("epochs under way"):
        folder.keep_running(read_epochs(folder.scratch, progress.running))
    pauses = {
        "heartbeats": BEAT_S,
        "epochs under way": max(EPOCHS_S, here["epochs under way"] / 0.05),
    }
    for name, pause in pauses.items():
        clock[name] += here[name] * num_trials * TRIAL_S / AT_ONCE / pause


def compaction(num_trials: int, num_epochs: int, root: Path) -> dict[str, float]:
    """Seconds of one compaction of parts into tables of so many trials, and of what reads them."""
    study = large_study(root / "study.yaml", "random", num_trials + NUM_PARTS)
    folder, clock, calls = ResultsFolder(str(root / "out")), Clock(), Counter[str]()
    make_results(study, folder, num_epochs, NUM_PARTS)
    count_requests(folder.files, calls)
    with clock(f"a compaction of {NUM_PARTS} parts"):
        folder.compact()
    with clock("open_results"):
        clsweep.open_results(folder.path).trials  # noqa: B018
    sizes = [path.stat().st_size for path in Path(folder.path).glob("*.parquet")]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    of_it = {f"{name}, of it": num for name, num in calls.items()}
    return {**clock, **of_it, "tables MiB": sum(sizes) / MIB, "peak MiB": peak}


def suggestions(num: int, root: Path) -> float:
    """CPU seconds of all configurations that `tpe` chooses, each told before the next."""
    study = large_study(root / "tpe.yaml", "tpe", 2 * num)
    search = PlanSearch(study, plan_trials(study), [], open_storage(str(root / f"j{num}")))
    start = time.process_time()
    while (row := search.next_row()) is not None:
        search.tell(row, {**finished({}, int(1e3 * row["tau"]) // 10), **row})
    return time.process_time() - start


def drawn_on(part: str, sizes: Any, values: Any, at: Any) -> dict[str, Any]:
    """A row: both values, and the power law through them at TARGET trials."""
    (n, m), (a, b) = at, values
    power = math.log(b / a) / math.log(m / n) if a > 0 and b > 0 else 0.0
    told = {f"at {size:,}": value for size, value in zip(sizes, values, strict=True)}
    return {"part": part, **told, "power": power, f"at {TARGET:,}": b * (TARGET / m) ** power}


def main() -> None:
    given = options(__doc__, trials=[1_000, 10_000], epochs=100)
    named, found = machine(), list[dict[str, float]]()
    for size in given.trials:
        found.append({})
        for measure in (simulate, compaction):
            with tempfile.TemporaryDirectory() as folder:
                found[-1] |= measure(size, given.epochs, Path(folder))
    with tempfile.TemporaryDirectory() as folder:
        chosen = [suggestions(num, Path(folder)) for num in SUGGESTIONS]
    table = [
        drawn_on(part, given.trials, [each.get(part, 0.0) for each in found], given.trials)
        for part in found[-1]
    ]
    named_parts = f"tpe, {SUGGESTIONS[0]} and {SUGGESTIONS[1]} configurations"
    table.append(drawn_on(named_parts, given.trials, chosen, SUGGESTIONS))
    title = f"\nCPU seconds in all, {given.epochs} epochs a trial; {named}"
    print_table(table, title=title, digits=2)


if __name__ == "__main__":
    main()
