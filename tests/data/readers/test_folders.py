"""Pictures whose classes and parts a table has, as researchers write them."""

from __future__ import annotations

import unicodedata
from pathlib import Path

import numpy as np
import pytest

from clsweep.catalog import DATASET
from clsweep.data.locations import DataPlace
from clsweep.data.sources import dataset_layout
from clsweep.errors import RequestError
from tests.data.bucket_files import write_images
from tests.data.own import SIZE, layout_of, load, noise, of_rows, png, refusal

pytestmark = pytest.mark.usefixtures("nothing_loaded")


def write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def labelled(root: Path, head: str, *lines: str, under: str = "") -> Path:
    """12 images in two folders, and a table of them; `lines` more."""
    for number, pixels in enumerate(noise(12, SIZE, SIZE, 3)):
        write(root / under / "ab"[number % 2] / f"é {number}.PNG", png(pixels))
    names = [f"{under}{'ab'[n % 2]}/é {n}.PNG" if n < 6 else f"é {n}.PNG" for n in range(12)]
    rows = [f'"{name}", {"cat" if n % 3 else "dog"}' for n, name in enumerate(names)]
    text = unicodedata.normalize("NFD", "\n".join([head, *rows, *lines]))  # as of macOS
    (root / "labels.csv").write_text(text)
    return root


@pytest.mark.parametrize("head", ["filename,label", "Path, Class", "image,target"])
def test_a_table_beside_the_images_has_their_classes(head, tmp_path):
    root = labelled(tmp_path / "set", head)
    splits = load("imagefolder", root)
    labels = {round(float(pixels.mean()), 6): label for pixels, label in of_rows(splits).values()}
    pictures = enumerate(noise(12, SIZE, SIZE, 3))
    expected = {round(float(x.mean()), 6): int(n % 3 == 0) for n, x in pictures}
    assert labels.items() <= expected.items()
    assert len(splits.test) == 12 // 5
    first = layout_of("imagefolder", root)
    assert (first.classes, first.unread) == (("cat", "dog"), "")
    text = (root / "labels.csv").read_text()
    (root / "labels.csv").write_text(text.replace("dog", "cat", 1))
    assert layout_of("imagefolder", root).digest != first.digest


def test_a_table_may_name_the_part_of_each_image(tmp_path):
    root = labelled(tmp_path / "set", "file,label")
    head, *rows = (root / "labels.csv").read_text().splitlines()
    parts = ["Train"] * 8 + ["val"] * 3 + ["test"]
    lines = [f"{row},{part},7" for row, part in zip(rows, parts, strict=True)]
    (root / "labels.csv").write_text("\n".join([f"{head},split,weight", *lines]))
    layout = layout_of("imagefolder", root)
    expected = {"train": [1, 0, 0, 1, 0, 0, 1, 0], "test": [0, 1, 0]}  # every third is a dog
    for part, labels in expected.items():
        numbers = [int(Path(layout.name(part, i)).stem[1:]) for i in range(len(labels))]
        assert layout.labels[part][np.argsort(numbers)].tolist() == labels
    assert layout.unread == "b/*.PNG, column weight, split test"
    assert layout.parts_by == "column split of labels.csv"
    (root / "labels.csv").write_text((root / "labels.csv").read_text().replace(",val,", ",fold 2,"))
    assert "expected split train, val or valid" in refusal("imagefolder", root)


def test_a_thumbnail_that_a_table_names_is_an_image(tmp_path):
    root = labelled(tmp_path / "set", "file,label", "a/é 0_thumb.PNG,dog")
    for name in ("é 0_thumb.PNG", "é 2_thumb.PNG"):
        (root / "a" / name).write_bytes(png(noise(1, SIZE, SIZE)[0]))
    assert len(layout_of("imagefolder", root).labels["train"]) == 13


@pytest.mark.parametrize(
    ("head", "line", "says"),
    [
        ("file,label", "a/é 0.PNG,cat", "labels.csv:14: expected an image once, given a/é 0.PNG"),
        ("file,label", "gone.png,cat", "labels.csv:14: expected one image below"),
        ("file,x", "", "or class or target, given file, x"),
        ("file,label", None, "none of b/é 11.PNG"),
        ("file,label", "a/é 0.PNG,Smith, John", "labels.csv:14: expected 2 cells, as in the first"),
        ("file,label", "a/é 0.PNG", "labels.csv:14: expected 2 cells, as in the first line, given"),
        ("label,Label", "", "labels.csv: expected each column once, given label"),
    ],
)
def test_a_table_that_does_not_fit_its_images(head, line, says, tmp_path):
    root = labelled(tmp_path / "set", head, *([] if line is None else [line]))
    if line is None:
        text = (root / "labels.csv").read_text()
        (root / "labels.csv").write_text(text.rpartition("\n")[0])
    assert says in unicodedata.normalize("NFC", refusal("imagefolder", root))


NAMES = [f"img/{i:02}.png" for i in range(12)]


def of_table(root: Path, head: str, *columns: object, sep: str = ",") -> Path:
    """12 images, and a table of these columns."""
    for name, pixels in zip(NAMES, noise(12, SIZE, SIZE, 3), strict=True):
        write(root / name, png(pixels))
    rows = zip(*columns, strict=True)  # type: ignore[call-overload]
    text = "\n".join([head, *(sep.join(map(str, row)) for row in rows)])
    (root / "labels.csv").write_text(text, encoding="utf-8-sig")  # as of Excel
    return root


