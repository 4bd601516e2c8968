"""`clsweep plan --estimate --gpu NAME`: what a study would take on a GPU that is not here, of the
operations and bytes of its steps.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from clsweep.catalog import COMPONENT, DATASET
from clsweep.catalog.known_gpus import HOST_S, KnownGPU, known_gpu
from clsweep.catalog.plugins import error_line, plug_in
from clsweep.catalog.rows import Row
from clsweep.cli.estimate import GIB, SAVED, Pace, chosen_sizes, spread, tracked
from clsweep.cli.gpu_memory import more_workers
from clsweep.display.numbers import count, duration, number, work
from clsweep.display.printing import Format, print_note, print_table
from clsweep.errors import RequestError, listed
from clsweep.study.design import Study, plan_row, plan_trials
from clsweep.study.factors import split_name
from clsweep.study.space import store_size_of

COUNTED_SIZES = 12  # of each objective
MOST_CHUNKS = 64  # of a batch, that are proposed
_FACTOR = 2  # within which an estimate is likely to lie


def print_gpu_estimate(study: Study, name: str, *, price: float | None, format: Format) -> None:
    """Count the steps of the objectives, and print what all their trials take.

    Args:
        name: of the GPU, in `clsweep.catalog.known_gpus`.
        price: of an hour of one.

    Raises:
        RequestError: the GPU is not known or has not the study's precision, the number of images is
            not known, or a step cannot be counted.
    """
    gpu, study = known_gpu(name), study.drawn()
    rows = [plan_row(study, trial) for trial in plan_trials(study)]
    plug_in(study.document.plugins)
    sizes, chosen = chosen_sizes(study, rows, COUNTED_SIZES)
    wanted = [each[i][0] for name, each in sizes.items() for i in chosen[name]]
    steps = {
        row["trial_id"]: _Step(study, row, gpu)
        for row in tracked(wanted, len(wanted), "Counting steps")
    }
    _, objectives = spread(sizes, chosen, {key: [step.pace] for key, step in steps.items()})
    for each in objectives:
        of = (step for step in steps.values() if step.row["objective"] == each["objective"])
        each["step_s"] = max(step.step_s for step in of)
    for_eyes = format is Format.table
    title = f"Estimate for {gpu.name}, {number(gpu.memory)} GB" if for_eyes else ""
    print_table([_row(study, each, for_eyes) for each in objectives], format=format, title=title)
    if for_eyes:
        for line in [*_lines(study, objectives, gpu, price), *_fits([*steps.values()], gpu)]:
            print_note(line)
        for line in _feed_notes(study, [*steps.values()], gpu.name):
            print_note(line)


class _Step:
    """A step of a planned trial on a GPU: its seconds, its memory, and the images a second that the
    trial's GPUs have `taken`, in training and in scoring.
    """

    def __init__(self, study: Study, row: Row, gpu: KnownGPU) -> None:
        self.row, cell = row, study.of(row["objective"])
        num_train, num_scored = cell.dataset.split_sizes(cell.sections.val_fraction)
        if COMPONENT["framework"][row["framework"]].is_trainer:
            raise RequestError(f"--gpu: a trainer's steps are not known, given {row['framework']}")
        if DATASET[row["dataset"]].kind != "images" or not num_train:
            expected = "expected images whose number is known, as by dataset.num_train"
            raise RequestError(f"--gpu: {expected}, given {row['dataset']}")
        if row["epochs"] and row["precision"] == "bf16" and not gpu.has_bf16:
            advice = "Expected: fp16 or fp32, as in --set base.precision=fp16"
            raise RequestError(f"--gpu: {gpu.name} has no bf16 arithmetic. {advice}")
        resources = study.sections.resources
        self.workers, self.step_s, self.peak = resources.workers, 0.0, 0
        self.share = min(1.0, float(resources.gpus_per_worker) or 1.0)  # of a GPU, beside others
        from clsweep.train.step_cost import SCORED, busy_seconds, features_cost, step_cost

        try:
            image_s = features_cost(row).seconds_on(gpu) / SCORED / self.workers / self.share
            if row["epochs"]:
                step = step_cost(row, self.workers)
                busy_s = busy_seconds(row, step, gpu, self.workers)
                self.step_s = max(busy_s / self.share, HOST_S * step.launches)
                self.peak = step.peak
        except Exception as error:
            why = error_line(error, row["loss"])
            raise RequestError(f"{row['objective']} cannot be counted: {why}") from None
        steps = num_train // row["batch_size"] if row["epochs"] else 0
        redrawn = row["probe_epochs"] if row.get("probe_views") == "augmented" else 0
        self.pace = Pace(
            epoch_s=steps * self.step_s,
            scored_s=(num_train + (num_scored or 0)) * image_s,
            last_s=redrawn * num_train * image_s,
            peak_gib=self.peak / GIB,
        )
        self.taken = row["batch_size"] / self.step_s if self.step_s else 0.0, 1 / image_s


def _row(study: Study, each: Row, for_eyes: bool) -> Row:
    """One objective; for programs in plain numbers."""
    row = {name: each[name] for name in ("objective", "trials")}
    if not for_eyes:
        names = ("step_s", "trial_s", "peak_gib")
        hours = _gpu_hours(study, [each])
        is_at_most = study.sections.scheduler.name in SAVED
        return row | {n: each[n] for n in names} | {"gpu_hours": hours, "is_at_most": is_at_most}
    return row | {
        "longest step": f"{count(1000 * each['step_s'])} ms",
        "a trial": duration(each["trial_s"]),
        "in all": duration(each["trial_s"] * each["trials"]),
        "memory": _gb(each["peak_gib"] * GIB),
    }


def _gpu_hours(study: Study, rows: Sequence[Row]) -> float:
    """Hours of whole GPUs, of which a worker may have a share."""
    resources = study.sections.resources
    gpus = resources.workers * (float(resources.gpus_per_worker) or 1.0)
    return sum(each["trial_s"] * each["trials"] for each in rows) * gpus / 3600


def _lines(study: Study, rows: Sequence[Row], gpu: KnownGPU, price: float | None) -> list[str]:
    """Hours and money of the whole study, and what the numbers are."""
    saved = SAVED.get(study.sections.scheduler.name)
    num = sum(each["trials"] for each in rows)
    hours = _gpu_hours(study, rows)
    about = "at most" if saved else "about"
    lines = [f"\n{count(num)} trials: {about} {work(hours)} of {gpu.name}"]
    if price is not None:
        money = f"{number(price * hours)} EUR at {number(price)} EUR an hour of one"
        lines.append(
            f"{money}, {number(price * hours / _FACTOR)} to {number(price * hours * _FACTOR)}"
        )
    lines.append(
        f"note: an estimate, likely within a factor of {_FACTOR}: no {gpu.name} was asked. It is "
        "of the operations and bytes of a step, counted, and the GPU's data sheet"
    )
    if saved:
        lines.append(f"note: {saved}; how many is not known before")
    lines.append("note: waits for images, neighbours, probes and Ray's start are not in it")
    return lines


def _fits(steps: Sequence[_Step], gpu: KnownGPU) -> list[str]:
    """Steps that the GPU cannot hold, and with what it could: as many workers as all batches divide
    among, or chunks.
    """
    large = [step for step in steps if not gpu.holds(step.peak, step.share)]
    if not large:
        return []
    from clsweep.train.step_cost import step_cost

    worst, batches = max(large, key=lambda step: step.peak), {s.row["batch_size"] for s in steps}
    batch, first = worst.row["batch_size"], worst.workers
    names = listed(sorted({step.row["objective"] for step in large}))
    line = f"note: {names}: a step takes up to {_gb(worst.peak)}, more than {gpu.name} holds."
    for workers in more_workers(first, batches):
        if gpu.holds(peak := step_cost(worst.row, workers).peak, worst.share):
            line += f" --set resources.workers={workers} fits, {_gb(peak)} each."
            break
    chunk = batch
    while chunk % 2 == 0 and batch // chunk < MOST_CHUNKS:
        chunk //= 2
        peak = step_cost({**worst.row, "chunk_size": chunk}, first).peak
        if gpu.holds(peak, worst.share):
            line += f" --set base.chunk_size={chunk} fits, {_gb(peak)}; it is another study, as"
            return [f"{line} batch norm sees chunks"]
    return [line]


def _gb(num_bytes: float) -> str:
    return f"{number(num_bytes / 1e9)} GB"


# Pictures: images a second that the cores of a trial read, beside those that its GPUs take.


def _feed_notes(study: Study, steps: Sequence[_Step], gpu: str) -> list[str]:
    """Lines on each data set of pictures, of the trial that is fed worst."""
    of_set: dict[str, list[_Step]] = {}
    for step in steps:
        if study.of(step.row["objective"]).dataset.keeps_whole:
            level = split_name(study.document.tree, step.row["objective"]).get("dataset", "")
            of_set.setdefault(level, []).append(step)
    lines = [line for level, each in of_set.items() for line in _set_lines(study, level, each, gpu)]
    if not lines:
        return []
    samples = [study.of(each[0].row["objective"]).dataset.sample for each in of_set.values()]
    are_made = not all(sample and sample.pictures for sample in samples)
    made = ", with a made picture of ImageNet's size" * are_made
    lines.append(f"note: cores are this machine's, timed as they decode, cut and resize{made}")
    return lines


def _set_lines(study: Study, level: str, steps: Sequence[_Step], gpu: str) -> list[str]:
    resources, name = study.sections.resources, f"{level}: " * bool(level)
    cores = resources.workers * resources.cpus_per_worker
    lines = []
    for part, verb in enumerate(("training", "scoring")):
        read_of = {step: _read(study, step)[part] for step in steps if step.taken[part]}
        if not read_of:
            continue
        worst = min(read_of, key=lambda step: read_of[step] / step.taken[part])
        taken, read = worst.taken[part], read_of[worst]
        line = (
            f"note: {name}{verb} takes {count(round(taken))} images a second on {gpu}; a "
            f"trial's {cores} core{'s read' if cores > 1 else ' reads'} "
            f"{count(round(read * cores))}: "
        )
        if (share := read * cores / taken) >= 1:
            lines.append(f"{line}fed")
            continue
        needed = math.ceil(taken / read / resources.workers)
        line += f"not fed, {number(1 / share)} times as long. --set resources.cpus_per_worker="
        line += f"{needed} feeds it"
        if study.of(worst.row["objective"]).dataset.store_as == "jpeg":
            least = math.ceil(taken / _read(study, worst, "pixels")[part] / resources.workers)
            line += f", {least} with dataset.store_as: pixels" * (least < needed)
        lines.append(line)
    return lines


def _read(study: Study, step: _Step, form: str = "") -> tuple[float, float]:
    """Images a second that a core reads in training and in scoring, with pictures in the form of
    the study or in another.
    """
    from clsweep.train.reading_rate import reading_rate

    cell = study.of(step.row["objective"])
    dataset = cell.dataset
    if form:
        size = max(store_size_of(each, dataset.image_size, form) for each in cell.objectives)
        dataset = replace(dataset, store_as=form, store_size=size)
    rate = reading_rate(dataset, step.row)
    return rate.trained, rate.scored
