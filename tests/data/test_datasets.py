"""The data sets: digits as scikit-learn has them, synthetic ones, the others from files in
torchvision's layout.
"""

import gzip
import hashlib
import pickle
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torchvision.datasets
from sklearn.datasets import load_digits

from clsweep.catalog import DATASET
from clsweep.data import datasets, synthetic
from clsweep.data.datasets import Split, Splits, load_splits
from clsweep.data.locations import DataPlace, require_data
from clsweep.data.sources import sized_dataset
from clsweep.errors import RequestError

pytestmark = pytest.mark.usefixtures("nothing_loaded")

FOLDERS = {
    "fashion_mnist": "FashionMNIST/raw",
    "cifar10": "cifar-10-batches-py",
    "cifar100": "cifar-100-python",
}
SIZES = {"num_train": 200, "num_test": 50}  # the fake data sets


def load(
    name: str,
    *,
    root: Path | str,
    val_fraction: float = 0.1,
    download: bool = False,
    **options: int,
) -> Splits:
    """The splits of a data set as its row of a plan asks for them."""
    place = DataPlace(root=str(root), cache=f"{root}/cache", download=download)
    row = sized_dataset(name, place, **options)
    config = {"dataset": name, "val_fraction": val_fraction, "image_size": row.image_size}
    config |= {"num_train": row.num_train + row.num_unlabeled, "num_classes": row.num_classes}
    return load_splits(config, place)


def digits(val_fraction: float = 0.1) -> tuple[Split, Split, Split]:
    return parts(load("digits", root="nowhere", val_fraction=val_fraction))


def parts(splits: Splits) -> tuple[Split, Split, Split]:
    return splits.train, splits.val, splits.test


def whole(images: np.ndarray, labels: np.ndarray) -> Split:
    return Split(images, np.arange(len(labels)), labels)


def pixels(split: Split) -> np.ndarray:
    return split.images[split.rows]


def rows(split: Split) -> list[tuple[int, bytes]]:
    return [
        (int(label), image.tobytes())
        for image, label in zip(pixels(split), split.labels, strict=True)
    ]


def same(a: Split, b: Split) -> bool:
    return np.array_equal(pixels(a), pixels(b)) and np.array_equal(a.labels, b.labels)


# Digits.


@pytest.mark.parametrize("val_fraction", [0.05, 0.1, 0.2, 0.5])
def test_digits_has_the_catalogs_sizes(val_fraction):
    train, val, test = digits(val_fraction)
    row = DATASET["digits"]
    assert (len(train), len(val)) == row.split_sizes(val_fraction)
    assert len(train) + len(val) == row.num_train
    assert len(test) == row.num_test
    for split in (train, val, test):
        assert pixels(split).shape == (len(split), row.image_size, row.image_size, row.channels)
        dtypes = split.images.dtype, split.rows.dtype, split.labels.dtype
        assert dtypes == (np.uint8, np.int64, np.int64)


def test_without_a_validation_split_all_images_are_trained_on_and_the_test_is_scored():
    train, val, test = digits()
    whole_train, scored, same_test = digits(None)
    assert sorted(rows(whole_train)) == sorted([*rows(train), *rows(val)])
    assert scored is same_test
    assert same(scored, test)
    assert (len(whole_train), len(scored)) == DATASET["digits"].split_sizes(None)


def test_digits_are_scikit_learns_each_in_exactly_one_split():
    """As multisets: a sample in two splits, or lost, would show."""
    raw = load_digits()
    images = (raw.images * 255 / 16 + 0.5).astype(np.uint8)  # 0..16 to 0..255
    splits = [row for split in digits() for row in rows(split)]
    assert sorted(splits) == sorted(
        (int(label), image.tobytes()) for image, label in zip(images, raw.target, strict=True)
    )
    assert max(pixels(split).max() for split in digits()) == 255


