"""Images on both sides of a split: as files, copied, saved again and shrunk."""

from __future__ import annotations

import shutil

import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_digits

from clsweep.data import near_copies
from clsweep.data.near_copies import copies_between
from clsweep.data.synthetic import images
from tests.data.own import layout_of

NUM = 40


@pytest.fixture
def root(tmp_path):
    """Photos of two classes, none of which is another's copy; the first of each is flat."""
    for part, folder in (("train", "train"), ("test", "val")):
        drawn = images(part, range(NUM), image_size=96, num_classes=2)
        for row, pixels in enumerate(drawn):
            file = tmp_path / folder / "ab"[row % 2] / f"{row}.png"
            file.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(pixels if row else np.full_like(pixels, 90 + len(part))).save(file)
    return tmp_path


def copies(root):
    [(num_compared, *pairs)] = copies_between(layout_of("imagefolder", root)).values()
    return num_compared, *(
        [tuple(n.removeprefix(f"{root}/") for n in p) for p in of] for of in pairs
    )


def test_exact_and_near_copies_are_result(root):
    assert copies(root) == ((NUM, NUM), [], [])
    shutil.copy(root / "train/a/2.png", root / "val/b/1.png")
    with Image.open(root / "train/b/3.png") as picture:
        picture.save(root / "val/b/5.jpg", quality=60)
        picture.resize((64, 64)).save(root / "val/a/8.png")
    (root / "val/a/broken.png").write_bytes(b"\x89PNG")
    (_, compared), exact, near = copies(root)
    assert compared == NUM
    assert exact == [("val/b/1.png", "train/a/2.png")]
    assert near == [("val/a/8.png", "train/b/3.png"), ("val/b/5.jpg", "train/b/3.png")]


def test_without_a_held_out_part_the_training_images_are_compared_with_each_other(root):
    shutil.rmtree(root / "val")
    assert copies(root)[1:] == ([], [])
    shutil.copy(root / "train/a/2.png", root / "train/a/copy.png")
    with Image.open(root / "train/b/3.png") as picture:
        picture.save(root / "train/b/saved.jpg", quality=60)
    assert copies(root)[1:] == (
        [("train/a/copy.png", "train/a/2.png")], [("train/b/saved.jpg", "train/b/3.png")]
    )  # fmt: skip


def test_of_training_images_that_may_be_validated_on_copies_are_named(root):
    """Beside a part that is held out, too: scores are of neither but of some training images."""
    shutil.copy(root / "train/a/2.png", root / "train/a/2 (1).png")
    shutil.copy(root / "train/a/2.png", root / "val/a/1.png")
    layout = layout_of("imagefolder", root)
    pairs = {
        part: [tuple(name.removeprefix(f"{root}/") for name in pair) for pair in exact]
        for part, (_, exact, _) in copies_between(layout, is_validated=True).items()
    }
    assert pairs == {
        "test": [("val/a/1.png", "train/a/2 (1).png")],
        "train": [("train/a/2.png", "train/a/2 (1).png")],
    }
    assert [*copies_between(layout)] == ["test"]


def test_of_many_some_are_compared(root, monkeypatch):
    monkeypatch.setattr(near_copies, "MOST_COMPARED", 10)
    shutil.copytree(root / "train", root / "val", dirs_exist_ok=True)
    (tested, trained), exact, near = copies(root)
    assert (tested, trained, len(exact), near) == (10, 10, 10, [])


def test_digits_that_look_alike_are_no_copies(tmp_path):
    """Real ones, of 8 x 8 pixels."""
    pixels = (load_digits().images * 15).astype(np.uint8)[..., None]
    labels = load_digits().target
    np.savez(
        tmp_path / "digits.npz", train_images=pixels[:900], train_labels=labels[:900],
        test_images=pixels[900:], test_labels=labels[900:],
    )  # fmt: skip
    alike = copies_between(layout_of("arrays", tmp_path / "digits.npz"))
    assert alike == {"test": ((500, 500), [], [])}
