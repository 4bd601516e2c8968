"""Encoders of other libraries and of one's own: each a module that maps (N, C, H, W) to features,
with `num_features` measured on the meta device.

Shape suffixes: C channels, 3 where images are gray; S pixels a side.
"""

from __future__ import annotations

import inspect
import io
import json
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from clsweep.catalog import COMPONENT, implementation, named
from clsweep.catalog.open_encoders import split_digest, weights_digest
from clsweep.errors import RequestError, first_line, nearest

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
    """What `module:function` returns. Of `channels` and `image_size` it is called with those that
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
    found = ((at, m) for at, m in network.named_modules() if isinstance(m, nn.Conv2d))
    at, conv = next(found, ("", None))
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


def _measured(make: Callable[[], nn.Module], name: str, size: int, channels: int) -> nn.Module:
    """The network, with the width of its features.

    Raises:
        ValueError: it does not map images of this size to one vector each, or several workers could
            not share its batch norms.
    """
    x_NCSS = torch.empty(_PROBE, inputs(channels), size, size, device="meta")
    with torch.device("meta"), torch.no_grad():
        blueprint = make().eval()
        try:
            features = blueprint(x_NCSS)
        except Exception as error:  # libraries raise anything at sizes
            shape = f"{size} x {size} pixels and {inputs(channels)} channels"
            raise ValueError(
                f"{name}: does not take images of {shape}: {first_line(error).rstrip('.')}. "
                "Set view_size, or take another encoder"
            ) from None
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


# Weights that an encoder begins with: of an exported file, of a checkpoint of PyTorch.


# the keys under which others keep a state dict
_NESTED = ("state_dict", "model_state_dict", "model", "teacher", "student", "encoder")
_COUNTERS = "num_batches_tracked"  # of batch norm; older files lack it, and nothing hangs on it


def load_initial(network: nn.Module, init: str) -> None:
    """Put the weights of a file into a network. All of the network's must be there, under its own
    names behind any common prefix; what else the file has is left alone.

    Args:
        init: PATH#DIGEST, a .safetensors file or one of torch.save.

    Raises:
        ValueError: the file has changed, cannot be read, or lacks a weight.
    """
    network.load_state_dict(fitting(network, init), strict=False)


def fitting(network: nn.Module, init: str) -> dict[str, Tensor]:
    """What a file has of the weights of a network, by the network's names; the network may lie on
    the meta device.

    Raises:
        ValueError: as `load_initial`.
    """
    text, digest = split_digest(init)
    path = Path(text)
    try:
        if digest and weights_digest(path) != digest:
            raise ValueError("it has changed since the study was planned")
        state = _read(path)
    except (OSError, ValueError, RuntimeError) as error:
        reason = getattr(error, "strerror", None) or first_line(error)
        raise ValueError(f"{path}: expected weights to begin with, given: {reason}") from None
    wanted = {n: t for n, t in network.state_dict().items() if not n.endswith(_COUNTERS)}
    # What stands before the network's names in the file, as `module.encoder_q.`: that under which
    # the most of them are found; the shortest of equals.
    first = next(iter(wanted))
    prefixes = {name.removesuffix(first) for name in state if name.endswith(first)} | {""}
    prefix = max(sorted(prefixes, key=len), key=lambda p: sum(p + name in state for name in wanted))
    for name, tensor in wanted.items():
        found = state.get(prefix + name)
        if found is None or found.shape != tensor.shape:
            given = "none" if found is None else str(tuple(found.shape))
            raise ValueError(
                f"{path}: {prefix}{name}: expected weights of shape {tuple(tensor.shape)}, given "
                f"{given}"
            )
    counters = {n for n in network.state_dict() if n.endswith(_COUNTERS) and prefix + n in state}
    return {name: state[prefix + name] for name in (*wanted, *counters)}


def _read(path: Path) -> Mapping[str, Tensor]:
    if path.suffix == ".safetensors":
        from safetensors import SafetensorError
        from safetensors.torch import load_file

        try:
            return load_file(path)
        except SafetensorError as error:
            raise ValueError(str(error)) from None
    try:
        found: Any = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # a damaged archive or pickle raises whatever it comes to
        raise ValueError(first_line(error)) from None
    for key in _NESTED:
        if isinstance(found, Mapping) and isinstance(found.get(key), Mapping):
            found = found[key]
    if not isinstance(found, Mapping) or not any(isinstance(t, Tensor) for t in found.values()):
        raise ValueError("no weights by name")
    return {str(name): t for name, t in found.items() if isinstance(t, Tensor)}


# A trained encoder as a program that PyTorch loads without this package.


class Normalised(nn.Module):
    """Images in [0, 1], float32 (N, C, S, S), as the trial gave them to its encoder -> (N, D)."""

    def __init__(self, encoder: nn.Module, normalisation: Mapping[str, Sequence[float]]):
        super().__init__()
        self.encoder = encoder
        for name in ("mean", "std"):
            self.register_buffer(name, torch.tensor(normalisation[name])[None, :, None, None])

    def forward(self, x_NCSS: Tensor) -> Tensor:
        x_NCSS = (x_NCSS - self.get_buffer("mean")) / self.get_buffer("std")
        if x_NCSS.shape[1] == 1:
            x_NCSS = x_NCSS.expand(-1, 3, -1, -1)
        features_ND: Tensor = self.encoder(x_NCSS)
        return features_ND


def program(encoder: nn.Module, about: Mapping[str, Any]) -> bytes:
    """The encoder as a program of torch.export, which begins with its normalisation, for any number
    of images: float32 (N, C, S, S) in [0, 1] -> (N, D).

    Args:
        about: of the encoder: its name as `encoder`, normalisation and image_size.

    Raises:
        RequestError: torch.export cannot follow it.
    """
    whole, size = Normalised(encoder, about["normalisation"]).eval(), about["image_size"]
    x_NCSS = torch.rand(2, len(about["normalisation"]["mean"]), size, size)
    any_number, file = {0: torch.export.Dim("images", min=1)}, io.BytesIO()
    try:
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            made = torch.export.export(whole, (x_NCSS,), dynamic_shapes=(any_number,))
            torch.export.save(made, file)
    except Exception as error:  # whatever it meets in an encoder of others
        reason = f"torch.export cannot follow it: {first_line(error)}"
        expected = "Expected a name that ends in .safetensors or .pt"
        raise RequestError(f"{about['encoder']}: {reason}. {expected}") from None
    return file.getvalue()


# Run as a script: the width of the features of encoders, see `measured`.


def measure(config: Mapping[str, Any]) -> dict[str, Any]:
    """{"num_features": D}, or {"error": one line}; builds on the meta device, without values."""
    row = COMPONENT["encoder"][config["encoder"]]
    try:
        with torch.device("meta"):
            given = {name: config[name] for name in (*row.owns, *row.takes)}
            network = implementation(row)(**given)
            if "channels" not in row.takes:
                take_channels(network, config["channels"])
        if config.get("init", "none") != "none":
            fitting(network, config["init"])
    except Exception as error:  # libraries raise anything at names and sizes
        return {"error": first_line(error)}
    return {"num_features": network.num_features}


if __name__ == "__main__":
    answer, sys.stdout = sys.stdout, sys.stderr  # what libraries print is no answer
    print(json.dumps([measure(each) for each in json.load(sys.stdin)]), file=answer)
