"""Images in NumPy's files: one .npz, or a folder of .npy.

The arrays are `train_images` (N, S, S) or (N, S, S, C), `train_labels` (N,) and the same of `test`;
or `x_train`, `y_train`, `x_test`, `y_test`; or `images` and `labels` alone. Only images to train on
must be there. Other arrays are left alone.
"""

from __future__ import annotations

import zipfile
from collections import Counter
from functools import lru_cache
from pathlib import Path
from typing import IO, Any

import numpy as np

from clsweep.catalog.rows import parse_numbers
from clsweep.data.image_files import require_regular
from clsweep.data.locations import DataPlace
from clsweep.data.sources import (
    DATA_PARTS,
    DataLayout,
    classes_error,
    files_digest,
    layout_error,
    list_counts,
    stamp,
)
from clsweep.display.numbers import setting
from clsweep.errors import listed

# Of each part, names of its images and of their classes. Of two that are held out the first counts
# that has both.
_NAMES = {
    "train": (("train_images", "x_train", "images"), ("train_labels", "y_train", "labels")),
    "test": (("test_images", "x_test"), ("test_labels", "y_test")),
    "val": (("val_images", "x_val"), ("val_labels", "y_val")),
}
_LEVELS = 65535  # real numbers become so many steps of their range
MAX_CHANNELS = 64
Header = tuple[tuple[int, ...], np.dtype]


def arrays_layout(place: DataPlace) -> DataLayout:
    """The images of arrays; real numbers, and whole ones of other types than uint8 and uint16, in
    the stated range alone.

    Raises:
        RequestError: place, expected and given.
    """
    root = place.root_folder
    headers = _headers(root)
    there = {
        part: [next((name for name in names if name in headers), "") for names in both]
        for part, both in _NAMES.items()
    }
    held_out = sorted((there["test"], there["val"]), key=lambda both: (not both[0], not all(both)))
    keys = {"train": there["train"], "test": held_out[0]}
    if not keys["train"][0]:
        expected = "an array train_images, x_train or images"
        raise layout_error(root, expected, listed(sorted(headers)))
    images = {part: keys[part][0] for part in DATA_PARTS if keys[part][0]}
    shapes = {part: _image_shape(root, name, headers[name]) for part, name in images.items()}
    if len(set(shapes.values())) > 1:
        expected = f"test images like those to train on, {shapes['train']}"
        raise layout_error(root, expected, shapes["test"])
    size, num_channels, dtype = shapes["train"]
    limits = _limits(f"{root}: {images['train']}", dtype, place.value_range)
    labels = {
        part: _labels(root, images.get(part, ""), keys[part][1], headers) for part in DATA_PARTS
    }

    def pixels(part: str, rows: range) -> np.ndarray:
        array = _array(root, images[part])[rows.start : rows.stop]
        array = array.reshape(len(rows), size, size, num_channels)
        return array if limits is None else _steps(root, images[part], array, rows, limits)

    used = {name for part in images for name in keys[part]}
    sized = [(name, _file(root, name).stat().st_size) for name in sorted(headers)]
    return DataLayout(
        root=root, labels=labels, pixels=pixels,
        unread=list_counts(Counter(headers.keys() - used)),
        describe=lambda: [f"{name} {stamp(_file(root, name))}" for name in sorted(headers)],
        digest=files_digest([*sized, (str(place.value_range), 0)]), image_size=size,
        name=lambda part, row: f"{root}: {images[part]}[{row}]", num_channels=num_channels,
        dtype="uint8" if dtype == np.uint8 else "uint16",
    )  # fmt: skip


def _headers(root: Path) -> dict[str, Header]:
    """Shape and type of every array, by name."""
    try:
        if root.is_dir():
            paths = sorted(root.glob("*.npy"))
            if not paths:
                raise ValueError("expected .npy files in the folder, given none")
            return {path.stem: _header_of(path) for path in paths}
        require_regular(root)
        with zipfile.ZipFile(root) as archive:
            names = [name for name in archive.namelist() if name.endswith(".npy")]
            return {name.removesuffix(".npy"): _header(archive.open(name)) for name in names}
    except Exception as error:  # what compression raises at damage is of no common class
        raise layout_error(root, "an .npz file or a folder of .npy files", error) from None


