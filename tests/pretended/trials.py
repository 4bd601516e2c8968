"""Whole trials on the pretended device, or on the CPU."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import pytest
import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_pre_hook

from clsweep.catalog.plugins import activate
from clsweep.study.design import plan_row, plan_trials
from clsweep.study.resolve import load_study
from clsweep.train import images, loop, mutual_information, progress_reporter
from clsweep.train.save_request import SaveRequest
from tests.contracts.attempts import MEASURED, Attempt, Killed, MemoryStore, attempt
from tests.contracts.combinations import Config, few_images
from tests.pretended.device import Log, watched


class Trial(NamedTuple):
    """What came of a trial.

    Attributes:
        made: its rows and its result.
        log: what the device was asked to do.
        rounds: whether convolutions of networks in evaluation mode could round to TF32.
    """

    made: Attempt
    log: Log
    rounds: set[bool]


def trial(
    config: Config, where: str, *, num_images: int = 40, fits: bool = True, **options: Any
) -> Trial:
    """A trial on so many images of each split, 0: on all of them; fits: whether they lie on the
    device.
    """
    torch.set_num_threads(1)
    rounds: set[bool] = set()

    def look(module: nn.Module, _: Any) -> None:
        if isinstance(module, nn.Conv2d) and not module.training:
            rounds.add(torch.backends.cudnn.allow_tf32)

    few = partial(few_images, num_images=num_images) if num_images else loop.load_splits
    with (
        mock.patch.object(loop, "load_splits", few),
        mock.patch.object(mutual_information, "STEPS_PER_EPOCH", 5),
        mock.patch.object(images, "LARGEST_SHARE", images.LARGEST_SHARE if fits else 0.0),
        register_module_forward_pre_hook(look),
        watched() as log,
    ):
        made = attempt(config, device=where, **options)
    return Trial(made, log, rounds)


def cut_trial(config: Config, where: str, at: tuple[int, int]) -> Trial:
    """One that is killed with a checkpoint at a step of an epoch, and goes on from it."""
    store = MemoryStore()

    def kill() -> None:
        raise Killed

    notice = SaveRequest(kill)

    def tell(state: dict[str, Any]) -> None:
        if (state["epoch"], state["step"]) == at:
            notice.give()

    with mock.patch.object(progress_reporter, "REPORT_EVERY_S", 0.0):
        trial(config, where, store=store, every_s=1e9, tell=tell, notice=notice)
    assert store.payload is not None
    return trial(config, where, store=store, every_s=1e9)


LOSS = """
from clsweep.catalog import Component
from clsweep.objective.losses import dcl


def mine(z1_ND, z2_ND, tau, **memory):
    return dcl(z1_ND, z2_ND, tau=tau, **memory) + {rest}


ROWS = [
    Component(part="loss", name="mine", impl="mine", owns=("tau",), on=("simclr",), source="-",
              doc="-"),
]
"""
STUDY = """
name: mine
plugins: [mine.py]
dataset: {name: digits, val_fraction: 0.1}
seeds: [0]
base: {encoder: conv4, width: 4, epochs: 2, batch_size: 16, knn_k: 5, precision: fp32}
objectives:
  new: {framework: simclr, loss: mine}
search: {method: grid}
"""


def own_trial(folder: Path, rest: str, where: str) -> Trial:
    """One with a loss of the user's own, to which `rest` is added."""
    (folder / "mine.py").write_text(LOSS.format(rest=rest))
    (folder / "study.yaml").write_text(STUDY)
    study = load_study(folder / "study.yaml")
    try:
        return trial(plan_row(study, plan_trials(study)[0]), where)
    finally:
        activate(())


def assert_near(actual: Attempt, expected: Attempt, *, tolerance: float = 1e-3) -> None:
    """The rows and results of two trials whose sums have another order.

    One image of forty may be right in one and wrong in the other.
    """
    assert len(actual.rows) == len(expected.rows)
    pairs = zip([*actual.rows, actual.result], [*expected.rows, expected.result], strict=True)
    for one, other in pairs:
        assert one.keys() == other.keys()
        for name in one.keys() - {*MEASURED, "train_images_per_s"}:
            if isinstance(other[name], float):
                places = 2.6 if "_top" in name else tolerance
                assert one[name] == pytest.approx(other[name], rel=tolerance, abs=places), name