def test_digits_splits_keep_the_classes_in_proportion():
    share = np.bincount(load_digits().target) / 1797
    for split in digits():
        # at most one image off for each of the two cuts
        counts = np.bincount(split.labels, minlength=10)
        assert np.abs(counts - share * len(split)).max() < 2


def test_digits_splits_are_always_the_same_and_the_test_one_for_every_validation_share():
    np.random.seed(1)
    first = digits()
    datasets._load.cache_clear()
    np.random.seed(2)
    assert all(same(a, b) for a, b in zip(first, digits(), strict=True))
    assert [same(a, b) for a, b in zip(first, digits(0.5), strict=True)][1:] == [False, True]


@pytest.mark.parametrize("channels", [1, 3])
def test_channel_stats_are_numpys(channels):
    images = np.random.default_rng(0).integers(0, 256, (50, 7, 7, channels), dtype=np.uint8)
    images[..., 0] //= 4  # the channels differ
    mean, std = whole(images, np.zeros(50, np.int64)).channel_stats
    assert mean.dtype == std.dtype == np.float32
    shades = images.astype(np.float64) / 255
    np.testing.assert_allclose(mean, shades.mean(axis=(0, 1, 2)), rtol=1e-6)
    np.testing.assert_allclose(std, shades.std(axis=(0, 1, 2)), rtol=1e-6)


def test_channel_stats_are_those_of_the_rows_or_of_evenly_spaced_ones_of_many(monkeypatch):
    images = np.random.default_rng(0).integers(0, 256, (50, 7, 7, 3), dtype=np.uint8)
    labels = np.zeros(50, np.int64)
    monkeypatch.setattr(datasets, "_STATISTICS_BLOCK", 7)
    some = whole(images, labels).take(np.arange(10, 40))
    expected = whole(images[10:40], labels[:30])
    assert np.array_equal(some.channel_stats, expected.channel_stats)
    monkeypatch.setattr(datasets, "STATISTICS_IMAGES", 10)
    many, every_fifth = whole(images, labels), whole(images[::5], labels[:10])
    assert np.array_equal(many.channel_stats, every_fifth.channel_stats)


# torchvision's.


