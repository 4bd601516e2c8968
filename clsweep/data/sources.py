"""The content of a study's data set, read without torch: the sizes that a study chooses or
that the user's own files have, and where each image lies in them.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from clsweep.catalog import DATASET, Dataset, named
from clsweep.catalog.rows import PictureSample
from clsweep.display.numbers import count
from clsweep.errors import RequestError, first_line, listed
from clsweep.machine import num_cores

if TYPE_CHECKING:
    import numpy as np

    from clsweep.data.cache import Source
    from clsweep.data.cached_jpegs import Encodings
    from clsweep.data.image_files import Encoded
from clsweep.data.locations import AbsentError, DataPlace

T = TypeVar("T")
DATA_PARTS = ("train", "test")
# what others call the part that is scored at the end, in the order in which they are looked for
HELD_OUT = ("val", "valid", "validation", "test")
MAX_CLASSES = 1000
IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")
_IN_BUCKET = "clsweep.data.readers.bucket_layout:bucket_layout"


def reason_of(error: Exception) -> str:
    """The message of an error, in a line; of a file that cannot be read without its name."""
    return getattr(error, "strerror", None) or first_line(error)


def layout_error(place: object, expected: str, given: object) -> RequestError:
    """Files are not what they should be, in one line; `given` may be what reading them raised."""
    what = f": {reason_of(given)}" if isinstance(given, Exception) else f" {given}"
    return RequestError(f"{place}: expected {expected}, given{what}")


def classes_error(place: object, given: object, *, names: str = "") -> RequestError:
    """Targets that are no classes, for which there is neither a probe nor a metric here; `names`
    says that those of classes would do.
    """
    expected = f"whole numbers from 0 on{names}, one class for each image"
    return layout_error(place, expected, f"{given}. Regression and several labels are not scored")


@dataclass(frozen=True, kw_only=True)
class DataLayout:
    """The user's own images, of which names, counts and labels are known and no pixel is read.

    Args:
        root: of the files, for messages; may be the URI of a bucket.
        labels: int64 (N,) of `train` and `test`; -1 is no class. An empty `test`: a fifth of the
            training images is held out.
        classes: their names; empty: labels are numbers, of which `find` counts those that occur.
        digest: of names and sizes of the files, wherever they lie.
        describe: as of `cache.Source`.
        unread: what lies there too, or empty.
        parts_by: what says which images are held out, where no folder does.
        name: what an image is called: part, row.
        open: the encoded image of a part and row; None: `pixels` has them all.
        pixels: images (M, S, S, C) of consecutive rows of a part, in `dtype`.
        sample: of files in a bucket, those of some training rows, as far as they may be read.
        image_size: side S of all; 0: each image has a size of its own.
    """

    root: Path | str
    labels: Mapping[str, np.ndarray] = field(repr=False)
    digest: str
    describe: Callable[[], Iterable[str]]
    name: Callable[[str, int], str]
    classes: tuple[str, ...] = ()
    unread: str = ""
    parts_by: str = ""
    open: Callable[[str, int], Encoded] | None = None
    pixels: Callable[[str, range], np.ndarray] | None = None
    sample: Callable[[Sequence[int]], list[bytes]] | None = None
    image_size: int = 0
    num_channels: int = 3
    dtype: str = "uint8"


def dataset_layout(dataset: Dataset, place: DataPlace, *, by_names: bool = False) -> DataLayout:
    """The layout of the user's own files: labels that can be learned, voted for and split.

    Args:
        by_names: of a bucket, what an index says does not count.

    Raises:
        RequestError: one line: place, expected, given.
    """
    import numpy as np

    layout: DataLayout = (
        named(_IN_BUCKET)(dataset, place, by_names=by_names)
        if place.is_remote
        else named(dataset.files)(place)
    )
    root, names = layout.root, layout.classes
    train, test = (layout.labels[part] for part in DATA_PARTS)
    if not len(train):
        raise layout_error(root, "training images", "none")
    used = np.unique(train[train >= 0])  # of the names of a table some may be of no image
    if not (num_classes := len(used)):
        return replace(layout, classes=())
    if not 2 <= num_classes <= MAX_CLASSES:
        raise layout_error(root, f"2 to {MAX_CLASSES} classes", num_classes)
    if (unknown := np.setdiff1d(test[test >= 0], train)).size:
        expected = "test images of classes that the training images have"
        raise layout_error(root, expected, f"class {names[unknown[0]] if names else unknown[0]}")
    labels = {
        part: np.where(numbers < 0, -1, np.searchsorted(used, numbers))
        for part, numbers in layout.labels.items()
    }
    classes = tuple(names[number] if names else str(number) for number in used)
    return replace(layout, classes=classes, labels=labels)


def sized_dataset(
    name: str,
    place: DataPlace,
    *,
    num_train: int | None = None,
    fraction: float | None = None,
    val_fraction: float | None = None,
    is_planned: bool = True,
    **stated: int | None,
) -> Dataset:
    """The catalog's row of a data set with the sizes that it has here; None is the row's own.

    Args:
        is_planned: with a sample of pictures, which a trial does not need.
        val_fraction: of the training images, which classes can be split so; None: none.
        num_train: images to train and validate on, of those that there are.
        fraction: the same as a share of those that there are.
        stated: image_size, num_test, num_classes and channels, as the user's own files have them.

    Raises:
        RequestError: files are not laid out as they should be, or have other sizes than stated.
    """
    row, layout = DATASET[name], None
    sizes: dict[str, Any] = {what: number for what, number in stated.items() if number}
    if row.makes_images:
        row = replace(row, **sizes)
        num_train = round(fraction * row.num_train) if fraction else num_train
        return replace(row, num_train=num_train, num_test=num_train // 5) if num_train else row
    is_known = bool(num_train and sizes.get("num_classes"))
    if row.files and (layout := _layout_here(row, place, is_known)):
        row = _with_sizes(row, layout, sizes)
        if row.keeps_whole and is_planned:
            row = replace(row, sample=_sample(layout))
    elif row.files:
        sizes["num_train"] = num_train  # a plan without the files
    row = replace(row, **sizes)
    there = row.num_train + row.num_unlabeled
    wanted = round(fraction * there) if fraction else num_train
    if wanted not in (None, there):
        if not 0 < wanted < there:
            given = f"the images of {row.name}, given {wanted}"
            raise RequestError(f"expected at most {there}, {given}")
        num_labelled = round(row.num_train * wanted / there)
        row = replace(row, num_train=num_labelled, num_unlabeled=wanted - num_labelled)
    if layout and layout.classes:
        _require_each_class(layout, row.num_train, val_fraction is not None)
    return row


def _layout_here(row: Dataset, place: DataPlace, is_stated: bool) -> DataLayout | None:
    """The layout of the user's own files; None where they are not here and all that must be known
    of them is stated. An index that comes later changes no plan.
    """
    try:
        if not is_stated or place.is_remote or place.root_folder.exists():
            return dataset_layout(row, place, by_names=is_stated)
    except AbsentError as error:
        if not is_stated:
            instead = "State dataset.num_train and dataset.num_classes to plan without"
            raise AbsentError(f"{error}. {instead}") from None
    return None


def _require_each_class(layout: DataLayout, num_train: int, holds_out: bool) -> None:
    """Require an image of each class for each part that is taken of the training images."""
    import numpy as np

    from clsweep.data.splits import SPLIT_SEED, some_of_each, stratified

    def require_two(labels: np.ndarray, other: str, given: str = "") -> None:
        classes, counts = np.unique(labels, return_counts=True)
        if (few := classes[counts == 1]).size:
            expected = (
                f"at least 2 training images of each class, one to train on and one to {other}"
            )
            name = f"class {layout.classes[few[0]]}" if few[0] >= 0 else "no class"
            raise layout_error(layout.root, expected, f"1 of {name}{given}")

    labels, beside = layout.labels["train"], ""
    if not len(layout.labels["test"]):
        require_two(labels, "test on")
        try:
            labels = labels[stratified(labels, len(labels) // 5, SPLIT_SEED)[0]]
        except ValueError as error:
            raise layout_error(
                layout.root, "images of each class in a fifth to test on", error
            ) from None
        beside = " beside a fifth to test on"
    labels = labels[labels >= 0]
    if holds_out:
        require_two(labels[some_of_each(labels, num_train)], "validate on", beside)


def _with_sizes(row: Dataset, layout: DataLayout, stated: Mapping[str, int]) -> Dataset:
    """The row with the sizes of the user's files, which are the stated ones."""
    train, test = (layout.labels[part] for part in DATA_PARTS)
    num_held_out, share = len(test) or len(train) // 5, float((train >= 0).mean())
    num_all = len(train) if len(test) else len(train) - num_held_out
    num_labelled = round(num_all * share)
    num_test = int((test >= 0).sum()) if len(test) else round(num_held_out * share)
    tested = {*test[test >= 0].tolist()}
    untested = [name for i, name in enumerate(layout.classes) if tested and i not in tested]
    there: dict[str, Any] = {
        "num_classes": len(layout.classes), "num_test": num_test or num_held_out
    }  # fmt: skip
    if layout.image_size:
        there |= {"image_size": layout.image_size, "channels": layout.num_channels}
    for what, number in there.items():
        if stated.get(what, number) != number:
            expected = f"dataset.{what} to be {number}, as in its files"
            raise layout_error(layout.root, expected, stated[what])
    return replace(
        row, **there, num_train=num_labelled, num_unlabeled=num_all - num_labelled,
        images_digest=layout.digest, unread=layout.unread, class_names=layout.classes,
        untested=tuple(untested),
        parts_by=layout.parts_by if len(test) else "chance, as no part is held out",
    )  # fmt: skip


