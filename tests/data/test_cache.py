"""Image folders and their cache: real files, real processes, real kills."""

from __future__ import annotations

import errno
import itertools
import json
import os
import shutil
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from torchvision.transforms import v2

from clsweep.data import cache, image_files
from clsweep.data.datasets import Splits, load_splits, prepare
from clsweep.data.image_files import Pictures, decode_image, encode_image, grey_thumbnail
from clsweep.data.locations import DataPlace
from clsweep.data.readers.folders import scan_classes
from clsweep.data.sources import sized_dataset
from clsweep.errors import RequestError
from tests.data.caches import SIZE, caches, kill_after, lines_of, load, place_of, start

pytestmark = pytest.mark.usefixtures("nothing_loaded")


@pytest.fixture
def root(tmp_path):
    """30 images to train on and 6 to test on, 3 classes, one CMYK and one gray."""
    rng = np.random.default_rng(0)
    for part, count in (("train", 10), ("val", 2)):
        for name in ("ants", "bees", "cats"):
            folder = tmp_path / "images" / part / name
            folder.mkdir(parents=True)
            for i in range(count):
                pixels = rng.integers(0, 256, (20 + i, 40 - i, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(folder / f"{i}.png")
    train = tmp_path / "images" / "train"
    Image.open(train / "ants" / "0.png").convert("CMYK").save(train / "ants" / "0.jpg")
    (train / "ants" / "0.png").unlink()
    Image.open(train / "bees" / "1.png").convert("L").save(train / "bees" / "1.png")
    return tmp_path / "images"


def assert_all_decoded(splits: Splits, root: Path) -> None:
    files = scan_classes(root)[1]["train"]
    for image, (_, path) in zip(splits.train.images, files, strict=True):
        assert np.array_equal(image, decode_image(root / path, SIZE)), path


@pytest.fixture
def decoded(monkeypatch):
    """How often each file was decoded."""
    counts: Counter[str] = Counter()

    def counting(path: Path, size: int, channels: int) -> np.ndarray:
        counts["/".join(path.parts[-3:])] += 1
        return decode_image(path, size, channels)

    monkeypatch.setattr(image_files, "decode_image", counting)
    return counts


# What is read.


def test_a_small_folder_is_decoded_once_into_mapped_arrays(root, decoded):
    splits = load(root)
    assert (len(splits.train), len(splits.val), len(splits.test)) == (24, 6, 6)
    assert isinstance(splits.train.images, Pictures)
    assert isinstance(splits.train.images.content, np.memmap)
    assert splits.train.images is splits.val.images
    assert sorted([*splits.train.rows, *splits.val.rows]) == list(range(30))
    files = scan_classes(root)[1]["train"]
    assert [c for c, _ in files] == [0] * 10 + [1] * 10 + [2] * 10
    for split in (splits.train, splits.val):
        assert [files[row][0] for row in split.rows] == list(split.labels)
        for row in split.rows:
            assert np.array_equal(split.images[row], decode_image(root / files[row][1], SIZE))
    assert set(decoded.values()) == {1}
    assert len(decoded) == 36
    load(root)
    assert sum(decoded.values()) == 36
    assert not caches(root, ".partial")


@pytest.mark.parametrize(
    ("width", "height"), [(40, 20), (20, 40), (500, 375), (33, 32), (7, 9), (16, 16), (301, 17)]
)
def test_a_picture_is_torchvisions_resize_of_the_whole(width, height, tmp_path):
    low = np.random.default_rng(0).integers(0, 256, (7, 7, 3), dtype=np.uint8)
    picture = Image.fromarray(low).resize((width, height), Image.Resampling.BICUBIC)
    picture.save(tmp_path / "a.png")
    resize = v2.Resize(SIZE, interpolation=v2.InterpolationMode.BICUBIC, antialias=True)
    is_larger = min(width, height) > SIZE  # no picture is blown up
    expected = np.asarray(resize(picture) if is_larger else picture)
    actual = decode_image(tmp_path / "a.png", SIZE)
    assert actual.dtype == np.uint8
    assert np.array_equal(actual, expected)


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGBA", "CMYK", "I;16", "I"])
def test_every_mode_becomes_rgb(mode, tmp_path):
    gray = np.tile(np.arange(SIZE, dtype=np.uint8) * 16, (SIZE, 1))
    if mode.startswith("I"):
        picture = Image.fromarray(gray.astype("uint16" if mode == "I;16" else "int32") * 257)
    else:
        picture = Image.fromarray(gray).convert("RGB" if mode == "CMYK" else "L").convert(mode)
    path = tmp_path / ("a.pgm" if mode == "I" else "a.tif")
    picture.save(path)
    actual = decode_image(path, SIZE)
    assert actual.shape == (SIZE, SIZE, 3)
    if mode == "1":  # dithered
        assert set(np.unique(actual)) == {0, 255}
    else:
        assert np.abs(actual.astype(int) - gray[..., None]).max() <= 1


@pytest.mark.parametrize("dtype", ["int32", "float32"])
def test_numbers_of_32_bits_are_refused(dtype, tmp_path):
    """As 16 bits those up to 255 were black, in silence."""
    Image.fromarray(np.arange(256, dtype=dtype).reshape(SIZE, SIZE)).save(tmp_path / "a.tif")
    with pytest.raises(ValueError, match="of unknown range"):
        decode_image(tmp_path / "a.tif", SIZE)


def test_a_stack_of_pages_is_refused_and_a_small_picture_behind_the_large_one_is_not(tmp_path):
    pages = [Image.fromarray(np.full((SIZE, SIZE), level, np.uint8)) for level in (3, 200)]
    pages[0].save(tmp_path / "a.tif", save_all=True, append_images=pages[1:])
    for read in (decode_image, encode_image, grey_thumbnail):
        with pytest.raises(ValueError, match="several pages of one size: expected one picture"):
            read(tmp_path / "a.tif", SIZE)
    small = pages[1].resize((4, 4))
    pages[0].save(tmp_path / "b.tif", save_all=True, append_images=[small])
    assert np.unique(decode_image(tmp_path / "b.tif", SIZE)).tolist() == [3]


def test_an_orientation_is_ignored(tmp_path):
    pixels = np.random.default_rng(0).integers(0, 256, (SIZE, SIZE, 3), dtype=np.uint8)
    exif = Image.Exif()
    exif[0x0112] = 6  # a quarter turn
    Image.fromarray(pixels).save(tmp_path / "a.png", exif=exif)
    assert np.array_equal(decode_image(tmp_path / "a.png", SIZE), pixels)


# What is kept.


def test_a_changed_folder_is_another_cache(root):
    before = list(load(root).train.images)
    path = root / "train" / "cats" / "3.png"
    Image.new("RGB", (30, 30), "red").save(path)
    after = load(root).train.images
    assert len(caches(root)) == 2
    assert {row for row in range(30) if not np.array_equal(before[row], after[row])} == {23}
    path.unlink()
    assert len(load(root).train.images) == 29


def _half(path: Path) -> None:
    path.write_text(path.read_text()[: path.stat().st_size // 2])


def _another_version(path: Path) -> None:
    manifest = json.loads(path.read_text())
    path.write_text(json.dumps(manifest | {"format": manifest["format"] + 1}))


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("manifest.json", Path.unlink),
        ("manifest.json", _half),
        ("manifest.json", _another_version),
        ("train.npy", lambda path: os.truncate(path, 1000)),
        ("test.npy", lambda path: path.write_bytes(path.read_bytes() + b"0")),
        ("test.npy", Path.unlink),
        ("train.npy", lambda path: np.save(path, np.zeros((30, 8, 8, 3), np.uint8))),
        ("train_labels.npy", lambda path: np.save(path, np.zeros(30, np.int64))),
        ("train.jpegs", lambda path: os.truncate(path, 1000)),
        ("train.index", lambda path: os.truncate(path, 24)),
        ("test.jpegs", lambda path: path.write_bytes(path.read_bytes() + b"0")),
        ("test.index", Path.unlink),
    ],
)
def test_a_damaged_cache_is_made_again(name, damage, root, decoded):
    form = "jpeg" if name.endswith((".jpegs", ".index")) else "pixels"
    expected = [image.copy() for image in load(root, form).train.images]
    [folder] = caches(root)
    damage(folder / name)
    for _ in range(2):
        assert all(map(np.array_equal, load(root, form).train.images, expected))
        assert form == "jpeg" or set(decoded.values()) == {2}
    assert caches(root) == [folder]


# Files that cannot be read.


def test_broken_images_are_named(root, decoded):
    good = {name: (root / name).read_bytes() for name in ("train/ants/0.jpg", "train/cats/7.png")}
    (root / "train" / "ants" / "0.jpg").write_bytes(good["train/ants/0.jpg"][:-400])
    (root / "train" / "cats" / "7.png").unlink()
    os.mkfifo(root / "train" / "cats" / "7.png")
    with pytest.raises(RequestError, match="that can be read, given 2 that cannot") as error:
        load(root)
    lines = str(error.value).splitlines()[1:]
    named = [line.partition(": ")[0].strip() for line in lines]
    assert named == [str(root / name) for name in good]
    assert "truncated" in lines[0]
    assert not caches(root)
    assert not caches(root, ".partial")
    assert len(decoded) == 36
    for name, content in good.items():
        (root / name).unlink()
        (root / name).write_bytes(content)
    assert_all_decoded(load(root), root)


@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
@pytest.mark.parametrize("limit", [100, 700])  # Pillow only warns of 800 pixels above the second
def test_a_decompression_bomb_is_an_error(limit, tmp_path, monkeypatch):
    Image.new("RGB", (40, 20)).save(tmp_path / "a.png")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", limit)
    with pytest.raises(Image.DecompressionBombError):
        decode_image(tmp_path / "a.png", SIZE)


def test_a_truncated_image_is_an_error_even_where_another_library_allows_it(tmp_path, monkeypatch):
    noise = np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)
    Image.fromarray(noise).save(tmp_path / "a.jpg")
    (tmp_path / "a.jpg").write_bytes((tmp_path / "a.jpg").read_bytes()[:1500])
    monkeypatch.setattr("PIL.ImageFile.LOAD_TRUNCATED_IMAGES", True)
    with pytest.raises(OSError, match="truncated"):
        decode_image(tmp_path / "a.jpg", SIZE)


# A disk that is full, a folder that cannot be written.

os_pwrite = os.pwrite


def _refusing(number: int, after: int = 0) -> Callable[..., int]:
    """A system call that works so many times and then fails."""
    calls = itertools.count()

    def call(*arguments: Any) -> int:
        if next(calls) >= after:
            raise OSError(number, os.strerror(number))
        return os_pwrite(*arguments)

    return call


@pytest.mark.parametrize("after", [0, 9])
def test_a_full_disk_says_so_and_leaves_nothing_behind(after, root, monkeypatch):
    monkeypatch.setattr(cache, "BLOCK_IMAGES", 4)
    monkeypatch.setattr(os, "pwrite", _refusing(errno.ENOSPC, after))
    says = r"expected [\d.]+ KiB free .*, given [\d.,]+ [KMG]?i?B.*--set dataset\.cache="
    with pytest.raises(RequestError, match=says):
        load(root)
    assert not caches(root, ".partial")
    assert not caches(root)


def test_the_free_space_is_asked_before_anything_is_decoded(root, decoded, monkeypatch):
    usage = shutil.disk_usage(root)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=5))
    with pytest.raises(RequestError, match=r"given 5 B"):
        load(root)
    assert not decoded
    assert not caches(root, ".partial")
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "disk_usage", lambda _: usage)
        load(root)
    load(root)  # it is there already


