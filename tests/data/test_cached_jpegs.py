"""Pictures kept as JPEG: real files, a real kill, and views beside those of the pixels."""

from __future__ import annotations

import io
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image

from clsweep.catalog import DATASET
from clsweep.catalog.rows import PictureSample
from clsweep.data import cache, datasets
from clsweep.data.augment import Recipe
from clsweep.data.datasets import Splits, prepare
from clsweep.data.image_files import Jpegs, Pictures, decode_image, encode_image
from clsweep.data.sources import sized_dataset
from clsweep.data.store_form import MOST_PIXEL_BYTES, automatic_form, estimated_store
from clsweep.errors import RequestError
from clsweep.train.images import Images, on_device
from tests.data.bucket_files import files_below
from tests.data.caches import SIZE, caches, kill_after, lines_of, load, place_of, start
from tests.data.own import write_tar

pytestmark = pytest.mark.usefixtures("nothing_loaded", "one_thread")

STORED = 48


def photo(rng: np.random.Generator, height: int, width: int) -> Image.Image:
    """A smooth picture with edges, as photos are."""
    low = rng.integers(0, 256, (6, 8, 3), dtype=np.uint8)
    return Image.fromarray(low).resize((width, height), Image.Resampling.BICUBIC)


def jpeg(picture: Image.Image, **options: Any) -> bytes:
    file = io.BytesIO()
    picture.save(file, "JPEG", **{"quality": 90, **options})
    return file.getvalue()


SIZES = [(60 + 4 * i, 100 - 5 * i) for i in range(12)]  # of a class, height and width


def photos() -> dict[str, list[tuple[int, bytes]]]:
    """Of each part the class and the file of each picture."""
    rng = np.random.default_rng(0)
    return {
        part: [(c, jpeg(photo(rng, *size))) for c in range(2) for size in SIZES[:count]]
        for part, count in (("train", 12), ("val", 3))
    }


def as_folder(root: Path) -> None:
    for part, files in photos().items():
        for number, (label, content) in enumerate(files):
            path = root / part / f"c{label}" / f"{number:03}.jpg"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)


def as_shards(root: Path) -> None:
    for part, files in photos().items():
        members = {}
        for number, (label, content) in enumerate(files):
            members |= {f"{number:03}.jpg": content, f"{number:03}.cls": str(label).encode()}
        write_tar(root / f"{part}-0.tar", members)


def as_parquet(root: Path) -> None:
    root.mkdir()
    for part, files in photos().items():
        rows = [{"image": {"bytes": c, "path": None}, "label": label} for label, c in files]
        pq.write_table(pa.Table.from_pylist(rows), root / f"{part}-0.parquet")


READERS: dict[str, Callable[[Path], None]] = {
    "imagefolder": as_folder, "webdataset": as_shards, "huggingface": as_parquet,
}  # fmt: skip


def on_cpu(forms: list[Splits]) -> list[Images]:
    """Their training images, standardised alike."""
    held = (on_device(each.train, forms[0].train, torch.device("cpu")) for each in forms)
    return [replace(images, view_size=SIZE) for images in held]


def seeded() -> torch.Generator:
    return torch.Generator().manual_seed(1)


@pytest.fixture
def root(tmp_path):
    as_folder(tmp_path / "images")
    return tmp_path / "images"


@pytest.mark.parametrize("name", READERS)
def test_views_of_both_forms_are_the_same_up_to_the_codec(name, tmp_path):
    root, stored = tmp_path / "images", {"name": name, "store_size": STORED}
    READERS[name](root)
    forms = [load(root, form, **stored) for form in ("pixels", "jpeg")]
    assert [type(each.train.images) for each in forms] == [Pictures, Jpegs]
    both = on_cpu(forms)
    rows, recipes = torch.arange(18), (Recipe(), Recipe().crop_only())
    drawn = [x.draw(recipes, rows, seeded()) for x in both]
    for pixels, jpegs in zip(*drawn, strict=True):
        assert all(torch.equal(getattr(pixels, key), getattr(jpegs, key)) for key in "ijhw")
        assert torch.equal(pixels.factor_N4, jpegs.factor_N4)
    std = both[0].std_1C11
    views = [x.views(rows, draws)[1] * std for x, draws in zip(both, drawn, strict=True)]
    plain = [x.plain(rows) * std for x in both]
    for raw, made in (views, plain):
        difference = (raw - made).abs().mean() * 255
        assert 0 < difference < 4, difference
        assert (raw - raw.roll(1, 0)).abs().mean() * 255 > 10 * difference  # of another picture
    assert torch.equal(both[0].labels_N, both[1].labels_N)


