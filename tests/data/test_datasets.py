"""The data sets: digits as scikit-learn has them, the others from small files in torchvision's layout."""

import hashlib
import pickle
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torchvision.datasets
from sklearn.datasets import load_digits

from clsweep.data.availability import require_data
from clsweep.data.datasets import Split, channel_stats, load_splits
from clsweep.errors import RequestError
from clsweep.objective.catalog import DATASET

FOLDERS = {
    "fashion_mnist": "FashionMNIST/raw",
    "cifar10": "cifar-10-batches-py",
    "cifar100": "cifar-100-python",
}
SIZES = {"num_train": 200, "num_test": 50}  # the fake data sets


@pytest.fixture(autouse=True)
def nothing_cached() -> Iterator[None]:
    load_splits.cache_clear()
    yield
    load_splits.cache_clear()


def digits(val_fraction: float = 0.1) -> tuple[Split, Split, Split]:
    return load_splits("digits", val_fraction=val_fraction, root="nowhere")


def rows(split: Split) -> list[tuple[int, bytes]]:
    return [(int(label), image.tobytes()) for image, label in zip(split.images, split.labels, strict=True)]


def same(a: Split, b: Split) -> bool:
    return np.array_equal(a.images, b.images) and np.array_equal(a.labels, b.labels)


# Digits.


@pytest.mark.parametrize("val_fraction", [0.05, 0.1, 0.2, 0.5])
def test_digits_has_the_catalogs_sizes(val_fraction: float) -> None:
    train, val, test = digits(val_fraction)
    row = DATASET["digits"]
    assert (len(train), len(val)) == row.split_sizes(val_fraction)
    assert len(train) + len(val) == row.num_train
    assert len(test) == row.num_test
    for split in (train, val, test):
        assert split.images.shape == (len(split), row.image_size, row.image_size, row.channels)
        assert (split.images.dtype, split.labels.dtype) == (np.uint8, np.int64)


def test_digits_are_scikit_learns_each_in_exactly_one_split() -> None:
    """As multisets: a sample in two splits, or lost, would show."""
    raw = load_digits()
    images = (raw.images * 255 / 16 + 0.5).astype(np.uint8)  # 0..16 to 0..255
    splits = [row for split in digits() for row in rows(split)]
    assert sorted(splits) == sorted(
        (int(label), image.tobytes()) for image, label in zip(images, raw.target, strict=True)
    )
    assert max(split.images.max() for split in digits()) == 255


def test_digits_splits_share_no_image() -> None:
    train, val, test = ({image for _, image in rows(split)} for split in digits())
    assert train.isdisjoint(val)
    assert train.isdisjoint(test)
    assert val.isdisjoint(test)


def test_digits_splits_keep_the_classes_in_proportion() -> None:
    share = np.bincount(load_digits().target) / 1797
    for split in digits():
        counts = np.bincount(split.labels, minlength=10)
        # at most one image off for each of the two cuts
        assert np.abs(counts - share * len(split)).max() < 2


def test_digits_splits_are_always_the_same() -> None:
    np.random.seed(1)
    first = digits()
    load_splits.cache_clear()
    np.random.seed(2)
    assert all(same(a, b) for a, b in zip(first, digits(), strict=True))


def test_the_test_split_does_not_depend_on_the_validation_share() -> None:
    assert same(digits(0.1)[2], digits(0.5)[2])
    assert not same(digits(0.1)[1], digits(0.5)[1])


@pytest.mark.parametrize("channels", [1, 3])
def test_channel_stats_are_numpys(channels: int) -> None:
    images = np.random.default_rng(0).integers(0, 256, (50, 7, 7, channels), dtype=np.uint8)
    images[..., 0] //= 4  # the channels differ
    mean, std = channel_stats(Split(images, np.zeros(50, np.int64)))
    assert mean.dtype == std.dtype == np.float32
    pixels = images.astype(np.float64) / 255
    np.testing.assert_allclose(mean, pixels.mean(axis=(0, 1, 2)), rtol=1e-6)
    np.testing.assert_allclose(std, pixels.std(axis=(0, 1, 2)), rtol=1e-6)


# torchvision's.


def fake(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Split]:
    """Write small valid files of a data set, and tell catalog and torchvision about their sizes and checksums."""
    monkeypatch.setitem(DATASET, name, replace(DATASET[name], **SIZES))
    rng, row = np.random.default_rng(len(name)), DATASET[name]
    splits = {
        part: Split(
            rng.integers(0, 256, (size, row.image_size, row.image_size, row.channels), dtype=np.uint8),
            rng.permutation(np.arange(size) % row.num_classes).astype(np.int64),
        )
        for part, size in (("train", row.num_train), ("test", row.num_test))
    }
    folder = folder / FOLDERS[name]
    folder.mkdir(parents=True)
    if name == "fashion_mnist":
        for prefix, split in (("train", splits["train"]), ("t10k", splits["test"])):
            _write_idx(folder / f"{prefix}-images-idx3-ubyte", split.images[..., 0])
            _write_idx(folder / f"{prefix}-labels-idx1-ubyte", split.labels.astype(np.uint8))
        return splits
    dataset = getattr(torchvision.datasets, {"cifar10": "CIFAR10", "cifar100": "CIFAR100"}[name])
    label_key = "labels" if name == "cifar10" else "fine_labels"
    for part, files in (("train", dataset.train_list), ("test", dataset.test_list)):
        shares = np.array_split(np.arange(len(splits[part])), len(files))
        checksums = []
        for (file, _), share in zip(files, shares, strict=True):
            piece = splits[part].take(share)
            data = piece.images.transpose(0, 3, 1, 2).reshape(len(piece), -1)  # planes of red, green, blue
            checksums.append([file, _write_pickle(folder / file, {"data": data, label_key: piece.labels.tolist()})])
        monkeypatch.setattr(dataset, f"{part}_list", checksums)
    names = {dataset.meta["key"]: [str(i) for i in range(row.num_classes)]}
    checksum = _write_pickle(folder / dataset.meta["filename"], names)
    monkeypatch.setattr(dataset, "meta", dataset.meta | {"md5": checksum})
    return splits


