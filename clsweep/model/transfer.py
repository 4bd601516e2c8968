"""From the host to a trial's device, for which the host does not wait."""

from __future__ import annotations

import torch
from torch import Tensor


def to_device(x: Tensor, device: torch.device) -> Tensor:
    """A tensor of the host, there; a GPU reads it from a page-locked copy, and the host goes on."""
    return (x.pin_memory() if device.type == "cuda" else x).to(device, non_blocking=True)
