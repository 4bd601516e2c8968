"""The data sets: every split is one uint8 array, every trial of a process shares it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from clsweep.data.availability import missing_data_message, torchvision_class
from clsweep.errors import RequestError
from clsweep.objective.catalog import DATASET

# Every trial of every study is validated on the same images, whatever its seed: scores are paired.
SPLIT_SEED = 0


@dataclass(frozen=True)
class Split:
    """Images uint8 (N, H, W, C) and labels int64 (N,)."""

    images: np.ndarray
    labels: np.ndarray

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, indices: np.ndarray) -> Split:
        return Split(self.images[indices], self.labels[indices])


@lru_cache(maxsize=2)
def load_splits(name: str, *, val_fraction: float, root: str, download: bool = False) -> tuple[Split, Split, Split]:
    """Training, validation and test split of a data set.

    The validation split is drawn from the training set, stratified by class, always the same one.

    Args:
        name: a name of the catalog.
        val_fraction: share of the training set that is held out.
        root: folder with torchvision's layout; not used by `digits`.
        download: fetch a missing data set with torchvision's downloader.

    Raises:
        RequestError: the files are not in `root`, or do not hold the data set.
    """
    train, test = LOADERS[name](Path(root), download)
    row = DATASET[name]
    if (len(train), len(test)) != (row.num_train, row.num_test):
        expected = f"{row.num_train} training and {row.num_test} test images"
        raise RequestError(f"{name}: expected {expected} in {root}, found {len(train)} and {len(test)}")
    _, num_val = row.split_sizes(val_fraction)
    train_rows, val_rows = _stratified(train.labels, num_val, SPLIT_SEED)
    return train.take(train_rows), train.take(val_rows), test


def channel_stats(split: Split) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of each channel in [0, 1], float32 (C,)."""
    pixels = split.images.reshape(-1, split.images.shape[-1])
    counts = np.stack([np.bincount(channel, minlength=256) for channel in pixels.T])
    levels = np.arange(256) / 255
    mean = counts @ levels / len(pixels)
    std = np.sqrt(counts @ levels**2 / len(pixels) - mean**2)
    return mean.astype(np.float32), std.astype(np.float32)


def _digits(_root: Path, _download: bool) -> tuple[Split, Split]:
    from sklearn.datasets import load_digits

    raw = load_digits()
    images = np.round(raw.images * (255 / 16)).astype(np.uint8)[..., None]
    everything = Split(images, raw.target.astype(np.int64))
    train_rows, test_rows = _stratified(everything.labels, DATASET["digits"].num_test, SPLIT_SEED)
    return everything.take(train_rows), everything.take(test_rows)


def _torchvision(name: str) -> Callable[[Path, bool], tuple[Split, Split]]:
    """A loader for one of torchvision's data sets that keep all images in one array."""

    def load(root: Path, download: bool) -> tuple[Split, Split]:
        import torchvision
        from filelock import FileLock

        dataset = getattr(torchvision.datasets, torchvision_class(name))
        try:
            if download:
                root.mkdir(parents=True, exist_ok=True)
                with FileLock(root / f".{name}.lock"):  # two trials may start at once
                    dataset(root, train=True, download=True)
            return _as_split(dataset(root, train=True)), _as_split(dataset(root, train=False))
        except (RuntimeError, OSError, ValueError, AssertionError) as error:  # the last two: a truncated IDX file
            reason = str(error).splitlines()[0].rstrip(".") if str(error) else type(error).__name__
            raise RequestError(missing_data_message(name, root, reason)) from error

    return load


LOADERS: dict[str, Callable[[Path, bool], tuple[Split, Split]]] = {
    "digits": _digits,
    "fashion_mnist": _torchvision("fashion_mnist"),
    "cifar10": _torchvision("cifar10"),
    "cifar100": _torchvision("cifar100"),
}


def _as_split(dataset: Any) -> Split:
    images = np.asarray(dataset.data, dtype=np.uint8)
    return Split(images[..., None] if images.ndim == 3 else images, np.asarray(dataset.targets, dtype=np.int64))


def _stratified(labels: np.ndarray, num_held_out: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows kept and rows held out, both sorted, classes in proportion."""
    from sklearn.model_selection import train_test_split

    kept, held_out = train_test_split(
        np.arange(len(labels)), test_size=num_held_out, stratify=labels, random_state=seed
    )
    return np.sort(kept), np.sort(held_out)
