"""How long a study would take on this machine: a few steps of each objective, timed without Ray."""

from __future__ import annotations

import heapq
import math
import multiprocessing
import os
import signal
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from itertools import cycle, islice
from statistics import fmean
from typing import TYPE_CHECKING, Any

from clsweep.catalog import PARAM
from clsweep.catalog.plugins import Plugin, activate, execute
from clsweep.catalog.rows import Row
from clsweep.cluster.capacity import prepare_files, require_capacity, this_machine
from clsweep.data.availability import DataPlace
from clsweep.errors import RequestError
from clsweep.study.design import Study, plan_row, plan_trials
from clsweep.study.schema import LIVE_METHODS

if TYPE_CHECKING:
    from clsweep.train.pace import Pace

TIMED_SIZES = 3  # of each objective: networks, batches and the like of several sizes
NICENESS = 15  # of Ray's workers by default: they stand back behind what else the machine does
COUNTED = ("epochs", "eval_every")  # how often it is done that is timed


@dataclass(frozen=True, kw_only=True)
class Outlook:
    """One objective.

    Attributes:
        sizes, timed: sizes that its trials have, and how many of them were timed.
        trial_s: mean seconds of a trial.
        worker_s: seconds of all workers of all its trials.
        peak_gib: most memory that a worker takes; None where the system does not tell.
    """

    objective: str
    trials: int
    sizes: int
    timed: int
    trial_s: float
    worker_s: float
    peak_gib: float | None


@dataclass(frozen=True, kw_only=True)
class Forecast:
    """A study on this machine.

    Attributes:
        at_once: trials that run at the same time.
        begin_s: until a process has loaded what trials need. Ray's own start is not in it.
        total_s: from then on to the end of the last trial.
    """

    objectives: Sequence[Outlook]
    at_once: int
    begin_s: float
    total_s: float


@dataclass(frozen=True, kw_only=True)
class _Task:
    """What a process is to time."""

    row: Row
    place: DataPlace
    cpus: int
    gpus: float
    plugins: Sequence[Mapping[str, Any]]
    sent_at: float


def forecast(study: Study) -> Forecast:
    """Time trials of a study, as many at once as would run, so that they are in each other's way.

    A trial of several workers is timed as one, and taken to be that many times as fast.

    Raises:
        RequestError: a data set is missing, a trial fails, or this machine cannot hold one.
    """
    here = this_machine()
    if here is None:
        raise RequestError("--estimate: the GPUs of this machine cannot be counted")
    prepare_files(study)
    rows, workers = _rows(study), study.sections.resources.workers
    at_once = min(require_capacity(study, here), len(rows))
    sizes = _sizes(study, rows)
    chosen = {name: _spread_out(len(each)) for name, each in sizes.items()}
    wanted = [each[i][0] for name, each in sizes.items() for i in chosen[name]]
    paces, begin_s = _timed(study, wanted, at_once * workers)
    took, objectives = dict[str, float](), []
    for name, each in sizes.items():
        timed = [paces[each[i][0]["trial_id"]] for i in chosen[name]]
        for number, alike in enumerate(each):
            nearest = min(range(len(timed)), key=lambda k: abs(chosen[name][k] - number))
            for row in alike:
                took[row["trial_id"]] = fmean(p.trial_s(row) for p in timed[nearest]) / workers
        own = [took[row["trial_id"]] for alike in each for row in alike]
        peaks = [p.peak_gib for ps in timed for p in ps if p.peak_gib is not None]
        objectives.append(
            Outlook(
                objective=name,
                trials=len(own),
                sizes=len(each),
                timed=len(timed),
                trial_s=fmean(own),
                worker_s=sum(own) * workers,
                peak_gib=max(peaks, default=None),
            )
        )
    total_s = _makespan((took[row["trial_id"]] for row in rows), at_once)
    return Forecast(objectives=objectives, at_once=at_once, begin_s=begin_s, total_s=total_s)


def _rows(study: Study) -> list[Row]:
    """The plan. Values that a live search would choose are drawn at random."""
    search = study.sections.search
    if search.method in LIVE_METHODS:
        drawn = search.model_copy(update={"method": "random"})
        sections = study.sections.model_copy(update={"search": drawn})
        study = replace(study, sections=sections)
    return [plan_row(study, trial) for trial in plan_trials(study)]