def test_draws_of_smaller_jpegs_are_the_same_shares_of_the_picture(root):
    forms = [load(root, "pixels", store_size=48), load(root, "jpeg", store_size=24)]
    rows = torch.arange(18)
    [large], [small] = (x.draw((Recipe(),), rows, seeded()) for x in on_cpu(forms))
    for key in "ijhw":
        assert (getattr(large, key) / 2 - getattr(small, key)).abs().max() <= 2
    assert torch.equal(large.flip, small.flip)


# What is kept of a file.


@pytest.mark.parametrize(
    ("size", "options", "is_kept"),
    [
        ((STORED, 70), {}, True),
        ((40, 30), {"quality": 98}, True),
        ((STORED + 1, 70), {}, False),
        ((STORED, 70), {"progressive": True}, False),
    ],
)
def test_a_small_baseline_jpeg_is_kept_as_it_is(size, options, is_kept, tmp_path):
    content = jpeg(photo(np.random.default_rng(0), *size), **options)
    (tmp_path / "a.jpg").write_bytes(content)
    for file in (tmp_path / "a.jpg", io.BytesIO(content)):
        kept, height, width = encode_image(file, STORED)
        assert (kept == content) is is_kept
        with Image.open(io.BytesIO(kept)) as picture:
            assert picture.size == (width, height)
            assert "progressive" not in picture.info
        file = file if isinstance(file, Path) else io.BytesIO(content)
        pixels = decode_image(file, STORED)
        assert pixels.shape == (height, width, 3)
        decoded = np.asarray(Image.open(io.BytesIO(kept)))
        assert np.abs(pixels.astype(int) - decoded).mean() < (0.01 if is_kept else 5)


@pytest.mark.parametrize("mode", ["L", "CMYK", "RGB"])
@pytest.mark.parametrize("channels", [1, 3])
def test_every_mode_gets_the_channels_of_the_study(mode, channels):
    content = jpeg(photo(np.random.default_rng(0), 30, 40).convert(mode))
    kept, *_ = encode_image(io.BytesIO(content), STORED, channels)
    assert (kept == content) is ((mode, channels) in (("L", 1), ("RGB", 3)))
    with Image.open(io.BytesIO(kept)) as picture:
        assert picture.mode == ("L" if channels == 1 else "RGB")


def test_a_large_photo_is_reduced_while_it_is_decoded_and_stays_the_same_picture():
    content = jpeg(photo(np.random.default_rng(0), 900, 1203))
    kept, height, width = encode_image(io.BytesIO(content), STORED)
    expected = decode_image(io.BytesIO(content), STORED)
    assert expected.shape[:2] == (height, width) == (48, 64)
    assert np.abs(expected - np.asarray(Image.open(io.BytesIO(kept)), int)).mean() < 5


def test_a_damaged_jpeg_is_named_and_nothing_stays(root):
    path = root / "train" / "c1" / "015.jpg"
    path.write_bytes(path.read_bytes()[:-200])
    for store_size in (STORED, 200):  # shrunk, or to be kept as it is
        with pytest.raises(RequestError, match=r"015\.jpg: .*truncated"):
            load(root, "jpeg", store_size=store_size)
    assert [p.suffix for p in (root.parent / "cache").iterdir()] == [".lock", ".lock"]


# The cache: a kill, a full disk, damage.


def test_after_a_kill_the_rest_is_encoded(root, tmp_path):
    process = start(root, tmp_path / "first", 0.05, "jpeg")
    kill_after(14, tmp_path / "first", process)
    [partial] = caches(root, ".partial")
    with (partial / "train.jpegs").open("ab") as file:  # of a block whose index was not written
        file.write(b"half a picture")
    done = (partial / "train.index").stat().st_size // 24
    assert 4 <= done < 24
    second = start(root, tmp_path / "second", 0.0, "jpeg")
    assert (second.communicate(timeout=300)[1], second.returncode) == (b"", 0)
    assert len(lines_of(tmp_path / "second")) == 30 - done
    [folder] = caches(root)
    went_on = files_below(folder)
    shutil.rmtree(folder)
    load(root, "jpeg")
    assert went_on == files_below(folder)


