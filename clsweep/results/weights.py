"""Trained encoders as files: `encoders/TRIAL_ID.safetensors` in a results folder."""

from __future__ import annotations

import hashlib
import json
import math
import struct
from collections.abc import Mapping
from typing import Any

import numpy as np

from clsweep.catalog import COMPONENT, DATASET, PARAM
from clsweep.catalog.rows import Row
from clsweep.errors import RequestError
from clsweep.version import VERSION

Weights = dict[str, np.ndarray]

# the key of the file's metadata under which all that a reader needs stands as JSON
_ABOUT = "clsweep"
_DIGEST = "sha256"  # of that text and all weights


def about_encoder(row: Row, normalisation: Row) -> dict[str, Any]:
    """All that a reader needs to build and to feed an encoder, and all hyperparameters."""
    encoder = COMPONENT["encoder"][row["encoder"]]
    names = ["trial_id", "encoder", *encoder.owns, *encoder.takes, "dataset", "seed"]
    names += [name for name in PARAM if row.get(name) is not None and name not in names]
    about = {name: row[name] for name in names}
    if row.get("channels"):
        about["channels"] = row["channels"]
    seen = row.get("view_size") or row.get("image_size")
    if image_size := seen or DATASET[row["dataset"]].image_size:
        about["image_size"] = image_size
    return {**about, "normalisation": normalisation, "clsweep_version": VERSION}


def pack_weights(weights: Mapping[str, np.ndarray], about: Row) -> bytes:
    """A state dict as a safetensors file."""
    from safetensors.numpy import save

    contiguous = {name: np.array(array, order="C") for name, array in weights.items()}
    text = json.dumps(dict(about))
    digest = _digest(contiguous, text)
    return save(contiguous, metadata={"format": "pt", _ABOUT: text, _DIGEST: digest})


def unpack_weights(payload: bytes, place: str) -> tuple[Weights, dict[str, Any]]:
    """The state dict of a safetensors file that `pack` made, and what it says of itself;
    RequestError where the file at `place` is damaged, or not one of ours.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import load

    try:
        weights = {name: array.copy() for name, array in load(payload).items()}
        (length,) = struct.unpack("<Q", payload[:8])
        metadata = json.loads(payload[8 : 8 + length])["__metadata__"]
        about = json.loads(metadata[_ABOUT])
        if metadata.get(_DIGEST, digest := _digest(weights, metadata[_ABOUT])) != digest:
            raise ValueError("it has changed since it was written")
        if not isinstance(about, dict):
            raise ValueError(f"it says of itself {about!r:.40}")
    except (SafetensorError, struct.error, ValueError, LookupError, TypeError, RecursionError) as e:
        damage = f"found a damaged file: {str(e).splitlines()[0]}"
        raise RequestError(f"{place}: expected an encoder of clsweep, {damage}") from None
    return weights, about


def agreed(about: Row, row: Row) -> dict[str, Any]:
    """The description of an encoder by its file and by the row of its trial. Raises ValueError or
    LookupError where they disagree, or an encoder cannot be so.
    """
    normalisation: Any = about["normalisation"]
    parts = normalisation if isinstance(normalisation, Mapping) else {}
    pair = [parts.get(key) for key in ("mean", "std")]
    mean, std = (each if isinstance(each, list) else [] for each in pair)
    is_finite = all(isinstance(n, float | int) and math.isfinite(n) for n in [*mean, *std])
    if not 0 < len(mean) == len(std) or not is_finite:
        raise ValueError(
            f"normalisation: expected mean and std of the channels, given {normalisation!r:.80}"
        )
    expected = about_encoder(row, normalisation)
    for name, value in expected.items():
        if name != "clsweep_version" and about.get(name, value) != value:
            given = f"given {about[name]!r:.80}"
            raise ValueError(f"{name}: expected {value!r}, as the trial has it, {given}")
    for name in set(expected) & set(PARAM):
        PARAM[name].coerce(expected[name])
    return {name: about.get(name, value) for name, value in expected.items()}


def _digest(weights: Weights, text: str) -> str:
    digest = hashlib.sha256(text.encode())
    for name, array in sorted(weights.items()):
        digest.update(f"{name} {array.dtype} {array.shape}".encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()