_samples: dict[tuple[str, str], PictureSample] = {}  # by root and digest: all cells want them


def _sample(layout: DataLayout) -> PictureSample:
    """Some of all pictures, evenly spaced, without those that cannot be read."""
    from clsweep.data.image_files import read_bytes, sampled_rows

    if sample := _samples.get(key := (str(layout.root), layout.digest)):
        return sample
    num_files, are_jpegs = sum(map(len, layout.labels.values())), None
    rows = sampled_rows(len(layout.labels["train"]))
    if layout.open is None:
        pictures = layout.sample(rows) if layout.sample else []
        names = [layout.name("train", row).lower() for row in rows]
        named = [name for name in names if name.endswith(IMAGE_SUFFIXES)]
        num_jpegs = sum(name.endswith((".jpg", ".jpeg")) for name in named)
        are_jpegs = 2 * num_jpegs > len(named) if named else None
    else:
        pictures, _ = _each(layout, "train", rows, read_bytes)
    return _samples.setdefault(key, PictureSample(num_files, tuple(pictures), are_jpegs))


def image_source(dataset: Dataset, place: DataPlace) -> Source:
    """The source of the cache of the user's own files.

    Raises:
        RequestError: the files are not those that the study was planned with.
    """
    from clsweep.data.cache import Source

    layout, changed = dataset_layout(dataset, place), "the folder has changed since"
    root, num_there = layout.root, len(layout.labels["train"])
    # behind a + is that of the images that scores are transferred to
    planned = (dataset.images_digest or "").partition("+")[0]
    if planned not in ("", layout.digest):
        expected = f"the files that were planned with (digest {planned})"
        raise layout_error(root, expected, f"others ({layout.digest}): {changed}")
    wanted = dataset.num_train + dataset.num_unlabeled
    if wanted > num_there or len(layout.classes) != dataset.num_classes:
        expected = f"{wanted} training images in {dataset.num_classes} classes, as planned"
        raise layout_error(root, expected, f"{num_there} in {len(layout.classes)}: {changed}")
    common: dict[str, Any] = {
        "name": dataset.name, "classes": layout.classes, "labels": layout.labels,
        "describe": layout.describe, "num_channels": dataset.channels, "dtype": layout.dtype,
    }  # fmt: skip
    if (read := layout.pixels) is not None:

        def copy(part: str, rows: range, images: Any) -> list[str]:
            images[:] = read(part, rows)
            return []

        where = f"{root} {place.value_range}"
        return Source(**common, place=where, image_size=layout.image_size, fill=copy)
    from clsweep.data.image_files import decode_image, encode_image

    size, channels = dataset.store_size or dataset.image_size, dataset.channels

    def decode(part: str, rows: range, images: Any) -> list[str]:
        decoded, broken = _each(layout, part, rows, lambda file: decode_image(file, size, channels))
        for image, pixels in zip(images, decoded, strict=True) if not broken else ():
            image[...] = pixels
        return broken

    def encode(part: str, rows: Sequence[int]) -> Encodings:
        return _each(layout, part, rows, lambda file: encode_image(file, size, channels))

    return Source(
        **common, place=f"{root} {channels}", image_size=size, fill=decode,
        encode=encode if dataset.store_as == "jpeg" else None,
        sizes=lambda part: _stored_sizes(layout, part, size),
    )  # fmt: skip


