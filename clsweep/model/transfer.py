"""The way of what the host has drawn to the device that computes with it."""

from __future__ import annotations

import torch
from torch import Tensor


def sent(x: Tensor, device: torch.device) -> Tensor:
    """A tensor of the CPU on a device, without a wait for what that still has to do: to a GPU from
    pinned memory.
    """
    if device.type == "cuda":
        x = x.pin_memory()
    return x.to(device, non_blocking=True)
