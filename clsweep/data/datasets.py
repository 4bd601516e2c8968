"""The data sets: a split is rows of one uint8 array that all trials of a process share."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from clsweep.catalog import DATASET, Dataset, named
from clsweep.data import synthetic
from clsweep.data.cache import Source, cached
from clsweep.data.identity import digest_images, read_splits
from clsweep.data.image_files import Pictures, needed_size
from clsweep.data.locations import (
    DataPlace,
    data_folder,
    file_in,
    missing_data_message,
    require_data,
)
from clsweep.data.sources import layout_error, reason_of, sized_dataset, stamp
from clsweep.data.splits import SPLIT_SEED, some_of_each, stratified
from clsweep.errors import RequestError

DIGITS = ("datasets", "data", "digits.csv.gz")  # in scikit-learn's package
# More training images than these, of one size or each of its own, are not all looked at for the
# channels' statistics: so many, evenly spaced.
STATISTICS_IMAGES, STATISTICS_PICTURES = 50_000, 5_000
_STATISTICS_BLOCK = 512
CROP_SCALE = 0.08  # of the views that a probe or fine-tuning sees of another data set


@dataclass(frozen=True, eq=False)
class Split:
    """Some rows of an array of images.

    Args:
        images: uint8 or uint16 (A, H, W, C), or images of different sizes: what the splits of one
            file share, in memory or mapped from it.
        rows: int64 (N,): the split's rows of it.
        labels: int64 (N,); -1 is no class.
    """

    images: np.ndarray | Pictures
    rows: np.ndarray
    labels: np.ndarray

    @classmethod
    def whole(cls, images: np.ndarray | Pictures, labels: np.ndarray) -> Split:
        """All images of an array, (N, H, W, C), with their classes, int64 (N,)."""
        return cls(images, np.arange(len(images)), labels)

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[np.ndarray, int]:
        """An image (H, W, C) and its class."""
        return np.asarray(self.images[self.rows[index]]), int(self.labels[index])

    def take(self, indices: np.ndarray) -> Split:
        """A part of the split; copies no pixels."""
        return Split(self.images, self.rows[indices], self.labels[indices])

    @cached_property
    def channel_stats(self) -> tuple[np.ndarray, np.ndarray]:
        """Mean and std of each channel in [0, 1], float32 (C,), of 50,000 images at most."""
        rows, images = self.rows, self.images
        limit = STATISTICS_PICTURES if isinstance(images, Pictures) else STATISTICS_IMAGES
        if len(rows) > limit:
            rows = rows[np.arange(limit) * len(rows) // limit]
        if isinstance(images, Pictures):
            num_channels, blocks = images.num_channels, (images[row] for row in rows)
        else:
            num_channels, step = images.shape[-1], _STATISTICS_BLOCK
            blocks = (images[rows[i : i + step]] for i in range(0, len(rows), step))
        num_levels = np.iinfo(images.dtype).max + 1
        counts = np.zeros((num_channels, num_levels), np.int64)
        for block in blocks:
            pixels = block.reshape(-1, len(counts))
            for count, channel in zip(counts, pixels.T.copy(), strict=True):
                count += np.bincount(channel, minlength=num_levels)
        levels, num_pixels = np.arange(num_levels) / (num_levels - 1), counts[0].sum()
        mean = counts @ levels / num_pixels
        std = np.sqrt(counts @ levels**2 / num_pixels - mean**2)
        return mean.astype(np.float32), std.astype(np.float32)


@dataclass(frozen=True, eq=False)
class Splits:
    train: Split
    val: Split
    test: Split


def load_splits(config: Mapping[str, Any], place: DataPlace) -> Splits:
    """Training, validation and test split of a data set, read once in a process.

    The validation split is drawn from the labelled training images, stratified by class, always the
    same one.

    Args:
        config: a row of the plan: dataset, val_fraction, image_size, num_train, num_classes and,
            where they are not the catalog's own, num_unlabeled, channels, store_size, store_as and
            images_digest. A val_fraction of None holds nothing out: `val` is then the test split.
        place: where the files lie.

    Raises:
        RequestError: the files are not there, do not hold the data set or cannot be kept in the
            cache.
    """
    row = DATASET[config["dataset"]]
    num_unlabeled = _stated(config, "num_unlabeled", row.num_unlabeled)
    dataset = replace(
        row,
        image_size=config["image_size"],
        num_train=config["num_train"] - num_unlabeled,
        num_unlabeled=num_unlabeled,
        num_classes=config["num_classes"],
        channels=_stated(config, "channels", row.channels),
        store_size=_stated(config, "store_size", 0),
        store_as=_stated(config, "store_as", "pixels"),
        images_digest=_stated(config, "images_digest", None),
    )
    if row.makes_images and dataset.num_train != row.num_train:
        dataset = replace(dataset, num_test=dataset.num_train // 5)
    return _load(dataset, config["val_fraction"], place)


def transferred_splits(config: Mapping[str, Any], place: DataPlace) -> Splits:
    """Those of `transfer_dataset`, split as the trial's own images are; see `load_splits`."""
    name = config["transfer_dataset"]
    place = _place_here(DATASET[name], place.transferred)
    # pictures have the channels of the trial's own images
    channels = {"channels": config.get("channels")} if DATASET[name].keeps_whole else {}
    row = sized_dataset(name, place, **channels, is_planned=False)
    planned = str(_stated(config, "images_digest", "")).split("+")[1:]
    if planned and row.images_digest and row.images_digest not in planned:
        raise RequestError(
            f"{place.root}: expected the images of {name} that were planned with (digest "
            f"{' or '.join(planned)}), given others ({row.images_digest})"
        )
    same = ("image_size", "num_unlabeled", "num_classes", "channels", "images_digest")
    form = _stated(config, "transfer_store_as", _stated(config, "store_as", "pixels"))
    share = 1.0 if form == "jpeg" else CROP_SCALE  # the largest crop, or the smallest
    sizes = {each: getattr(row, each) for each in same} | {
        "dataset": name, "val_fraction": config["val_fraction"],
        "num_train": row.num_train + row.num_unlabeled,
        "store_size": needed_size(config["view_size"] or config["image_size"], share),
        "store_as": form,
    }  # fmt: skip
    return load_splits(sizes, place)


