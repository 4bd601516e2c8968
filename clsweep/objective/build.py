"""From names to parts: what a trial trains, built of what its rows of the catalog name."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from clsweep.catalog import COMPONENT, Component, Part, implementation
from clsweep.catalog.open_encoders import NONE
from clsweep.catalog.ownership import arguments, num_features
from clsweep.catalog.plugin_guard import PartError, value_text
from clsweep.model.external_encoders import take_channels
from clsweep.model.initial_weights import load_initial
from clsweep.objective.framework import Comparison, Framework
from clsweep.objective.views import num_global_views, targets


def build_objective(config: Mapping[str, Any]) -> Framework:
    """The trainable objective of one trial on images, initialised from torch's global generator, of
    its effective hyperparameters with framework, loss, regularizer, views and num_classes.
    """
    objective: Framework = _chosen(config, "framework")(
        encoder=build_encoder(config),
        comparison=(comparison := _build_comparison(config)),
        **arguments(config, "framework"),
    )
    for name in ("criterion", "regularizer"):
        if isinstance(part := getattr(comparison, name), nn.Module):
            objective.add_module(name, part)
            own = {id(p) for p in part.parameters()}
            names = [at for at, p in objective.named_parameters() if id(p) in own]
            # every worker has the gradient of the whole batch for them: nothing is averaged
            vars(objective).setdefault("_ddp_params_and_buffers_to_ignore", []).extend(names)
    return objective


def build_encoder(config: Mapping[str, Any]) -> Any:
    """The encoder, begun with the weights of `init`; `num_features` is its output's width."""
    row = COMPONENT["encoder"][config["encoder"]]
    network = implementation(row)(**arguments(config, "encoder"))
    if not row.impl.startswith("clsweep."):
        watch(network, row, num_features(config))
    if "channels" not in row.takes:
        network = take_channels(network, config.get("channels") or 3)
    if (init := config.get("init") or NONE) != NONE:
        load_initial(network, init)
    return network


def watch(network: nn.Module, row: Component, width: int) -> None:
    """Have an encoder of the user's own raise where it gives other features than its row says, or
    changes the images; PartError where it has no `forward`, or other `num_features` than its row.
    """
    if type(network).forward is nn.Module.forward:
        raise PartError(f"{row.name}: expected a method forward, given none", row)
    if network.num_features != width:
        given = f"{width} in its row and {network.num_features}"
        raise PartError(f"{row.name}: num_features: expected one number, given {given}", row)
    versions: list[int] = []

    def before(_: nn.Module, given: tuple[Tensor, ...]) -> None:
        versions[:] = [given[0]._version]

    def after(_: nn.Module, given: tuple[Tensor, ...], output: Any) -> None:
        x, wanted = given[0], (len(given[0]), width)
        if x._version != versions[0]:
            raise PartError(f"{row.name}: expected to leave the images, changed in place", row)
        is_half = torch.is_autocast_enabled(x.device.type)
        if getattr(output, "shape", None) != wanted or (output.dtype != x.dtype and not is_half):
            expected = f"features of shape {wanted} in {x.dtype}"
            raise PartError(f"{row.name}: expected {expected}, given {value_text(output)}", row)

    network.register_forward_pre_hook(before)
    network.register_forward_hook(after)


def build_critic(config: Mapping[str, Any], dim: int) -> Any:
    """The critic of one trial on pairs of vectors of `dim` numbers."""
    return _chosen(config, "framework")(
        dim=dim,
        criterion=_with_owned(config, "loss", arguments(config, "loss")),
        **arguments(config, "framework"),
    )


def _build_comparison(config: Mapping[str, Any]) -> Comparison:
    is_multi, views = config["views"] != "two", COMPONENT["views"][config["views"]]
    owned = (*views.owns, *views.owns_with.get(config["loss"], ()))
    beside = [name for name in owned if name not in COMPONENT["views"]["all_pairs"].owns]
    beside += views.takes
    num_views = config["num_views"] if is_multi else 2
    row = COMPONENT["regularizer"][config["regularizer"]]
    regularizer, mix = None, arguments(config, "regularizer")
    lam = mix.pop("lam", 0.0)
    if row.impl:
        regularizer = _with_owned(config, "regularizer", mix)
    return Comparison(
        criterion=_with_owned(config, "loss", arguments(config, "loss")),
        pairs=_chosen(config, "views")(num_views, **{name: config[name] for name in beside}),
        targets=targets(views.targets, num_views, num_global_views(config)),
        pair_reduction=config["pair_reduction"] if is_multi else "mean",
        regularizer=regularizer,
        of_all_views=row.of_all_views,
        lam=lam,
    )


def _with_owned(
    config: Mapping[str, Any], part: Part, owned: Mapping[str, Any]
) -> Callable[..., Tensor]:
    """The loss or regularizer with its hyperparameters: a function, or an instance of a class."""
    function = _chosen(config, part)
    if not isinstance(inspect.unwrap(function), type):
        return partial(function, **owned)
    if "tau" in owned and config.get("tau_schedule", "constant") != "constant":
        row = COMPONENT[part][config[part]]
        raise PartError(f"{row.name}: a class takes tau once: expected tau_schedule constant", row)
    with torch.random.fork_rng(devices=[]):  # the other parts begin as without it
        made: Callable[..., Tensor] = function(**owned)
    return made


def _chosen(config: Mapping[str, Any], part: Part) -> Any:
    """The implementation of one part of a trial."""
    return implementation(COMPONENT[part][config[part]])
