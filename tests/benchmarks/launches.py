"""Launches of a training step: how often the host has a GPU do something. Counted without a GPU, on
the pretended one of `tests/pretended`.

A launch is an operation on the device that is no view of memory. An operation may be several
kernels on a real GPU: the count compares steps, and is no time. The networks are resnet18 with its
projector, in bf16, with batches of 512 images of 32 x 32. Their values are not computed, as no
count depends on them. A GPU makes the views of several batches at once, a group: the mean is that
over the steps of the second group of an epoch.

`views` is all until the networks begin, `forward` that of networks and momentum copies, `loss` all
between that and `backward`, which is that of loss and networks. `optimiser` is the rest: statistics
of an epoch that is scored, momentum copies that follow, sums for the report. `waits` says how often
the host waits for the device. lightly's documented step stands beside: two forward passes,
NTXentLoss, SGD, and views that come from processes on the CPU.

    python tests/benchmarks/launches.py [--batch 512] [--method SimCLR ...]
"""

from __future__ import annotations

import contextlib
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest import mock

sys.path.insert(0, str(Path(__file__).parents[2]))  # for the tests' pretended device

import torch
from _machine import options
from _meta import META, EnoughError, like_a_device
from _work import config_of, lightly_step, random_images, simclr_network
from torch import Tensor, nn
from torch.optim import SGD

from clsweep.display.printing import print_table
from clsweep.train.diagnostics import StepStatistics
from clsweep.train.images import made_at_once
from clsweep.train.loop import train_epoch
from clsweep.train.state import Precision, new_state
from tests.pretended import device
from tests.pretended.device import DEVICE, Log, Pretended, watched
from tests.pretended.process import Child, compiled

Row = dict[str, Any]
FIRST, PEERS = 2, 8  # steps of lightly that are not counted, and those that are
PARTS = ("views", "forward", "backward", "loss", "optimiser")
NETWORKS = ("forward", "backward")
# In all, and outside the networks.
GOALS = {"SimCLR": (330, 85), "SimCLR, scored epoch": (380, None), "SimCLR, LARS": (370, None)}
METHODS: dict[str, Row] = {
    "SimCLR": {},
    "SimCLR, scored epoch": {},
    "SimCLR, LARS": {"optimizer": "lars"},
    "DCL": {"loss": "dcl"},
    "EqCo, drawn negatives": {"loss": "eqco", "num_negatives": 256},
    "MoCo": {"framework": "moco"},
    "BYOL": {"framework": "byol"},
    "Barlow Twins": {"framework": "barlow_twins"},
    "VICReg": {"framework": "vicreg"},
    "DINO": {"framework": "dino"},
}
LIGHTLY = "lightly's SimCLR"


@dataclass
class Parts:
    """Launches by the part of a step that is under way, and waits."""

    log: Log
    under_way: str = PARTS[0]
    counted: Counter[str] = field(default_factory=Counter)

    def enter(self, part: str) -> None:
        """Another part begins here."""
        self.counted[self.under_way] += self.log.num_launches
        self.counted["waits"] += self.log.waits.total()
        self.log.launches.clear()
        self.log.waits.clear()
        self.under_way = part

    @contextlib.contextmanager
    def of(self, network: nn.Module) -> Iterator[None]:
        """Enter the parts of this network's steps, but for their views, as long as it lasts."""
        backward = Tensor.backward

        def noticed(loss: Tensor, *rest: Any, **named: Any) -> None:
            self.enter("backward")
            backward(loss, *rest, **named)
            self.enter("optimiser")

        hooks = (network.register_forward_pre_hook(lambda *_: self.enter("forward")),
                 network.register_forward_hook(lambda *_: self.enter("loss")))  # fmt: skip
        with mock.patch.object(Tensor, "backward", noticed):
            yield
        for hook in hooks:
            hook.remove()

    def row(self, method: str, steps: int) -> Row:
        parts = {part: self.counted[part] / steps for part in PARTS}
        goal, _ = GOALS.get(method, (None, None))
        return {"method": method, **parts, "in all": sum(parts.values()),
                "waits": self.counted["waits"] / steps, "goal": goal}  # fmt: skip


@contextlib.contextmanager
def shapes_alone() -> Iterator[None]:
    """What lies on the pretended device has a shape and no values, as long as it lasts."""
    make, on_host = Pretended.__new__, device._on_host

    def made(cls: type[Pretended], values: Tensor) -> Pretended:
        return make(cls, values.to(META))

    def on_meta(kwargs: Row) -> Row:
        moved = on_host(kwargs)
        wanted = kwargs.get("device")
        is_there = wanted is not None and torch.device(wanted).type == "cuda"
        return moved | {"device": META} if is_there else moved

    with (
        mock.patch.object(Pretended, "__new__", made),
        mock.patch.object(device, "_on_host", on_meta),
        like_a_device(),
    ):
        yield


def ours(method: str, batch: int) -> Row:
    """A step of a method."""

    def given(num_images: int) -> Row:
        return config_of("resnet18", 32, batch, "bf16", num_train=num_images, **METHODS[method])

    with shapes_alone(), watched() as log, contextlib.suppress(EnoughError):
        few = given(batch)
        steps = made_at_once(random_images(few, DEVICE), few) // batch
        config = given(2 * steps * batch)
        state, images, parts = new_state(config, DEVICE), random_images(config, DEVICE), Parts(log)

        def after_step() -> float:
            done = state.under_way.step if state.under_way else 0
            parts.enter("views")
            if done == steps:
                parts.counted.clear()
            if done == 2 * steps:
                raise EnoughError
            return 0.0

        with parts.of(state.objective):
            train_epoch(state, state.objective, images, config,
                        StepStatistics() if "scored" in method else None,
                        after_step=after_step)  # fmt: skip
    return parts.row(method, steps)


def theirs(batch: int) -> Row:
    """lightly's documented step."""
    with shapes_alone(), watched() as log:
        model, parts = (
            simclr_network(config_of("resnet18", 32, batch, "bf16")).to(DEVICE),
            Parts(log),
        )
        optimizer = SGD(model.parameters(), lr=0.06)
        step = lightly_step(model, optimizer, Precision.on(DEVICE, "bf16"))
        with parts.of(model):
            for number in range(FIRST + PEERS):
                if number == FIRST:
                    parts.counted.clear()
                step(*(torch.rand(batch, 3, 32, 32).to(DEVICE) for _ in range(2)))
                parts.enter("views")
    return parts.row(LIGHTLY, PEERS)


def missed(row: Row) -> list[str]:
    """What of a row is above its goals."""
    most, most_outside = GOALS.get(row["method"], (None, None))
    outside = row["in all"] - sum(row[part] for part in NETWORKS)
    compared = (("in all", row["in all"], most), ("outside the networks", outside, most_outside))
    return [
        f"{row['method']}: {what}: expected at most {goal} launches, given {given:g}"
        for what, given, goal in compared
        if goal is not None and given > goal
    ]


def main() -> None:
    given = options(__doc__, batch=512, method=list(METHODS))
    with TemporaryDirectory() as folder:
        child = Child(compiled(Path(folder)))
        rows = [child.call(ours, method, given.batch) for method in given.method]
        with contextlib.suppress(ImportError):
            rows.append(child.call(theirs, given.batch))
        child.close()
    print_table(rows, title=f"\nLaunches of a step, batch {given.batch}, bf16", digits=1)
    if wrong := [text for row in rows for text in missed(row)]:
        sys.exit("\n".join(wrong))


if __name__ == "__main__":
    main()
