"""The layer of a trained network that is scored."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from clsweep.model.encoders import SpatialMean


class BlockFeatures(nn.Module):
    """The output of one of an encoder's modules, by name: (N, C), maps (N, C, H, W) averaged."""

    def __init__(self, encoder: nn.Module, block: str):
        super().__init__()
        self.encoder, self.block, self.pool = encoder, block, SpatialMean()

    def forward(self, x_NCHW: Tensor) -> Tensor:
        found: list[Tensor] = []

        def keep(_module: nn.Module, _inputs: Any, output: Tensor) -> None:
            found.append(output)

        hook = self.encoder.get_submodule(self.block).register_forward_hook(keep)
        try:
            self.encoder(x_NCHW)
        finally:
            hook.remove()
        features: Tensor = self.pool(found[0]) if found[0].ndim == 4 else found[0]
        return features


def layer_of(encoder: nn.Module, projector: nn.Module | None, layer: str) -> nn.Module:
    """What maps images to the features of a layer: "encoder", "projector" (its raw output) or the
    name of one of the encoder's modules.

    Raises:
        LookupError: there is no projector.
        AttributeError: the encoder has no module of that name.
    """
    if layer == "encoder":
        return encoder
    if layer != "projector":
        return BlockFeatures(encoder, layer)
    if projector is None:
        raise LookupError("feature_layer: expected a trained projector, given none")
    return nn.Sequential(encoder, projector)
