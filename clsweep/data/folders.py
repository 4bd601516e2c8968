"""Folders of image files: by class, ROOT/train/CLASS/*.jpg and ROOT/val (or ROOT/test) likewise, as
ImageNet is laid out; or without classes. And images in tar files, as WebDataset packs them.
"""

from __future__ import annotations

import errno
import io
import os
import stat
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from clsweep.data.availability import DataPlace
from clsweep.data.found import HELD_OUT, PARTS, Found, files_digest, listed, numbered, stamp
from clsweep.data.pictures import kind_of, require_regular
from clsweep.errors import RequestError

# torchvision's
SUFFIXES = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")
_HELD_OUT = ("val", "test")
_MAX_CLASS_BYTES = 32  # of a sample in a tar file


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


def find(place: DataPlace) -> Found:
    """The images of a folder by class."""
    found = scan(place.root_folder)
    files = {part: found.files(part) for part in PARTS}
    labels = {part: [number for number, _ in rows] for part, rows in files.items()}
    paths = {part: [path for _, path in rows] for part, rows in files.items()}
    return _of_paths(found.root, paths, labels, found.classes)


def find_flat(place: DataPlace) -> Found:
    """Images without classes: below ROOT/train and ROOT/val or ROOT/test, or all below ROOT."""
    root = place.root_folder
    if not root.is_dir():
        raise RequestError(f"{root}: expected a folder of images, given {_given(root)}")
    held_out, is_split = _part(root, *_HELD_OUT), _part(root, "train") is not None
    folders = {"train": root / "train" if is_split else root}
    if is_split and held_out:
        folders["test"] = root / held_out
    paths = {part: sorted(_below(folder, root)) for part, folder in folders.items()}
    for part, names in paths.items():
        if not names:
            expected = f"at least one image ({', '.join(SUFFIXES)}) in it or below"
            raise RequestError(f"{folders[part]}: expected {expected}, given none")
    return _of_paths(root, paths, {part: [-1] * len(rows) for part, rows in paths.items()}, ())


def _of_paths(
    root: Path,
    paths: Mapping[str, Sequence[str]],
    labels: Mapping[str, Sequence[int]],
    classes: tuple[str, ...],
) -> Found:
    import numpy as np

    def describe(part: str, rows: range) -> Iterator[str]:
        for row in rows:
            yield f"{labels[part][row]} {paths[part][row]} {stamp(root / paths[part][row])}"

    return Found(
        root=root, classes=classes, describe=describe,
        labels={part: np.array(labels.get(part, ()), np.int64) for part in PARTS},
        digest=files_digest((path, _size(root / path)) for part in paths for path in paths[part]),
        name=lambda part, row: str(root / paths[part][row]),
        open=lambda part, row: root / paths[part][row],
    )  # fmt: skip


def _below(folder: Path, root: Path) -> Iterator[str]:
    """Paths below the root of all images below a folder; links to folders are not followed, names
    that begin with a dot left out.
    """
    for at, folders, _ in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        yield from (str((Path(at) / name).relative_to(root)) for name in _images(Path(at)))


def scan(root: Path) -> ImageFolder:
    """The image files below `root`; names only, none is opened. Names that begin with a dot are
    left out.

    Raises:
        RequestError: says folder, expected and given.
    """
    if not (root / "train").is_dir():
        given = (
            f"a folder without train/: {listed(_folders(root))}" if root.is_dir() else _given(root)
        )
        raise RequestError(
            f"{root}: expected train/CLASS/*.jpg and val/ or test/ likewise, given {given}"
        )
    train = _classes(root / "train")
    held_out = _part(root, *_HELD_OUT)
    if held_out is None:
        raise RequestError(
            f"{root}: expected val/ or test/ beside train/, given {listed(_folders(root))}"
        )
    test = _classes(root / held_out)
    if unknown := [name for name in test if name not in train]:
        raise RequestError(
            f"{root / held_out}: expected classes that train/ has, given {listed(unknown)}"
        )
    if few := next((name for name, files in train.items() if len(files) < 2), None):
        expected = "at least 2 images, one to train on and one to validate on"
        raise RequestError(f"{root / 'train' / few}: expected {expected}, given {len(train[few])}")
    if len(train) < 2:
        raise RequestError(
            f"{root / 'train'}: expected at least 2 class folders, given {listed(list(train))}"
        )
    return ImageFolder(root=root, held_out=held_out, train=train, test=test)