def _write_idx(path: Path, array: np.ndarray) -> None:
    header = np.array([8 * 256 + array.ndim, *array.shape], dtype=">i4")
    path.write_bytes(header.tobytes() + array.tobytes())


def _write_pickle(path: Path, content: dict[str, Any]) -> str:
    path.write_bytes(pickle.dumps(content))
    return hashlib.md5(path.read_bytes()).hexdigest()


@pytest.mark.parametrize("name", FOLDERS)
def test_torchvisions_files_come_back_pixel_by_pixel(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = fake(name, tmp_path, monkeypatch)
    require_data(name, tmp_path)
    train, val, test = load_splits(name, val_fraction=0.5, root=str(tmp_path))
    row = DATASET[name]
    assert same(test, written["test"])
    assert (len(train), len(val)) == (100, 100)
    assert sorted(rows(train) + rows(val)) == sorted(rows(written["train"]))
    for split in (train, val):
        assert split.images.shape[1:] == (row.image_size, row.image_size, row.channels)
        assert (split.images.dtype, split.labels.dtype) == (np.uint8, np.int64)
        assert np.ptp(np.bincount(split.labels, minlength=row.num_classes)) == 0, "stratified"


def test_split_is_loaded_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake("fashion_mnist", tmp_path, monkeypatch)
    first = load_splits("fashion_mnist", val_fraction=0.5, root=str(tmp_path))
    assert load_splits("fashion_mnist", val_fraction=0.5, root=str(tmp_path))[0] is first[0]


def test_download_is_done_once_and_only_when_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root, calls = tmp_path / "not" / "yet", []

    def download(_: Any) -> None:
        calls.append(1)
        fake("cifar10", root, monkeypatch)

    monkeypatch.setattr(torchvision.datasets.CIFAR10, "download", download)
    with pytest.raises(RequestError):
        load_splits("cifar10", val_fraction=0.5, root=str(root))
    assert calls == []
    train, _, test = load_splits("cifar10", val_fraction=0.5, root=str(root), download=True)
    assert calls == [1]
    assert (len(train), len(test)) == (100, 50)


# What is missing.


def says_what_to_do(error: RequestError, name: str, root: Path) -> bool:
    lines = str(error).splitlines()
    return (
        len(lines) == 1
        and lines[0].startswith(f"{name}: ")
        and all(part in lines[0] for part in (str(root / FOLDERS[name]), "dataset.download=true", "dataset.root="))
    )


@pytest.mark.parametrize("name", FOLDERS)
def test_missing_data_names_folder_and_flag(name: str, tmp_path: Path) -> None:
    with pytest.raises(RequestError) as asked:
        require_data(name, tmp_path)
    assert says_what_to_do(asked.value, name, tmp_path)
    with pytest.raises(RequestError) as loaded:
        load_splits(name, val_fraction=0.1, root=str(tmp_path))
    assert says_what_to_do(loaded.value, name, tmp_path)


def test_missing_data_names_the_absolute_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(RequestError) as error:
        require_data("cifar10", Path("data"))
    assert says_what_to_do(error.value, "cifar10", tmp_path / "data")


def test_digits_needs_no_files(tmp_path: Path) -> None:
    root = tmp_path / "nowhere"
    require_data("digits", root)  # raises nothing
    train, val, test = load_splits("digits", val_fraction=0.1, root=str(root))
    assert len(train) + len(val) + len(test) == 1797
    assert not root.exists()


@pytest.mark.parametrize("name", FOLDERS)
def test_an_empty_folder_is_missing_data(name: str, tmp_path: Path) -> None:
    (tmp_path / FOLDERS[name]).mkdir(parents=True)
    with pytest.raises(RequestError) as error:
        load_splits(name, val_fraction=0.1, root=str(tmp_path))
    assert says_what_to_do(error.value, name, tmp_path)


@pytest.mark.parametrize("name", FOLDERS)
@pytest.mark.parametrize("keep", [0, 2, 10, 500])
def test_a_truncated_file_is_missing_data(
    name: str, keep: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a full disk or an interrupted copy leaves it; torchvision checks no sums for Fashion-MNIST."""
    fake(name, tmp_path, monkeypatch)
    largest = max((tmp_path / FOLDERS[name]).iterdir(), key=lambda path: path.stat().st_size)
    largest.write_bytes(largest.read_bytes()[:keep])
    with pytest.raises(RequestError) as error:
        load_splits(name, val_fraction=0.5, root=str(tmp_path))
    assert says_what_to_do(error.value, name, tmp_path)
