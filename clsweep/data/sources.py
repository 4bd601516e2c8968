"""The data sets that are too large to be read again by every process: what their arrays in the
cache are made of.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from clsweep.catalog import DATASET, Dataset, named
from clsweep.data.availability import DataPlace, data_folder, missing_data_message
from clsweep.data.found import stamp
from clsweep.errors import RequestError

if TYPE_CHECKING:
    import numpy as np

    from clsweep.data.cache import Source

MAX_SYNTHETIC_BYTES = 2**30  # held in memory; more is written to the cache


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


def stl10(dataset: Dataset, place: DataPlace) -> Source:
    """STL-10's binary files, those without a class among the training images."""
    import numpy as np

    from clsweep.data.cache import Source

    folder, size = data_folder("stl10", place.root_folder), dataset.image_size
    counts = {
        "train": dataset.num_train,
        "unlabeled": dataset.num_unlabeled,
        "test": dataset.num_test,
    }
    lengths = {f"{name}_X.bin": count * 3 * size**2 for name, count in counts.items()}
    lengths |= {"train_y.bin": dataset.num_train, "test_y.bin": dataset.num_test}
    for name, length in lengths.items():
        found = (folder / name).stat().st_size if (folder / name).is_file() else None
        if found != length:
            given = "no such file" if found is None else f"expected {length} bytes, given {found}"
            raise RequestError(missing_data_message("stl10", place.root_folder, f"{name}: {given}"))
    parts = {"train": ("train", "unlabeled"), "test": ("test",)}
    raw = {
        name: np.memmap(folder / f"{name}_X.bin", np.uint8, "r", shape=(count, 3, size, size))
        for name, count in counts.items()
    }

    def fill(part: str, rows: range, images: np.ndarray) -> list[str]:
        start = 0
        for array in (raw[name] for name in parts[part]):
            first, last = max(rows.start, start), min(rows.stop, start + len(array))
            if first < last:
                columns = array[first - start : last - start]  # of red, green, blue
                images[first - rows.start : last - rows.start] = columns.transpose(0, 3, 2, 1)
            start += len(array)
        return []

    def labels(part: str) -> np.ndarray:
        # the files count from 1
        known = np.fromfile(folder / f"{part}_y.bin", np.uint8).astype(np.int64) - 1
        missing = sum(counts[name] for name in parts[part]) - len(known)
        return np.concatenate([known, np.full(missing, -1, np.int64)])

    return Source(
        name="stl10", place=str(folder), image_size=size,
        classes=tuple(str(number) for number in range(DATASET["stl10"].num_classes)),
        labels={part: labels(part) for part in parts}, fill=fill,
        describe=lambda: [f"{name} {stamp(folder / name)}" for name in lengths],
    )  # fmt: skip


def synthetic_images(dataset: Dataset, _place: DataPlace) -> Source:
    """Images made from a fixed seed."""
    from clsweep.data import synthetic
    from clsweep.data.cache import Source

    size, num_classes = dataset.image_size, dataset.num_classes

    def fill(part: str, rows: range, images: np.ndarray) -> list[str]:
        images[:] = synthetic.images(part, rows, image_size=size, num_classes=num_classes)
        return []

    counts = {"train": dataset.num_train, "test": dataset.num_test}
    return Source(
        name="synthetic", place=f"{num_classes} classes, {synthetic.VERSION}", image_size=size,
        classes=tuple(str(number) for number in range(num_classes)),
        labels={part: synthetic.labels(count, num_classes) for part, count in counts.items()},
        describe=tuple, fill=fill,
    )  # fmt: skip
