"""The heads on top of an encoder."""

from __future__ import annotations

from torch import nn


def projector(num_features: int, proj_dim: int) -> nn.Sequential:
    """SimCLR's projector: features -> features -> ReLU -> proj_dim, not normalised."""
    return nn.Sequential(
        nn.Linear(num_features, num_features), nn.ReLU(inplace=True), nn.Linear(num_features, proj_dim)
    )
