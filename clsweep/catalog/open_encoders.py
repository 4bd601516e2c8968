"""Encoders beyond the catalog's own, by a name that says where they come from: `timm/NAME`,
`torchvision/NAME`, `module:function`. And what they may begin with: a file of weights, `init`.

What such a name comes to is asked of a process of its own, so that no torch is loaded here.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from clsweep.catalog.rows import Component

_SEES = ("encoder", "view_size", "image_size", "channels")
# what the features and weights of one hang on, and what of it a study states
ENCODER_PARAMS = ("encoder", "view_size", "pooling", "init", "width", "stem")
_MEASURED = (*ENCODER_PARAMS, "image_size", "channels", "freeze_patch_embed", "small_view_size")
NO_PATCHES = (
    "expected an encoder with a patch projection, as timm/vit_small_patch16_224: without one there "
    "is nothing to freeze"
)
ROWS = (
    Component(part="encoder", name="timm/NAME", impl="clsweep.model.external_encoders:timm_encoder",
              owns=("pooling",), takes=_SEES, source="timm",
              doc="a model of timm, without its classifier; pip install clsweep[timm]"),
    Component(part="encoder", name="torchvision/NAME",
              impl="clsweep.model.external_encoders:torchvision_encoder",
              takes=_SEES, source="torchvision",
              doc="a classifier of torchvision, without its last linear layer"),
    Component(part="encoder", name="MODULE:FUNCTION",
              impl="clsweep.model.external_encoders:own_encoder", takes=_SEES, source="-",
              doc="what a function of yours returns; it may take channels and image_size by name"),
)  # fmt: skip
_PATTERNS = (r"timm/[\w.]+", r"torchvision/\w+", r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")
PATTERN = "|".join(_PATTERNS)
BUILD_TIMEOUT_S = 300.0
NONE = "none"  # of `init`


class EncoderTable(dict[str, Component]):
    """The encoders by name; a row of the libraries' is made where it is asked for."""

    def __missing__(self, name: str) -> Component:
        if row := _open(name):
            return row
        raise KeyError(name)

    def __contains__(self, name: object) -> bool:
        return super().__contains__(name) or (isinstance(name, str) and _open(name) is not None)

    def get(self, name: str, default: Any = None) -> Any:
        try:
            return self[name]
        except KeyError:
            return default


def is_open(name: str) -> bool:
    """True if an encoder is one of another library, or a function's."""
    return _open(name) is not None


def is_own(name: str) -> bool:
    """True if an encoder is what a function of the user's returns."""
    return re.fullmatch(_PATTERNS[-1], name) is not None


def measured_width(params: Mapping[str, Any]) -> int:
    """Width of the features of an encoder that the catalog does not know.

    Args:
        params: effective hyperparameters by name, with image_size and channels.

    Raises:
        ValueError: it cannot be built or begin with the weights of `init`, in one line.
    """
    [answer] = _measured([params])
    if "error" in answer:
        raise ValueError(answer["error"])
    return int(answer["num_features"])


def why_not(configs: Iterable[Mapping[str, Any]]) -> list[str]:
    """Why some of these encoders, each as `measured` takes it, cannot be built: a line for each."""
    return [answer["error"] for answer in _measured(configs) if "error" in answer]


def _measured(configs: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The answer for each, all asked of one process."""
    encoders = [
        {n: p[n] for n in _MEASURED if p.get(n) is not None and p[n] is not False} for p in configs
    ]
    if any(is_own(str(each["encoder"])) for each in encoders):
        search_working_folder()
    texts = [json.dumps(each, sort_keys=True) for each in encoders]
    if new := [text for text in dict.fromkeys(texts) if text not in _answers]:
        _answers.update(zip(new, _measure_elsewhere(f"[{', '.join(new)}]", len(new)), strict=True))
    return [_answers[text] for text in texts]


_answers: dict[str, dict[str, Any]] = {}


def search_working_folder() -> None:
    """Have modules of one's own looked for in the working folder, too, and after all others."""
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())


def _open(name: str) -> Component | None:
    for row, pattern in zip(ROWS, _PATTERNS, strict=True):
        if re.fullmatch(pattern, name):
            return replace(row, name=name)
    return None


def _measure_elsewhere(wanted: str, count: int) -> list[dict[str, Any]]:
    try:
        run = subprocess.run(
            # with our modules, and none of the working folder before them
            [sys.executable, "-P", "-m", "clsweep.model.measure_encoders"],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            input=wanted, capture_output=True, text=True, timeout=BUILD_TIMEOUT_S, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return [{"error": f"expected an answer within {BUILD_TIMEOUT_S:g} s, given none"}] * count
    lines = run.stdout.splitlines()
    if run.returncode == 0 and lines:
        answers: list[dict[str, Any]] = json.loads(lines[-1])
        return answers
    reason = (run.stderr.splitlines() or ["nothing"])[-1]
    return [{"error": f"cannot be built: {reason}"}] * count


# The hyperparameter `init`: a file of weights, and the digest of what it held.


def with_digest(path: Path) -> str:
    """PATH#DIGEST of a file as it is now.

    Raises:
        ValueError: it is not there, or no regular file.
    """
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise ValueError(f"expected a file of weights, given {path}, which is no regular file")
        return f"{path.absolute()}#{weights_digest(path)}"
    except OSError as error:
        raise ValueError(f"expected a file of weights, given {path}: {error.strerror}") from None


def split_digest(init: str) -> tuple[str, str]:
    """Path and digest of `stated`; an empty digest where there is none."""
    path, _, digest = init.rpartition("#")
    return (path, digest) if path else (init, "")


def weights_digest(path: Path) -> str:
    """Of all bytes of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=8)).hexdigest()
