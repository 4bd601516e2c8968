"""The number format of the networks. Losses, statistics and scores are in float32 or wider whatever
it is.

A trial trains in the precision that its plan names, or fails. No device chooses one: the numbers of
a study must not depend on the machine that computes them.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from clsweep.errors import RequestError

_HALF = {"bf16": torch.bfloat16, "fp16": torch.float16}


@dataclass(frozen=True)
class Precision:
    """fp32, or a half type for the products inside of the networks (autocast; weights stay
    float32).
    """

    name: str
    device: torch.device

    @classmethod
    def on(cls, device: torch.device, wanted: str) -> Precision:
        """The wanted precision: fp32, bf16 or fp16.

        A CPU computes bf16 with or without instructions for it. With AMX it is faster than fp32;
        AVX-512 alone multiplies bf16 at half the speed.

        Raises:
            RequestError: the device cannot train with it, or it is still `auto`.
        """
        if wanted != "fp32" and wanted not in _HALF:
            raise RequestError(
                f"precision: expected fp32, bf16 or fp16, given {wanted!r}: auto is decided by the "
                "study's plan"
            )
        if wanted == "fp16" and device.type == "cpu":
            raise RequestError("precision: fp16 needs a GPU. Expected on a CPU: fp32 or bf16")
        if wanted == "bf16" and device.type == "cuda" and not _has_bf16():
            raise RequestError(
                "precision: this GPU has no bf16 arithmetic. Expected: fp16 or fp32, as in --set "
                "base.precision=fp16"
            )
        return cls(wanted, device)

    def settle(self) -> None:
        """Whether convolutions of this process may round to TF32, whatever an earlier trial of it
        has set: in fp32 they would lose 13 bits without a word.
        """
        torch.backends.cudnn.allow_tf32 = self.name != "fp32"

    def autocast(self) -> torch.autocast:
        """The context of a forward pass."""
        # No cache of the cast weights: a captured graph must cast its own.
        dtype = _HALF.get(self.name)
        return torch.autocast(
            self.device.type, dtype=dtype, enabled=dtype is not None, cache_enabled=False
        )

    def scaler(self) -> torch.amp.GradScaler:
        """Keeps the gradients of fp16 from vanishing; passes everything through otherwise."""
        return torch.amp.GradScaler(self.device.type, enabled=self.name == "fp16")


def _has_bf16() -> bool:
    """Whether the current GPU computes it in hardware; emulated it is slower than fp32."""
    return torch.cuda.is_bf16_supported(including_emulation=False)
