"""Weights that an encoder begins with: of an exported file, or of a checkpoint of PyTorch."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from clsweep.catalog.open_encoders import split_digest, weights_digest
from clsweep.errors import first_line

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
    """The weights in a file of a network, by the network's names; the network may lie on
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
        weight = state.get(prefix + name)
        if weight is None or weight.shape != tensor.shape:
            given = "none" if weight is None else str(tuple(weight.shape))
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
        weights: Any = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # a damaged archive or pickle raises whatever it comes to
        raise ValueError(first_line(error)) from None
    for key in _NESTED:
        if isinstance(weights, Mapping) and isinstance(weights.get(key), Mapping):
            weights = weights[key]
    if not isinstance(weights, Mapping) or not any(isinstance(t, Tensor) for t in weights.values()):
        raise ValueError("no weights by name")
    return {str(name): t for name, t in weights.items() if isinstance(t, Tensor)}
