"""Heads of an objective: projectors, predictors and critics are all multi-layer perceptrons."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Literal

from torch import nn

Norm = Literal["none", "hidden", "all", "bare"]
Activation = Callable[[], nn.Module]
RELU: Activation = partial(nn.ReLU, inplace=True)


def mlp(
    num_in: int,
    hidden: int,
    num_out: int,
    *,
    layers: int = 2,
    norm: Norm = "none",
    activation: Activation = RELU,
) -> nn.Sequential:
    """num_in -> hidden -> ... -> num_out with `layers` linear maps and `activation` between them;
    the output is not normalised.

    Args:
        norm: batch norm after no linear map, after the hidden ones, after all, or ("bare") after
            all of which the last has no scale and shift. A linear map before a batch norm has no
            bias: it would be subtracted again.
    """
    widths = [num_in, *[hidden] * (layers - 1), num_out]
    modules: list[nn.Module] = []
    for i in range(layers):
        is_last = i == layers - 1
        normalised = norm in ("all", "bare") or (norm == "hidden" and not is_last)
        modules.append(nn.Linear(widths[i], widths[i + 1], bias=not normalised))
        if normalised:
            modules.append(nn.BatchNorm1d(widths[i + 1], affine=not (is_last and norm == "bare")))
        if not is_last:
            modules.append(activation())
    return nn.Sequential(*modules)