def _stated(config: Mapping[str, Any], name: str, default: Any) -> Any:
    """The values that a row states; of a DataFrame's row NaN and NA state nothing."""
    value = config.get(name)
    says_nothing = value is None or type(value).__name__ == "NAType" or value != value
    return default if says_nothing else value


@lru_cache(maxsize=2)
def _load(dataset: Dataset, val_fraction: float | None, place: DataPlace) -> Splits:
    row, place = DATASET[dataset.name], _place_here(dataset, place)
    # those of the catalog are read whole, however few of their images are used
    whole = dataset if row.makes_images or row.files else row
    train, test = read_splits(whole, place)
    planned = (dataset.images_digest or "").partition("+")[0]  # then those of transferred ones
    if row.is_own and planned not in ("", digest := digest_images(whole, train, test)):
        expected = f"{row.name}: expected the images that were planned with"
        given = f"(digest {planned}), given others ({digest})"
        raise RequestError(f"{expected} {given}: they have changed, or do so at every call")
    wanted = whole.num_train + whole.num_unlabeled, whole.num_test or len(test)
    if wanted != (len(train), len(test)) and not row.files:
        expected = f"{wanted[0]} training and {wanted[1]} test images"
        raise RequestError(
            f"{dataset.name}: expected {expected} in {place.root_folder}, found {len(train)} and "
            f"{len(test)}"
        )
    if (is_known := test.labels >= 0).any():  # without a class none is right or wrong
        test = test.take(np.flatnonzero(is_known))
    labelled, unlabeled = np.flatnonzero(train.labels >= 0), np.flatnonzero(train.labels < 0)
    labelled = labelled[some_of_each(train.labels[labelled], dataset.num_train)]
    unlabeled = unlabeled[some_of_each(train.labels[unlabeled], dataset.num_unlabeled)]
    if len(labelled) + len(unlabeled) < len(train):
        train = train.take(np.sort(np.concatenate([labelled, unlabeled])))
        labelled, unlabeled = np.flatnonzero(train.labels >= 0), np.flatnonzero(train.labels < 0)
    if row.files:
        _require_variance(train, place)
    if val_fraction is None:
        return Splits(train=train, val=test, test=test)
    if not len(labelled):  # images without any class: any may be held out
        labelled, unlabeled = unlabeled, labelled
    _, num_val = dataset.split_sizes(val_fraction)
    assert num_val is not None, "it is a share of the images to train on"
    try:
        rest, held_out = stratified(train.labels[labelled], num_val, SPLIT_SEED)
    except ValueError as error:
        raise RequestError(
            f"{dataset.name}: expected enough images of each class for both splits, given "
            f"{len(labelled)} with {num_val} to validate on: {error}"
        ) from None
    train_rows = np.sort(np.concatenate([labelled[rest], unlabeled]))
    return Splits(train=train.take(train_rows), val=train.take(labelled[held_out]), test=test)


