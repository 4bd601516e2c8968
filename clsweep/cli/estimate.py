"""`clsweep plan --estimate`: what a study would take on this machine, and what it would cost. Short
trials of each objective are timed, without Ray.
"""

from __future__ import annotations

import heapq
import math
import multiprocessing
import os
import signal
import sys
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from itertools import cycle, islice, repeat
from pathlib import Path
from statistics import fmean
from time import perf_counter
from typing import TYPE_CHECKING, Any, TypeVar

from clsweep.catalog import DATASET, PARAM
from clsweep.catalog.known_gpus import HOST_S
from clsweep.catalog.plugins import Plugin, error_line, plug_in
from clsweep.catalog.rows import Row
from clsweep.cluster.resources import prepare_files, require_capacity, this_machine, visible_gpus
from clsweep.data.locations import DataPlace
from clsweep.display.numbers import byte_size, duration, number, work
from clsweep.display.printing import Format, print_note, print_table, say
from clsweep.errors import RequestError
from clsweep.machine import stand_back
from clsweep.study.design import Study, plan_row, plan_trials
from clsweep.study.schema import ResourcesSection

if TYPE_CHECKING:
    import torch

GIB = 2**30
SAVED = {"asha": "asha stops trials early", "racing": "racing leaves trials out"}  # by a scheduler
TIMED_SIZES = 3  # of each objective: networks, batches and the like of several sizes
LONGEST_S = 30.0  # of an epoch that is waited for
WORTH = 1.1  # times as fast, from where on another precision is named
T = TypeVar("T")
Sizes = dict[str, list[list[Row]]]
_COUNTED = ("epochs", "eval_every")  # how often it is done that is timed


def print_estimate(study: Study, *, price: float | None, format: Format) -> None:
    """Time the objectives, and print what all their trials take.

    Args:
        price: of an hour of this machine.

    Raises:
        RequestError: a data set is missing, a trial fails, or this machine cannot hold one.
    """
    for_eyes = format is Format.table
    if for_eyes:
        say(f"{study.name}: timing short trials of each objective ...")
    objectives, at_once, total_s = forecast(study)
    rows = [_row(study, each, for_eyes) for each in objectives]
    print_table(rows, format=format, title="\nEstimate for this machine" if for_eyes else "")
    if for_eyes:
        say()
        for line in _lines(study, objectives, at_once, total_s, price):
            print_note(line)
        for line in _checks(study, objectives):
            print_note(line)
        if (gain := bf16_gain(study)) >= WORTH:
            advice = "--set base.precision=bf16 asks for it, and is another study"
            print_note(f"note: bf16 is {number(gain)} times as fast on this CPU; {advice}")


def forecast(study: Study) -> tuple[list[Row], int, float]:
    """Time trials of a study, as many at once as would run, so that they are in each other's way.
    A trial of several workers is timed as one, and taken to be that many times as fast.

    Returns:
        A row of each objective: `trials`; `sizes` that these have, and how many of them were
        `timed`; `first` of these, a trial and its pace; `trial_s`, mean seconds of a trial, with
        its scores if `is_scored`; `peak_gib`, most memory that a worker takes, None where the
        system does not tell. The trials that run at the same time. The seconds to the end of the
        last one, once processes have begun.

    Raises:
        RequestError: as `print_estimate`.
    """
    here = this_machine()
    if here is None:
        raise RequestError("--estimate: the GPUs of this machine cannot be counted")
    resources = study.sections.resources
    try:
        at_once = require_capacity(study, here)
    except RequestError as error:
        advice = ". For a GPU that is not here: --gpu, as in --gpu a10g"
        raise RequestError(f"{error}{advice * bool(resources.gpus_per_worker)}") from None
    prepare_files(study)
    study = study.drawn()
    rows = [plan_row(study, trial) for trial in plan_trials(study)]
    workers, at_once = resources.workers, min(at_once, len(rows))
    sizes, chosen = chosen_sizes(study, rows, TIMED_SIZES)
    wanted = [each[i][0] for name, each in sizes.items() for i in chosen[name]]
    paces = _timed(study, wanted, at_once * workers)
    took, objectives = spread(sizes, chosen, paces, workers)
    ends = [0.0] * at_once  # of those at once; each starts as soon as another one ends
    for row in rows:
        heapq.heapreplace(ends, ends[0] + took[row["trial_id"]])
    return objectives, at_once, max(ends)