def _part(root: Path, *names: str) -> str | None:
    """The first of the names that is a folder of the root."""
    modes = dict(_scanned(root))
    for name in names:
        if name in modes and _is_folder(root / name, modes[name]):
            return name
    return None


def _classes(folder: Path) -> dict[str, tuple[str, ...]]:
    names = sorted(name for name, mode in _scanned(folder) if _is_folder(folder / name, mode))
    if not names:
        raise RequestError(f"{folder}: expected a folder of images for each class, given none")
    classes = {name: _images(folder / name) for name in names}
    if empty := [name for name, files in classes.items() if not files]:
        expected = f"at least one image ({', '.join(SUFFIXES)}) directly inside"
        others = f" (and {len(empty) - 1} more such folders)" if len(empty) > 1 else ""
        raise RequestError(f"{folder / empty[0]}: expected {expected}, given none{others}")
    return classes


def _folders(folder: Path) -> list[str]:
    return sorted(
        name for name, mode in _scanned(folder) if mode is not None and stat.S_ISDIR(mode)
    )


def _is_folder(path: Path, mode: int | None) -> bool:
    """RequestError where that cannot be known: a class or all test images would be lost without a
    word.
    """
    if mode is None:
        given = "a link to nothing" if path.is_symlink() else "what cannot be looked at"
        raise RequestError(f"{path}: expected a file or a folder, given {given}")
    return stat.S_ISDIR(mode)


def _images(folder: Path) -> tuple[str, ...]:
    """Names that end as images do. Of what cannot be looked at, decoding will say why.

    Raises:
        RequestError: one of them is neither a file nor a folder.
    """
    names = []
    for name, mode in _scanned(folder):
        if not name.lower().endswith(SUFFIXES) or (mode is not None and stat.S_ISDIR(mode)):
            continue
        if mode is not None and not stat.S_ISREG(mode):
            given = kind_of(mode)
            raise RequestError(f"{folder / name}: expected a regular file, given {given}")
        names.append(name)
    return tuple(sorted(names))


def _scanned(folder: Path) -> list[tuple[str, int | None]]:
    """Names in a folder with what they are, links followed: None where that cannot be known. Names
    that begin with a dot are left out.
    """
    try:
        with os.scandir(str(folder)) as entries:
            return [(entry.name, _mode(entry)) for entry in entries if entry.name[0] != "."]
    except OSError as error:
        raise RequestError(
            f"{folder}: expected a readable folder, given: {error.strerror}"
        ) from None


def _mode(entry: os.DirEntry[str]) -> int | None:
    try:
        return entry.stat().st_mode
    except OSError as error:
        # A link in a circle has no end to look at: without a name of an image it may be a class.
        if error.errno == errno.ELOOP and not entry.name.lower().endswith(SUFFIXES):
            raise RequestError(
                f"{entry.path}: expected a file or a folder, given a link in a circle"
            ) from None
        return None


def _size(path: Path) -> int:
    try:
        return os.path.getsize(path)
    except OSError:
        return -1  # decoding will say what is wrong with it


def _given(root: Path) -> str:
    """What a path is that is no folder."""
    try:
        mode = root.stat().st_mode
    except OSError as error:
        return (
            "a link in a circle"
            if error.errno == errno.ELOOP
            else "no such folder"
            if error.errno == errno.ENOENT
            else str(error.strerror)
        )
    return "a file" if stat.S_ISREG(mode) else kind_of(mode)


