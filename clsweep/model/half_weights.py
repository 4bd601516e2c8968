"""Weights in the half type of autocast, all of a network cast at once.

Autocast casts each weight as its layer runs, and its gradient as that leaves: two launches a weight
on a GPU, a fifth of a step of resnet18. Here each way is one for all of them. Numbers are the same,
unless another module reads a layer's weight: it is rounded here.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from clsweep.model.winograd import WinogradConv2d

# Those whose weight and bias autocast casts, and that do nothing else with them; a class of the
# user's own may.
_CAST = (nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.Linear, WinogradConv2d)


@contextlib.contextmanager
def half_weights(modules: Sequence[nn.Module], device: torch.device) -> Iterator[None]:
    """Meanwhile the layers of these modules have weights in autocast's type; one pass through them,
    as the gradients of several would be added in that type.
    """
    held: list[tuple[dict[str, Any], str, Tensor]] = []
    if torch.is_autocast_enabled(device.type):
        held = [
            (layer.__dict__, name, weight)
            for module in modules
            for layer in module.modules()
            if type(layer) in _CAST
            for name in ("weight", "bias")  # others are what a hook makes these of
            if (weight := layer._parameters.get(name)) is not None
            and (weight.requires_grad or not torch.is_grad_enabled())
        ]
    if not held:
        yield
        return
    cast = _Cast.apply(torch.get_autocast_dtype(device.type), *(weight for *_, weight in held))
    for (attributes, name, _), half in zip(held, cast, strict=True):
        attributes[name] = half  # found before the parameter of the same name
    try:
        yield
    finally:
        for attributes, name, _ in held:
            del attributes[name]


class _Cast(torch.autograd.Function):
    """Tensors in another type, and their gradients in the tensors' own."""

    @staticmethod
    def forward(ctx: Any, dtype: torch.dtype, *weights: Tensor) -> tuple[Tensor, ...]:
        ctx.dtypes = [weight.dtype for weight in weights]
        return _cast(weights, [dtype] * len(weights))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        there = [grad for grad in grads if grad is not None]
        dtypes = [dtype for dtype, grad in zip(ctx.dtypes, grads, strict=True) if grad is not None]
        cast = iter(_cast(there, dtypes) if there else ())
        return None, *(None if grad is None else next(cast) for grad in grads)


def _cast(tensors: Sequence[Tensor], dtypes: Sequence[torch.dtype]) -> tuple[Tensor, ...]:
    cast = [torch.empty_like(x, dtype=dtype) for x, dtype in zip(tensors, dtypes, strict=True)]
    torch._foreach_copy_(cast, list(tensors))
    return tuple(cast)
