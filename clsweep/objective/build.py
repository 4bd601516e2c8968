"""From names to parts: the one page on which every component is found."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from torch import Tensor, nn

from clsweep.model.encoders import conv4, resnet18, resnet50
from clsweep.objective import frameworks, losses, views
from clsweep.objective.catalog import COMPONENT, SELECTED_PARTS
from clsweep.objective.frameworks import Comparison
from clsweep.objective.views import Pairs

FRAMEWORKS: dict[str, type[nn.Module]] = {
    "simclr": frameworks.SimCLR,
    "moco": frameworks.MoCo,
    "simo": frameworks.SiMo,
    "byol": frameworks.BYOL,
    "simsiam": frameworks.SimSiam,
    "barlow_twins": frameworks.BarlowTwins,
    "nnclr": frameworks.NNCLR,
    "supervised": frameworks.Supervised,
    "mi_critic": frameworks.MICritic,
}
LOSSES: dict[str, Callable[..., Tensor]] = {
    "infonce": losses.infonce,
    "dcl": losses.dcl,
    "dclw": losses.dclw,
    "eqco": losses.eqco,
    "align_uniform": losses.align_uniform,
    "cosine": losses.cosine,
    "barlow": losses.barlow,
    "cross_entropy": losses.cross_entropy,
    "decoupled_cross_entropy": losses.decoupled_cross_entropy,
}
REGULARIZERS: dict[str, Callable[..., Tensor] | None] = {
    "none": None,
    "dimcl": losses.dimcl,
    "abscl": losses.abscl,
    "barlow": losses.barlow,
}
VIEWS: dict[str, Callable[[int], Pairs]] = {
    "two": views.all_pairs,
    "core": views.core_pairs,
    "multicrop": views.multicrop_pairs,
    "all_pairs": views.all_pairs,
    "ecpp": views.all_pairs,
}
ENCODERS: dict[str, Callable[..., Any]] = {"conv4": conv4, "resnet18": resnet18, "resnet50": resnet50}


def build_objective(config: Mapping[str, Any]) -> Any:
    """The trainable objective of one trial on images, initialised from torch's global generator.

    Args:
        config: effective hyperparameters by catalog name, with framework, loss, regularizer, views and num_classes.
    """
    arguments = _owned(config, "framework")
    if config["framework"] == "supervised":
        arguments["num_classes"] = config["num_classes"]
    return FRAMEWORKS[config["framework"]](
        encoder=build_encoder(config), comparison=_build_comparison(config), **arguments
    )


def build_encoder(config: Mapping[str, Any]) -> Any:
    """The encoder alone; `num_features` is the width of its output."""
    return ENCODERS[config["encoder"]](**_owned(config, "encoder"))


def build_critic(config: Mapping[str, Any], dim: int) -> frameworks.MICritic:
    """The critic of one trial on pairs of vectors of `dim` numbers."""
    names = ("critic_hidden", "critic_dim")
    return frameworks.MICritic(dim=dim, criterion=_build_loss(config), **{name: config[name] for name in names})


def _build_comparison(config: Mapping[str, Any]) -> Comparison:
    mix = _owned(config, "regularizer")
    lam, regularizer = mix.pop("lam", 0.0), REGULARIZERS[config["regularizer"]]
    is_multi = config["views"] != "two"
    return Comparison(
        criterion=_build_loss(config),
        pairs=VIEWS[config["views"]](config["num_views"] if is_multi else 2),
        pair_reduction=config["pair_reduction"] if is_multi else "mean",
        regularizer=partial(regularizer, **mix) if regularizer else None,
        lam=lam,
    )


def _build_loss(config: Mapping[str, Any]) -> Callable[..., Tensor]:
    return partial(LOSSES[config["loss"]], **_owned(config, "loss"))


def _owned(config: Mapping[str, Any], part: str) -> dict[str, Any]:
    """The hyperparameters that a component of the trial owns, and those of what they select."""
    component = COMPONENT[part][config[part]]
    names = [*component.owns, *component.owns_with.get(config.get("loss", ""), ())]
    names += [n for selected in SELECTED_PARTS if selected in names for n in COMPONENT[selected][config[selected]].owns]
    return {name: config[name] for name in names}