def test_what_was_begun_of_other_files_is_made_anew(root, tmp_path):
    process = start(root, tmp_path / "first", 0.05, "jpeg")
    kill_after(14, tmp_path / "first", process)
    (root / "train" / "c0" / "000.jpg").write_bytes(jpeg(Image.new("RGB", (90, 70), "red")))
    assert load(root, "jpeg").train.images[0].mean(axis=(0, 1)) == pytest.approx([254, 0, 0], abs=2)


def test_a_disk_without_room_is_refused_before_any_is_written(root, monkeypatch):
    usage = shutil.disk_usage(root)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=500))
    monkeypatch.setattr(cache, "write_jpegs", None)
    with pytest.raises(RequestError, match=r"expected .* KiB free .*given 500 B"):
        load(root, "jpeg")
    assert not caches(root)
    assert not caches(root, ".partial")


def test_a_build_goes_on_after_a_disk_without_room_and_after_zeros_of_a_crash(root, monkeypatch):
    expected = [image.copy() for image in load(root, "jpeg").train.images]
    [whole] = caches(root)
    source = datasets.source_of(
        replace(sized_dataset("imagefolder", place_of(root), image_size=SIZE),
                store_size=STORED, store_as="jpeg"), place_of(root)
    )  # fmt: skip
    partial = source.partial(root.parent / "cache")
    whole.rename(partial)
    (partial / "manifest.json").unlink()
    (partial / "begun").write_text(whole.name)
    with (partial / "train.index").open("r+b") as index:
        index.truncate(24 * 8)
        index.seek(24 * 3)
        index.write(bytes(24 * 4))
    usage = shutil.disk_usage(root)
    with monkeypatch.context() as full:
        full.setattr(shutil, "disk_usage", lambda _: usage._replace(free=5))
        with pytest.raises(RequestError, match="given 5 B"):
            load(root, "jpeg")
    assert (partial / "train.index").exists()
    assert all(map(np.array_equal, load(root, "jpeg").train.images, expected))


# Which form.


def test_many_jpegs_are_kept_as_jpeg_and_all_else_as_pixels():
    row = replace(DATASET["imagefolder"], num_train=10**6)
    content = jpeg(photo(np.random.default_rng(0), 375, 500))
    file = io.BytesIO()
    photo(np.random.default_rng(0), 375, 500).save(file, "PNG")
    just_fit = MOST_PIXEL_BYTES // (500 * 375 * 3)

    def form(pictures: list[bytes], number: int, size: int = 792) -> str:
        return automatic_form(replace(row, sample=PictureSample(number, tuple(pictures))), size)

    assert form([content], just_fit) == "pixels"
    assert form([content], just_fit + 1) == "jpeg"
    assert form([content], just_fit + 1, size=300) == "pixels"  # these take less
    assert form([file.getvalue()], 10**6) == "pixels"  # nothing of them is to be lost
    assert form([content, content, file.getvalue()], 10**6) == "jpeg"
    assert automatic_form(row, 792) == "jpeg"  # without its files: as ImageNet's
    for are_jpegs, expected in {True: "jpeg", False: "pixels", None: "jpeg"}.items():
        sample = PictureSample(10**6, are_jpegs=are_jpegs)  # of a bucket, by its names
        assert automatic_form(replace(row, sample=sample), 792) == expected
    assert automatic_form(replace(row, num_train=10**4), 792) == "pixels"


def test_the_bytes_of_all_are_reckoned_by_some(root):
    row = sized_dataset("imagefolder", place_of(root), image_size=SIZE)
    for form, file in (("pixels", "npy"), ("jpeg", "jpegs")):
        stored = replace(row, store_size=STORED, store_as=form)
        prepare(stored, place_of(root))
        parts = [path / f"{part}.{file}" for path in caches(root) for part in ("train", "test")]
        there = sum(path.stat().st_size for path in parts if path.exists())
        num_bytes, rate = estimated_store(stored)
        assert num_bytes == pytest.approx(there, rel=0.1)
        assert (rate > 0) is (form == "jpeg")
    assert len(caches(root)) == 2