def spread(
    sizes: Sizes,
    chosen: Mapping[str, Sequence[int]],
    paces: Mapping[str, Sequence[Pace]],
    workers: int = 1,
) -> tuple[dict[str, float], list[Row]]:
    """Seconds of each trial by its id, of the paces of the nearest size that has some, and the rows
    of the objectives, as `forecast` returns them.
    """
    took, objectives = dict[str, float](), list[Row]()
    for name, each in sizes.items():
        timed = {i: paces[each[i][0]["trial_id"]] for i in chosen[name]}
        for place, alike in enumerate(each):
            nearest = timed[min(timed, key=lambda i: abs(i - place))]
            for row in alike:
                took[row["trial_id"]] = fmean(p.trial_s(row) for p in nearest) / workers
        own = [took[row["trial_id"]] for alike in each for row in alike]
        peaks = [p.peak_gib for ps in timed.values() for p in ps if p.peak_gib is not None]
        objectives.append({
            "objective": name, "trials": len(own), "sizes": len(each), "timed": len(timed),
            "trial_s": fmean(own), "peak_gib": max(peaks, default=None),
            "is_scored": all(p.is_scored for ps in timed.values() for p in ps),
            "first": (each[0][0], timed[0][0]),
        })  # fmt: skip
    return took, objectives


def _checks(study: Study, objectives: Sequence[Row]) -> list[str]:
    """The timed epoch of a trial beside the same of operations and bytes, as `--gpu` reckons it for
    other devices: of the first objective that trains, on a CPU.
    """
    resources = study.sections.resources
    firsts = [each["first"] for each in objectives if each["first"][1].epoch_s]
    if resources.gpus_per_worker or not firsts or "chunk_size" not in firsts[0][0]:
        return []
    from clsweep.train.step_cost import busy_seconds, step_cost, this_cpu

    row, pace = firsts[0]
    cell = study.of(row["objective"])
    num_train, _ = cell.dataset.split_sizes(cell.sections.val_fraction)
    step, cpu = step_cost(row), this_cpu(resources.cpus_per_worker)
    step_s = busy_seconds(row, step, cpu) + HOST_S * step.launches  # one after the other
    reckoned = num_train // row["batch_size"] * step_s
    return [
        f"note: by operations and bytes, as --gpu reckons, an epoch of {row['objective']} takes "
        f"{number(reckoned)} s; {number(pace.epoch_s)} s were timed"
    ]


def bf16_gain(study: Study) -> float:
    """Speed of the first trial in bf16 over float32 on this machine's CPUs; 0 where none trains in
    float32 on them, or they have no instructions for bf16.
    """
    planned = (plan_row(study, trial) for trial in plan_trials(study.drawn()))
    row = next((row for row in planned if row["epochs"] and row.get("precision") == "fp32"), None)
    if row is None or study.sections.resources.gpus_per_worker or not has_amx():
        return 0.0
    names = ("fp32", "bf16")
    both = [row | {"trial_id": name, "precision": name} for name in names]
    single, half = (_timed(study, [each], 1)[each["trial_id"]][0].epoch_s for each in both)
    return single / half


def has_amx() -> bool:
    """True if the CPU multiplies matrices of bf16 by instructions of its own."""
    try:
        return "amx_bf16" in Path("/proc/cpuinfo").read_text()
    except OSError:
        return False


