"""The user's own files of every kind: small real ones, written here, and malformed ones."""

from __future__ import annotations

import gzip
import json
import os
import re
import shutil
import tarfile
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
from torchvision.datasets import ImageFolder
from torchvision.transforms import v2

from clsweep.data.datasets import Splits, load_splits
from clsweep.data.locations import DataPlace
from clsweep.data.readers import folders
from clsweep.data.sources import sized_dataset
from clsweep.errors import RequestError
from clsweep.train.images import on_device
from tests.data.own import SIZE, layout_of, load, noise, of_rows, png, refusal, write_tar

pytestmark = pytest.mark.usefixtures("nothing_loaded")


# Encoded pictures: flat folders, tar files, folders of datasets.


@pytest.mark.parametrize("place", ["{}/@eaDir/{}", "{}/@eaDir/{}/SYNOPHOTO_THUMB_M.png",
                                   "@eaDir/{}{}", "__MACOSX/{}/._{}", "__MACOSX/{}/{}", ".{}/{}",
                                   "{}/SYNOFILE_THUMB_M_{}", "{}/$RECYCLE.BIN/{}"])  # fmt: skip
def test_what_file_managers_leave_beside_pictures_is_none(place, by_class):
    before = layout_of("imagefolder", by_class)
    write(by_class / "train" / place.format("c0", "0.png"), png(PICTURES[15]))
    after = layout_of("imagefolder", by_class)
    assert (after.classes, after.digest) == (before.classes, before.digest)
    assert bool(after.unread) == ("/." not in f"/{place}")


@pytest.mark.parametrize("place", ["c0/{}_thumb.png", "c0/THUMB_{}.JPG", "c0/thumbs/{}.png",
                                   "c0/{}.png.thumbnail.jpg", "c0/{}-thumb-128.png"])  # fmt: skip
def test_thumbnails_of_pictures_beside_them_are_none(place, by_class):
    before = layout_of("imagefolder", by_class)
    name = next((by_class / "train" / "c0").glob("*.png")).stem
    write(by_class / "train" / place.format(name), png(PICTURES[15]))
    after = layout_of("imagefolder", by_class)
    assert (after.digest, "train/*thumb*." in after.unread) == (before.digest, True)
    for other in ("c0/thumb_of_me.png", "c0/thumbtack_{}.png", "c1/{}_thumb_.png"):
        write(by_class / "train" / other.format(name + "x"), png(PICTURES[15]))
    more = layout_of("imagefolder", by_class)
    assert len(more.labels["train"]) == len(after.labels["train"]) + 3


PICTURES = [
    np.random.default_rng(i).integers(0, 256, (20 + i, 30 - i % 3, 3), dtype=np.uint8)
    for i in range(20)
]
LABELS = [i % 3 for i in range(20)]


def flat(root: Path) -> None:
    for i, picture in enumerate(PICTURES):
        write((root / "deeper" if i % 2 else root) / f"{i:02}.png", png(picture))


def shards(root: Path) -> None:
    for part, numbers in (("train-0", range(10)), ("train-1", range(10, 20)), ("val", range(6))):
        files = {}
        for i in numbers:
            files |= {f"./{i:03}.cls": str(LABELS[i]).encode(), f"./{i:03}.json": b"{}"}
            files[f"./{i:03}.png"] = png(PICTURES[i])
        write_tar(root / f"{part}.tar", files)


def hub() -> Any:
    module: Any = pytest.importorskip("datasets")
    features = module.Features(
        {"image": module.Image(), "label": module.ClassLabel(names=["ants", "bees", "cats"])}
    )
    images = [{"bytes": png(picture), "path": None} for picture in PICTURES]
    made = module.Dataset.from_dict({"image": images, "label": LABELS}, features=features)
    return module.DatasetDict({"train": made, "test": made.select(range(6))})


def saved(root: Path) -> None:
    hub().save_to_disk(root, num_shards={"train": 3, "test": 1})


def saved_alone(root: Path) -> None:
    hub()["train"].save_to_disk(root)


def parquet(root: Path) -> None:
    (root / "data").mkdir(parents=True)
    for part, made in hub().items():
        made.to_parquet(root / "data" / f"{part}-00000-of-00001.parquet", batch_size=7)


KINDS: list[tuple[str, Callable[[Path], None]]] = [
    ("webdataset", shards), ("huggingface", saved), ("huggingface", saved_alone),
    ("huggingface", parquet), ("imagefiles", flat),
]  # fmt: skip


