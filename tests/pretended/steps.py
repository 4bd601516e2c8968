"""Steps of the contract cases on the pretended device, or on the CPU."""

from __future__ import annotations

from typing import NamedTuple

import torch

from clsweep.data.locations import DataPlace
from clsweep.train.diagnostics import StepStatistics
from clsweep.train.images import Images, on_device
from clsweep.train.loop import train_epoch
from clsweep.train.state import TrialState, new_state
from tests.contracts.combinations import SPLIT, Config, few_images
from tests.pretended.device import Call, Log, watched


class Steps(NamedTuple):
    """What an epoch of a few steps came to."""

    row: dict[str, float]
    weights: dict[str, torch.Tensor]
    log: Log
    calls: list[list[Call]]  # of each step


def images_of(config: Config, num_steps: int, device: torch.device) -> Images:
    place, size = DataPlace(), num_steps * config["batch_size"]
    train = few_images({"dataset": "digits", **SPLIT}, place, size).train
    return on_device(train, train, device)


def take_steps(config: Config, where: str, num_steps: int = 2, *, scored: bool = False) -> Steps:
    """One epoch of some steps from the beginning, with no more than its own wait at the end;
    `scored`: with the diagnostics of its steps.
    """
    torch.set_num_threads(1)
    device = torch.device(where)
    images = images_of(config, num_steps, device)
    state: TrialState = new_state(config, device)
    ends: list[int] = []
    with watched(calls=True) as log:
        assert log.calls is not None

        def end_step() -> float:
            ends.append(len(log.calls or ()))
            return 0.0

        statistics = StepStatistics() if scored else None
        row = train_epoch(state, state.objective, images, config, statistics, after_step=end_step)
    calls = [log.calls[a:b] for a, b in zip([0, *ends], ends, strict=False)]
    log.calls = None
    state_dict = state.objective.state_dict()
    weights = {name: x.cpu() for name, x in state_dict.items() if isinstance(x, torch.Tensor)}
    return Steps(row, weights, log, calls)