def _each(
    layout: DataLayout, part: str, rows: Sequence[int], use: Callable[[Encoded], T]
) -> tuple[list[T], list[str]]:
    """The value of `use` for each picture that it can read, and a line for each other one."""
    from PIL import UnidentifiedImageError

    assert layout.open is not None
    values, broken = list[T](), list[str]()
    for row in rows:
        try:
            values.append(use(layout.open(part, row)))
        except Exception as error:  # Pillow's plugins raise anything at a damaged file
            is_none = isinstance(error, UnidentifiedImageError)
            reason = "no image, or cut within its head" if is_none else reason_of(error)
            broken.append(f"{layout.name(part, row)}: {reason}")
    return values, broken


def _stored_sizes(layout: DataLayout, part: str, store_size: int) -> np.ndarray:
    """Height and width of the images as they are kept, int64 (N, 2); 0 where unreadable."""
    import numpy as np

    from clsweep.data.image_files import read_image_size, stored_size

    def of(row: int) -> tuple[int, int]:
        assert layout.open is not None
        try:
            height, width = read_image_size(layout.open(part, row))
        except Exception:  # Pillow's plugins raise anything at a damaged file
            return 0, 0
        return stored_size(height, width, store_size)

    with ThreadPoolExecutor(min(32, num_cores())) as pool:
        sizes = list(pool.map(of, range(len(layout.labels[part]))))
    return np.array(sizes, np.int64).reshape(-1, 2)


