"""Encoders of other libraries and of one's own: each a module that maps (N, C, H, W) to features,
with `num_features` measured on the meta device.

Shape suffixes: C channels, 3 where images are gray; S pixels a side.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from clsweep.catalog import named
from clsweep.errors import first_line, nearest

_PROBE = 2  # images that a network is measured with


def timm_encoder(
    *, encoder: str, view_size: int, image_size: int, channels: int, pooling: str
) -> nn.Module:
    """A model of timm, `timm/NAME`, without classifier, dropout and stochastic depth, untrained,
    for views of S x S.

    Args:
        pooling: `model` is what its authors chose; else avg, max or token (the class token).

    Raises:
        ValueError: no such model, no such pooling of it, or images that it does not take.
    """
    try:
        import timm
    except ImportError:
        raise ValueError(f"{encoder}: expected timm: pip install 'clsweep[timm]'") from None
    name = encoder.partition("/")[2]
    known = timm.list_models()
    if name.partition(".")[0] not in known:
        raise ValueError(f"unknown model '{name}' of timm.{nearest(name, known)}")
    given: dict[str, Any] = {} if pooling == "model" else {"global_pool": pooling}

    def make() -> nn.Module:
        size = view_size or image_size
        sized = {"img_size": size}
        # most take images of any size; those with positions want to be told, and may resample them
        for options in ({**sized, "dynamic_img_size": True}, sized, {}):
            try:
                network: nn.Module = timm.create_model(
                    name, pretrained=False, num_classes=0, in_chans=inputs(channels),
                    **given, **options,
                )  # fmt: skip
            except TypeError as error:
                if "unexpected keyword argument" not in str(error) or not options:
                    raise
            else:
                return _split_norms(_without_dropout(network))
        raise AssertionError

    return _measured(make, encoder, view_size or image_size, channels)


def torchvision_encoder(
    *, encoder: str, view_size: int, image_size: int, channels: int
) -> nn.Module:
    """A classifier of torchvision, `torchvision/NAME`, without its last linear layer, dropout and
    stochastic depth, untrained.

    Raises:
        ValueError: no such model, one without such a layer, or images that it does not take.
    """
    import torchvision

    name, size = encoder.partition("/")[2], view_size or image_size
    known = torchvision.models.list_models(module=torchvision.models)
    if name not in known:
        raise ValueError(f"unknown model '{name}' of torchvision.{nearest(name, known)}")
    options: dict[str, Any] = {}
    if name.startswith("vit_"):
        options = {"image_size": size}
    if name in ("googlenet", "inception_v3"):
        options = {"aux_logits": False, "init_weights": False}

    def make() -> nn.Module:
        network: nn.Module = torchvision.models.get_model(name, weights=None, **options)
        layers = [at for at, layer in network.named_modules() if isinstance(layer, nn.Linear)]
        if not layers:
            raise ValueError(f"{encoder}: expected a linear layer as its classifier, given none")
        network.set_submodule(layers[-1], nn.Identity())
        return take_channels(_without_dropout(network), channels)

    return _measured(make, encoder, size, channels)


def own_encoder(*, encoder: str, view_size: int, image_size: int, channels: int) -> nn.Module:
    """The encoder of `module:function`. Of `channels` and `image_size` it is called with those that
    it takes by name; without `channels` the first convolution is adapted to them.

    Raises:
        ValueError: no such function, or what it returns is no such module.
    """
    size = view_size or image_size
    try:
        function = named(encoder)
        takes = inspect.signature(function).parameters
    except (LookupError, TypeError) as error:
        raise ValueError(str(error)) from None
    given = {"channels": inputs(channels), "image_size": size}

    def make() -> nn.Module:
        network: Any = function(**{name: given[name] for name in given if name in takes})
        if not isinstance(network, nn.Module):
            raise ValueError(f"{encoder}: expected a torch.nn.Module, given {type(network)}")
        if dropout := next((at for at, _ in _dropouts(network)), None):
            raise ValueError(
                f"{encoder}: {dropout}: expected no dropout, whose draws are no trial's own: a "
                "trial that goes on, or has more workers, would be another"
            )
        return network if "channels" in takes else take_channels(network, channels)

    return _measured(make, encoder, size, channels)


def inputs(channels: int) -> int:
    """Channels that an encoder is given: gray images are repeated in three."""
    return 3 if channels == 1 else channels


def take_channels(network: nn.Module, channels: int) -> nn.Module:
    """The network with a first convolution of as many channels as images have, its weights drawn
    anew with the spread of those that it replaces; as it is where it has three and they too.

    Raises:
        ValueError: it has no convolution to replace.
    """
    wanted = inputs(channels)
    convolutions = ((at, m) for at, m in network.named_modules() if isinstance(m, nn.Conv2d))
    at, conv = next(convolutions, ("", None))
    if wanted == 3 and (conv is None or conv.in_channels == 3):
        return network
    if conv is None or conv.groups != 1:
        raise ValueError(f"expected a first convolution to adapt to {channels} channels")
    old: Any = conv
    new = nn.Conv2d(
        wanted, old.out_channels, old.kernel_size, old.stride, old.padding, old.dilation,
        bias=old.bias is not None, padding_mode=old.padding_mode,
    )  # fmt: skip
    if not conv.weight.is_meta:
        nn.init.normal_(new.weight, std=float(conv.weight.detach().std()))
    network.set_submodule(at, new)
    return network


_RATES = ("p", "drop_prob")  # under which modules keep how much they drop


def _dropouts(network: nn.Module) -> Iterator[tuple[str, tuple[nn.Module, str]]]:
    """Modules that drop at random what passes through them, with the name of the rate."""
    for at, module in network.named_modules():
        is_one = isinstance(module, nn.modules.dropout._DropoutNd)
        if is_one or type(module).__name__ in ("StochasticDepth", "DropPath"):
            for rate in _RATES:
                if getattr(module, rate, 0):
                    yield at, (module, rate)


def _without_dropout(network: nn.Module) -> nn.Module:
    for _, (module, rate) in _dropouts(network):
        setattr(module, rate, 0.0)
    for module in network.modules():
        if getattr(module, "drop_rate", 0):  # of timm's heads that have no module for it
            module.drop_rate = 0.0  # type: ignore[assignment]
    return network


def _split_norms(network: nn.Module) -> nn.Module:
    """timm's batch norms with an activation as torch's own with the activation behind: only torch's
    own are given the statistics of several workers, or of groups. All names stay.
    """
    from timm.layers import BatchNormAct2d

    for module in network.modules():
        if type(module) is BatchNormAct2d:
            module.__class__ = nn.BatchNorm2d
            module.register_forward_hook(lambda norm, _, x_NCHW: norm.act(norm.drop(x_NCHW)))
    return network


def on_meta(make: Callable[[], nn.Module]) -> nn.Module:
    """A network on the meta device, without values; with them at first where its widths are
    computed from values of tensors, as those of torchvision's RegNet.
    """
    try:
        with torch.device("meta"):
            return make()
    except RuntimeError:  # the value of a tensor was asked for, which has none
        with torch.device("cpu"):
            return make().to("meta")


def mapped(network: nn.Module, name: str, size: int, channels: int, *, of_views: str) -> Any:
    """Output of a network on the meta device for images of this size, which the hyperparameter
    `of_views` sets. ValueError where it does not take them.
    """
    x_NCSS = torch.empty(_PROBE, inputs(channels), size, size, device="meta")
    with torch.device("meta"), torch.no_grad():
        try:
            return network.eval()(x_NCSS)
        except Exception as error:  # libraries raise anything at sizes
            shape = f"{size} x {size} pixels and {inputs(channels)} channels"
            raise ValueError(
                f"{name}: does not take images of {shape}: {first_line(error).rstrip('.')}. "
                f"Set {of_views}, or take another encoder"
            ) from None


def _measured(make: Callable[[], nn.Module], name: str, size: int, channels: int) -> nn.Module:
    """The network, with the width of its features. ValueError where it does not map images of this
    size to one vector each, or several workers could not share its batch norms.
    """
    features = mapped(on_meta(make), name, size, channels, of_views="view_size")
    if not isinstance(features, Tensor) or features.ndim != 2 or len(features) != _PROBE:
        given = tuple(features.shape) if isinstance(features, Tensor) else type(features).__name__
        raise ValueError(
            f"{name}: expected features ({_PROBE}, D) of {_PROBE} images, given {given}"
        )
    network = make()
    for at, module in network.named_modules():
        is_norm = isinstance(module, nn.modules.batchnorm._BatchNorm)
        if is_norm and type(module) not in (nn.BatchNorm1d, nn.BatchNorm2d):
            raise ValueError(
                f"{name}: {at}: expected batch norms of torch's own type, given "
                f"{type(module).__name__}, whose statistics several workers could not share"
            )
    network.num_features = features.shape[1]  # type: ignore[assignment]
    return network
