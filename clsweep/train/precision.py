"""The number format of the networks. Losses, statistics and scores are in float32 or wider whatever it is."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from clsweep.errors import RequestError

_HALF = {"bf16": torch.bfloat16, "fp16": torch.float16}


@dataclass(frozen=True)
class Precision:
    """fp32, or a half type for the products inside of the networks (autocast; weights stay float32)."""

    name: str
    device: torch.device

    @classmethod
    def on(cls, device: torch.device, wanted: str) -> Precision:
        """The wanted precision, of which `auto` is the fastest that the device computes in hardware.

        On a GPU bf16, or fp16 where it has none; on a CPU bf16 with AMX, fp32 without: AVX-512 alone multiplies bf16 at
        half the speed of float32.

        Raises:
            RequestError: the device cannot train with it.
        """
        name = _fastest(device) if wanted == "auto" else wanted
        if name == "fp16" and device.type == "cpu":
            raise RequestError("precision: fp16 needs a GPU. Expected on a CPU: auto, fp32 or bf16")
        return cls(name, device)

    def autocast(self) -> torch.autocast:
        """The context of a forward pass."""
        # No cache of the cast weights: a captured graph must cast its own.
        dtype = _HALF.get(self.name)
        return torch.autocast(self.device.type, dtype=dtype, enabled=dtype is not None, cache_enabled=False)

    def scaler(self) -> torch.amp.GradScaler:
        """Keeps the gradients of fp16 from vanishing; passes everything through otherwise."""
        return torch.amp.GradScaler(self.device.type, enabled=self.name == "fp16")


def _fastest(device: torch.device) -> str:
    if device.type == "cuda":
        return "bf16" if torch.cuda.is_bf16_supported(including_emulation=False) else "fp16"
    # torch has no public name for it yet; a version without the private one gets the safe answer
    has_amx = getattr(torch.cpu, "_is_amx_tile_supported", lambda: False)
    return "bf16" if device.type == "cpu" and has_amx() else "fp32"