def _sizes(study: Study, rows: Sequence[Row]) -> dict[str, list[list[Row]]]:
    """The trials of each objective, those together that take equal steps. No real number is taken
    to change what a step costs: a temperature, a rate, a weight.
    """
    found: dict[str, list[list[Row]]] = {}
    for objective in study.objectives:
        names = [n for n in objective.space if PARAM[n].kind != "float" and n not in COUNTED]
        groups: dict[tuple[Any, ...], list[Row]] = {}
        for row in rows:
            if row["objective"] == objective.name:
                groups.setdefault(tuple(row[name] for name in names), []).append(row)
        in_order = sorted(groups, key=lambda key: [(isinstance(v, str), v) for v in key])
        found[objective.name] = [groups[key] for key in in_order]
    return found


def _spread_out(num: int) -> list[int]:
    """Which of so many sizes are timed: the first, the last, and one between them."""
    steps = min(num, TIMED_SIZES) - 1
    return [round(i * (num - 1) / steps) for i in range(steps + 1)] if steps else [0]


def _makespan(seconds: Iterable[float], at_once: int) -> float:
    """When the last trial ends, if each starts in its turn as soon as another one ends."""
    ends = [0.0] * at_once
    for each in seconds:
        heapq.heapreplace(ends, ends[0] + each)
    return max(ends)


def _timed(
    study: Study, wanted: Sequence[Row], num_processes: int
) -> tuple[dict[str, list[Pace]], float]:
    """The paces of these trials by their ids, and how long a process took to be ready.

    Some are timed again where there are more processes than trials, so that all are busy.
    """
    resources = study.sections.resources
    num = math.ceil(len(wanted) / num_processes) * num_processes
    tasks = [
        _Task(
            row=row,
            place=study.of(row["objective"]).sections.dataset.place.absolute(),
            cpus=resources.cpus_per_worker,
            gpus=float(resources.gpus_per_worker),
            plugins=[plugin.packed() for plugin in study.document.plugins],
            sent_at=time.time(),
        )
        for row in islice(cycle(wanted), num)
    ]
    context = multiprocessing.get_context("spawn")
    paces: dict[str, list[Pace]] = {}
    ready = []
    with ProcessPoolExecutor(
        num_processes, context, _settle, (context.Value("i", 0), float(resources.gpus_per_worker))
    ) as pool:
        try:
            for task, (pace, ready_s) in zip(tasks, pool.map(_time, tasks), strict=True):
                paces.setdefault(task.row["trial_id"], []).append(pace)
                ready.append(ready_s)
        except BrokenProcessPool:
            raise RequestError(
                f"--estimate: a process died with {num_processes} at once, perhaps out of memory"
            ) from None
    return paces, min(ready)


def _settle(counter: Any, gpus: float) -> None:
    """Of a process, before anything loads torch: its GPU, its rank among the machine's processes,
    and that Ctrl-C ends it.
    """
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    if hasattr(os, "nice"):
        os.nice(NICENESS)
    with counter.get_lock():
        number, counter.value = counter.value, counter.value + 1
    if gpus:
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        names = [name.strip() for name in visible.split(",")] if visible else []
        mine = number // max(1, math.floor(1 / gpus + 1e-9)) if gpus < 1 else int(number * gpus)
        os.environ["CUDA_VISIBLE_DEVICES"] = names[mine % len(names)] if names else str(mine)


def _time(task: _Task) -> tuple[Pace, float]:
    """The pace of a trial in this process, and the seconds since the task was sent until torch and
    what a trial imports were there.

    Raises:
        RequestError: the trial fails; says why.
    """
    import torch

    from clsweep.train.memory import keep_freed_memory, limited_memory
    from clsweep.train.pace import pace_of

    ready_s = time.time() - task.sent_at
    torch.set_num_threads(task.cpus)
    keep_freed_memory()
    plugins = [Plugin.unpacked(packed) for packed in task.plugins]
    activate(plugins)
    execute(plugins)
    device = torch.device("cuda" if task.gpus else "cpu")
    try:
        with limited_memory(task.row, device, task.gpus or 1.0):
            return pace_of(task.row, task.place, device), ready_s
    except RequestError:
        raise
    except Exception as error:
        reason = str(error).splitlines()[:1] or [""]
        name = task.row["objective"]
        raise RequestError(f"{name} fails: {type(error).__name__}: {reason[0]}") from None
