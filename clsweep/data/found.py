"""What a study's data set holds, asked without loading torch: the sizes that a study chooses or
that the user's own files have, where each image lies in them, and whether there is room on the disk
for what is made of them.
"""

from __future__ import annotations

import hashlib
import math
import os
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clsweep.catalog import DATASET, Dataset, named
from clsweep.data.availability import DataPlace
from clsweep.display.numbers import byte_size
from clsweep.errors import RequestError
from clsweep.machine import num_cores

if TYPE_CHECKING:
    import numpy as np

    from clsweep.data.cache import Source
    from clsweep.data.pictures import Encoded

PARTS = ("train", "test")
# what others call the part that is scored at the end, in the order in which they are looked for
HELD_OUT = ("val", "valid", "validation", "test")
MAX_CLASSES = 1000
_SAMPLED = 200  # headers of pictures that an estimate reads


@dataclass(frozen=True, kw_only=True)
class Found:
    """The user's own images, of which names, counts and labels are known and no pixel is read.

    Args:
        root: of the files, for messages.
        labels: int64 (N,) of `train` and `test`; -1 is no class. An empty `test`: a fifth of the
            training images is held out.
        classes: their names, or numbers.
        digest: of names and sizes of the files, wherever they lie.
        describe: as of `cache.Source`.
        name: what an image is called: part, row.
        open: the encoded image of a part and row; None: `pixels` has them all.
        pixels: images (M, S, S, C) of consecutive rows of a part, in `dtype`.
        image_size: side S of all; 0: each image has a size of its own.
    """

    root: Path
    labels: Mapping[str, np.ndarray] = field(repr=False)
    classes: tuple[str, ...]
    digest: str
    describe: Callable[[str, range], Iterable[str]]
    name: Callable[[str, int], str]
    open: Callable[[str, int], Encoded] | None = None
    pixels: Callable[[str, range], np.ndarray] | None = None
    image_size: int = 0
    num_channels: int = 3
    dtype: str = "uint8"


def find(dataset: Dataset, place: DataPlace) -> Found:
    """What the user's own files hold.

    Raises:
        RequestError: one line: place, expected, given.
    """
    found: Found = named(dataset.files)(place)
    _require_classes(found)
    return found


