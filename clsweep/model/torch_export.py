"""A trained encoder as a program that PyTorch loads without this package."""

from __future__ import annotations

import io
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from clsweep.errors import RequestError, first_line


class Normalised(nn.Module):
    """Images in [0, 1], float32 (N, C, S, S), as the trial gave them to its encoder -> (N, D)."""

    def __init__(self, encoder: nn.Module, normalisation: Mapping[str, Sequence[float]]):
        super().__init__()
        self.encoder = encoder
        for name in ("mean", "std"):
            self.register_buffer(name, torch.tensor(normalisation[name])[None, :, None, None])

    def forward(self, x_NCSS: Tensor) -> Tensor:
        x_NCSS = (x_NCSS - self.get_buffer("mean")) / self.get_buffer("std")
        if x_NCSS.shape[1] == 1:
            x_NCSS = x_NCSS.expand(-1, 3, -1, -1)
        return self.encoder(x_NCSS)


def program(encoder: nn.Module, about: Mapping[str, Any]) -> bytes:
    """The encoder as a program of torch.export, which begins with its normalisation, for any number
    of images: float32 (N, C, S, S) in [0, 1] -> (N, D).

    Args:
        about: of the encoder: its name as `encoder`, normalisation and image_size.

    Raises:
        RequestError: torch.export cannot follow it.
    """
    whole, size = Normalised(encoder, about["normalisation"]).eval(), about["image_size"]
    x_NCSS = torch.rand(2, len(about["normalisation"]["mean"]), size, size)
    any_number, file = {0: torch.export.Dim("images", min=1)}, io.BytesIO()
    try:
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            made = torch.export.export(whole, (x_NCSS,), dynamic_shapes=(any_number,))
            torch.export.save(made, file)
    except Exception as error:  # whatever it meets in an encoder of others
        reason = f"torch.export cannot follow it: {first_line(error)}"
        expected = "Expected a name that ends in .safetensors or .pt"
        raise RequestError(f"{about['encoder']}: {reason}. {expected}") from None
    return file.getvalue()