@pytest.mark.parametrize(("name", "write"), KINDS)
def test_pictures_are_kept_whole_wherever_they_lie(name, write, tmp_path):
    root = tmp_path / "set"
    write(root)
    splits = load(name, root)
    every = of_rows(splits) | (of_rows(Splits(splits.test, splits.test, splits.test)))
    actual = [every[row] for row in sorted(every)] if name != "imagefiles" else list(every.values())
    if len(splits.test) == 4:  # a fifth, where there is no test part
        assert {len(splits.train), len(splits.val)} == {12, 4}
    expected = {pixels.tobytes(): label for pixels, label in zip(PICTURES, LABELS, strict=True)}
    for pixels, label in actual:
        assert label == (-1 if name == "imagefiles" else expected[pixels.tobytes()])
        assert pixels.tobytes() in expected
    assert len({pixels.tobytes() for pixels, _ in actual}) == 20
    [image, *_] = load(name, root, channels=1).train.images
    gray = {np.asarray(Image.fromarray(picture).convert("L")).tobytes() for picture in PICTURES}
    assert image.shape[2] == 1
    assert image.tobytes() in gray


@pytest.mark.parametrize("column", ["label", "species"])
def test_names_of_classes_are_those_of_the_data_set(column, tmp_path):
    made = hub()["train"].rename_columns({"label": "of"}).rename_columns({"of": column})
    made.save_to_disk(tmp_path / "set")
    actual = layout_of("huggingface", tmp_path / "set")
    assert actual.labels["train"].tolist() == LABELS
    assert actual.classes == ("ants", "bees", "cats")


