"""CUDA graphs for the encoder: a GPU runs the kernels of a small batch faster than Python launches
them one by one.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from clsweep.train.precision import Precision
from clsweep.train.step import frozen_statistics

WORTHWHILE = 0.95  # share of the eager time that a graph may take
# of the largest value; kernels may sum in another order
TOLERANCE = {"fp32": 1e-3, "fp16": 1e-2, "bf16": 5e-2}
_REPEATS = 10


def graph_encoder(encoder: nn.Module, shapes: Sequence[torch.Size], precision: Precision) -> bool:
    """Capture the encoder's forward and backward pass in training mode, if graphs of them are
    faster; True if so.

    Off by default: whether a study gains is measured nowhere yet. Here each trial measures its own
    encoder and shape, now. A graph whose features or gradients differ from
    the eager ones is dropped. Weights, statistics and gradients are left as they were; evaluation
    goes on eagerly.

    Args:
        encoder: on a GPU, in training mode.
        shapes: of all its inputs in a step: a graph takes a single one, and one call a step.
    """
    if len(shapes) != 1:
        return False
    x_NCHW = torch.randn(shapes[0], device=precision.device).contiguous(
        memory_format=torch.channels_last
    )
    before = {name: value.clone() for name, value in encoder.state_dict().items()}
    expected, eager_s = _step(encoder, x_NCHW, precision), _seconds(encoder, x_NCHW, precision)
    encoder.load_state_dict(before)
    try:
        with precision.autocast():
            torch.cuda.make_graphed_callables(encoder, (x_NCHW,))
        encoder.load_state_dict(before)
        kept = _agree(_step(encoder, x_NCHW, precision), expected, TOLERANCE[precision.name])
        kept = kept and _seconds(encoder, x_NCHW, precision) < WORTHWHILE * eager_s
    except (
        RuntimeError
    ):  # something in the network cannot be captured, or there is no memory for a second copy
        kept = False
    if not kept:
        encoder.__dict__.pop("forward", None)  # what the capture put before the class's own
    encoder.load_state_dict(before)
    encoder.zero_grad(set_to_none=True)
    return kept


def input_shapes(
    model: nn.Module, encoder: nn.Module, views: list[Tensor], precision: Precision
) -> list[torch.Size]:
    """The shapes with which a model calls its encoder for these views."""
    shapes: list[torch.Size] = []
    handle = encoder.register_forward_pre_hook(lambda _, inputs: shapes.append(inputs[0].shape))
    with torch.no_grad(), frozen_statistics(model), precision.autocast():
        model(views)
    handle.remove()
    return shapes


def _step(encoder: nn.Module, x_NCHW: Tensor, precision: Precision) -> list[Tensor]:
    """Features and the gradients of all weights."""
    encoder.zero_grad(set_to_none=True)
    with precision.autocast():
        features_ND = encoder(x_NCHW)
    features_ND.float().square().mean().backward()
    return [
        features_ND.detach().clone(),
        *(p.grad.clone() for p in encoder.parameters() if p.grad is not None),
    ]


def _seconds(encoder: nn.Module, x_NCHW: Tensor, precision: Precision) -> float:
    """Time of one step, after some to warm up."""
    for repeats in (3, _REPEATS):
        wait_for(precision.device)
        start = time.perf_counter()
        for _ in range(repeats):
            _step(encoder, x_NCHW, precision)
        wait_for(precision.device)
    return (time.perf_counter() - start) / _REPEATS


def _agree(values: Sequence[Tensor], expected: Sequence[Tensor], tolerance: float) -> bool:
    if len(values) != len(expected):
        return False
    return all(float((a - b).abs().max()) <= tolerance * float(b.abs().max()) + 1e-12
               for a, b in zip(values, expected, strict=True))  # fmt: skip


def wait_for(device: torch.device) -> None:
    """Wait until a GPU has done what it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
