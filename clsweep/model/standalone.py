"""A trained encoder as a program that PyTorch loads without this package.

Shape suffixes: C channels of the images, S pixels a side; D features.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn


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
        features_ND: Tensor = self.encoder(x_NCSS)
        return features_ND


def exported(
    encoder: nn.Module, normalisation: Mapping[str, Sequence[float]], image_size: int
) -> bytes:
    """A program of torch.export, for any number of images.

    Raises:
        Exception: whatever torch.export raises at an encoder that it cannot follow.
    """
    whole = Normalised(encoder, normalisation).eval()
    x_NCSS = torch.rand(2, len(normalisation["mean"]), image_size, image_size)
    file = io.BytesIO()
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        made = torch.export.export(
            whole, (x_NCSS,), dynamic_shapes=({0: torch.export.Dim("images", min=1)},)
        )
        torch.export.save(made, file)
    return file.getvalue()