def sized_dataset(
    name: str,
    place: DataPlace,
    *,
    image_size: int | None = None,
    num_train: int | None = None,
    fraction: float | None = None,
    num_classes: int | None = None,
    channels: int | None = None,
) -> Dataset:
    """The catalog's row of a data set with the sizes that it has here; None is the row's own.

    Args:
        num_train: images to train and validate on, of those that there are.
        fraction: the same as a share of those that there are.

    Raises:
        RequestError: files are not laid out as they should be, or have other sizes than stated.
    """
    row = DATASET[name]
    if row.files:
        row = _own(row, place, image_size, num_train, num_classes, channels)
    else:
        row = replace(
            row,
            image_size=image_size or row.image_size,
            num_classes=num_classes or row.num_classes,
        )
    if row.makes_images:
        num_train = round(fraction * row.num_train) if fraction else num_train
        return replace(row, num_train=num_train, num_test=num_train // 5) if num_train else row
    return _part(row, num_train, fraction)


def _own(
    row: Dataset,
    place: DataPlace,
    image_size: int | None,
    num_train: int | None,
    num_classes: int | None,
    channels: int | None,
) -> Dataset:
    """The row with the sizes of the user's files. A plan without the files takes the stated ones,
    and as many test images as `synthetic` would have.
    """
    root = place.root_folder
    if num_train and num_classes and not root.exists():
        return replace(
            row, num_train=num_train, num_test=num_train // 5, num_classes=num_classes,
            channels=channels or row.channels, image_size=image_size or row.image_size,
        )  # fmt: skip
    found = find(row, place)
    given = {"num_classes": (num_classes, len(found.classes))}
    if found.image_size:
        given["image_size"] = image_size, found.image_size
        given["channels"] = channels, found.num_channels
    for what, (stated, there) in given.items():
        if stated not in (None, there):
            raise RequestError(
                f"{root}: expected dataset.{what} to be {there}, as in its files, given {stated}"
            )
    train, test = (found.labels[part] for part in PARTS)
    num_test = len(test) or len(train) // 5
    num_all = len(train) if len(test) else len(train) - num_test
    num_labelled = round(num_all * float((train >= 0).mean()))
    return replace(
        row, num_train=num_labelled, num_unlabeled=num_all - num_labelled, num_test=num_test,
        num_classes=len(found.classes), image_size=found.image_size or image_size or row.image_size,
        channels=found.num_channels if found.image_size else channels or row.channels,
        images_digest=found.digest,
    )  # fmt: skip


def _part(row: Dataset, num_train: int | None, fraction: float | None) -> Dataset:
    """The row with fewer training images, unlabeled ones in proportion."""
    there = row.num_train + row.num_unlabeled
    wanted = round(fraction * there) if fraction else num_train
    if wanted is None or wanted == there:
        return row
    if not 0 < wanted < there:
        raise RequestError(f"expected at most {there}, the images of {row.name}, given {wanted}")
    num_labelled = round(row.num_train * wanted / there)
    return replace(row, num_train=num_labelled, num_unlabeled=wanted - num_labelled)


def _require_classes(found: Found) -> None:
    """Labels that can be learned, voted for and split."""
    import numpy as np

    train, test = (found.labels[part] for part in PARTS)
    if not len(train):
        raise RequestError(f"{found.root}: expected training images, given none")
    num_classes = len(found.classes)
    if not num_classes:
        return
    if not 2 <= num_classes <= MAX_CLASSES:
        raise RequestError(
            f"{found.root}: expected 2 to {MAX_CLASSES} classes, given {num_classes}"
        )
    counts = np.bincount(train[train >= 0], minlength=num_classes)
    if (few := np.flatnonzero(counts == 1)).size:
        raise RequestError(
            f"{found.root}: expected at least 2 training images of each class, one to train on "
            f"and one to validate on, given 1 of class {found.classes[few[0]]}"
        )
    known = counts[test[test >= 0]] > 0
    if not known.all():
        stranger = found.classes[test[test >= 0][~known][0]]
        raise RequestError(
            f"{found.root}: expected test images of classes that the training images have, given "
            f"class {stranger}"
        )


def source(dataset: Dataset, place: DataPlace) -> Source:
    """What the cache of the user's own files is made of.

    Raises:
        RequestError: the files are not those that the study was planned with.
    """
    from clsweep.data.cache import Source

    found = find(dataset, place)
    _require_as_planned(found, dataset)
    common: dict[str, Any] = {
        "name": dataset.name, "classes": found.classes, "labels": found.labels,
        "describe": found.describe, "num_channels": dataset.channels, "dtype": found.dtype,
    }  # fmt: skip
    if found.pixels is not None:
        place_text = f"{found.root} {place.value_range}"
        return Source(
            **common, place=place_text, image_size=found.image_size, fill=_fill_arrays(found)
        )
    store_size = dataset.store_size or dataset.image_size
    return Source(
        **common, place=f"{found.root} {dataset.channels}", image_size=store_size,
        fill=_fill_pictures(found, store_size, dataset.channels),
        sizes=lambda part: _stored_sizes(found, part, range(len(found.labels[part])), store_size),
    )  # fmt: skip


def _require_as_planned(found: Found, dataset: Dataset) -> None:
    there, root = len(found.labels["train"]), found.root
    if dataset.images_digest not in (None, found.digest):
        raise RequestError(
            f"{root}: expected the files that were planned with (digest {dataset.images_digest}), "
            f"given others ({found.digest}): the folder has changed since"
        )
    wanted = dataset.num_train + dataset.num_unlabeled
    if wanted > there or len(found.classes) != dataset.num_classes:
        expected = f"{wanted} training images in {dataset.num_classes} classes, as planned"
        given = f"{there} in {len(found.classes)}"
        raise RequestError(
            f"{root}: expected {expected}, given {given}: the folder has changed since"
        )


def _fill_arrays(found: Found) -> Callable[..., list[str]]:
    def fill(part: str, rows: range, images: Any, step: Callable[[int], object]) -> list[str]:
        assert found.pixels is not None
        images[:] = found.pixels(part, rows)
        step(len(rows))
        return []

    return fill


def _fill_pictures(found: Found, store_size: int, num_channels: int) -> Callable[..., list[str]]:
    from clsweep.data import pictures

    def fill(part: str, rows: range, images: Any, step: Callable[[int], object]) -> list[str]:
        assert found.open is not None
        broken = []
        for image, row in zip(images, rows, strict=True):
            try:
                image[...] = pictures.decode(found.open(part, row), store_size, num_channels)
            except Exception as error:  # Pillow's plugins raise anything at a damaged file
                reason = str(error).splitlines()[0] if str(error) else type(error).__name__
                broken.append(f"{found.name(part, row)}: {reason}")
            step(1)
        return broken

    return fill


def _stored_sizes(found: Found, part: str, rows: Sequence[int], store_size: int) -> np.ndarray:
    """Height and width of some images as they are kept, int64 (M, 2); zeros where one cannot be
    read.
    """
    import numpy as np

    from clsweep.data.pictures import size_of, stored_size

    def of(row: int) -> tuple[int, int]:
        assert found.open is not None
        try:
            height, width = size_of(found.open(part, row))
        except OSError:
            return 0, 0
        return stored_size(height, width, store_size) if height else (0, 0)

    with ThreadPoolExecutor(min(32, num_cores())) as pool:
        return np.array(list(pool.map(of, rows)), np.int64).reshape(-1, 2)


def cache_bytes(dataset: Dataset, place: DataPlace) -> tuple[int, bool]:
    """What the cache of the user's own pictures takes on the disk, and whether that is exact: of
    many pictures, some headers are read.
    """
    found, total, is_exact = find(dataset, place), 0, True
    store_size = dataset.store_size or dataset.image_size
    for part in PARTS:
        count = len(found.labels[part])
        if found.open is None:
            import numpy as np

            item = np.dtype(found.dtype).itemsize
            total += count * found.image_size**2 * found.num_channels * item
            continue
        rows = range(count) if count <= _SAMPLED else range(0, count, -(-count // _SAMPLED))
        is_exact &= len(rows) == count
        sizes = _stored_sizes(found, part, rows, store_size)
        readable = sizes[sizes[:, 0] > 0]
        if len(readable):
            total += round(count * float(readable.prod(axis=1).mean()) * dataset.channels)
    return total, is_exact


def files_digest(names_and_sizes: Iterable[tuple[str, int]]) -> str:
    """Of names and sizes of all files, wherever they lie: images that were replaced are others."""
    digest = hashlib.blake2b(digest_size=8)
    for name, size in names_and_sizes:
        digest.update(os.fsencode(f"{name} {size}\0"))
    return digest.hexdigest()


def stamp(path: Path) -> str:
    """Size and time of a file; of one that cannot be read, which decoding will say, the reason."""
    try:
        found = os.stat(path)
    except OSError as error:
        return str(error.strerror)
    return f"{found.st_size} {found.st_mtime_ns}"


def listed(names: Sequence[str]) -> str:
    """The first five of some names, and how many more there are."""
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return ", ".join(names[:5]) + more or "none"


def numbered(train: np.ndarray) -> tuple[str, ...]:
    """The classes of labels that are numbers: all up to the largest; none of images without."""
    return tuple(str(number) for number in range(int(train.max(initial=-1)) + 1))


_BLOCK_BYTES = 512  # of what a file holds on the disk


def cache_room(dataset: Dataset, place: DataPlace) -> str:
    """What the cache of a data set takes, and where, for a reader; empty if it has none, or if the
    files are not here.

    Raises:
        RequestError: the disk has no room for it.
    """
    if not dataset.images_digest or not dataset.files:
        return ""
    folder = place.cache_folder
    size, is_exact = cache_bytes(dataset, place)
    free = shutil.disk_usage(_existing(folder)).free
    about = "" if is_exact else "about "
    if size > free and (left := size - _held(dataset, place)) > free:
        raise RequestError(
            f"{folder}: expected {about}{byte_size(left, 3)} free to keep {dataset.name} in, given "
            f"{byte_size(free, 3)}. Name another folder with --set dataset.cache=FOLDER, or keep "
            "smaller pictures with dataset.store_size"
        )
    kept = f", shorter sides up to {dataset.store_size} pixels" if dataset.store_size else ""
    return (
        f"{dataset.name} takes {about}{byte_size(size, 3)} in {place.cache}{kept}; "
        f"{byte_size(free, 3)} are free"
    )


def _held(dataset: Dataset, place: DataPlace) -> float:
    """Bytes that the disk holds of the cache already; all that it takes once it is made."""
    from clsweep.data.cache import is_complete

    made_of = source(dataset, place)
    if is_complete(made_of, place.cache_folder):
        return math.inf
    begun = (place.cache_folder / f"{made_of.stem}.partial").glob("*.npy")
    return sum(path.stat().st_blocks * _BLOCK_BYTES for path in begun)


def _existing(folder: Path) -> Path:
    """The nearest folder above that is there."""
    return next(path for path in (folder, *folder.parents) if path.exists())
