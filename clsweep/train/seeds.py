"""Independent random streams from a trial's one seed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch

from clsweep.train.collectives import ModuleT


def seeded(build: Callable[[Mapping[str, Any]], ModuleT], config: Mapping[str, Any]) -> ModuleT:
    """A module with the initial weights of the trial's seed; the caller's random state stays as it
    is.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derived_seed(config["seed"], "model"))
        return build(config)


def derived_seed(seed: int, purpose: str) -> int:
    """Independent streams from one seed: initial weights are not the beginning of the data
    order.
    """
    return int(np.random.SeedSequence([seed, *purpose.encode()]).generate_state(1)[0])