def digits(dataset: Dataset, _place: DataPlace) -> tuple[Split, Split]:
    """scikit-learn's digits, a fifth of each class for the test, read without importing it."""
    package = find_spec("sklearn")
    assert package is not None
    assert package.origin is not None
    table = np.loadtxt(Path(package.origin).parent.joinpath(*DIGITS), delimiter=",")
    pixels, labels = table[:, :-1], table[:, -1]
    everything = Split.whole(
        np.round(pixels.reshape(-1, 8, 8, 1) * (255 / 16)).astype(np.uint8), labels.astype(np.int64)
    )
    train_rows, test_rows = stratified(everything.labels, dataset.num_test, SPLIT_SEED)
    return everything.take(train_rows), everything.take(test_rows)


def textures(dataset: Dataset, place: DataPlace) -> tuple[Split, Split]:
    """Images made from a fixed seed, in memory if they fit there."""
    if is_cached(dataset):
        return from_cache(dataset, place)
    size, num_classes = dataset.image_size, dataset.num_classes

    def made(part: str, count: int) -> Split:
        rows, sizes = range(count), {"image_size": size, "num_classes": num_classes}
        images = synthetic.images(part, rows, **sizes)
        return Split.whole(images, synthetic.labels(count, num_classes))

    return made("train", dataset.num_train), made("test", dataset.num_test)


def stl10(dataset: Dataset, place: DataPlace) -> tuple[Split, Split]:
    """STL-10 with its unlabeled images, which torchvision fetches."""
    _fetched(dataset, place, split="train")
    return from_cache(dataset, place)