def _header_of(path: Path) -> Header:
    require_regular(path)
    try:
        return _header(path.open("rb"))
    except ValueError as error:
        raise ValueError(f"{path.name}: {error}") from None


def _header(file: IO[bytes]) -> Header:
    with file:
        is_first = np.lib.format.read_magic(file) == (1, 0)
        read: Any = getattr(np.lib.format, f"read_array_header_{'1_0' if is_first else '2_0'}")
        shape, _, dtype = read(file)
    return shape, dtype


def _file(root: Path, name: str) -> Path:
    return root / f"{name}.npy" if root.is_dir() else root


@lru_cache(maxsize=2)
def _read(path: Path, name: str, _stamp: str) -> np.ndarray:
    if path.suffix == ".npy":
        return np.load(path, mmap_mode="r", allow_pickle=False)
    with np.load(path, allow_pickle=False) as archive:
        array: np.ndarray = archive[name]
    return array


def _array(root: Path, name: str) -> np.ndarray:
    path = _file(root, name)
    try:
        return _read(path, name, stamp(path))
    except Exception as error:
        raise layout_error(path, f"an array {name} that can be read", error) from None


def _image_shape(root: Path, name: str, header: Header) -> tuple[int, int, np.dtype]:
    """Side, channels and type of images."""
    (shape, dtype), place = header, f"{root}: {name}"
    channels = shape[3] if len(shape) == 4 else 1
    if len(shape) not in (3, 4) or shape[1] != shape[2] or not 8 <= shape[1] <= 512:
        expected = "squares of 8 to 512 pixels a side, (N, S, S) or (N, S, S, C)"
        raise layout_error(place, expected, shape)
    if not 1 <= channels <= MAX_CHANNELS:
        raise layout_error(place, f"1 to {MAX_CHANNELS} channels, which come last", shape)
    if dtype.kind not in "uif":
        raise layout_error(place, "numbers", dtype)
    return shape[1], channels, dtype


def _limits(place: str, dtype: np.dtype, value_range: str | None) -> tuple[float, float] | None:
    """The stated range of numbers whose type has none."""
    if dtype in (np.uint8, np.uint16):
        if value_range is not None:
            raise layout_error(place, f"no dataset.range, as {dtype} has its own", value_range)
        return None
    if value_range is None:
        raise layout_error(place, f"dataset.range: [low, high] of its {dtype} numbers", "none")
    low, high = parse_numbers(value_range)
    return low, high


def _steps(
    root: Path, name: str, array: np.ndarray, rows: range, limits: tuple[float, float]
) -> np.ndarray:
    """Numbers of a range as uint16, rounded to the nearest of 65,536 steps."""
    low, high = limits
    is_inside = (array >= low) & (array <= high)  # nan is not
    if not is_inside.all():
        at = np.argwhere(~is_inside)[0]
        expected = f"numbers in dataset.range [{setting(low)}, {setting(high)}]"
        raise layout_error(f"{root}: {name}[{rows.start + at[0]}]", expected, array[tuple(at)])
    share = (array.astype(np.float64) - low) / (high - low)
    return np.rint(share * _LEVELS).astype(np.uint16)


def _labels(root: Path, images: str, name: str, headers: dict[str, Header]) -> np.ndarray:
    """int64 (N,); -1 everywhere where there are none."""
    count = headers[images][0][0] if images else 0
    if not (name and images):
        return np.full(count, -1, np.int64)
    shape, dtype = headers[name]
    if dtype.kind not in "iu" or (len(shape) > 1 and shape[1:] != (1,)):
        raise classes_error(f"{root}: {name}", f"{dtype} {shape}")
    if shape[:1] != (count,):
        expected = f"whole numbers ({count},), one for each of {images}"
        raise layout_error(f"{root}: {name}", expected, f"{dtype} {shape}")
    labels = _array(root, name).reshape(-1).astype(np.int64)
    if labels.min(initial=0) < -1:
        raise layout_error(f"{root}: {name}", "classes from 0 on, or -1 for none", labels.min())
    return labels
