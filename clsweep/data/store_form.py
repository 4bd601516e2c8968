"""The form in which a study's pictures are kept, pixels or JPEG: which one, its bytes, and how fast
it is decoded.
"""

from __future__ import annotations

import contextlib
import io
import math
import shutil
import time
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import numpy as np
from PIL import Image

from clsweep.catalog import Dataset
from clsweep.data.image_files import (
    Jpegs,
    Pictures,
    decode_image,
    encode_image,
    highest_level,
    read_image_size,
    stored_size,
)

# Pixels that take no more stay in the memory of any machine that trains on pictures, and are as
# fast as can be. More are kept as JPEG, where most of the files lose nothing much by it: are JPEG.
MOST_PIXEL_BYTES = 8 * 2**30
# Files that are not there are taken for ImageNet's mean picture, height and width, a JPEG of which
# takes about so many bytes a pixel (`tests/benchmarks/decode.py`).
_PICTURE, _JPEG_BYTES = (375, 500), 0.4
_JPEG = b"\xff\xd8\xff"


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


@cache
def estimated_store(dataset: Dataset) -> tuple[int, float]:
    """Bytes of all pictures of a data set whose form and size are known, by some of them, and the
    JPEGs that one core of this machine decodes in a second; 0 where there are none.
    """
    number, size, channels = _num_pictures(dataset), dataset.store_size, dataset.channels
    if dataset.store_as != "jpeg":
        return pixel_bytes(dataset, size), 0.0
    jpegs = stored_pictures(dataset, _sampled(dataset))
    if not len(jpegs):
        return int(pixel_bytes(dataset, size) / channels * _JPEG_BYTES), 0.0
    begin = time.thread_time()
    for row in range(len(jpegs)):
        jpegs[row]
    rate = len(jpegs) / (time.thread_time() - begin)
    return number * len(jpegs.content) // len(jpegs), rate


def sampled_pictures(dataset: Dataset) -> Pictures:
    """Some pictures of a data set in its form and size; a made one of ImageNet's size where no file
    is here.
    """
    pictures = stored_pictures(dataset, _sampled(dataset))
    return pictures if len(pictures) else stored_pictures(dataset, [_made_picture()])


def stored_pictures(dataset: Dataset, files: Iterable[bytes]) -> Pictures:
    """Those of the files that can be read, in the form and the size of a data set."""
    size, channels, is_jpeg = dataset.store_size, dataset.channels, dataset.store_as == "jpeg"
    contents: list[np.ndarray] = [np.zeros(0, np.uint8)]
    sizes: list[tuple[int, int]] = []
    for file in map(io.BytesIO, files):
        with contextlib.suppress(Exception):  # damaged ones are named when all are read
            if is_jpeg:
                jpeg, height, width = encode_image(file, size, channels)
                content = np.frombuffer(jpeg, np.uint8)
            else:
                content = decode_image(file, size, channels)
                height, width = content.shape[:2]
            contents.append(content.ravel())
            sizes.append((height, width))
    content, of_all = np.concatenate(contents), np.array(sizes, np.int64).reshape(-1, 2)
    if is_jpeg:
        return Jpegs(content, of_all, channels, np.array([len(each) for each in contents[1:]]))
    return Pictures(content, of_all, channels)


def _made_picture() -> bytes:
    """A JPEG of blots and grain that has `_PICTURE` and about `_JPEG_BYTES`."""
    rng, (height, width) = np.random.default_rng(0), _PICTURE
    blots = rng.integers(0, 256, (height // 6, width // 6, 3), dtype=np.uint8)
    large = Image.fromarray(blots).resize((width, height), Image.Resampling.BICUBIC)
    levels = np.asarray(large) + 14 * rng.standard_normal((height, width, 1))
    file = io.BytesIO()
    Image.fromarray(levels.clip(0, 255).astype(np.uint8)).save(file, "JPEG", quality=90)
    return file.getvalue()


def pixel_bytes(dataset: Dataset, store_size: int) -> int:
    """Bytes of all pictures as pixels, by the sizes of some."""
    sizes: list[tuple[int, int]] = []
    for picture in _sampled(dataset):
        with contextlib.suppress(Exception):
            sizes.append(read_image_size(io.BytesIO(picture)))
    areas = [math.prod(stored_size(*size, store_size)) for size in sizes or [_PICTURE]]
    return _num_pictures(dataset) * sum(areas) * dataset.channels // len(areas)


def highest_sampled(dataset: Dataset) -> int:
    """The highest level of the sampled pictures of 16 bits, 0 where there are none."""
    highest = 0
    for picture in _sampled(dataset):
        with contextlib.suppress(Exception):
            highest = max(highest, highest_level(io.BytesIO(picture)))
    return highest


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
