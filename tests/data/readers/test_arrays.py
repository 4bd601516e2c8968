"""Data sets of arrays in files of the user."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from clsweep.train.images import Images, on_device
from tests.data.own import layout_of, load, noise, of_rows, refusal

# Arrays.


@pytest.mark.parametrize("shape", [(8, 8), (8, 8, 1), (8, 8, 2), (8, 8, 3), (12, 12, 5)])
@pytest.mark.parametrize("dtype", ["uint8", "uint16"])
@pytest.mark.parametrize("kind", ["npz", "npy"])
def test_arrays_keep_their_pixels(shape, dtype, kind, tmp_path):
    arrays = {
        "train_images": noise(20, *shape, dtype=dtype),
        "train_labels": np.arange(20, dtype=np.uint8)[:, None] % 2,  # a column, as in MedMNIST
        "test_images": noise(6, *shape, dtype=dtype),
        "test_labels": np.arange(6) % 2,
        "names": np.array(["left", "alone"]),
    }
    root = tmp_path / "set.npz"
    if kind == "npz":
        np.savez_compressed(root, **arrays)
    else:
        root = tmp_path / "set"
        root.mkdir()
        for name, array in arrays.items():
            np.save(root / f"{name}.npy", array)
    splits = load("arrays", root)
    actual = of_rows(splits)
    assert len(actual) == 20
    side, channels = shape[0], shape[2] if len(shape) == 3 else 1
    for row, (pixels, label) in actual.items():
        assert pixels.dtype == dtype
        assert np.array_equal(pixels, arrays["train_images"][row].reshape(side, side, channels))
        assert label == row % 2
    assert np.array_equal(splits.test.images.reshape(-1), arrays["test_images"].reshape(-1))


@pytest.mark.parametrize("has_test", [True, False])
def test_images_without_a_class_are_not_scored(has_test, tmp_path):
    """They counted as wrong guesses."""
    arrays = {"images": noise(50, 8, 8), "labels": np.r_[np.arange(30) % 2, [-1] * 20]}
    if has_test:
        arrays |= {"test_images": noise(10, 8, 8), "test_labels": np.r_[np.arange(6) % 2, [-1] * 4]}
    np.savez(tmp_path / "a.npz", **arrays)
    splits = load("arrays", tmp_path / "a.npz")
    assert np.bincount(splits.test.labels).tolist() == [3, 3]
    assert (splits.train.labels < 0).sum() == (20 if has_test else 16)


def test_real_numbers_become_steps_of_their_range(tmp_path):
    numbers = np.random.default_rng(0).uniform(-2, 3, (20, 8, 8, 4)).astype(np.float32)
    np.savez(tmp_path / "set.npz", x_train=numbers, y_train=np.arange(20) % 2)
    splits = load("arrays", tmp_path / "set.npz", "-2.0, 3.0")
    for row, (pixels, _) in of_rows(splits).items():
        assert np.abs(pixels / 65535 * 5 - 2 - numbers[row]).max() <= 5 / 65535 / 2 + 1e-6


def test_views_of_16_bits_are_those_of_the_numbers(tmp_path):
    images = noise(20, 8, 8, 5, dtype="uint16")
    np.savez(tmp_path / "set.npz", images=images)
    splits = load("arrays", tmp_path / "set.npz")
    held: Images = on_device(splits.train, splits.train, torch.device("cpu"))
    rows = torch.arange(len(held))
    expected = images[splits.train.rows] / 65535
    mean, std = (np.asarray(x) for x in (expected.mean((0, 1, 2)), expected.std((0, 1, 2))))
    actual = held.plain(rows).permute(0, 2, 3, 1).numpy()
    assert np.allclose(actual, (expected - mean) / std, atol=1e-4)
    assert actual.shape[-1] == 5, "no gray images: they are not repeated"


@pytest.mark.parametrize(
    ("arrays", "value_range", "says"),
    [
        ({"pictures": noise(9, 8, 8)}, None,
         "expected an array train_images, x_train or images, given pictures"),
        ({"images": noise(9, 8, 9)}, None, "images: expected squares of 8 to 512 pixels a side"),
        ({"images": noise(9, 3, 32, 32)}, None, "(N, S, S) or (N, S, S, C), given (9, 3, 32, 32)"),
        ({"images": noise(9, 8, 8, 65)}, None, "expected 1 to 64 channels, which come last"),
        ({"images": np.full((9, 8, 8), "a")}, None, "images: expected numbers, given <U1"),
        ({"images": np.ones((9, 8, 8))}, None,
         "images: expected dataset.range: [low, high] of its float64 numbers, given none"),
        ({"images": np.full((9, 8, 8), np.nan)}, "0, 1",
         "images[0]: expected numbers in dataset.range [0, 1], given nan"),
        ({"images": np.full((9, 8, 8), 1.5)}, "0, 1", "given 1.5"),
        ({"images": noise(9, 8, 8)}, "0, 1", "expected no dataset.range, as uint8 has its own"),
        ({"images": noise(9, 8, 8), "labels": np.arange(8)}, None,
         "labels: expected whole numbers (9,), one for each of images, given int64 (8,)"),
        ({"images": noise(9, 8, 8), "labels": np.ones(9)}, None,
         "labels: expected whole numbers from 0 on, one class for each image, given float64 (9,). "
         "Regression and several labels are not scored"),
        ({"images": noise(9, 8, 8), "labels": np.ones((9, 4), int)}, None,
         "given int64 (9, 4). Regression and several labels are not scored"),
        ({"images": noise(9, 8, 8), "labels": np.arange(9) - 2}, None, "given -2"),
        ({"images": noise(9, 8, 8), "labels": np.zeros(9, int)}, None,
         "expected 2 to 1000 classes, given 1"),
        ({"images": noise(9, 8, 8), "labels": np.arange(9) // 2}, None,
         "expected at least 2 training images of each class, one to train on and one to test on, "
         "given 1 of class 4"),
        ({"images": noise(9, 8, 8), "labels": np.arange(9) // 2, "val_images": noise(5, 8, 8)},
         None, "one to train on and one to validate on, given 1 of class 4"),
        ({"images": noise(40, 8, 8), "labels": np.r_[np.arange(10) // 2, [5] * 30]}, None,
         " beside a fifth to test on"),
        ({"x_train": noise(9, 8, 8), "x_test": noise(9, 9, 9)}, None,
         "expected test images like those to train on"),
        ({"images": noise(0, 8, 8)}, None, "expected training images, given none"),
        ({"images": np.full((20, 8, 8), 7, np.uint8)}, None,
         "expected images with differences to learn from, given 0.0275 at every pixel of "
         "channel 0"),
    ],
)  # fmt: skip
def test_arrays_that_cannot_be_meant_are_refused(arrays, value_range, says, tmp_path):
    root = tmp_path / "set.npz"
    np.savez(root, **arrays)
    line = refusal("arrays", root, value_range)
    assert str(root) in line
    assert says in line


def test_classes_are_the_numbers_that_occur(tmp_path):
    labels = np.random.default_rng(0).choice([-1, 3, 10**12, 70], 60)
    np.savez(tmp_path / "set.npz", images=noise(60, 8, 8), labels=labels, y_test=labels)
    actual = layout_of("arrays", tmp_path / "set.npz")
    there, numbers = np.unique(labels, return_inverse=True)
    assert actual.classes == tuple(map(str, there[1:]))
    assert np.array_equal(actual.labels["train"], numbers - 1)
    assert actual.unread == "y_test"


def test_images_have_the_classes_of_their_own_part(tmp_path):
    """Those of x_val were taken for those of x_test, which the authors keep to themselves."""
    labels, root = np.arange(60) % 3, tmp_path / "set.npz"
    parts = {"x_train": noise(60, 8, 8), "y_train": labels, "x_test": noise(6, 8, 8)}
    np.savez(root, **parts, y_val=labels[:6])
    actual = layout_of("arrays", root)
    assert (actual.labels["test"].tolist(), actual.unread) == ([-1] * 6, "y_val")
    np.savez(root, **parts, x_val=noise(6, 8, 8), y_val=labels[:6])
    actual = layout_of("arrays", root)
    assert (actual.labels["test"].tolist(), actual.unread) == ([0, 1, 2] * 2, "x_test")
    assert actual.name("test", 0) == f"{root}: x_val[0]"


@pytest.mark.parametrize("name", ["images", "labels"])
def test_a_damaged_archive_is_refused(name, tmp_path):
    root = tmp_path / "set.npz"
    np.savez_compressed(root, images=noise(60, 8, 8), labels=np.arange(60) % 3)
    with zipfile.ZipFile(root) as archive:
        start = archive.getinfo(f"{name}.npy").header_offset + 80
    content = bytearray(root.read_bytes())
    content[start : start + 16] = b"\xff" * 16
    root.write_bytes(content)
    assert f"{root}: expected an" in refusal("arrays", root)


def test_pickled_objects_are_not_read(tmp_path):
    ran = tmp_path / "ran"

    class Evil:
        def __reduce__(self) -> tuple[Any, Any]:
            return (Path.touch, (ran,))

    labels = np.array([Evil()] * 9, dtype=object)
    np.savez(tmp_path / "set.npz", images=noise(9, 8, 8), labels=labels)
    assert "expected whole numbers" in refusal("arrays", tmp_path / "set.npz")
    assert not ran.exists()
