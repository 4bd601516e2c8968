"""`clsweep export`: a trained encoder as a file that torchvision, or this package, loads."""

from __future__ import annotations

import os
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clsweep.errors import RequestError, nearest
from clsweep.results.store import ResultsFolder, encoder_file, open_folder

if TYPE_CHECKING:
    from torch import Tensor

About = dict[str, Any]

SUFFIXES = (".safetensors", ".pt")
NUM_CLASSES = 1000  # of torchvision's classifiers
MAX_LISTED = 5


def export_encoder(trial: str, out: str) -> None:
    """Write the encoder of a trial, DIR/TRIAL_ID, to a .safetensors or .pt file, and say how to load it.

    Raises:
        RequestError: no such trial, its encoder was not kept, or the file cannot be written.
    """
    path = _out(out)
    folder, trial_id = _trial(trial)
    encoder, about = load_encoder(folder, trial_id)
    state = dict(encoder.state_dict())
    is_torchvision = about["encoder"].startswith("resnet")
    if is_torchvision:
        import torch

        state["fc.weight"] = torch.zeros(NUM_CLASSES, encoder.num_features)
        state["fc.bias"] = torch.zeros(NUM_CLASSES)
    _write(path, state, about)
    num_params = sum(p.numel() for p in encoder.parameters())
    print(f"{path}: {_title(about)} of {trial_id}, {num_params:,} parameters, {encoder.num_features:,} features")
    mean, std = (", ".join(f"{value:.4f}" for value in about["normalisation"][name]) for name in ("mean", "std"))
    size = f" of {about['image_size']} x {about['image_size']} pixels" if "image_size" in about else ""
    kind = "RGB images" if "," in mean else "gray images, repeated in three channels,"
    print(f"It takes {kind}{size} in [0, 1], minus the mean ({mean}), divided by the std ({std}).")
    if is_torchvision:
        print("fc is all zeros: a classifier was not trained, and the features are what comes before it.")
    print("\n".join(["To load it:", *(f"    {line}" for line in snippet(path, about))]))


def load_encoder(folder: ResultsFolder, trial_id: str) -> tuple[Any, About]:
    """The encoder of a trial in eval mode, and what its file says of it.

    Raises:
        RequestError: no such trial, or its encoder was not kept or is damaged.
    """
    _require_encoder(folder, trial_id)
    from clsweep.results.encoders import unpack

    place = folder.place(encoder_file(trial_id))
    weights, about = unpack(folder.encoder(trial_id), place)
    import torch

    from clsweep.objective.build import build_encoder

    try:
        encoder = build_encoder(about)
        encoder.load_state_dict({name: torch.from_numpy(array) for name, array in weights.items()})
    except (RuntimeError, LookupError) as error:
        reason = str(error).splitlines()[0]
        raise RequestError(f"{place}: does not hold the encoder that it names: {reason}") from None
    return encoder.eval(), about


def snippet(path: Path, about: Mapping[str, Any]) -> list[str]:
    """Lines of Python that load an exported file."""
    name = about["encoder"]
    is_safe = path.suffix == ".safetensors"
    state = f"load_file({str(path)!r})" if is_safe else f"torch.load({str(path)!r}, weights_only=True)"
    lines = ["from safetensors.torch import load_file" if is_safe else "import torch"]
    if not name.startswith("resnet"):
        owned = ", ".join(f"{param}={about[param]!r}" for param in _owned(about))
        lines += [f"from clsweep.model.encoders import {name}", f"network = {name}({owned})"]
        return [*lines, f"network.load_state_dict({state})", "network.eval()"]
    lines += ["from torch import nn", f"from torchvision.models import {name}", f"network = {name}()"]
    if about["stem"] == "small":
        lines += ["network.conv1 = nn.Conv2d(3, 64, 3, 1, 1, bias=False)", "network.maxpool = nn.Identity()"]
    return [*lines, f"network.load_state_dict({state})", "network.fc = nn.Identity()", "network.eval()"]


