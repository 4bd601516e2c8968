"""A plug-in: a loss of one's own, between InfoNCE and DCL. `study.py` names this file.

`clsweep check examples/own_loss.py` tries what every trial relies on.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from clsweep.catalog import Component, Param
from clsweep.objective.losses import dcl, infonce


def half_decoupled(
    z1_ND: Tensor, z2_ND: Tensor, tau: float, decoupling: float, **memory: Any
) -> Tensor:
    """(1 - w) InfoNCE + w DCL, w = `decoupling`, of embeddings of unit length."""
    coupled = infonce(z1_ND, z2_ND, tau=tau, **memory)
    return (1 - decoupling) * coupled + decoupling * dcl(z1_ND, z2_ND, tau=tau, **memory)


ROWS = [
    Component(
        part="loss",
        name="half_decoupled",
        impl="half_decoupled",
        owns=("tau", "decoupling"),
        on=("simclr",),
        source="an example",
        doc="(1 - w) InfoNCE + w DCL",
    ),
    Param(
        name="decoupling",
        symbol="w",
        kind="float",
        default=0.5,
        low=0,
        high=1,
        source="an example",
        doc="share of DCL in half_decoupled",
    ),
]
