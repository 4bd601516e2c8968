"""What a trial is made of between two steps, and all that a checkpoint has to hold of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from clsweep.objective.build import build_objective
from clsweep.train.collectives import ModuleT, sync_batch_norm
from clsweep.train.optim import build_sgd


@dataclass
class TrialState:
    """Objective (with momentum copies, queue and support set), optimiser, random generators and finished epochs.

    Data order and views come from one generator, drawn negatives from another: an objective that draws more negatives
    still sees the same data.
    """

    objective: Any
    optimizer: torch.optim.Optimizer
    data_generator: torch.Generator
    draw_generator: torch.Generator
    epoch: int = 0

    def state_dict(self) -> dict[str, Any]:
        """Tensors and plain values only: `torch.load(weights_only=True)` reads it back."""
        return {
            "objective": self.objective.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "data_generator": self.data_generator.get_state(),
            "draw_generator": self.draw_generator.get_state(),
            "epoch": self.epoch,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.objective.load_state_dict(state["objective"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.data_generator.set_state(state["data_generator"])
        self.draw_generator.set_state(state["draw_generator"])
        self.epoch = state["epoch"]


def new_state(config: Mapping[str, Any], device: torch.device) -> TrialState:
    """A trial at its beginning, from its seed."""
    objective = sync_batch_norm(seeded(build_objective, config).to(device), device)
    return TrialState(
        objective=objective,
        optimizer=build_sgd(objective, config),
        data_generator=torch.Generator().manual_seed(derived_seed(config["seed"], "data")),
        draw_generator=torch.Generator().manual_seed(derived_seed(config["seed"], "negatives")),
    )


def seeded(build: Callable[[Mapping[str, Any]], ModuleT], config: Mapping[str, Any]) -> ModuleT:
    """A module with the initial weights of the trial's seed; the caller's random state stays as it is."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derived_seed(config["seed"], "model"))
        return build(config)


def derived_seed(seed: int, purpose: str) -> int:
    """Independent streams from one seed: initial weights are not the beginning of the data order."""
    return int(np.random.SeedSequence([seed, *purpose.encode()]).generate_state(1)[0])
