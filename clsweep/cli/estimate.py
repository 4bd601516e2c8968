"""`clsweep plan --estimate`: what a study would take on this machine, and what it would cost."""

from __future__ import annotations

from clsweep.catalog.rows import Row
from clsweep.cluster.forecast import Forecast, Outlook, forecast
from clsweep.display.numbers import byte_size, duration, number, work
from clsweep.display.printing import Format, print_table
from clsweep.display.text import say
from clsweep.study.design import Study

GIB = 2**30
SAVED = {"asha": "asha stops trials early", "racing": "racing leaves trials out"}  # by a scheduler


def print_estimate(study: Study, *, price: float | None, format: Format) -> None:
    """Time the objectives, and print what all their trials take.

    Args:
        price: of an hour of this machine.
    """
    if format is Format.table:
        say(f"{study.name}: timing a few steps of each objective ...")
    found = forecast(study)
    if format is not Format.table:
        print_table([_row(study, each) for each in found.objectives], format=format)
        return
    print_table([_shown(each) for each in found.objectives], title="\nEstimate for this machine")
    say()
    for line in [*_totals(study, found, price), *_notes(study, found)]:
        say(line)


def _row(study: Study, each: Outlook) -> Row:
    """For programs: plain numbers."""
    resources, hours = study.sections.resources, each.worker_s / 3600
    return {
        "objective": each.objective,
        "trials": each.trials,
        "trial_s": each.trial_s,
        "cpu_hours": hours * resources.cpus_per_worker,
        "gpu_hours": hours * float(resources.gpus_per_worker),
        "peak_gib": each.peak_gib,
    }


def _shown(each: Outlook) -> Row:
    return {
        "objective": each.objective,
        "trials": each.trials,
        "a trial": _long(each.trial_s),
        "one after another": _long(each.trial_s * each.trials),
        "memory": "" if each.peak_gib is None else byte_size(each.peak_gib * GIB),
    }


def _long(seconds: float) -> str:
    return duration(seconds) if seconds >= 1 else "under 1 s"


def _totals(study: Study, found: Forecast, price: float | None) -> list[str]:
    resources = study.sections.resources
    seconds = found.begin_s + found.total_s
    hours = sum(each.worker_s for each in found.objectives) / 3600
    num = sum(each.trials for each in found.objectives)
    most = study.sections.scheduler.name in SAVED
    lines = [
        f"{num:,} trials, {found.at_once} at once: {'at most' if most else 'about'} "
        f"{duration(seconds)}, and Ray's start",
        f"{work(hours * resources.cpus_per_worker)} of CPU cores",
    ]
    if resources.gpus_per_worker:
        lines.append(f"{work(hours * float(resources.gpus_per_worker))} of GPUs")
    peaks = [each.peak_gib for each in found.objectives if each.peak_gib is not None]
    if peaks:
        processes = found.at_once * resources.workers
        each, all_ = (byte_size(max(peaks) * n * GIB) for n in (1, processes))
        lines.append(f"{all_} of memory: {processes} processes of up to {each}")
    if price is not None:
        lines.append(f"{number(price * seconds / 3600)} EUR at {number(price)} EUR an hour")
    return lines


def _notes(study: Study, found: Forecast) -> list[str]:
    """What the numbers leave out."""
    notes = []
    if saved := SAVED.get(study.sections.scheduler.name):
        notes.append(f"note: {saved}; how many is not known before")
    notes += [
        f"note: {each.objective}: {each.timed} of its {each.sizes} sizes were timed; the others "
        "count as the nearest"
        for each in found.objectives
        if each.timed < each.sizes
    ]
    if study.sections.resources.workers > 1:
        notes.append("note: the workers' messages to each other are not in it")
    return notes
