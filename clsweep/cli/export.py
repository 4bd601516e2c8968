"""`clsweep export`: a trained encoder as a file that PyTorch, torchvision or this package loads."""

from __future__ import annotations

import io
import os
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from clsweep.catalog import COMPONENT
from clsweep.display.numbers import count, fixed
from clsweep.display.printing import print_note, say
from clsweep.errors import RequestError
from clsweep.results.folder import ResultsFolder
from clsweep.results.reading import open_folder
from clsweep.trained import About, load_encoder

if TYPE_CHECKING:
    from torch import Tensor

PROGRAM = ".pt2"  # of torch.export
_SUFFIXES = (".safetensors", ".pt", PROGRAM)
NUM_CLASSES = 1000  # of torchvision's classifiers


def export_encoder(trial: str, out: str, *, trust: bool = False) -> None:
    """Write the encoder of a trial, DIR/TRIAL_ID, to a .safetensors, .pt or .pt2 file, and say how
    to load it.

    Raises:
        RequestError: no such trial, its encoder was not kept, or the file cannot be written.
    """
    path = Path(out)
    if path.suffix not in _SUFFIXES:
        expected = f"a name that ends in {', '.join(_SUFFIXES[:-1])} or {PROGRAM}"
        raise RequestError(f"--out {out}: expected {expected}, given {path.name!r}")
    if not path.parent.is_dir():
        raise RequestError(
            f"--out {out}: expected a file in an existing folder, found no folder {path.parent}"
        )
    folder, trial_id = _trial(trial)
    encoder, about = load_encoder(folder, trial_id, trust=trust)
    row, state = COMPONENT["encoder"][about["encoder"]], dict(encoder.state_dict())
    is_program = path.suffix == PROGRAM
    is_classifier = row.layout == "torchvision" and not is_program
    if is_program:
        from clsweep.model.torch_export import program
    elif is_classifier:
        import torch

        state["fc.weight"] = torch.zeros(NUM_CLASSES, encoder.num_features)
        state["fc.bias"] = torch.zeros(NUM_CLASSES)
    _write(path, program(encoder, about) if is_program else state, about)
    owned = ", ".join(f"{param} {about[param]}" for param in row.owns)
    title = f"{about['encoder']} ({owned})" if owned else about["encoder"]
    num_params = sum(p.numel() for p in encoder.parameters())
    print_note(
        f"{path}: {title} of {trial_id}, {count(num_params)} parameters, "
        f"{count(encoder.num_features)} features"
    )
    print_note(_inputs(about, is_program=is_program))
    if about_momentum := _of_two(folder, trial_id):
        print_note(about_momentum)
    if is_classifier:
        print_note(
            "fc is all zeros: a classifier was not trained, and the features are what comes before "
            "it."
        )
    if is_program:
        say(f"To load it:\n    import torch\n    network = torch.export.load({out!r}).module()")
    else:
        trusted = ", trust=True" * trust
        whose = "torchvision" if is_classifier else row.impl.replace(":", ".")
        say(
            f"clsweep.open_results({folder.path!r}).encoder({trial_id!r}{trusted}) is the module.\n"
            f"Its keys are those of {whose}."
        )


def _inputs(about: About, *, is_program: bool) -> str:
    """A sentence on the images that an exported encoder takes."""
    normalisation = about["normalisation"]
    mean, std = (", ".join(fixed(x, 4) for x in normalisation[name]) for name in ("mean", "std"))
    edge, channels = about.get("image_size"), len(normalisation["mean"])
    size = f" of {edge} x {edge} pixels" if edge is not None else ""
    repeated = "" if is_program else ", repeated in three channels,"
    kinds = {1: f"gray images{repeated}", 3: "RGB images"}
    kind = kinds.get(channels, f"images of {channels} channels")
    scaled = f"minus the mean ({mean}), divided by the std ({std})"
    taken = ", float32; what the trial did to them is inside" if is_program else f", {scaled}"
    return f"It takes {kind}{size} in [0, 1]{taken}."


def _of_two(folder: ResultsFolder, trial_id: str) -> str:
    """A sentence on which of two encoders it is, where a momentum copy followed the trained one."""
    names = ["trial_id", "framework", *{"score_network"} & {*folder.params()}]
    row = next(r for r in folder.trials(names).to_pylist() if r["trial_id"] == trial_id)
    framework = COMPONENT["framework"].get(row["framework"])
    if framework is None or "momentum" not in framework.owns:
        return ""
    if row.get("score_network") == "teacher":
        return "It is the momentum teacher's encoder, not the student's, which gradients train."
    return "It is the encoder that gradients train (DINO's student), not its momentum copy."


def _trial(trial: str) -> tuple[ResultsFolder, str]:
    """The results folder and the trial's id of DIR/TRIAL_ID."""
    if (folder := ResultsFolder(trial)).exists():
        example = folder.plan(["trial_id"])["trial_id"][0]
        raise RequestError(
            f"{trial}: expected a trial of it, as in {trial.rstrip('/')}/{example}. See: clsweep "
            f"trials {trial}"
        )
    address, mark, options = trial.partition("?") if "://" in trial else (trial, "", "")
    place, _, trial_id = address.rstrip("/").rpartition("/")
    if not place:
        raise RequestError(
            f"{trial}: expected DIR/TRIAL_ID, a results folder and a trial's id, given no folder"
        )
    return open_folder(f"{place}{mark}{options}"), trial_id


def _write(path: Path, content: bytes | Mapping[str, Tensor], about: About) -> None:
    """Readers see the old file or the new one, never a part of either."""
    import torch

    from clsweep.results.weights import pack_weights

    file, temporary = io.BytesIO(), path.with_name(f".{uuid.uuid4().hex}.tmp")
    if isinstance(content, bytes):
        file.write(content)
    elif path.suffix == ".safetensors":
        arrays = {name: tensor.numpy() for name, tensor in content.items()}
        file.write(pack_weights(arrays, about))
    else:
        torch.save(dict(content), file)
    try:
        temporary.write_bytes(file.getbuffer())
        os.replace(temporary, path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise RequestError(f"--out {path}: cannot be written: {error.strerror}") from None
