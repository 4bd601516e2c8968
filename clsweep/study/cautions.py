"""Notes on settings that do what is written, and hardly what is meant."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import Any

from clsweep.catalog.open_encoders import NONE
from clsweep.catalog.ownership import scaled_lr
from clsweep.display.numbers import count, setting
from clsweep.study.check_training import Draft, TrainingChecks
from clsweep.study.design import Study, sampler_of
from clsweep.study.schema import LIVE_METHODS
from clsweep.study.space import Objective

_LARGE_VIEW = 96  # pixels a side from which a stem for 32 pixels is seldom meant
_NEAR = 1.5  # ratio of the ends of a log range below which it is all but linear


def setting_notes(draft: Draft, objectives: tuple[Objective, ...]) -> list[str]:
    """The notes on a checked study without factors, each with its objectives unless all have it."""
    names: dict[str, list[str]] = {}
    for objective in objectives:
        for note in _Cautions(draft, objective).notes():
            names.setdefault(note, []).append(f"'{objective.name}'")
    return [
        note if len(each) == len(objectives) else f"{', '.join(each)}: {note}"
        for note, each in names.items()
    ]


class _Cautions(TrainingChecks):
    def notes(self) -> Iterator[str]:
        yield from self.ranges()
        if self.is_trainer or "batch_size" not in self.owned or not self.highest("epochs"):
            return
        if self.workers > 1:
            yield f"batch_size is that of all {self.workers} workers together"
        if self.dataset.kind == "images":
            yield from self.encoders()
            yield from self.memories()

    def ranges(self) -> Iterator[str]:
        for name, dimension in self.space.items():
            if dimension.is_range and dimension.log:
                low, high = (float(end) for end in dimension.extremes)
                if high < _NEAR * low:
                    ends = f"from {setting(low)} to {setting(high)}"
                    yield f"{name}: a log range {ends} is all but linear, unlike a grid"

    def encoders(self) -> Iterator[str]:
        size = self.lowest("view_size") or self.dataset.image_size
        is_small = "stem" in self.owned and self.points("stem")[0] == ("small",)
        if is_small and self.where("stem")[-1] != "stem" and size >= _LARGE_VIEW:
            yield (
                f"stem is small, its default, made for 32 pixels, and views have {size}: "
                "stem: standard is the usual one there"
            )
        for encoder in self.objective.encoders if self.fixed.get("init", NONE) == NONE else ():
            name, _, weights = encoder.partition(".")
            if encoder.startswith("timm/") and weights:
                yield f"{name} begins untrained, without the weights '{weights}': init takes a file"

    def memories(self) -> Iterator[str]:
        epochs: Any = self.highest("epochs")
        num_train, _ = self.dataset.split_sizes(self.sections.val_fraction)
        framework, memories = self.objective.parts["framework"], dict[str, int]()
        if "freeze_epochs" in self.owned and (frozen := self.lowest("freeze_epochs")) >= epochs:
            yield f"freeze_epochs is {frozen} of {epochs} epochs: what it freezes never trains"
        if "support_size" in self.owned:
            memories["support_size"] = 2 * epochs * num_train
        if "num_negatives" in self.owned and framework == "moco":
            views = 2 if True in self.points("symmetric")[0] else 1
            memories["num_negatives"] = views * epochs * num_train
        if "swav_queue" in self.owned:
            start: Any = self.lowest("swav_queue_start")
            memories["swav_queue"] = max(0, epochs - start) * num_train
        for name, num in memories.items():
            size: Any = self.highest(name)
            if size > num:
                rest = "it is not used" if name == "swav_queue" else "the rest stays random"
                yield f"{name} is {count(size)}, and a trial puts in {count(num)} rows: {rest}"


def asha_notes(study: Study) -> list[str]:
    """The epochs at which `scheduler: asha` decides, and which share of configurations goes on
    there. A trial is scored every `eval_every` epochs, so it may reach several rungs at once.
    """
    scheduler, notes = study.sections.scheduler, dict[str, None]()
    for objective in study.objectives:
        epochs: Any = objective.fixed.get("epochs", 0)
        is_live = sampler_of(study, objective) in LIVE_METHODS
        if scheduler.name != "asha" or not is_live or not epochs:
            continue
        every: Any = objective.fixed.get("eval_every", 1)
        factor, rung, looks = scheduler.reduction_factor, scheduler.grace_epochs, list[int]()
        while (look := -(-rung // every) * every) < epochs:
            looks.append(look)
            rung *= factor
        parts = [f"{factor ** len([*same])} at epoch {at}" for at, same in groupby(looks)]
        ends = f"of configurations one in {', one in '.join(parts)} goes on"
        notes[f"note: asha: {ends}; seed {study.sections.seeds[0]} decides"] = None
    return list(notes)


def rate_notes(study: Study) -> list[str]:
    """The learning rates that `lr_rule` makes of `lr`, where that is another one."""
    rates: dict[str, list[str]] = {}
    for objective in study.objectives:
        is_swept = "lr_rule" in objective.space
        if is_swept or not {"lr", "lr_rule", "batch_size"} <= {*objective.owned}:
            continue
        rule = str(objective.fixed["lr_rule"])
        batches: Any = objective.extremes("batch_size")
        both = zip(objective.extremes("lr"), batches, strict=True)
        ends: list[Any] = [(lr, scaled_lr(lr, batch, rule)) for lr, batch in both]
        if any(lr != rate for lr, rate in ends):
            text = " to ".join(dict.fromkeys(f"{rate:.3g}" for _, rate in ends))
            rates.setdefault(f"{text} (lr_rule {rule})", []).append(objective.name)
    if not rates:
        return []
    few = [f"{rate}" if len(rates) == 1 else f"{', '.join(n)} {rate}" for rate, n in rates.items()]
    return [f"note: the largest learning rate of a trial is {'; '.join(few)}"]