@pytest.mark.parametrize("call", [None, "mkdir", "replace"])
def test_a_refused_call_or_folder_names_the_flag(call, root, monkeypatch):
    says = "Read-only file system"
    if call is None:
        (root.parent / "cache").write_text("a file")
        says = "expected a folder to keep imagefolder in"
    else:
        monkeypatch.setattr(os, call, _refusing(errno.EROFS))
    with pytest.raises(RequestError, match=rf"{says}.*--set dataset\.cache=FOLDER"):
        load(root)


# Several processes.


def test_what_a_killed_process_left_is_made_anew(root, tmp_path):
    process = start(root, tmp_path / "first", 0.05)
    kill_after(16, tmp_path / "first", process)
    assert 16 <= len(lines_of(tmp_path / "first")) < 36
    assert not caches(root)
    assert len(caches(root, ".partial")) == 1
    assert_all_decoded(load(root), root)
    assert not caches(root, ".partial")


def test_two_processes_that_start_at_once_decode_nothing_twice(root, tmp_path):
    processes = [start(root, tmp_path / "log", 0.02) for _ in range(2)]
    for process in processes:
        _, errors = process.communicate(timeout=300)
        assert (process.returncode, errors) == (0, b"")
    assert sorted(Counter(lines_of(tmp_path / "log")).values()) == [1] * 36


