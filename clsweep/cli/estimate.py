"""`clsweep plan --estimate`: what a study would take on this machine, and what it would cost."""

from __future__ import annotations

from clsweep.catalog.rows import Row
from clsweep.cluster.forecast import Forecast, forecast
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
    for_eyes = format is Format.table
    rows = [_row(study, name, each, for_eyes) for name, each in found.objectives.items()]
    if format is not Format.table:
        print_table(rows, format=format)
        return
    print_table(rows, title="\nEstimate for this machine")
    say()
    for line in _lines(study, found, price):
        say(line)


def _row(study: Study, objective: str, each: Row, for_eyes: bool) -> Row:
    """One objective; for programs in plain numbers."""
    row = {"objective": objective, "trials": each["trials"]}
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
    }


def _lines(study: Study, found: Forecast, price: float | None) -> list[str]:
    """What the whole study takes, and what the numbers leave out."""
    resources, saved = study.sections.resources, SAVED.get(study.sections.scheduler.name)
    rows = found.objectives.values()
    seconds = sum(each["trial_s"] * each["trials"] for each in rows)
    hours = seconds * resources.workers / 3600
    num = sum(each["trials"] for each in rows)
    lines = [
        f"{num:,} trials, {found.at_once} at once: {'at most' if saved else 'about'} "
        f"{duration(found.total_s)}, and Ray's start",
        f"{work(hours * resources.cpus_per_worker)} of CPU cores",
    ]
    if resources.gpus_per_worker:
        lines.append(f"{work(hours * float(resources.gpus_per_worker))} of GPUs")
    if peaks := [each["peak_gib"] for each in rows if each["peak_gib"] is not None]:
        processes = found.at_once * resources.workers
        each_, all_ = (byte_size(max(peaks) * n * GIB) for n in (1, processes))
        lines.append(f"{all_} of memory: {processes} processes of up to {each_}")
    if price is not None:
        money = number(price * found.total_s / 3600)
        lines.append(f"{money} EUR at {number(price)} EUR an hour")
    if saved:
        lines.append(f"note: {saved}; how many is not known before")
    lines += [
        f"note: {name}: {each['timed']} of its {each['sizes']} sizes were timed; the others "
        "count as the nearest"
        for name, each in found.objectives.items()
        if each["timed"] < each["sizes"]
    ]
    if resources.workers > 1:
        lines.append("note: the workers' messages to each other are not in it")
    return lines