def files_digest(names_and_sizes: Iterable[tuple[str, int]]) -> str:
    """Of names and sizes of all files, wherever they lie: images that were replaced are others."""
    digest = hashlib.blake2b(digest_size=8)
    for name, size in names_and_sizes:
        digest.update(os.fsencode(f"{name} {size}\0"))
    return digest.hexdigest()


def require_all_numbered(root: Path, paths: Sequence[Path]) -> None:
    """Of files whose names say of how many they are, as `train-00001-of-00002`, each lies there
    once.
    """
    there: dict[str, list[str]] = {}
    for path in paths:
        if match := re.search(r"-([0-9]+)-of-([0-9]+)", path.name):
            there.setdefault(match[2], []).append(match[1])
    for total, numbers in there.items():
        if not len({*numbers}) == len(numbers) == int(total):
            expected = (
                f"{int(total)} files {paths[0].name.partition('-')[0]}-*-of-{total}, each once"
            )
            raise layout_error(root, expected, listed(sorted(numbers)))


def stamp(path: Path) -> str:
    """Size and time of a file; of one that cannot be read, which decoding will say, the reason."""
    try:
        status = os.stat(path)
    except OSError as error:
        return str(error.strerror)
    return f"{status.st_size} {status.st_mtime_ns}"


def list_counts(others: Counter[str]) -> str:
    """Names with their counts, such as files that are not read."""
    names = [what if count == 1 else f"{count} {what}" for what, count in sorted(others.items())]
    return listed(names) if names else ""


def files_notes(dataset: Dataset, root: str) -> list[str]:
    """Notes on the user's own files: what is not read, classes that may be spellings of one, and
    those that are not tested.
    """
    notes = [f"not read in {root}: {dataset.unread}"] * bool(dataset.unread)
    if absent := dataset.untested:
        of = f"{count(len(absent))} of {count(len(dataset.class_names))} classes"
        notes.append(f"no test image in {root} is of {of}: {listed(absent)}")
    if alike := _alike_classes(dataset.class_names):
        notes.append(f"classes in {root} that may be spellings of one: {listed(alike)}")
    return notes


def transfer_note(dataset: Dataset, root: str, val_fraction: float | None) -> str:
    """Sizes and classes of the user's own files that scores are transferred to."""
    num_fitted, num_scored = dataset.split_sizes(val_fraction)
    parts = f"; parts by {dataset.parts_by}" if dataset.parts_by else ""
    return (
        f"scores are transferred to {root}: {count(num_fitted)} images to fit on, "
        f"{count(num_scored or 0)} to score, {count(len(dataset.class_names))} classes: "
        f"{listed(dataset.class_names)}{parts}"
    )


def _alike_classes(names: Sequence[str]) -> list[str]:
    """Names of classes, in pairs, that may be spellings of one: `Cat` and `cat`, `01` and `1`."""

    def plain(name: str) -> str | float:
        is_number = name.replace(".", "", 1).isdecimal()
        return float(name) if is_number else re.sub(r"[-_\s]+", " ", name.casefold()).strip()

    first = dict[str | float, str]()
    there = [(first.setdefault(plain(name), name), name) for name in names]
    return [f"{one} and {other}" for one, other in there if one != other]