@dataclass(frozen=True, kw_only=True)
class Pace:
    """Seconds of the parts of a trial.

    Attributes:
        begin_s: until its first step.
        epoch_s: the steps of an epoch.
        scored_s: what an epoch that is scored takes more.
        last_s: what the last one takes more than that.
        peak_gib: memory of the trial; None where the system does not tell.
        is_scored: False where an epoch was too long for its scores to be waited for.
    """

    begin_s: float = 0.0
    epoch_s: float = 0.0
    scored_s: float = 0.0
    last_s: float = 0.0
    peak_gib: float | None = None
    is_scored: bool = True

    def trial_s(self, row: Mapping[str, Any]) -> float:
        """A trial of as many epochs as the row of the plan says, scored as often."""
        epochs: int = row["epochs"]
        num_scored = -(-epochs // row.get("eval_every", 1))  # pairs have no such scores
        return self.begin_s + epochs * self.epoch_s + num_scored * self.scored_s + self.last_s


class _EnoughError(Exception):
    """An epoch is longer than `LONGEST_S`: its seconds by the pace so far."""


def pace_of(row: Row, place: DataPlace, device: torch.device) -> Pace:
    """Train the trial of a row of the plan in this process for two epochs, or for what of them is
    waited for.

    Raises:
        RequestError: the data set is not there.
    """
    from clsweep.data.datasets import load_splits
    from clsweep.train.loop import train_trial
    from clsweep.train.memory import PeakMemory

    if DATASET[row["dataset"]].kind == "images":
        load_splits(row, place)  # once for many trials
    memory, start = PeakMemory(device), perf_counter()
    begun, steps_s, scores_s = [start], list[float](), list[float]()  # of each epoch

    def tell(state: Row) -> None:
        so_far = perf_counter() - begun[-1]
        if not state.get("step"):  # no part of it is trained yet
            begun[0] += so_far
        elif "scoring" in state:
            steps_s.append(so_far)
        elif "images_per_s" in state and so_far > LONGEST_S:
            raise _EnoughError(state["steps"] * row["batch_size"] / state["images_per_s"])

    def report(_: Row) -> None:
        took = perf_counter() - begun[-1]
        if len(steps_s) == len(scores_s):  # nobody has said that it is scored, as of pairs
            steps_s.append(min([took, *steps_s[:1]]))
        scores_s.append(took - steps_s[-1])
        begun.append(begun[-1] + took)

    short = {**row, "epochs": min(2, row["epochs"])}
    short |= {"eval_every": 1} if "eval_every" in row else {}
    parts: dict[str, Any]
    try:
        train_trial(short, report, place=place, device=device, tell=tell)
        parts = {"epoch_s": steps_s[-1], "scored_s": scores_s[0]}
        parts["last_s"] = max(0.0, scores_s[-1] - scores_s[0])
    except _EnoughError as enough:
        parts = {"epoch_s": enough.args[0], "scored_s": sum(scores_s), "is_scored": bool(scores_s)}
    if not row["epochs"]:
        parts = {"last_s": steps_s[0]}
    return Pace(**parts, begin_s=begun[0] - start, peak_gib=memory.peak_gib())


def chosen_sizes(
    study: Study, rows: Sequence[Row], most: int
) -> tuple[Sizes, dict[str, list[int]]]:
    """The trials of each objective, those together that take equal steps, and the places of at most
    so many groups: the first, the last, and some between. No real number is taken to change what a
    step costs: a temperature, a rate, a weight.
    """
    sizes: Sizes = {}
    for objective in study.objectives:
        names = [n for n in objective.space if PARAM[n].kind != "float" and n not in _COUNTED]
        groups: dict[tuple[Any, ...], list[Row]] = {}
        for row in rows:
            if row["objective"] == objective.name:
                groups.setdefault(tuple(row[name] for name in names), []).append(row)
        in_order = sorted(groups, key=lambda key: [(isinstance(v, str), v) for v in key])
        sizes[objective.name] = [groups[key] for key in in_order]
    return sizes, {
        name: sorted({round(i * (len(each) - 1) / (most - 1)) for i in range(most)})
        for name, each in sizes.items()
    }


def _timed(study: Study, wanted: Sequence[Row], num_processes: int) -> dict[str, list[Pace]]:
    """The paces of these trials by their ids. Some are timed again where there are more processes
    than trials, so that all are busy.
    """
    resources, context = study.sections.resources, multiprocessing.get_context("spawn")
    rows = list(islice(cycle(wanted), math.ceil(len(wanted) / num_processes) * num_processes))
    settled = _settle, (context.Value("i", 0), float(resources.gpus_per_worker))
    places = [study.of(row["objective"]).sections.dataset.place.absolute() for row in rows]
    paces: dict[str, list[Pace]] = {}
    with ProcessPoolExecutor(num_processes, context, *settled) as pool:
        try:
            timed = pool.map(_time, rows, places, repeat(resources), repeat(study.document.plugins))
            for row, pace in zip(rows, tracked(timed, len(rows), "Timing trials"), strict=True):
                paces.setdefault(row["trial_id"], []).append(pace)
        except BrokenProcessPool:
            raise RequestError(
                f"--estimate: a process died with {num_processes} at once, perhaps out of memory"
            ) from None
    return paces


def tracked(items: Iterable[T], total: int, what: str) -> Iterable[T]:
    """The items as they come, with a bar on a terminal."""
    from rich.console import Console
    from rich.progress import track

    console, is_hidden = Console(stderr=True), not sys.stderr.isatty()
    return track(items, what, total, console=console, transient=True, disable=is_hidden)


def _settle(counter: Any, gpus: float) -> None:
    """Of a process, before anything loads torch: the GPU that it sees, if any, its rank among the
    machine's processes, and that Ctrl-C ends it.
    """
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    stand_back()
    with counter.get_lock():
        number, counter.value = counter.value, counter.value + 1
    visible = ""
    if gpus:
        names = visible_gpus()
        mine = number // math.floor(1 / gpus + 1e-9)
        visible = names[mine % len(names)] if names else str(mine)
    os.environ["CUDA_VISIBLE_DEVICES"] = visible


def _time(
    row: Row, place: DataPlace, resources: ResourcesSection, plugins: Sequence[Plugin]
) -> Pace:
    """The pace of a trial in this process; RequestError, with the reason, where it fails."""
    import torch

    from clsweep.train.device import trial_device
    from clsweep.train.memory import keep_freed_memory, limited_memory

    torch.set_num_threads(resources.cpus_per_worker)
    keep_freed_memory()
    plug_in(plugins)
    gpus = float(resources.gpus_per_worker)
    try:
        device = trial_device("cuda" if gpus else "cpu")
        with limited_memory(device, gpus or 1.0, resources.images_on):
            return pace_of(row, place, device)
    except RequestError:
        raise
    except Exception as error:
        raise RequestError(f"{row['objective']} fails: {error_line(error, row['loss'])}") from None


def _row(study: Study, each: Row, for_eyes: bool) -> Row:
    """One objective; for programs in plain numbers."""
    row = {name: each[name] for name in ("objective", "trials")}
    trial_s, peak_gib = each["trial_s"], each["peak_gib"]
    seconds = trial_s * each["trials"]
    if for_eyes:
        a_trial, all_ = (duration(s) if s >= 1 else "under 1 s" for s in (trial_s, seconds))
        memory = "" if peak_gib is None else byte_size(peak_gib * GIB)
        return row | {"a trial": a_trial, "one after another": all_, "memory": memory}
    resources = study.sections.resources
    hours = seconds * resources.workers / 3600
    return row | {
        "trial_s": trial_s,
        "cpu_hours": hours * resources.cpus_per_worker,
        "gpu_hours": hours * float(resources.gpus_per_worker),
        "peak_gib": peak_gib,
        "is_at_most": study.sections.scheduler.name in SAVED,
    }


def _lines(
    study: Study, rows: Sequence[Row], at_once: int, total_s: float, price: float | None
) -> list[str]:
    """Hours and memory of the whole study, and what the numbers leave out."""
    resources, saved = study.sections.resources, SAVED.get(study.sections.scheduler.name)
    seconds = sum(each["trial_s"] * each["trials"] for each in rows)
    hours = seconds * resources.workers / 3600
    num = sum(each["trials"] for each in rows)
    lines = [
        f"{num:,} trials, {at_once} at once: {'at most' if saved else 'about'} "
        f"{duration(total_s)}, and Ray's start",
        f"{work(hours * resources.cpus_per_worker)} of CPU cores",
    ]
    if resources.gpus_per_worker:
        lines.append(f"{work(hours * float(resources.gpus_per_worker))} of GPUs")
    if peaks := [each["peak_gib"] for each in rows if each["peak_gib"] is not None]:
        processes = at_once * resources.workers
        each_, all_ = (byte_size(max(peaks) * n * GIB) for n in (1, processes))
        lines.append(f"{all_} of memory: {processes} processes of up to {each_}")
    if price is not None:
        money = number(price * total_s / 3600)
        lines.append(f"{money} EUR at {number(price)} EUR an hour")
    if saved:
        lines.append(f"note: {saved}; how many is not known before")
    lines += [
        f"note: {each['objective']}: {each['timed']} of its {each['sizes']} sizes were timed; the "
        "others count as the nearest"
        for each in rows
        if each["timed"] < each["sizes"]
    ]
    if unscored := [each["objective"] for each in rows if not each["is_scored"]]:
        lines.append(f"note: {', '.join(unscored)}: epochs are long, and scores are not in it")
    if resources.workers > 1:
        lines.append("note: the workers' messages to each other are not in it")
    return lines
