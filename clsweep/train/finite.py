"""Losses and features of a trial are finite, or it has diverged."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor


def are_finite(*tensors: Tensor) -> bool:
    """All numbers are finite; waits for the device."""
    return all(bool(torch.isfinite(x).all()) for x in tensors)


def require_finite(*features: Tensor) -> None:
    """ValueError if a feature is not finite: a diverged encoder has no score."""
    if not are_finite(*features):
        raise ValueError("the encoder's features are not finite: it has diverged")


class DivergedError(ArithmeticError):
    """The loss or the features of a trial are no longer finite."""

    @classmethod
    def of(cls, what: str, config: Mapping[str, Any]) -> DivergedError:
        """The error, with those of the trial's own hyperparameters that may mend it."""
        remedy = "a smaller lr or a larger tau" if "tau" in config else "a smaller lr"
        return cls(f"{what}; {remedy} may help")