@pytest.mark.parametrize(
    ("head", "columns"),
    [
        (",filename,label", (range(12), NAMES, "ab" * 6)),  # pandas' to_csv()
        ("filename,label", ([name.replace("/", "\\") for name in NAMES], "ab" * 6)),  # of Windows
        ("filename,label,,", (NAMES, "ab" * 6, [""] * 12, [""] * 12)),  # of a spreadsheet
    ],
)
def test_a_table_is_read_as_it_is_written_elsewhere(head, columns, tmp_path):
    layout = layout_of("imagefolder", of_table(tmp_path / "set", head, *columns))
    assert (layout.classes, layout.parts_by) == (("a", "b"), "")
    assert layout.labels["train"].tolist() == [0, 1] * 6
    assert layout.unread == ("column without a name" if "," in head[0] + head[-1] else "")


@pytest.mark.parametrize("none", ["", "-1", "-1.0", "nan", "NaN", "<NA>"])
def test_what_other_programs_write_for_no_class_is_none(none, tmp_path):
    labels = [none, *"01" * 5, "7"]
    layout = layout_of("imagefolder", of_table(tmp_path / "set", "file,target", NAMES, labels))
    assert layout.classes == ("0", "1", "7")
    assert layout.labels["train"].tolist() == [-1, *[0, 1] * 5, 2]


@pytest.mark.parametrize(
    ("file", "says"),
    [
        ("data/img/00.png", "data/img/00.png, where there are img/00.png, more/00.png"),
        ("00.png", "00.png, where there are img/00.png, more/00.png"),
        ("00", "00"),
    ],
)
def test_an_image_that_a_table_calls_otherwise_is_named(file, says, tmp_path):
    root = of_table(tmp_path / "set", "file,label", [file, *NAMES[1:]], "ab" * 6)
    write(root / "more" / "00.png", png(noise(1, SIZE, SIZE)[0]))
    line = refusal("imagefolder", root)
    assert line == f"{root}/labels.csv:2: expected one image below {root}, given {says}"


def test_two_ways_to_write_an_accent_are_one_class(tmp_path):
    fairies = [unicodedata.normalize(form, "fée") for form in ("NFC", "NFD")]
    labels = [*fairies * 3, *["elf"] * 6]
    layout = layout_of("imagefolder", of_table(tmp_path / "set", "file,label", NAMES, labels))
    assert layout.classes == ("elf", "fée")


def test_a_table_of_a_regression_or_without_a_part_to_train_on_is_refused(tmp_path):
    root = of_table(tmp_path / "set", "file,target", NAMES, [0.25, 1, 1.5] * 4)
    line = refusal("imagefolder", root)
    assert line.endswith("given 0.25. Regression and several labels are not scored")
    of_table(root, "file,target", NAMES, [0.0, 1.0, 1.0] * 4)  # pandas' integers beside a gap
    assert layout_of("imagefolder", root).classes == ("0.0", "1.0")
    of_table(root, "file,target,Split", NAMES, "ab" * 6, ["val", "test"] * 6)
    assert refusal("imagefolder", root).endswith("expected train in column split, given val")


# Parts and classes that folders do not tell apart.

PARTS = [
    ("Train", "Test"), ("training", "validation"), ("train2017", "val2017"),
    ("seg_train", "seg_test"), ("images/train", "images/dev"), ("unlabeled", "test"),
]  # fmt: skip


@pytest.mark.parametrize(("part", "other"), PARTS)
@pytest.mark.parametrize("kind", ["imagefiles", "imagefolder"])
def test_parts_that_are_called_otherwise_are_not_trained_on_together(kind, part, other, tmp_path):
    names = [f"{folder}/{i}{folder[-1]}.png" for folder in (part, other) for i in range(6)]
    root = write_images(tmp_path / "set", *names)
    instead = "images of one part alone"
    if kind == "imagefolder":
        table = ["file,label", *(f"{name},{i % 2}" for i, name in enumerate(names))]
        (root / "labels.csv").write_text("\n".join(table))
        instead = "a column split in labels.csv"
    given = ", ".join(sorted([part, other]))
    expected = f"expected train/ and val/ or test/ in it, or {instead}, given {given}"
    assert refusal(kind, root) == f"{root}: {expected}"
    if kind == "imagefolder":
        table = [table[0] + ",split", *(f"{row},train" for row in table[1:])]
        (root / "labels.csv").write_text("\n".join(table))
        assert len(layout_of(kind, root).labels["train"]) == 12


def test_pictures_of_trains_and_tests_are_of_one_part(tmp_path):
    names = [f"{folder}/{i}.png" for folder in ("bullet_train", "test_tube", "val") for i in "01"]
    assert len(layout_of("imagefiles", write_images(tmp_path, *names)).labels["train"]) == 6


@pytest.mark.parametrize("scheme", ["", "file://"])
@pytest.mark.parametrize(
    ("inside", "says"),
    [
        (["cells"], "/train: expected a folder for each class, given cells/ant beside ant"),
        (["train"], "/train: expected a folder for each class, given train/ant beside ant"),
        (["train", "val"], "or images of one part alone, given train/train, train/val"),
    ],
)
def test_an_archive_that_lies_in_a_class_is_no_class(inside, says, scheme, tmp_path):
    names = [f"train/{c}/{i}.png" for c in ("ant", "bee") for i in range(3)]
    inner = [f"train/{at}/{c}/{i}.png" for at in inside for c in ("ant", "bee") for i in range(3)]
    root = write_images(tmp_path / "set", *names * (len(inside) == 1), *inner)
    with pytest.raises(RequestError) as caught:
        dataset_layout(DATASET["imagefolder"], DataPlace(root=f"{scheme}{root}"))
    assert says in str(caught.value)