def test_names_of_classes_that_no_training_image_has_do_not_count(tmp_path):
    """As of a part of a data set, which `filter` leaves with the names of the whole."""
    some = hub()["train"].filter(lambda row: row["label"] != 1)
    some.save_to_disk(tmp_path / "set")
    actual = layout_of("huggingface", tmp_path / "set")
    assert actual.labels["train"].tolist() == [label // 2 for label in LABELS if label != 1]
    assert actual.classes == ("ants", "cats")


def table(root: Path, labels: Any, *, part: str = "train", name: str = "label") -> None:
    root.mkdir(exist_ok=True)
    images = [{"bytes": png(PICTURES[i]), "path": None} for i in range(len(labels))]
    pq.write_table(pa.table({"image": images, name: labels}), root / f"{part}-0.parquet")


@pytest.mark.parametrize("cell", [None, {"bytes": None, "path": None}, {"bytes": None}])
def test_pictures_beside_their_table_are_refused(cell, tmp_path):
    """A path says nothing of its content: another picture behind it was taken for the first."""
    table(tmp_path / "set", LABELS)
    (tmp_path / "0.png").write_bytes(png(PICTURES[0]))
    path, given = tmp_path / "set" / "train-0.parquet", "none"
    if cell and "path" not in cell:
        cell, given = cell | {"path": str(tmp_path / "0.png")}, f"the path {tmp_path / '0.png'}"
    rows = pq.read_table(path).to_pylist()
    rows[3]["image"] = cell
    pq.write_table(pa.Table.from_pylist(rows), path)
    expected = "expected an image in the row, as save_to_disk() embeds it"
    with pytest.raises(RequestError, match=re.escape(f"{path}: row 3: {expected}, given {given}")):
        load("huggingface", tmp_path / "set")


@pytest.mark.parametrize("as_text", [pa.string(), pa.large_string(), None])
def test_classes_may_be_names(as_text, tmp_path):
    names = ["wasp", None, "ant", "b e e", "ant", "wasp", "b e e"]
    labels = pa.array(names, as_text) if as_text else pa.array(names).dictionary_encode()
    table(tmp_path / "set", labels)
    table(tmp_path / "set", ["wasp", "ant"], part="val")
    actual = layout_of("huggingface", tmp_path / "set")
    assert actual.classes == ("ant", "b e e", "wasp")
    assert actual.labels["train"].tolist() == [2, -1, 0, 1, 0, 2, 1]
    assert actual.labels["test"].tolist() == [2, 0]
    table(tmp_path / "set", ["wasp", "fly"], part="val")
    line = refusal("huggingface", tmp_path / "set")
    assert "of classes that the training images have, given class fly" in line


@pytest.mark.parametrize(
    ("labels", "kind"), [([0.5] * 4, "double"), ([[0, 1]] * 4, "list<element: int64>")]
)
@pytest.mark.parametrize("name", ["label", "target"])
def test_targets_that_are_no_classes_are_refused(labels, kind, name, tmp_path):
    table(tmp_path / "set", labels, name=name)
    assert refusal("huggingface", tmp_path / "set").endswith(
        f"expected whole numbers from 0 on, or names, one class for each image, given {name} "
        f"{kind}. Regression and several labels are not scored"
    )


@pytest.mark.parametrize(
    ("written", "labels", "unread"),
    [
        ({"cls": "%d", "txt": "9"}, [0, 1] * 6, "12 *.txt"),
        ({"txt": "%d"}, [0, 1] * 6, ""),
        ({"json": '{"label": %d, "url": "-"}', "txt": "a photo"}, [0, 1] * 6, "12 *.txt"),
        ({"json": '{"label": "ant"}', "seg.png": "-"}, [-1] * 12, "12 *.json, 12 *.seg.png"),
    ],
)
def test_the_class_of_a_sample_is_read_where_one_file_says_it_throughout(
    written, labels, unread, tmp_path
):
    files = {f"{i:02}.JPG": png(PICTURES[i]) for i in range(12)} | {"._00.png": b"of a Mac"}
    for end, text in written.items():
        files |= {f"{i:02}.{end}": text.replace("%d", str(i % 2)).encode() for i in range(12)}
    write_tar(tmp_path / "set" / "train-0.tar", files)
    actual = layout_of("webdataset", tmp_path / "set")
    assert actual.labels["train"].tolist() == labels
    assert actual.unread == unread


def test_what_is_not_read_of_the_users_files_is_said(by_class, tmp_path):
    for name in ("c0/x.gif", "c0/.hidden.png", "../val/x.csv", "../test/0.png", "../labels.csv"):
        write(by_class / "train" / name, "-")
    place = DataPlace(root=str(by_class))
    unread = "labels.csv, test/*.png, train/*.gif, val/*.csv"
    assert sized_dataset("imagefolder", place).unread == unread
    table(tmp_path / "set", pa.array(["ant"] * 4), name="species")
    place = DataPlace(root=str(tmp_path / "set"))
    assert sized_dataset("huggingface", place).unread == "species"
    for part in ("dev", "test"):
        table(tmp_path / "set", [0, 1], part=part)
    table(tmp_path / "set" / "data", [0, 1], part="extra")
    unread = "data/extra*.parquet, dev*.parquet, species"
    assert layout_of("huggingface", tmp_path / "set").unread == unread


def test_a_class_of_one_image_is_trained_on_where_nothing_is_held_out(by_class):
    write(by_class / "train" / "c2" / "0.png", png(PICTURES[15]))
    place = DataPlace(root=str(by_class))
    assert sized_dataset("imagefolder", place).num_classes == 3
    line = refusal("imagefolder", by_class)
    assert line.endswith("one to train on and one to validate on, given 1 of class c2")


@pytest.mark.parametrize(
    ("files", "says"),
    [
        ({"a.txt": b"-"}, "expected images in train-*.tar, given none"),
        ({"a.01.png": png(PICTURES[0]), "a.01.cls": b"0"},
         "named KEY.jpg, where KEY ends at the first dot, given KEY.01.png"),
        ({"a.png": png(PICTURES[0]), "a.cls": b"ant"},
         "a.cls: expected whole numbers from 0 on, one class for each image, given b'ant'"),
        ({"a.png": png(PICTURES[0]), "a.cls": b"9" * 30},
         "a.cls: expected whole numbers from 0 on, one class for each image, given b'9999"),
        ({"a.png": png(PICTURES[0]), "a.cls": b"0.5"},
         "given b'0.5'. Regression and several labels are not scored"),
        ({"a.png": png(PICTURES[0]), "b.cls": b"0"},
         "train-0.tar: expected an image beside each class, given none beside b"),
        ({"a.png": png(PICTURES[0]), "a.jpg": b""}, "expected one image a sample, given a.png"),
    ],
)  # fmt: skip
def test_tar_files_that_cannot_be_meant_are_refused(files, says, tmp_path):
    write_tar(tmp_path / "set" / "train-0.tar", files)
    line = refusal("webdataset", tmp_path / "set")
    assert says in line
    assert str(tmp_path / "set") in line


@pytest.mark.parametrize("at", [3, 4])
@pytest.mark.parametrize("rest", [b"", b"?" * 512])
def test_a_tar_file_that_is_cut_or_damaged_at_a_head_is_refused(at, rest, tmp_path):
    """`tarfile` itself reads the files before, and takes that for all."""
    shards(tmp_path / "set")
    path = tmp_path / "set" / "train-1.tar"
    with tarfile.open(path) as archive:
        start = archive.getmembers()[3 * at].offset
    whole = path.read_bytes()
    path.write_bytes(whole[:start] + rest + whole[start + 512 :] * bool(rest))
    with tarfile.open(path) as archive:
        assert len(archive.getmembers()) == 3 * at
    line = refusal("webdataset", tmp_path / "set")
    assert f"{path}: expected a plain tar file, given: expected zeros" in line


@pytest.mark.parametrize(("name", "end"), [("webdataset", "tar"), ("huggingface", "parquet")])
def test_all_files_must_be_there_where_their_names_say_how_many(name, end, tmp_path):
    root = tmp_path / "set"
    shards(root)
    table(root, LABELS)
    for path in [*root.glob("train-1.*"), *root.glob("val.*")]:
        path.unlink()
    [first] = root.glob(f"train-0.{end}")
    first.rename(root / f"train-00000-of-00002.{end}")
    assert refusal(name, root).endswith("expected 2 files train-*-of-00002, each once, given 00000")
    shutil.copy(root / f"train-00000-of-00002.{end}", root / f"train-00001-of-00002.{end}")
    assert load(name, root).train.labels.size


def test_broken_pictures_in_a_tar_file_are_named(tmp_path):
    shards(tmp_path / "set")
    write_tar(tmp_path / "set" / "train-2.tar", {"x.png": b"no image", "x.cls": b"0"})
    with pytest.raises(RequestError, match=r"train-2\.tar: x\.png: no image, or cut"):
        load("webdataset", tmp_path / "set")


def test_a_table_without_images_is_refused(tmp_path):
    module = pytest.importorskip("datasets")
    module.Dataset.from_dict({"text": ["a"], "label": [0]}).save_to_disk(tmp_path / "set")
    line = refusal("huggingface", tmp_path / "set")
    assert "expected one column of images, given text" in line


def write(path: Path, content: bytes | str | None) -> None:
    """A file; without content, a FIFO."""
    if isinstance(content, str):
        content = content.encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content) if content is not None else os.mkfifo(path)