def test_on_a_terminal_a_bar_shows_images_per_second(root, monkeypatch, capsys):  # type: ignore[no-untyped-def]
    prepare(sized_dataset("imagefolder", place_of(root), image_size=8), place_of(root))
    assert capsys.readouterr() == ("", "")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    monkeypatch.setenv("COLUMNS", "120")
    prepare(sized_dataset("imagefolder", place_of(root), image_size=SIZE), place_of(root))
    shown = capsys.readouterr().err
    assert "Decoding imagefolder" in shown
    assert "36/36" in shown


# Folders that are laid out otherwise.


FOLDERS: list[tuple[str, list[str], str, list[str]]] = [  # emptied, images added, at, words
    ("", ["val/dogs/"], "val/dogs", ["expected at least one image (.jpg,", "given none"]),
    ("", ["val/dogs/0.png"], "val", ["expected classes that train/ has, given dogs"]),
    (
        "val",
        ["testing/"],
        "",
        ["val/ or test/ beside train/, or train/ alone, given testing, train"],
    ),
    ("val", ["val/"], "val", ["expected a folder of images for each class, given none"]),
    ("train", [], "", ["expected train/CLASS/*.jpg", "given a folder without train/: val"]),
    ("", [], "", ["given no such folder"]),
]


@pytest.mark.parametrize("name", ["valid", "validation", "test", None])
def test_the_held_out_part_has_any_of_its_names_or_is_a_fifth(root, name):
    number = len(scan_classes(root)[1]["test"])
    (root / "val").rename(root / name) if name else shutil.rmtree(root / "val")
    place = place_of(root)
    assert len(scan_classes(root)[1]["test"]) == (number if name else 0)
    row = sized_dataset("imagefolder", place, image_size=SIZE)
    num_train = len(scan_classes(root)[1]["train"])
    assert row.num_test == (number if name else num_train // 5)
    assert row.num_train == num_train - (0 if name else num_train // 5)
    if not name:
        config = {"dataset": "imagefolder", "val_fraction": 0.25, "image_size": SIZE,
                  "num_train": row.num_train, "num_classes": row.num_classes}  # fmt: skip
        splits = load_splits(config, place)
        rows = [*splits.train.rows, *splits.val.rows, *splits.test.rows]
        assert sorted(rows) == list(range(num_train))


@pytest.mark.parametrize(("emptied", "added", "at", "words"), FOLDERS)
def test_what_is_wrong_with_a_folder_is_said(emptied, added, at, words, root):
    if emptied or not added:
        shutil.rmtree(root / emptied)
    for name in added:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        if name.endswith("/"):
            (root / name).mkdir()
        else:
            Image.new("RGB", (9, 9)).save(root / name)
    with pytest.raises(RequestError) as error:
        scan_classes(root)
    [line] = str(error.value).splitlines()
    assert all(word in line for word in (str(root / at), *words)), line


def test_the_default_place_is_where_the_machine_keeps_its_caches(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert DataPlace().cache_folder == tmp_path / "clsweep"
    assert DataPlace(cache="/own").cache_folder == Path("/own")
    monkeypatch.setenv("XDG_CACHE_HOME", "")
    assert DataPlace().cache_folder == Path.home() / ".cache" / "clsweep"
