"""How long a study would take on this machine: a few steps of each objective, timed without Ray."""

from __future__ import annotations

import heapq
import importlib
import math
import multiprocessing
import os
import signal
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from itertools import cycle, islice, repeat
from statistics import fmean
from typing import TYPE_CHECKING, Any

from clsweep.catalog import PARAM
from clsweep.catalog.plugins import Plugin, plug_in, told
from clsweep.catalog.rows import Row
from clsweep.cluster.capacity import prepare_files, require_capacity, this_machine
from clsweep.data.found import DataPlace
from clsweep.errors import RequestError
from clsweep.study.design import Study, plan_row, plan_trials
from clsweep.study.schema import ResourcesSection

if TYPE_CHECKING:
    from clsweep.train.pace import Pace

TIMED_SIZES = 3  # of each objective: networks, batches and the like of several sizes
NICENESS = 15  # of Ray's workers by default: they stand back behind what else the machine does
PACE = "clsweep.train.pace"  # which loads what trials need
COUNTED = ("epochs", "eval_every")  # how often it is done that is timed


@dataclass(frozen=True, kw_only=True)
class Forecast:
    """A study on this machine.

    Attributes:
        objectives: a row each, by its name: `trials`; `sizes` that these have, and how many of them
            were `timed`; `trial_s`, mean seconds of a trial; `peak_gib`, most memory that a worker
            takes, None where the system does not tell.
        at_once: trials that run at the same time.
        total_s: until a process has loaded what trials need, and from then on to the end of the
            last trial. Ray's own start is not in it.
    """

    objectives: Mapping[str, Row]
    at_once: int
    total_s: float


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
    study = study.drawn()
    rows = [plan_row(study, trial) for trial in plan_trials(study)]
    workers = study.sections.resources.workers
    at_once = min(require_capacity(study, here), len(rows))
    sizes = _sizes(study, rows)
    # of many sizes the first, the last, and one between them
    chosen = {
        name: sorted({round(i * (len(each) - 1) / (TIMED_SIZES - 1)) for i in range(TIMED_SIZES)})
        for name, each in sizes.items()
    }
    wanted = [each[i][0] for name, each in sizes.items() for i in chosen[name]]
    paces, begin_s = _timed(study, wanted, at_once * workers)
    took, objectives = dict[str, float](), dict[str, Row]()
    for name, each in sizes.items():
        timed = {i: paces[each[i][0]["trial_id"]] for i in chosen[name]}
        for number, alike in enumerate(each):
            nearest = timed[min(timed, key=lambda i: abs(i - number))]
            for row in alike:
                took[row["trial_id"]] = fmean(p.trial_s(row) for p in nearest) / workers
        own = [took[row["trial_id"]] for alike in each for row in alike]
        peaks = [p.peak_gib for ps in timed.values() for p in ps if p.peak_gib is not None]
        objectives[name] = {
            "trials": len(own), "sizes": len(each), "timed": len(timed), "trial_s": fmean(own),
            "peak_gib": max(peaks, default=None),
        }  # fmt: skip
    ends = [begin_s] * at_once  # of those at once; each starts as soon as another one ends
    for row in rows:
        heapq.heapreplace(ends, ends[0] + took[row["trial_id"]])
    return Forecast(objectives=objectives, at_once=at_once, total_s=max(ends))


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


def _timed(
    study: Study, wanted: Sequence[Row], num_processes: int
) -> tuple[dict[str, list[Pace]], float]:
    """The paces of these trials by their ids, and the seconds until the processes were ready.

    Some are timed again where there are more processes than trials, so that all are busy.
    """
    resources, context = study.sections.resources, multiprocessing.get_context("spawn")
    rows = list(islice(cycle(wanted), math.ceil(len(wanted) / num_processes) * num_processes))
    settled = _settle, (context.Value("i", 0), float(resources.gpus_per_worker))
    paces: dict[str, list[Pace]] = {}
    with ProcessPoolExecutor(num_processes, context, *settled) as pool:
        try:
            start = time.monotonic()
            for ready in [pool.submit(_load) for _ in range(num_processes)]:
                ready.result()
            begin_s = time.monotonic() - start
            places = [study.of(row["objective"]).sections.dataset.place.absolute() for row in rows]
            timed = pool.map(_time, rows, places, repeat(resources), repeat(study.document.plugins))
            for row, pace in zip(rows, timed, strict=True):
                paces.setdefault(row["trial_id"], []).append(pace)
        except BrokenProcessPool:
            raise RequestError(
                f"--estimate: a process died with {num_processes} at once, perhaps out of memory"
            ) from None
    return paces, begin_s


def _load() -> None:
    """What trials need; a module itself cannot be sent back."""
    importlib.import_module(PACE)


def _settle(counter: Any, gpus: float) -> None:
    """Of a process, before anything loads torch: its GPU, its rank among the machine's processes,
    and that Ctrl-C ends it.
    """
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    os.nice(NICENESS)
    with counter.get_lock():
        number, counter.value = counter.value, counter.value + 1
    if gpus:
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        names = [name.strip() for name in visible.split(",")] if visible else []
        mine = number // math.floor(1 / gpus + 1e-9) if gpus < 1 else int(number * gpus)
        os.environ["CUDA_VISIBLE_DEVICES"] = names[mine % len(names)] if names else str(mine)


def _time(
    row: Row, place: DataPlace, resources: ResourcesSection, plugins: Sequence[Plugin]
) -> Pace:
    """The pace of a trial in this process.

    Raises:
        RequestError: the trial fails; says why.
    """
    import torch

    from clsweep.train.memory import keep_freed_memory, limited_memory
    from clsweep.train.pace import pace_of

    torch.set_num_threads(resources.cpus_per_worker)
    keep_freed_memory()
    plug_in(plugins)
    gpus = float(resources.gpus_per_worker)
    device = torch.device("cuda" if gpus else "cpu")
    try:
        with limited_memory(row, device, gpus or 1.0):
            return pace_of(row, place, device)
    except RequestError:
        raise
    except Exception as error:
        raise RequestError(f"{row['objective']} fails: {told(error, row['loss'])}") from None