GZIPPED = gzip.compress(bytes(1024), mtime=0)
NO_TABLE = json.dumps({"_data_files": [{"filename": "a.arrow"}]})
# Of a data set, the file of it that is written, its content, and the words.
NOTHING_TO_READ: list[tuple[str, str, str | bytes | None, str]] = [
    ("arrays", "", b"no archive", "expected an .npz file or a folder of .npy files, given: "),
    ("arrays", "", None, "expected a regular file, given a"),
    ("arrays", "notes.txt", "", "expected .npy files in the folder, given none"),
    ("arrays", "images.npy", None, "expected a regular file, given a"),
    ("webdataset", "train-0.tar", GZIPPED, "expected a plain tar file, given: "),
    ("webdataset", "val.txt", "", "expected train-*.tar, given val.txt"),
    ("webdataset", "train-0.tar", None, "expected a regular file, given a"),
    ("huggingface", "a.txt", "", "expected dataset_dict.json, state.json or train-*.parquet"),
    ("huggingface", "state.json", "{", "state.json: expected the state of a data set, given: "),
    ("huggingface", "state.json", NO_TABLE, "expected a folder of datasets, given: "),
    ("imagefiles", "a.txt", "", "expected at least one image"),
]


@pytest.mark.parametrize(("name", "file", "content", "says"), NOTHING_TO_READ)
def test_files_that_hold_nothing_of_the_kind_are_refused(name, file, content, says, tmp_path):
    root = tmp_path / "set.npz"
    missing = "No such file or directory" if name == "arrays" else "no such folder"
    assert missing in refusal(name, root)
    write(root / file, content)
    assert says in refusal(name, root)
    if content == NO_TABLE:
        (root / "a.arrow").write_bytes(b"no table")
        assert says in refusal(name, root)


# Only regular files.


