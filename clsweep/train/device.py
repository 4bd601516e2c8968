"""The device of a trial."""

from __future__ import annotations

import torch

from clsweep.errors import first_line


def trial_device(name: str | torch.device) -> torch.device:
    """A device by its name, a GPU with its index: half of torch's functions on the memory of a GPU
    refuse `cuda` alone, which is this process's current one.
    """
    device = torch.device(name)
    if device == torch.device("cuda"):
        return torch.device("cuda", torch.cuda.current_device())
    return device


def why_unusable() -> str:
    """Why torch can use no GPU of this machine, in its own words; empty if it can."""
    try:
        torch.cuda.init()
    except (RuntimeError, AssertionError) as error:  # the latter: it is built without CUDA
        return first_line(error).partition(". ")[0]
    return ""


def without_bf16() -> list[str]:
    """The names of those visible GPUs that have no bf16 arithmetic, which they would emulate."""
    if torch.version.hip:
        return []
    gpus = range(torch.cuda.device_count())
    old = [gpu for gpu in gpus if torch.cuda.get_device_capability(gpu) < (8, 0)]
    return [torch.cuda.get_device_name(gpu) for gpu in old]


def widest_float(device: torch.device) -> torch.dtype:
    """float64, or float32 on a device that has no float64 (Apple's)."""
    return torch.float32 if device.type == "mps" else torch.float64