def fake(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Split]:
    """Write small valid files of a data set, and tell catalog and torchvision about their sizes and
    checksums.
    """
    monkeypatch.setitem(DATASET, name, replace(DATASET[name], **SIZES))
    rng, row = np.random.default_rng(len(name)), DATASET[name]
    shape = (row.image_size, row.image_size, row.channels)
    splits = {
        part: whole(
            rng.integers(0, 256, (size, *shape), dtype=np.uint8),
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
            # planes of red, green, blue
            data = pixels(piece).transpose(0, 3, 1, 2).reshape(len(piece), -1)
            content = {"data": data, label_key: piece.labels.tolist()}
            checksums.append([file, _write_pickle(folder / file, content)])
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
def test_torchvisions_files_come_back_pixel_by_pixel(name, tmp_path, monkeypatch):
    written = fake(name, tmp_path, monkeypatch)
    require_data(name, tmp_path)
    loaded = load(name, val_fraction=0.5, root=tmp_path)
    assert load(name, val_fraction=0.5, root=tmp_path).train is loaded.train, "loaded once"
    train, val, test = parts(loaded)
    row = DATASET[name]
    assert same(test, written["test"])
    assert (len(train), len(val)) == (100, 100)
    assert sorted(rows(train) + rows(val)) == sorted(rows(written["train"]))
    for split in (train, val):
        assert pixels(split).shape[1:] == (row.image_size, row.image_size, row.channels)
        assert (split.images.dtype, split.labels.dtype) == (np.uint8, np.int64)
        assert np.ptp(np.bincount(split.labels, minlength=row.num_classes)) == 0, "stratified"


def test_download_is_done_once_and_only_when_asked(tmp_path, monkeypatch):
    monkeypatch.setitem(DATASET, "cifar10", replace(DATASET["cifar10"], **SIZES))
    root, calls = tmp_path / "not" / "yet", []

    def download(_: Any) -> None:
        calls.append(1)
        fake("cifar10", root, monkeypatch)

    monkeypatch.setattr(torchvision.datasets.CIFAR10, "download", download)
    with pytest.raises(RequestError):
        load("cifar10", val_fraction=0.5, root=root)
    assert calls == []
    train, _, test = parts(load("cifar10", val_fraction=0.5, root=root, download=True))
    assert calls == [1]
    assert (len(train), len(test)) == (100, 50)


# What is missing.


def assert_says_what_to_do(name: str, root: Path, load: Callable[[], object]) -> None:
    with pytest.raises(RequestError) as error:
        load()
    [line] = str(error.value).splitlines()
    assert line.startswith(f"{name}: ")
    for part in (str(root / FOLDERS[name]), "dataset.download=true", "dataset.root="):
        assert part in line


@pytest.mark.parametrize("name", FOLDERS)
def test_missing_data_names_folder_and_flag(name, tmp_path, monkeypatch):
    """The absolute folder, be there none or an empty one."""
    monkeypatch.chdir(tmp_path)
    for root in (tmp_path, Path()):
        assert_says_what_to_do(name, tmp_path, lambda root=root: require_data(name, root))
    for _ in range(2):
        assert_says_what_to_do(name, tmp_path, lambda: load(name, root=tmp_path))
        (tmp_path / FOLDERS[name]).mkdir(parents=True, exist_ok=True)


def test_a_data_set_of_another_size_is_refused(tmp_path, monkeypatch):
    fake("cifar10", tmp_path, monkeypatch)
    monkeypatch.setitem(DATASET, "cifar10", replace(DATASET["cifar10"], num_train=300))
    with pytest.raises(
        RequestError, match=r"expected 300 training and 50 test images in .*, found 200 and 50"
    ):
        load("cifar10", root=tmp_path)


@pytest.mark.parametrize("name", FOLDERS)
@pytest.mark.parametrize("keep", [0, 2, 10, 500])
def test_a_truncated_file_is_missing_data(name, keep, tmp_path, monkeypatch):
    """As a full disk or an interrupted copy leaves it; torchvision checks no sums for
    Fashion-MNIST.
    """
    fake(name, tmp_path, monkeypatch)
    largest = max((tmp_path / FOLDERS[name]).iterdir(), key=lambda path: path.stat().st_size)
    largest.write_bytes(largest.read_bytes()[:keep])
    assert_says_what_to_do(name, tmp_path, lambda: load(name, val_fraction=0.5, root=tmp_path))


def test_packed_files_are_read_as_they_are(tmp_path, monkeypatch):
    written = fake("fashion_mnist", tmp_path, monkeypatch)
    for path in [*(tmp_path / FOLDERS["fashion_mnist"]).iterdir()]:
        packed = path.with_name(f"{path.name}.gz")
        packed.write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()
    require_data("fashion_mnist", tmp_path)
    assert same(parts(load("fashion_mnist", val_fraction=0.5, root=tmp_path))[2], written["test"])
    packed.write_bytes(packed.read_bytes()[:-9])
    name = "fashion_mnist"
    assert_says_what_to_do(name, tmp_path, lambda: require_data(name, tmp_path))


# STL-10.

STL10 = {"num_train": 40, "num_unlabeled": 70, "num_test": 30}


def fake_stl10(root: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, np.ndarray]:
    """Write small valid files of STL-10; its images by file."""
    monkeypatch.setitem(DATASET, "stl10", replace(DATASET["stl10"], **STL10))
    folder, rng = root / "stl10_binary", np.random.default_rng(0)
    folder.mkdir()
    written = {}
    for name, size in zip(("train", "unlabeled", "test"), STL10.values(), strict=True):
        written[name] = rng.integers(0, 256, (size, 96, 96, 3), dtype=np.uint8)
        (folder / f"{name}_X.bin").write_bytes(written[name].transpose(0, 3, 2, 1).tobytes())
        if name != "unlabeled":
            classes = np.arange(size, dtype=np.uint8) % 10 + 1
            (folder / f"{name}_y.bin").write_bytes(classes.tobytes())
    return written


def test_stl10_is_what_torchvision_reads(tmp_path, monkeypatch):
    fake_stl10(tmp_path, monkeypatch)
    monkeypatch.setattr(torchvision.datasets.STL10, "_check_integrity", lambda _: True)
    require_data("stl10", tmp_path)
    train, val, test = parts(load("stl10", val_fraction=0.5, root=tmp_path))
    everything, scored = (
        whole(theirs.data.transpose(0, 2, 3, 1), theirs.labels.astype(np.int64))
        for part in ("train+unlabeled", "test")
        for theirs in [torchvision.datasets.STL10(tmp_path, split=part)]
    )
    assert sorted(rows(train) + rows(val)) == sorted(rows(everything))
    assert same(test, scored)


def test_stl10_trains_on_unlabeled_images_and_validates_on_labelled_ones(tmp_path, monkeypatch):
    written = fake_stl10(tmp_path, monkeypatch)
    train, val, _ = parts(load("stl10", val_fraction=0.5, root=tmp_path))
    assert (len(train), len(val)) == DATASET["stl10"].split_sizes(0.5) == (20 + 70, 20)
    assert np.array_equal(np.bincount(val.labels), [2] * 10)
    assert np.array_equal(np.bincount(train.labels + 1), [70] + [2] * 10)
    unlabeled = train.take(np.flatnonzero(train.labels < 0))
    assert np.array_equal(pixels(unlabeled), written["unlabeled"])
    assert isinstance(train.images, np.memmap)


@pytest.mark.parametrize("file", ["unlabeled_X.bin", "test_y.bin"])
def test_an_incomplete_stl10_says_what_is_missing(file, tmp_path, monkeypatch):
    fake_stl10(tmp_path, monkeypatch)
    path = tmp_path / "stl10_binary" / file
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(
        RequestError, match=f"{file}: expected .* bytes, given .*dataset.download=true"
    ):
        load("stl10", root=tmp_path)
    path.unlink()
    with pytest.raises(RequestError, match=f"{file}: no such file.*dataset.download=true"):
        load("stl10", root=tmp_path)


# Synthetic images.


def test_synthetic_images_are_the_same_everywhere():
    train, val, test = parts(
        load("synthetic", root="nowhere", num_train=200, num_classes=4, image_size=16)
    )
    assert (len(train), len(val), len(test)) == (180, 20, 40)
    digest = hashlib.sha256(
        train.images.tobytes() + test.images.tobytes() + train.labels.tobytes()
    ).hexdigest()
    assert digest == "b0393bc1082457ce13b7638df8d1190220cddb20507dad0ec1c2a3086b8b9adb"


def test_a_synthetic_image_is_the_same_however_many_there_are():
    options = {"image_size": 8, "num_classes": 10}
    every = synthetic.images("train", range(200), **options)
    assert np.array_equal(synthetic.images("train", range(50, 150), **options), every[50:150])
    assert not np.array_equal(synthetic.images("test", range(200), **options), every)


def test_many_synthetic_images_are_mapped_from_the_cache(tmp_path, monkeypatch):
    held = load("synthetic", root=tmp_path, num_train=300)
    monkeypatch.setattr(datasets, "MAX_SYNTHETIC_BYTES", 0)
    datasets._load.cache_clear()
    mapped = load("synthetic", root=tmp_path, num_train=300)
    assert isinstance(mapped.train.images, np.memmap)
    assert all(same(a, b) for a, b in zip(parts(held), parts(mapped), strict=True))


def test_a_study_of_made_images_does_not_go_on_with_another_version():
    """A run compares the digest of a folder's plan with its own."""
    assert DATASET["synthetic"].images_digest == f"version {synthetic._VERSION}"
