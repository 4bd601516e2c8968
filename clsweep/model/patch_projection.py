"""The patch projection of a vision transformer, which makes tokens of the pixels of patches."""

from __future__ import annotations

from torch import nn

from clsweep.catalog.open_encoders import NO_PATCHES

_NAMES = ("conv_proj", "patch_embed.proj")  # torchvision's and timm's


def patch_projection(encoder: nn.Module) -> nn.Module | None:
    """The encoder's one layer that makes tokens of patches; None where it has no such."""
    modules = dict(encoder.named_modules())
    known = (modules.get(name) for name in _NAMES)
    return next((layer for layer in known if isinstance(layer, nn.Conv2d | nn.Linear)), None)


def freeze_patch_projection(encoder: nn.Module) -> None:
    """Keep weight and bias of the patch projection as they are (MoCo v3 4.2); ValueError where
    there is none.
    """
    if (layer := patch_projection(encoder)) is None:
        raise ValueError(NO_PATCHES)
    layer.requires_grad_(False)
