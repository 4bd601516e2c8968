"""Trained encoders as files: `encoders/TRIAL_ID.safetensors` in a results folder."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

import numpy as np

from clsweep.catalog import COMPONENT, DATASET
from clsweep.catalog.rows import Row
from clsweep.errors import RequestError

Weights = dict[str, np.ndarray]

# the key of the file's metadata under which all that a reader needs stands as JSON
ABOUT = "clsweep"


def about_encoder(row: Row, normalisation: Row) -> dict[str, Any]:
    """What the reader of an encoder needs to build it and to feed it."""
    encoder = COMPONENT["encoder"][row["encoder"]]
    names = ["trial_id", "encoder", *encoder.owns, *encoder.takes, "dataset", "seed"]
    about = {name: row[name] for name in names}
    seen = row.get("view_size") or row.get("image_size")
    if image_size := seen or DATASET[row["dataset"]].image_size:
        about["image_size"] = image_size
    return {**about, "normalisation": normalisation, "clsweep_version": version("clsweep")}


def pack(weights: Mapping[str, np.ndarray], about: Row) -> bytes:
    """A state dict as a safetensors file."""
    from safetensors.numpy import save

    contiguous = {name: np.array(array, order="C") for name, array in weights.items()}
    return save(contiguous, metadata={"format": "pt", ABOUT: json.dumps(dict(about))})


def unpack(payload: bytes, place: str) -> tuple[Weights, dict[str, Any]]:
    """The state dict of a safetensors file that `pack` made, and what it says of itself.

    Raises:
        RequestError: the file at `place` is damaged, or not one of ours.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import load

    try:
        weights = {name: array.copy() for name, array in load(payload).items()}
        (length,) = struct.unpack("<Q", payload[:8])
        about: dict[str, Any] = json.loads(
            json.loads(payload[8 : 8 + length])["__metadata__"][ABOUT]
        )
    except (SafetensorError, struct.error, ValueError, LookupError) as error:
        reason = str(error).splitlines()[0]
        raise RequestError(
            f"{place}: expected an encoder of clsweep, found a damaged file: {reason}"
        ) from None
    return weights, about