@dataclass(frozen=True)
class Sample:
    """One image: where its bytes lie, and its class, -1 for none."""

    shard: Path
    name: str
    start: int
    size: int
    label: int


def find_shards(place: DataPlace) -> Found:
    """The images of tar files, as WebDataset packs them: ROOT/train-*.tar and ROOT/val-*.tar (or
    test).

    The files of one sample share a name up to its first dot: `000123.jpg` and `000123.cls`, which
    holds the number of its class. A sample without `.cls` has no class.

    Raises:
        RequestError: place, expected and given.
    """
    import numpy as np

    root = place.root_folder
    shards = _shards(root)
    samples = {part: [s for shard in shards[part] for s in _samples(shard)] for part in PARTS}
    labels = {part: np.array([s.label for s in samples[part]], np.int64) for part in PARTS}
    if not samples["train"]:
        raise RequestError(f"{root}: expected images in train-*.tar, given none")

    def describe(part: str, rows: range) -> Iterator[str]:
        for sample in samples[part][rows.start : rows.stop]:
            yield f"{sample} {stamp(sample.shard)}"

    def read(part: str, row: int) -> io.BytesIO:
        sample = samples[part][row]
        with sample.shard.open("rb") as file:
            return io.BytesIO(os.pread(file.fileno(), sample.size, sample.start))

    return Found(
        root=root, labels=labels, classes=numbered(labels["train"]), describe=describe, open=read,
        digest=files_digest(
            (f"{s.shard.name}/{s.name} {s.label}", s.size) for part in PARTS for s in samples[part]
        ),
        name=lambda part, row: f"{samples[part][row].shard}: {samples[part][row].name}",
    )  # fmt: skip


def _shards(root: Path) -> dict[str, list[Path]]:
    if not root.is_dir():
        raise RequestError(f"{root}: expected a folder of train-*.tar files, given no such folder")
    paths = sorted(root.glob("*.tar"))

    def of(part: str) -> list[Path]:
        return [path for path in paths if path.stem == part or path.name.startswith(f"{part}-")]

    if not of("train"):
        given = listed([path.name for path in sorted(root.iterdir())])
        raise RequestError(f"{root}: expected train-*.tar, given {given}")
    return {"train": of("train"), "test": next((of(name) for name in HELD_OUT if of(name)), [])}


def _samples(shard: Path) -> Iterator[Sample]:
    """The samples of a tar file, in its order."""
    try:
        require_regular(shard)
        with tarfile.open(shard, "r:") as archive:
            members = [member for member in archive if member.isfile()]
            images: dict[str, tarfile.TarInfo] = {}
            labels: dict[str, int] = {}
            for member in members:
                folder, _, name = member.name.rpartition("/")
                key, _, kind = name.partition(".")
                key = f"{folder}/{key}"
                if f".{kind.lower()}" in SUFFIXES:
                    if key in images:
                        raise ValueError(
                            f"expected one image a sample, given {images[key].name} and "
                            f"{member.name}"
                        )
                    images[key] = member
                elif kind.lower() == "cls":
                    labels[key] = _label(archive, member)
    except (OSError, ValueError, tarfile.TarError) as error:
        given = getattr(error, "strerror", None) or (str(error).splitlines() or ["nothing"])[0]
        raise RequestError(f"{shard}: expected a plain tar file, given: {given}") from None
    for key, member in images.items():
        yield Sample(shard, member.name, member.offset_data, member.size, labels.get(key, -1))


def _label(archive: tarfile.TarFile, member: tarfile.TarInfo) -> int:
    file = archive.extractfile(member)
    text = file.read(_MAX_CLASS_BYTES) if file else b""
    if not text.strip().isdigit():
        raise ValueError(f"{member.name}: expected the number of a class, given {text!r:.40}")
    return int(text)
