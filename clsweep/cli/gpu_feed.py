"""Notes of `clsweep plan --gpu` on pictures: images a second that the cores of a trial read, beside
those that its GPUs take.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from clsweep.catalog.rows import Row
from clsweep.display.numbers import count, number
from clsweep.study.design import Study
from clsweep.study.factors import split_name
from clsweep.study.space import store_size_of


class Pull(NamedTuple):
    """Images a second that the GPUs of a planned trial take, in training and in scoring."""

    row: Row
    trained: float
    scored: float


@dataclass(frozen=True)
class _Feed:
    """Images a second that GPUs take, and those that one core reads for them."""

    taken: float
    read: float

    def share(self, cores: int) -> float:
        """Of what is taken, read by so many cores."""
        return self.read * cores / self.taken if self.taken else math.inf


def feed_notes(study: Study, pulls: Sequence[Pull], gpu: str) -> list[str]:
    """Lines on each data set of pictures, of the trial that is fed worst."""
    of_set: dict[str, list[Pull]] = {}
    for pull in pulls:
        if study.of(pull.row["objective"]).dataset.keeps_whole:
            level = split_name(study.document.tree, pull.row["objective"]).get("dataset", "")
            of_set.setdefault(level, []).append(pull)
    lines = [line for level, each in of_set.items() for line in _set_lines(study, level, each, gpu)]
    if not lines:
        return []
    samples = [study.of(each[0].row["objective"]).dataset.sample for each in of_set.values()]
    are_made = not all(sample and sample.pictures for sample in samples)
    made = ", with a made picture of ImageNet's size" * are_made
    lines.append(f"note: cores are this machine's, timed as they decode, cut and resize{made}")
    return lines


def _set_lines(study: Study, level: str, pulls: Sequence[Pull], gpu: str) -> list[str]:
    resources, name = study.sections.resources, f"{level}: " * bool(level)
    cores = resources.workers * resources.cpus_per_worker
    lines = []
    for part, verb in enumerate(("training", "scoring")):
        feeds = [(_feeds(study, pull)[part], pull) for pull in pulls]
        feed, pull = min(feeds, key=lambda each: each[0].share(cores))
        if not feed.taken:
            continue
        line = (
            f"note: {name}{verb} takes {count(round(feed.taken))} images a second on {gpu}; a "
            f"trial's {cores} core{'s read' if cores > 1 else ' reads'} "
            f"{count(round(feed.read * cores))}: "
        )
        if (share := feed.share(cores)) >= 1:
            lines.append(f"{line}fed")
            continue
        needed = math.ceil(feed.taken / feed.read / resources.workers)
        line += f"not fed, {number(1 / share)} times as long. --set resources.cpus_per_worker="
        line += f"{needed} feeds it"
        if study.of(pull.row["objective"]).dataset.store_as == "jpeg":
            of_pixels = _feeds(study, pull, "pixels")[part]
            least = math.ceil(of_pixels.taken / of_pixels.read / resources.workers)
            line += f", {least} with dataset.store_as: pixels" * (least < needed)
        lines.append(line)
    return lines


def _feeds(study: Study, pull: Pull, form: str = "") -> tuple[_Feed, _Feed]:
    """Training and scoring of a trial, with pictures in the form of the study or in another."""
    from clsweep.train.reading_rate import reading_rate

    cell = study.of(pull.row["objective"])
    dataset = cell.dataset
    if form:
        size = max(store_size_of(each, dataset.image_size, form) for each in cell.objectives)
        dataset = replace(dataset, store_as=form, store_size=size)
    rate = reading_rate(dataset, pull.row)
    return _Feed(pull.trained, rate.trained), _Feed(pull.scored, rate.scored)
