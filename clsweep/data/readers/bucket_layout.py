"""The layout of images in a bucket, of which none is here: from their names, as `folders` reads
them, or from an index that the first copy has left beside them.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from clsweep.catalog import Dataset
from clsweep.data.buckets import INDEX, Bucket, Stored, file_of, listed_bucket
from clsweep.data.image_files import SAMPLED_PICTURES
from clsweep.data.locations import AbsentError, DataPlace
from clsweep.data.readers.companions import holds_classes, shown_names, without_companions
from clsweep.data.readers.folders import (
    LABELS_TABLE,
    composed,
    other_files,
    require_one_part,
    require_own_folders,
)
from clsweep.data.sources import (
    DATA_PARTS,
    HELD_OUT,
    IMAGE_SUFFIXES,
    DataLayout,
    dataset_layout,
    files_digest,
    layout_error,
)
from clsweep.errors import listed

_INDEX_OF_ANY = f"{INDEX}.json"  # the one for all, of earlier versions
MAX_INDEX_BYTES, MAX_IMAGES = 2**20, 10**8
MAX_SAMPLED_BYTES = 4 * 2**20  # of a picture by whose size the others are reckoned
_SAME: dict[str, type] = {"digest": str, "unread": str, "parts_by": str, "dtype": str}
_SAME |= {"image_size": int, "num_channels": int}


def bucket_layout(dataset: Dataset, place: DataPlace, *, by_names: bool) -> DataLayout:
    """Labels, classes and digest as a copy of the images has them; `by_names`: no index counts.

    Raises:
        AbsentError: the bucket cannot be read, or they are not known without reading the images.
        RequestError: another layout.
    """
    bucket, objects = listed_bucket(place.root)
    if _is_named(dataset, objects):
        return _of_names(bucket, objects, by_class=dataset.name == "imagefolder")
    stamp, index = _stamp(dataset, place, objects), index_name(dataset, place)
    layout = None
    if not by_names:
        layout = _indexed(bucket, index, stamp) or _indexed(bucket, _INDEX_OF_ANY, stamp)
    if layout is None:
        raise AbsentError(
            f"{bucket.place}: expected {index} for its {len(objects)} files, whose names do not "
            "say how many images and classes there are, given none: the first machine that has "
            "copied the files leaves it there, if it may write there"
        )
    return layout


def leave_index(
    dataset: Dataset, place: DataPlace, bucket: Bucket, objects: Mapping[str, Stored]
) -> None:
    """Write the index of files in a bucket that have been copied to `place`, where plans need one
    and it is allowed.
    """
    stamp, index = _stamp(dataset, place, objects), index_name(dataset, place)
    if not dataset.files or _is_named(dataset, objects) or _indexed(bucket, index, stamp):
        return
    layout = dataset_layout(dataset, place)
    counts = {
        part: np.stack(np.unique(of, return_counts=True), axis=1).tolist()
        for part, of in layout.labels.items()
    }
    same = {name: getattr(layout, name) for name in _SAME}
    content = {"stamp": stamp, "counts": counts, "classes": layout.classes, **same}
    bucket.write(index, json.dumps(content).encode())


def _is_named(dataset: Dataset, objects: Collection[str]) -> bool:
    """True if names say what a plan needs: not where a table or packed files have the classes."""
    names = [name for name in objects if name.startswith("train/") and name.count("/") > 1]
    folders = shown_names([*{name.split("/", 2)[1] for name in names}])
    by_class = holds_classes(folders, has_table=LABELS_TABLE in objects)
    return dataset.name == "imagefiles" or (dataset.name == "imagefolder" and by_class)


def _of_names(bucket: Bucket, objects: Mapping[str, Stored], *, by_class: bool) -> DataLayout:
    """A folder by class, or of images alone, in the order in which it is read where it lies."""
    tops = {name.partition("/")[0] for name in objects if "/" in name}
    held_out = next((name for name in HELD_OUT if name in tops and "train" in tops), "")
    if by_class and not held_out and len(others := shown_names([*tops])) > 1:
        expected = "val/ or test/ beside train/, or train/ alone"
        raise layout_error(bucket.place, expected, listed(others))
    parts = {"train": "train/" if "train" in tops else "", "test": held_out and f"{held_out}/"}
    paths = {"train": _images_below(objects, parts["train"], by_class)}
    paths["test"] = _images_below(objects, parts["test"], by_class) if held_out else []
    if not paths["train"]:
        raise layout_error(bucket.place, "images to train on", listed(sorted(objects)))
    for part, folder in parts.items():  # as where files are read
        if folder and not paths[part]:
            raise layout_error(f"{bucket.place}/{folder}", "images to score", "none")
        below = [name for name in objects if by_class and folder and name.startswith(folder)]
        classes = shown_names([*{name.split("/", 2)[1] for name in below if name.count("/") > 1}])
        full = {name.split("/", 2)[1] for name in paths[part] if by_class}
        if empty := sorted({*classes} - full):
            raise layout_error(f"{bucket.place}/{folder}{empty[0]}", "an image in it", "none")
    require_one_part(bucket.place, paths["train"])
    if by_class:
        inside = [path.removeprefix("train/") for path in paths["train"]]
        require_own_folders(f"{bucket.place}/train", inside)
    number = dict[str, int]()
    for path in paths["train"] if by_class else ():
        number.setdefault(composed(path.split("/", 2)[1]), len(number))

    def label(path: str) -> int:
        return number[composed(path.split("/", 2)[1])] if by_class else -1

    unknown = {composed(path.split("/", 2)[1]) for path in paths["test"]} - number.keys()
    if by_class and unknown:
        place = f"{bucket.place}/{held_out}"
        raise layout_error(place, "classes that train/ has", listed(sorted(unknown)))
    paths = {part: sorted(of, key=label) for part, of in paths.items()}  # of two spellings
    return DataLayout(
        root=bucket.place, classes=tuple(number), describe=tuple,
        unread=other_files(objects, {path for of in paths.values() for path in of}),
        labels={part: np.array([*map(label, of)], np.int64) for part, of in paths.items()},
        digest=files_digest((name, objects[name].size) for part in paths for name in paths[part]),
        name=lambda part, row: f"{bucket.place}/{paths[part][row]}",
        sample=lambda rows: _contents(bucket, objects, [paths["train"][row] for row in rows]),
    )  # fmt: skip


def _contents(bucket: Bucket, objects: Mapping[str, Stored], names: Sequence[str]) -> list[bytes]:
    """Some objects, without those that are large or may not be read: a plan does without them."""

    def read(name: str) -> bytes:
        with contextlib.suppress(AbsentError):
            return bucket.read(name)
        return b""

    small = [name for name in names if objects[name].size <= MAX_SAMPLED_BYTES]
    with ThreadPoolExecutor(SAMPLED_PICTURES) as pool:
        return [*filter(None, pool.map(read, small))]


def _images_below(objects: Iterable[str], folder: str, by_class: bool) -> list[str]:
    """Sorted by class, then by the path within it."""
    depth = folder.count("/") + by_class
    images = [
        name
        for name in objects
        if name.startswith(folder)
        and name.count("/") >= depth
        and name.lower().endswith(IMAGE_SUFFIXES)
        and len(shown_names(parts := name.split("/"))) == len(parts)
    ]
    return sorted(without_companions(images, depth), key=lambda name: name.split("/", depth))


def _stamp(dataset: Dataset, place: DataPlace, objects: Mapping[str, Stored]) -> str:
    """The files and options that an index is made of: with others it does not count."""
    digest = hashlib.blake2b(f"{dataset.name} {place.value_range}".encode(), digest_size=8)
    for name, stored in sorted(objects.items()):
        digest.update(f"{name} {stored.size} {stored.time}\0".encode())
    return digest.hexdigest()


def index_name(dataset: Dataset, place: DataPlace) -> str:
    """The name of the index of one data set: a folder may have several."""
    own = f"{dataset.name} {file_of(place.root)} {place.value_range}".encode()
    return f"{INDEX}-{hashlib.blake2b(own, digest_size=4).hexdigest()}.json"


def _indexed(bucket: Bucket, index: str, stamp: str) -> DataLayout | None:
    """The layout that an index describes, its images sorted by class; None if none fits."""
    try:
        content = json.loads(bucket.read(index, MAX_INDEX_BYTES))
        classes = tuple(map(str, content["classes"]))
        counts = {part: np.array(content["counts"][part], np.int64).reshape(-1, 2)
                  for part in DATA_PARTS}  # fmt: skip
        both = np.concatenate([*counts.values()])
        is_sound = (both >= [-1, 0]).all() and (both < [len(classes), MAX_IMAGES]).all()
        is_sound &= both[:, 1].sum() < MAX_IMAGES
        is_sound &= all(type(content[name]) is kind for name, kind in _SAME.items())
        if content["stamp"] != stamp or not is_sound:
            return None
        return DataLayout(
            root=bucket.place, classes=classes, describe=tuple,
            labels={part: np.repeat(of[:, 0], of[:, 1]) for part, of in counts.items()},
            name=lambda part, row: f"{bucket.place}: {part} {row}",
            **{name: content[name] for name in _SAME},
        )  # fmt: skip
    except (AbsentError, ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return None