def from_cache(dataset: Dataset, place: DataPlace) -> tuple[Split, Split]:
    """The arrays that the cache has of a data set, made first where they are not there."""
    arrays = cached(source_of(dataset, place), place.cache_folder)
    train, test = Split.whole(*arrays["train"]), Split.whole(*arrays["test"])
    if len(test):
        return train, test
    rows, test_rows = stratified(train.labels, len(train) // 5, SPLIT_SEED)
    return train.take(rows), train.take(test_rows)


def _require_variance(train: Split, place: DataPlace) -> None:
    """Images of one colour throughout cannot be scaled to unit variance."""
    mean_C, std_C = train.channel_stats
    if not std_C.min() > 0:
        channel, expected = int(std_C.argmin()), "images with differences to learn from"
        given = f"{mean_C[channel]:.3g} at every pixel of channel {channel} of all {len(train)}"
        raise layout_error(place.root_folder, expected, f"{given} training images")


def idx_arrays(dataset: Dataset, place: DataPlace) -> tuple[Split, Split]:
    """Images and classes in IDX files, packed or not, in the order of the row's layout."""
    _fetched(dataset, place, train=True)
    folder = data_folder(dataset.name, place.root_folder)
    try:
        train, train_labels, test, test_labels = (
            _idx(file_in(folder, file)) for file in dataset.layout
        )
    except (*_UNREADABLE, EOFError, zlib.error) as error:
        raise _missing(dataset.name, place, error) from error
    return (
        Split.whole(train[..., None], train_labels.astype(np.int64)),
        Split.whole(test[..., None], test_labels.astype(np.int64)),
    )


def _idx(path: Path) -> np.ndarray:
    """The bytes of an IDX file in its shape."""
    with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
        content = file.read()
    rank = content[3]
    shape = np.frombuffer(content, ">i4", rank, 4)
    return np.frombuffer(content, np.uint8, offset=4 + 4 * rank).reshape(shape)


def torchvision_arrays(dataset: Dataset, place: DataPlace) -> tuple[Split, Split]:
    """One of torchvision's data sets that keep all images in one array."""
    import torchvision

    _fetched(dataset, place, train=True)
    reader, root = getattr(torchvision.datasets, dataset.reader), place.root_folder
    try:
        return _as_split(reader(root, train=True)), _as_split(reader(root, train=False))
    except _UNREADABLE as error:
        raise _missing(dataset.name, place, error) from error


def _fetched(dataset: Dataset, place: DataPlace, **part: Any) -> None:
    """The files are there, or torchvision fetches them where that is asked for."""
    root = place.root_folder
    if place.download:
        import torchvision
        from filelock import FileLock

        try:
            root.mkdir(parents=True, exist_ok=True)
            with FileLock(root / f".{dataset.name}.lock"):  # two trials may start at once
                getattr(torchvision.datasets, dataset.reader)(root, download=True, **part)
        except _UNREADABLE as error:
            raise _missing(dataset.name, place, error) from error
    require_data(dataset.name, root)


# the last two: a truncated IDX file
_UNREADABLE = (RuntimeError, OSError, ValueError, AssertionError)


def _missing(name: str, place: DataPlace, error: Exception) -> RequestError:
    reason = reason_of(error).partition(" You can use download")[0].rstrip(".")
    return RequestError(missing_data_message(name, place.root_folder, reason))


def _as_split(dataset: Any) -> Split:
    images = np.asarray(dataset.data, dtype=np.uint8)
    return Split.whole(
        images[..., None] if images.ndim == 3 else images,
        np.asarray(dataset.targets, dtype=np.int64),
    )


# The data sets that are too large to be read again by every process: what their arrays in the
# cache are made of.


MAX_SYNTHETIC_BYTES = 2**30  # held in memory; more is written to the cache


def is_cached(dataset: Dataset) -> bool:
    """The images of a data set are mapped from the cache."""
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
        place = _place_here(dataset, place)
        cached(source_of(dataset, place), place.cache_folder)


def _place_here(dataset: Dataset, place: DataPlace) -> DataPlace:
    """The place of a data set's files on this machine; see `bucket_copy.local_place`."""
    if not place.is_remote:
        return place
    from clsweep.data.bucket_copy import local_place

    return local_place(dataset, place)


def source_of(dataset: Dataset, place: DataPlace) -> Source:
    """The source of a data set's cache.

    Raises:
        RequestError: the files are not there, or not those that the study was planned with.
    """
    return named(dataset.arrays)(dataset, place)


def stl10_files(dataset: Dataset, place: DataPlace) -> Source:
    """STL-10's binary files, those without a class among the training images."""
    folder, size = data_folder("stl10", place.root_folder), dataset.image_size
    counts = {
        "train": dataset.num_train,
        "unlabeled": dataset.num_unlabeled,
        "test": dataset.num_test,
    }
    lengths = {f"{name}_X.bin": count * 3 * size**2 for name, count in counts.items()}
    lengths |= {"train_y.bin": dataset.num_train, "test_y.bin": dataset.num_test}
    for name, length in lengths.items():
        num_bytes = (folder / name).stat().st_size if (folder / name).is_file() else None
        if num_bytes != length:
            expected = f"expected {length} bytes, given {num_bytes}"
            given = "no such file" if num_bytes is None else expected
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
    size, num_classes = dataset.image_size, dataset.num_classes

    def fill(part: str, rows: range, images: np.ndarray) -> list[str]:
        images[:] = synthetic.images(part, rows, image_size=size, num_classes=num_classes)
        return []

    counts = {"train": dataset.num_train, "test": dataset.num_test}
    return Source(
        name="synthetic", place=f"{num_classes} classes, {synthetic._VERSION}", image_size=size,
        classes=tuple(str(number) for number in range(num_classes)),
        labels={part: synthetic.labels(count, num_classes) for part, count in counts.items()},
        describe=tuple, fill=fill,
    )  # fmt: skip
