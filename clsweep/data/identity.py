"""The identity of a data set of the user's own: a digest of the images that its function gives."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Any

import numpy as np

from clsweep.catalog import DATASET, Dataset, implementation
from clsweep.catalog.plugin_guard import PartError
from clsweep.catalog.plugins import error_line
from clsweep.data.locations import DataPlace
from clsweep.data.random_streams import drawing
from clsweep.errors import RequestError

MAX_DIGESTED = 50_000  # images of a split at most, evenly spaced


def identified(dataset: Dataset, place: DataPlace) -> Dataset:
    """A data set that is the user's own, with a digest of its images and classes: all of 50,000
    images at most, evenly spaced. Without it where a file is missing, which trials will say.

    Raises:
        RequestError: it cannot be read, in one line with its place.
    """
    whole = dataset if dataset.makes_images else DATASET[dataset.name]
    try:
        return replace(dataset, images_digest=digest_images(whole, *read_splits(whole, place)))
    except FileNotFoundError:
        return dataset
    except Exception as error:
        raise RequestError(error_line(error)) from None


def read_splits(dataset: Dataset, place: DataPlace) -> tuple[Any, Any]:
    """The splits that the function of a data set gives, to train on and to test on."""
    with drawing(0, "data set"):  # one that is made of draws is the same for all trials
        train, test = implementation(dataset)(dataset, place)
    return train, test


def digest_images(dataset: Dataset, *splits: Any) -> str:
    """Of images and classes.

    Raises:
        PartError: they are not what the row says.
    """
    digest, side = hashlib.blake2b(digest_size=8), dataset.image_size
    expected = f"images uint8 or uint16 (N, {side}, {side}, {dataset.channels})"
    expected += f" and classes int64 (N,) from 0 to {dataset.num_classes - 1}, or -1 for none"
    for split in splits:
        images, labels, rows = split.images, split.labels, split.rows
        fits = labels.dtype.kind == "i" and labels.shape == rows.shape and len(rows) > 0
        if isinstance(images, np.ndarray):
            shape = (side, side, dataset.channels)
            fits &= images.dtype in (np.uint8, np.uint16) and images.shape[1:] == shape
        if not fits or labels.min() < -1 or labels.max() >= dataset.num_classes:
            given = f"{getattr(images, 'dtype', '')} {getattr(images, 'shape', '')}"
            given += f" and {labels.dtype} {labels.shape}"
            if fits:
                given += f" from {labels.min()} to {labels.max()}"
            raise PartError(f"{dataset.name}: expected {expected}, given {given}", dataset)
        digest.update(np.ascontiguousarray(labels).tobytes())
        count = min(len(rows), MAX_DIGESTED)
        for row in rows[np.arange(count) * len(rows) // count]:
            digest.update(np.ascontiguousarray(images[row]).tobytes())
    return digest.hexdigest()
