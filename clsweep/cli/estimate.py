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
    rows = [_row(study, each, for_eyes=format is Format.table) for each in found.objectives]
    if format is not Format.table:
        print_table(rows, format=format)
        return
    print_table(rows, title="\nEstimate for this machine")
    say()
    for line in _lines(study, found, price):
        say(line)


def _row(study: Study, each: Outlook, *, for_eyes: bool) -> Row:
    """One objective; for programs in plain numbers."""
    row = {"objective": each.objective, "trials": each.trials}
    seconds = each.trial_s * each.trials
    if for_eyes:
        a_trial, all_ = (duration(s) if s >= 1 else "under 1 s" for s in (each.trial_s, seconds))
        memory = "" if each.peak_gib is None else byte_size(each.peak_gib * GIB)
        return row | {"a trial": a_trial, "one after another": all_, "memory": memory}
    resources = study.sections.resources
    hours = seconds * resources.workers / 3600
    return row | {
        "trial_s": each.trial_s,
        "cpu_hours": hours * resources.cpus_per_worker,
        "gpu_hours": hours * float(resources.gpus_per_worker),
        "peak_gib": each.peak_gib,
    }


def _lines(study: Study, found: Forecast, price: float | None) -> list[str]:
    """What the whole study takes, and what the numbers leave out."""
    resources, saved = study.sections.resources, SAVED.get(study.sections.scheduler.name)
    seconds = sum(each.trial_s * each.trials for each in found.objectives)
    hours = seconds * resources.workers / 3600
    num = sum(each.trials for each in found.objectives)
    lines = [
        f"{num:,} trials, {found.at_once} at once: {'at most' if saved else 'about'} "
        f"{duration(found.total_s)}, and Ray's start",
        f"{work(hours * resources.cpus_per_worker)} of CPU cores",
    ]
    if resources.gpus_per_worker:
        lines.append(f"{work(hours * float(resources.gpus_per_worker))} of GPUs")
    if peaks := [each.peak_gib for each in found.objectives if each.peak_gib is not None]:
        processes = found.at_once * resources.workers
        each_, all_ = (byte_size(max(peaks) * n * GIB) for n in (1, processes))
        lines.append(f"{all_} of memory: {processes} processes of up to {each_}")
    if price is not None:
        money = number(price * found.total_s / 3600)
        lines.append(f"{money} EUR at {number(price)} EUR an hour")
    if saved:
        lines.append(f"note: {saved}; how many is not known before")
    lines += [
        f"note: {each.objective}: {each.timed} of its {each.sizes} sizes were timed; the others "
        "count as the nearest"
        for each in found.objectives
        if each.timed < each.sizes
    ]
    if resources.workers > 1:
        lines.append("note: the workers' messages to each other are not in it")
    return lines
