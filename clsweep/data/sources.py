"""The data sets that are too large to be read again by every process: what their arrays in the
cache are made of.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from clsweep.catalog import DATASET, Dataset, named
from clsweep.data.availability import DataPlace, data_folder, missing_data_message
from clsweep.data.folders import scan
from clsweep.errors import RequestError

if TYPE_CHECKING:
    import numpy as np

    from clsweep.data.cache import Source

MAX_SYNTHETIC_BYTES = 2**30  # held in memory; more is written to the cache

Step = Callable[[int], object]


def is_cached(dataset: Dataset) -> bool:
    """Whether the images of a data set are mapped from the cache."""
    num_bytes = (dataset.num_train + dataset.num_test) * dataset.image_size**2 * 3
    return bool(dataset.arrays) and (dataset.name != "synthetic" or num_bytes > MAX_SYNTHETIC_BYTES)


def prepare(dataset: Dataset, place: DataPlace) -> None:
    """Make the cache of a data set that has one; loads no torch. What is to be fetched first is
    left to the trials.

    Raises:
        RequestError: as `source_of` and `cached` do.
    """
    is_fetched = place.download and bool(dataset.reader)
    if is_cached(dataset) and not is_fetched:
        from clsweep.data.cache import cached

        cached(source_of(dataset, place), place.cache_folder)


def source_of(dataset: Dataset, place: DataPlace) -> Source:
    """What the cache of a data set is made of.

    Raises:
        RequestError: the files are not there, or not those that the study was planned with.
    """
    source: Source = named(dataset.arrays)(dataset, place)
    return source


def imagefolder(dataset: Dataset, place: DataPlace) -> Source:
    """Image files by class, decoded one by one."""
    import numpy as np

    from clsweep.data.cache import Source
    from clsweep.data.pictures import decode

    root = place.root_folder
    found = scan(root)
    files = {part: found.files(part) for part in ("train", "test")}
    if (len(files["train"]), len(found.classes)) != (dataset.num_train, dataset.num_classes):
        expected = (
            f"{dataset.num_train} training images in {dataset.num_classes} classes, as planned"
        )
        given = f"{len(files['train'])} in {len(found.classes)}"
        raise RequestError(
            f"{root}: expected {expected}, given {given}: the folder has changed since"
        )

    def describe(part: str, rows: range) -> Iterator[str]:
        for number, path in files[part][rows.start : rows.stop]:
            yield f"{number} {path} {_stamp(root / path)}"

    def fill(part: str, rows: range, images: np.ndarray, step: Step) -> list[str]:
        broken = []
        for i, (_, path) in enumerate(files[part][rows.start : rows.stop]):
            try:
                images[i] = decode(root / path, dataset.image_size)
            except Exception as error:  # Pillow's plugins raise anything at a damaged file
                reason = str(error).splitlines()[0] if str(error) else type(error).__name__
                broken.append(f"{root / path}: {reason}")
            step(1)
        return broken

    return Source(
        name="imagefolder", place=str(root), image_size=dataset.image_size, classes=found.classes,
        labels={part: np.array([number for number, _ in rows], np.int64) for part,
                rows in files.items()},
        describe=describe, fill=fill,
    )  # fmt: skip


def stl10(dataset: Dataset, place: DataPlace) -> Source:
    """STL-10's binary files, those without a class among the training images."""
    import numpy as np

    from clsweep.data.cache import Source

    folder, shape = (
        data_folder("stl10", place.root_folder),
        (3, dataset.image_size, dataset.image_size),
    )
    counts = {
        "train": dataset.num_train,
        "unlabeled": dataset.num_unlabeled,
        "test": dataset.num_test,
    }
    sizes = {f"{name}_X.bin": count * 3 * dataset.image_size**2 for name, count in counts.items()}
    sizes |= {"train_y.bin": dataset.num_train, "test_y.bin": dataset.num_test}
    for name, size in sizes.items():
        found = (folder / name).stat().st_size if (folder / name).is_file() else None
        if found != size:
            given = "no such file" if found is None else f"expected {size} bytes, given {found}"
            raise RequestError(missing_data_message("stl10", place.root_folder, f"{name}: {given}"))
    stamp = "; ".join(f"{name} {_stamp(folder / name)}" for name in sizes)
    parts = {"train": ("train", "unlabeled"), "test": ("test",)}
    raw = {
        part: [
            np.memmap(folder / f"{name}_X.bin", np.uint8, "r", shape=(counts[name], *shape))
            for name in names
        ]
        for part, names in parts.items()
    }

    def fill(part: str, rows: range, images: np.ndarray, step: Step) -> list[str]:
        start = 0
        for array in raw[part]:
            first, last = max(rows.start, start), min(rows.stop, start + len(array))
            if first < last:  # columns of red, green, blue
                images[first - rows.start : last - rows.start] = array[
                    first - start : last - start
                ].transpose(0, 3, 2, 1)
            start += len(array)
        step(len(rows))
        return []

    def labels(part: str) -> np.ndarray:
        # the files count from 1
        known = np.fromfile(folder / f"{part}_y.bin", np.uint8).astype(np.int64) - 1
        missing = sum(map(len, raw[part])) - len(known)
        return np.concatenate([known, np.full(missing, -1, np.int64)])

    return Source(
        name="stl10", place=str(folder), image_size=dataset.image_size,
        classes=tuple(str(number) for number in range(DATASET["stl10"].num_classes)),
        labels={part: labels(part) for part in parts},
        describe=lambda part, rows: [f"{part} {rows} {stamp}"], fill=fill,
    )  # fmt: skip


def synthetic_images(dataset: Dataset, _place: DataPlace) -> Source:
    """Images made from a fixed seed."""
    from clsweep.data import synthetic
    from clsweep.data.cache import Source

    size, num_classes = dataset.image_size, dataset.num_classes

    def fill(part: str, rows: range, images: np.ndarray, step: Step) -> list[str]:
        images[:] = synthetic.images(part, rows, image_size=size, num_classes=num_classes)
        step(len(rows))
        return []

    counts = {"train": dataset.num_train, "test": dataset.num_test}
    return Source(
        name="synthetic", place=f"{num_classes} classes, {synthetic.VERSION}", image_size=size,
        classes=tuple(str(number) for number in range(num_classes)),
        labels={part: synthetic.labels(count, num_classes) for part, count in counts.items()},
        describe=lambda part, rows: [f"{part} {rows}"], fill=fill,
    )  # fmt: skip


def _stamp(path: Path) -> str:
    """Size and time of a file; of one that cannot be read, which decoding will say, the reason."""
    try:
        found = os.stat(path)
    except OSError as error:
        return str(error.strerror)
    return f"{found.st_size} {found.st_mtime_ns}"
