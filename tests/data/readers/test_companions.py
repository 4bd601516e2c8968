"""Masks and thumbnails beside pictures, as sets of pictures have them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from clsweep.catalog import DATASET
from clsweep.data.locations import AbsentError, DataPlace
from clsweep.data.sources import dataset_layout
from clsweep.errors import RequestError
from tests.data.bucket_files import write_images
from tests.data.own import layout_of, noise, png, write_tar

# Of a kind of data set: a picture, and what belongs to it.
SETS = {
    "COVID-19 radiography": ("train/{}/images/{}-1.png", "train/{}/masks/{}-1.png"),
    "breast ultrasound": ("train/{}/{} (1).png", "train/{}/{} (1)_mask_1.png"),
    "class/masks": ("train/{}/{}1.jpg", "train/{}/Masks/{}1.png"),
    "thumbs beside images": ("train/{}/images/{}1.jpg", "train/{}/thumbs/{}1.jpg"),
    "brain MRI": ("kaggle_3m/TCGA_{}/{}_1.tif", "kaggle_3m/TCGA_{}/{}_1_mask.tif"),
    "pets": ("images/{}_{}.jpg", "annotations/trimaps/{}_{}.png"),
    "VOC": ("JPEGImages/{}{}.jpg", "SegmentationClass/{}{}.png"),
    "ISIC": ("ISIC_{}{}.jpg", "ISIC_{}{}_superpixels.png"),
    "CUB": ("images/001.{}/{}.jpg", "segmentations/001.{}/{}.png"),
    "Carvana": ("imgs/{}{}.jpg", "train_masks/{}{}_mask.png"),
    "masks of another end": ("images/{}/{}.jpg", "masks/{}/{}_mask.png"),
}


@pytest.mark.parametrize("scheme", ["", "file://"])
@pytest.mark.parametrize("kind", SETS)
def test_masks_beside_pictures_are_no_images(kind, scheme, tmp_path):
    picture, beside = SETS[kind]
    name = "imagefolder" if picture.startswith("train/") else "imagefiles"
    pictures = [picture.format(c, c) for c in ("ant", "bee")]
    root = write_images(tmp_path / "set", *pictures, *(beside.format(c, c) for c in ("ant", "bee")))
    place = DataPlace(root=f"{scheme}{root}")
    layout = dataset_layout(DATASET[name], place)
    assert [layout.name("train", row) for row in range(2)] == [
        f"{place.root}/{p}" for p in pictures
    ]
    assert len(layout.labels["train"]) == 2
    assert layout.unread.startswith("2 ")
    assert f"*{Path(beside).suffix}" in layout.unread


@pytest.mark.parametrize(
    "names",
    [
        ("train/with_mask/0.png", "train/without_mask/0.png"),
        ("train/mask/0.png", "train/no_mask/0.png"),
        ("train/a/sunset_mask.png", "train/b/sunset.png"),
        ("train/a/0-with-mask.png", "train/a/0.png", "train/b/0.png"),
        ("train/a/segment_0.png", "train/a/0.png", "train/b/0.png"),
    ],
)
@pytest.mark.parametrize("scheme", ["", "file://"])
@pytest.mark.parametrize("kind", ["imagefolder", "imagefiles"])
def test_pictures_of_masks_are_images(kind, names, scheme, tmp_path):
    root = write_images(tmp_path / "set", *names)
    layout = dataset_layout(DATASET[kind], DataPlace(root=f"{scheme}{root}"))
    assert len(layout.labels["train"]) == len(names)


@pytest.mark.parametrize("scheme", ["", "file://"])
def test_folders_of_pictures_and_masks_are_no_classes(scheme, tmp_path):
    names = [f"train/{kind}/{i}.png" for kind in ("Images", "masks") for i in range(8)]
    alone, root = (write_images(tmp_path / name, *names) for name in ("alone", "table"))
    table = ["path,label", *(f"{name},{name[-5]}" for name in names[:8])]
    (root / "labels.csv").write_text("\n".join(table))
    with pytest.raises(RequestError, match="a folder for each class, given Images, masks"):
        dataset_layout(DATASET["imagefolder"], DataPlace(root=f"{scheme}{alone}"))
    if scheme:  # the table must be read
        with pytest.raises(AbsentError, match="do not say how many images and classes"):
            dataset_layout(DATASET["imagefolder"], DataPlace(root=f"{scheme}{root}"))
    assert layout_of("imagefolder", root).classes == tuple("01234567")


def test_masks_and_leftovers_in_a_tar_file_are_no_images(tmp_path):
    picture = png(noise(1, 16, 16, 3)[0])
    of_each = ("images/{}.jpg", "images/{}_mask.png", "masks/{}.png", "__MACOSX/images/{}.jpg")
    files = {form.format(i): picture for i in range(6) for form in of_each}
    files |= {f"images/{i}.cls": b"%d" % (i % 2) for i in range(6)}
    files["images/0_mask.cls"] = b"1"
    write_tar(tmp_path / "set" / "train-0.tar", files)
    layout = layout_of("webdataset", tmp_path / "set")
    assert np.bincount(layout.labels["train"] + 1).tolist() == [0, 3, 4]  # one mask has a class
    assert layout.unread == "5 *mask*.png, 6 *masks*.png"


def test_a_table_needs_no_masks_and_may_name_them(tmp_path):
    names = [f"images/{c}.png" for c in "abcd"]
    masks = [f"masks/{c}.png" for c in "abcd"]
    root = write_images(tmp_path / "set", *names, *masks)
    rows = [f"{Path(name).name},{i % 2}" for i, name in enumerate(names)]  # by their own names
    (root / "labels.csv").write_text("\n".join(["filename,label", *rows]))
    layout = layout_of("imagefolder", root)
    assert (len(layout.labels["train"]), layout.unread) == (4, "4 masks/*masks*.png")
    rows = [f"{name},{i % 2}" for i, name in enumerate([*names, *masks])]
    (root / "labels.csv").write_text("\n".join(["filename,label", *rows]))
    assert np.bincount(layout_of("imagefolder", root).labels["train"]).tolist() == [4, 4]