def _out(out: str) -> Path:
    path = Path(out)
    if path.suffix not in SUFFIXES:
        raise RequestError(f"--out {out}: expected a name that ends in {' or '.join(SUFFIXES)}, given {path.name!r}")
    if not path.parent.is_dir():
        raise RequestError(f"--out {out}: expected a file in an existing folder, found no folder {path.parent}")
    return path


def _trial(trial: str) -> tuple[ResultsFolder, str]:
    """The results folder and the trial's id of DIR/TRIAL_ID."""
    if ResultsFolder(trial).exists():
        example = f"{trial.rstrip('/')}/{next(iter(_planned(ResultsFolder(trial))), 'TRIAL_ID')}"
        raise RequestError(f"{trial}: expected a trial of it, as in {example}. See: clsweep trials {trial}")
    address, mark, options = trial.partition("?") if "://" in trial else (trial, "", "")
    place, _, trial_id = address.rstrip("/").rpartition("/")
    if not place:
        raise RequestError(f"{trial}: expected DIR/TRIAL_ID, a results folder and a trial's id, given no folder")
    return open_folder(f"{place}{mark}{options}"), trial_id


def _require_encoder(folder: ResultsFolder, trial_id: str) -> None:
    """Refuse a trial without an encoder, with the reason."""
    planned, stored = _planned(folder), folder.encoders()
    at = f"{folder.path}/{trial_id}"
    if trial_id not in planned:
        raise RequestError(f"{at}: no such trial.{nearest(trial_id, planned)} See: clsweep trials {folder.path}")
    row = next((row for row in folder.trials().to_pylist() if row["trial_id"] == trial_id), None)
    if row is None:
        raise RequestError(f"{at}: this trial has not finished yet; see clsweep status {folder.path}")
    if row["status"] == "failed":
        reason = f"{row['error_class']}: {row['error_message'].splitlines()[0]}"
        raise RequestError(f"{at}: this trial failed and has no encoder: {reason}")
    if row["framework"] == "mi_critic":
        raise RequestError(f"{at}: expected a trial that trains an encoder, given one of framework mi_critic")
    if trial_id not in stored:
        more = f" and {len(stored) - MAX_LISTED} more" if len(stored) > MAX_LISTED else ""
        kept = f"{', '.join(stored[:MAX_LISTED])}{more}" if stored else "none"
        advice = "A study with encoders: {keep: all} keeps every trial's"
        raise RequestError(f"{at}: the encoder of this trial was not kept. Kept: {kept}. {advice}")


def _planned(folder: ResultsFolder) -> list[str]:
    trial_ids: list[str] = folder.plan()["trial_id"].to_pylist()
    return trial_ids


def _owned(about: Mapping[str, Any]) -> tuple[str, ...]:
    from clsweep.objective.catalog import COMPONENT

    return COMPONENT["encoder"][about["encoder"]].owns


def _title(about: Mapping[str, Any]) -> str:
    """`resnet18 (stem small)`."""
    owned = ", ".join(f"{param} {about[param]}" for param in _owned(about))
    return f"{about['encoder']} ({owned})" if owned else str(about["encoder"])


def _write(path: Path, state: Mapping[str, Tensor], about: About) -> None:
    """Readers see the old file or the new one, never a part of either."""
    import torch

    from clsweep.results.encoders import pack

    temporary = path.with_name(f".{uuid.uuid4().hex}.tmp")
    try:
        if path.suffix == ".safetensors":
            temporary.write_bytes(pack({name: tensor.numpy() for name, tensor in state.items()}, about))
        else:
            torch.save(dict(state), temporary)
        os.replace(temporary, path)
    except (OSError, RuntimeError) as error:  # RuntimeError: torch's writer on a full disk
        temporary.unlink(missing_ok=True)
        raise RequestError(f"--out {path}: cannot be written: {str(error).splitlines()[0]}") from None
