"""From names to parts: the one page on which every component is found."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from torch import Tensor

from clsweep.data.augment import Draws
from clsweep.model.encoders import conv4, resnet18, resnet50
from clsweep.model.heads import projector
from clsweep.objective.catalog import COMPONENT
from clsweep.objective.frameworks import SimCLR
from clsweep.objective.losses import dcl, dclw, infonce
from clsweep.objective.views import draw_two

FRAMEWORKS: dict[str, type[SimCLR]] = {"simclr": SimCLR}
LOSSES: dict[str, Callable[..., Tensor]] = {"infonce": infonce, "dcl": dcl, "dclw": dclw}
VIEWS: dict[str, Callable[..., tuple[Draws, ...]]] = {"two": draw_two}
ENCODERS: dict[str, Callable[..., Any]] = {"conv4": conv4, "resnet18": resnet18, "resnet50": resnet50}


def build_objective(config: Mapping[str, Any]) -> SimCLR:
    """The trainable objective of one trial, initialised from torch's global generator.

    Args:
        config: effective hyperparameters by catalog name, with framework, loss, views and encoder.
    """
    encoder = build_encoder(config)
    return FRAMEWORKS[config["framework"]](
        encoder=encoder,
        projector=projector(encoder.num_features, config["proj_dim"]),
        pair_loss=partial(LOSSES[config["loss"]], **_owned(config, "loss")),
    )


def build_encoder(config: Mapping[str, Any]) -> Any:
    """The encoder alone; `num_features` is the width of its output."""
    return ENCODERS[config["encoder"]](**_owned(config, "encoder"))


def _owned(config: Mapping[str, Any], part: str) -> dict[str, Any]:
    """The hyperparameters that a component owns, out of the trial's."""
    return {name: config[name] for name in COMPONENT[part][config[part]].owns}