@pytest.fixture
def by_class(tmp_path):
    root = tmp_path / "images"
    for part in ("train", "val"):
        for i, picture in enumerate(PICTURES[:12]):
            write(root / part / f"c{i % 2}" / f"{i}.png", png(picture))
    return root


def test_images_below_a_class_are_of_that_class_as_in_torchvision(by_class):
    """Half of a class in a folder of its own, and in one behind a link, was left out in silence."""
    (by_class / "train" / "c1").rename(by_class / "elsewhere")
    (by_class / "train" / "c1").mkdir()
    for link in ("c1/linked", "c2"):
        (by_class / "train" / link).symlink_to(by_class / "elsewhere")
    (by_class / "elsewhere" / "circle").symlink_to(by_class / "elsewhere")
    (by_class / "train" / "c1" / "up").symlink_to(by_class / "train")  # where other classes lie
    for i, at in enumerate(("batch2", "batch2/more")):
        write(by_class / "train" / "c0" / at / "0.png", png(PICTURES[15 + i]))
    actual = folders.scan_classes(by_class)[1]["train"]
    (by_class / "train" / "c1" / "up").unlink()
    (by_class / "elsewhere" / "circle").unlink()  # which torchvision follows 40 times
    expected = ImageFolder(str(by_class / "train")).samples
    named = {(str(by_class / path), label) for label, path in actual}
    assert len(actual) == 20
    assert named == set(expected)


@pytest.mark.parametrize(
    ("name", "lost", "target"),
    [
        ("imagefolder", "val", "val"),
        ("imagefolder", "val", "nowhere"),
        ("imagefiles", "val", "val"),
        ("imagefolder", "train/c1", "nowhere"),
    ],
)
def test_images_behind_a_lost_link_are_not_passed_over(name, lost, target, by_class):
    """A fifth of the training images in place of the test images would be another study."""
    (by_class / lost).rename(by_class / "other")
    (by_class / lost).symlink_to(by_class / target)
    assert f"{by_class / lost}: expected a folder, given: " in refusal(name, by_class)


# A part of the training images.


def test_fewer_images_are_a_part_of_more_in_proportion(tmp_path):
    labels = np.repeat([0, 1, 2], [100, 60, 40])
    np.savez(tmp_path / "set.npz", images=noise(200, 8, 8), labels=labels,
             test_images=noise(10, 8, 8), test_labels=np.arange(10) % 3)  # fmt: skip
    chosen = {}
    for fraction in (0.25, 0.5):
        splits = load("arrays", tmp_path / "set.npz", fraction=fraction)
        chosen[fraction] = {*splits.train.rows.tolist(), *splits.val.rows.tolist()}
        counts = np.bincount(labels[sorted(chosen[fraction])])
        assert np.abs(counts - fraction * np.array([100, 60, 40])).max() <= 1
    assert chosen[0.25] < chosen[0.5]
    assert len(load("arrays", tmp_path / "set.npz", num_train=150).train) == 112


def test_a_folder_that_changed_after_the_plan_is_refused(by_class):
    place = DataPlace(root=str(by_class), cache=str(by_class.parent / "cache"))
    row = sized_dataset("imagefolder", place)
    config = {
        "dataset": "imagefolder", "val_fraction": 0.25, "image_size": SIZE, "num_classes": 2,
        "num_train": row.num_train, "num_unlabeled": 0, "images_digest": row.images_digest,
    }  # fmt: skip
    (by_class / "train" / "c0" / "new.png").write_bytes(png(PICTURES[15]))
    with pytest.raises(RequestError, match="the folder has changed since"):
        load_splits(config, place)


def test_scoring_resizes_the_whole_picture_and_takes_its_middle(by_class):
    splits = load("imagefolder", by_class)
    held = on_device(splits.train, splits.train, torch.device("cpu"))
    held = replace(held, view_size=14)
    actual = held.plain(torch.arange(3)) * held.std_1C11 + held.mean_1C11
    for row, x in zip(splits.train.rows, actual, strict=False):
        picture = Image.fromarray(splits.train.images[row])
        papers = v2.Compose([v2.Resize(16), v2.CenterCrop(14)])  # bilinear, 8/7 of 14
        expected = np.asarray(papers(picture), dtype=np.float32) / 255
        apart = (x.permute(1, 2, 0) - torch.from_numpy(expected)).abs()
        assert apart.mean() < 0.004
        assert apart.max() < 2.5 / 255
