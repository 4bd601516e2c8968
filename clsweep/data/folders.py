"""What a study's data set holds, asked without loading torch: the sizes that a study chooses or
that its files have.

A folder of images is ROOT/train/CLASS/*.jpg and ROOT/val (or ROOT/test) likewise, as ImageNet is
laid out.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass, replace
from pathlib import Path

from clsweep.catalog import DATASET, Dataset
from clsweep.data.availability import DataPlace
from clsweep.errors import RequestError

SUFFIXES = (
    ".jpg",
    ".jpeg",
    ".png",
    ".ppm",
    ".bmp",
    ".pgm",
    ".tif",
    ".tiff",
    ".webp",
)  # torchvision's
_HELD_OUT = ("val", "test")


@dataclass(frozen=True, kw_only=True)
class ImageFolder:
    """Image files by class, names sorted; `test` lies in ROOT/val or ROOT/test and may lack classes
    of `train`.
    """

    root: Path
    held_out: str  # the folder of the test images
    train: dict[str, tuple[str, ...]]
    test: dict[str, tuple[str, ...]]

    @property
    def classes(self) -> tuple[str, ...]:
        return tuple(self.train)

    def files(self, part: str) -> list[tuple[int, str]]:
        """Number of the class and path below the root of every image of `train` or `test`."""
        by_class, folder = (self.train, "train") if part == "train" else (self.test, self.held_out)
        number = {name: i for i, name in enumerate(self.classes)}
        return [
            (number[c], f"{folder}/{c}/{name}") for c, names in by_class.items() for name in names
        ]


def sized_dataset(
    name: str,
    place: DataPlace,
    *,
    image_size: int | None = None,
    num_train: int | None = None,
    num_classes: int | None = None,
) -> Dataset:
    """The catalog's row of a data set with the sizes that it has here; None is the row's own.

    Raises:
        RequestError: a folder of images is not laid out as one, or has other sizes than stated.
    """
    row = DATASET[name]
    if name == "imagefolder":
        row = _folder_row(row, place.root_folder, num_train, num_classes)
    elif num_train is not None:
        row = replace(row, num_train=num_train, num_test=num_train // 5)
    return replace(
        row, image_size=image_size or row.image_size, num_classes=num_classes or row.num_classes
    )


def _folder_row(
    row: Dataset, root: Path, num_train: int | None, num_classes: int | None
) -> Dataset:
    """The row with the sizes of a folder. A plan without the folder takes the stated ones, and as
    many test images as `synthetic` would have.
    """
    if num_train and num_classes and not root.exists():
        return replace(row, num_train=num_train, num_test=num_train // 5, num_classes=num_classes)
    found = scan(root)
    given, num_test = (sum(map(len, part.values())) for part in (found.train, found.test))
    for what, stated, there in (
        ("num_train", num_train, given),
        ("num_classes", num_classes, len(found.classes)),
    ):
        if stated not in (None, there):
            raise RequestError(
                f"{root}: expected dataset.{what} to be {there}, as in train/, given {stated}"
            )
    return replace(
        row, num_train=given, num_test=num_test, num_classes=len(found.classes),
        images_digest=_digest(found),
    )  # fmt: skip


def scan(root: Path) -> ImageFolder:
    """The image files below `root`; names only, none is opened. Names that begin with a dot are
    left out.

    Raises:
        RequestError: says folder, expected and given.
    """
    if not (root / "train").is_dir():
        given = (
            f"a folder without train/: {_listed(_folders(root))}"
            if root.is_dir()
            else "no such folder"
        )
        raise RequestError(
            f"{root}: expected train/CLASS/*.jpg and val/ or test/ likewise, given {given}"
        )
    train = _classes(root / "train")
    held_out = next((name for name in _HELD_OUT if (root / name).is_dir()), None)
    if held_out is None:
        raise RequestError(
            f"{root}: expected val/ or test/ beside train/, given {_listed(_folders(root))}"
        )
    test = _classes(root / held_out)
    if unknown := [name for name in test if name not in train]:
        raise RequestError(
            f"{root / held_out}: expected classes that train/ has, given {_listed(unknown)}"
        )
    if few := next((name for name, files in train.items() if len(files) < 2), None):
        expected = "at least 2 images, one to train on and one to validate on"
        raise RequestError(f"{root / 'train' / few}: expected {expected}, given {len(train[few])}")
    if len(train) < 2:
        raise RequestError(
            f"{root / 'train'}: expected at least 2 class folders, given {_listed(list(train))}"
        )
    return ImageFolder(root=root, held_out=held_out, train=train, test=test)


def _classes(folder: Path) -> dict[str, tuple[str, ...]]:
    names = _folders(folder)
    if not names:
        raise RequestError(f"{folder}: expected a folder of images for each class, given none")
    classes = {name: _images(folder / name) for name in names}
    if empty := [name for name, files in classes.items() if not files]:
        expected = f"at least one image ({', '.join(SUFFIXES)}) directly inside"
        others = f" (and {len(empty) - 1} more such folders)" if len(empty) > 1 else ""
        raise RequestError(f"{folder / empty[0]}: expected {expected}, given none{others}")
    return classes


def _folders(folder: Path) -> list[str]:
    with _scanned(folder) as entries:
        return sorted(
            entry.name for entry in entries if entry.is_dir() and not entry.name.startswith(".")
        )


def _images(folder: Path) -> tuple[str, ...]:
    with _scanned(folder) as entries:
        names = (e.name for e in entries if e.name.lower().endswith(SUFFIXES) and not e.is_dir())
        return tuple(sorted(name for name in names if not name.startswith(".")))


def _scanned(folder: Path) -> os._ScandirIterator[str]:
    try:
        return os.scandir(str(folder))
    except OSError as error:
        raise RequestError(
            f"{folder}: expected a readable folder, given: {error.strerror}"
        ) from None


def _digest(found: ImageFolder) -> str:
    """Of names and sizes of all files, wherever the folder lies: images that were replaced are
    other images.
    """
    digest = hashlib.blake2b(digest_size=8)
    for part in ("train", "test"):
        for _, path in found.files(part):
            try:
                size = os.path.getsize(found.root / path)
            except OSError:
                size = -1  # decoding will say what is wrong with it
            digest.update(os.fsencode(f"{path} {size}\0"))
    return digest.hexdigest()


def _listed(names: list[str]) -> str:
    return (
        ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "") or "none"
    )
