"""The form in which a study's pictures are kept, pixels or JPEG: which one, its bytes, and how fast
it is decoded.
"""

from __future__ import annotations

import contextlib
import io
import math
import shutil
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from clsweep.catalog import Dataset
from clsweep.data.image_files import encode_image, read_image_size, stored_size

# Pixels that take no more stay in the memory of any machine that trains on pictures, and are as
# fast as can be. More are kept as JPEG, where most of the files lose nothing much by it: are JPEG.
MOST_PIXEL_BYTES = 8 * 2**30
# Files that are not there are taken for ImageNet's mean picture, height and width, a JPEG of which
# takes about so many bytes a pixel (`tests/benchmarks/decode.py`).
_PICTURE, _JPEG_BYTES = (375, 500), 0.4
_JPEG = b"\xff\xd8\xff"


@dataclass(frozen=True, kw_only=True)
class StoreEstimate:
    """Of all pictures of a data set in the study's form, by some of them.

    Args:
        num_bytes: on the disk.
        images_per_s: JPEGs that one core of this machine decodes in a second; 0: there are none.
    """

    num_bytes: int
    images_per_s: float = 0.0


def automatic_form(dataset: Dataset, store_size: int) -> str:
    """`jpeg` of many pictures that are JPEGs, else `pixels`, of which the shorter side would be
    `store_size` at most.
    """
    pictures = _sampled(dataset)
    num_jpegs = sum(picture.startswith(_JPEG) for picture in pictures)
    is_lossy = 2 * num_jpegs > len(pictures)
    if not pictures:
        is_lossy = dataset.sample is None or dataset.sample.are_jpegs is not False
    return "jpeg" if is_lossy and pixel_bytes(dataset, store_size) > MOST_PIXEL_BYTES else "pixels"


def estimated_store(dataset: Dataset) -> StoreEstimate:
    """Bytes and rate of a data set whose form and size are known."""
    number, size, channels = _num_pictures(dataset), dataset.store_size, dataset.channels
    if dataset.store_as != "jpeg":
        return StoreEstimate(num_bytes=pixel_bytes(dataset, size))
    jpegs: list[bytes] = []
    for picture in _sampled(dataset):
        with contextlib.suppress(Exception):  # damaged ones are named when all are read
            jpegs.append(encode_image(io.BytesIO(picture), size, channels)[0])
    if not jpegs:
        return StoreEstimate(num_bytes=int(pixel_bytes(dataset, size) / channels * _JPEG_BYTES))
    begin = time.thread_time()
    for jpeg in jpegs:
        with Image.open(io.BytesIO(jpeg)) as opened:
            np.asarray(opened)
    rate = len(jpegs) / (time.thread_time() - begin)
    num_bytes = number * sum(map(len, jpegs)) // len(jpegs)
    return StoreEstimate(num_bytes=num_bytes, images_per_s=rate)


def pixel_bytes(dataset: Dataset, store_size: int) -> int:
    """Bytes of all pictures as pixels, by the sizes of some."""
    sizes: list[tuple[int, int]] = []
    for picture in _sampled(dataset):
        with contextlib.suppress(Exception):
            sizes.append(read_image_size(io.BytesIO(picture)))
    areas = [math.prod(stored_size(*size, store_size)) for size in sizes or [_PICTURE]]
    return _num_pictures(dataset) * sum(areas) * dataset.channels // len(areas)


def free_bytes(folder: Path) -> int:
    """Bytes that the disk has free on which a folder lies, or will."""
    there = next(path for path in (folder, *folder.parents) if path.exists())
    return shutil.disk_usage(there).free


def _sampled(dataset: Dataset) -> tuple[bytes, ...]:
    return dataset.sample.pictures if dataset.sample else ()


def _num_pictures(dataset: Dataset) -> int:
    """All pictures of the files, of which a study may use some."""
    if dataset.sample:
        return dataset.sample.num_files
    return dataset.num_train + dataset.num_unlabeled + dataset.num_test
