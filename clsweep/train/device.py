"""The device of a trial."""

from __future__ import annotations

import torch


def trial_device(name: str | torch.device) -> torch.device:
    """A device by its name, a GPU with its index: half of torch's functions on the memory of a GPU
    refuse `cuda` alone, which is this process's current one.
    """
    device = torch.device(name)
    if device == torch.device("cuda"):
        return torch.device("cuda", torch.cuda.current_device())
    return device
