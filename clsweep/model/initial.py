"""Weights that an encoder begins with: of an exported file, of a checkpoint of PyTorch."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from clsweep.catalog.open_encoders import digest_of, parted

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
    state = fitting(network, init)
    missing = [
        name for name in network.load_state_dict(state, strict=False).missing_keys
        if not name.endswith(_COUNTERS)
    ]  # fmt: skip
    assert not missing


def fitting(network: nn.Module, init: str) -> dict[str, Tensor]:
    """What a file has of the weights of a network, by the network's names; the network may lie on
    the meta device.

    Raises:
        ValueError: as `load_initial`.
    """
    text, digest = parted(init)
    path = Path(text)
    try:
        if digest and digest_of(path) != digest:
            raise ValueError("it has changed since the study was planned")
        state = _read(path)
    except (OSError, ValueError, RuntimeError) as error:
        reason = getattr(error, "strerror", None) or str(error).splitlines()[0]
        raise ValueError(f"{path}: expected weights to begin with, given: {reason}") from None
    wanted = {n: t for n, t in network.state_dict().items() if not n.endswith(_COUNTERS)}
    prefix = _prefix(wanted, state)
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
        raise ValueError((str(error).splitlines() or [type(error).__name__])[0]) from None
    for key in _NESTED:
        if isinstance(found, Mapping) and isinstance(found.get(key), Mapping):
            found = found[key]
    if not isinstance(found, Mapping) or not any(isinstance(t, Tensor) for t in found.values()):
        raise ValueError("no weights by name")
    return {str(name): t for name, t in found.items() if isinstance(t, Tensor)}


def _prefix(wanted: Mapping[str, Tensor], state: Mapping[str, Tensor]) -> str:
    """What stands before the network's names in the file, as `module.encoder_q.`: that under which
    the most of them are found; the shortest of equals.
    """
    first = next(iter(wanted))
    prefixes = {name.removesuffix(first) for name in state if name.endswith(first)} | {""}
    return max(
        sorted(prefixes, key=len), key=lambda prefix: sum(prefix + name in state for name in wanted)
    )
