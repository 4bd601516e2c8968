"""Images in tar files, as WebDataset packs them."""

from __future__ import annotations

import io
import json
import os
import tarfile
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from clsweep.data.image_files import require_regular
from clsweep.data.locations import DataPlace
from clsweep.data.readers.companions import file_kind, shown_names, without_companions
from clsweep.data.sources import (
    DATA_PARTS,
    HELD_OUT,
    IMAGE_SUFFIXES,
    DataLayout,
    classes_error,
    files_digest,
    layout_error,
    list_counts,
    require_all_numbered,
    stamp,
)
from clsweep.errors import RequestError, listed

_CLASSES = ("cls", "txt", "json")  # ends of the files that may hold the class of a sample
_MAX_CLASS_BYTES = 2**16


class Sample(NamedTuple):
    """One image: where its bytes lie, and its class, -1 for none, by what says it."""

    shard: Path
    name: str
    start: int
    size: int
    labels: Mapping[str, int]
    label: int = -1


def shards_layout(place: DataPlace) -> DataLayout:
    """The images of tar files, as WebDataset packs them: ROOT/train-*.tar, ROOT/val-*.tar or test.

    The files of one sample share a name up to its first dot: `000123.jpg` and `000123.cls`, which
    holds the number of its class. Where there is no `.cls`, a `.txt` of such a number or a `.json`
    with its `label` does, if each of them has one. A sample without has no class.

    Raises:
        RequestError: place, expected and given.
    """
    import numpy as np

    root = place.root_folder
    shards = _shards(root)
    classes, rest = Counter[str](), Counter[str]()
    samples = {p: [s for at in shards[p] for s in _samples(at, classes, rest)] for p in DATA_PARTS}
    says = next((kind for kind in _CLASSES if classes[kind] and not rest[kind]), "")
    others = Counter({f"*.{kind}": n for kind, n in (classes + rest).items() if kind != says})
    for part in DATA_PARTS:
        every = [s._replace(label=s.labels.get(says, -1)) for s in samples[part]]
        pictures = {*without_companions([s.name for s in every])}
        samples[part] = [s for s in every if s.label >= 0 or s.name in pictures]
        others.update(file_kind(s.name) for s in every if s.label < 0 and s.name not in pictures)
    used = {path.name for part in DATA_PARTS for path in shards[part]}
    others.update(path.name for path in root.iterdir() if path.name not in used)
    labels = {part: np.array([s.label for s in samples[part]], np.int64) for part in DATA_PARTS}
    if not samples["train"]:
        dotted = [kind for kind in rest if kind.lower().endswith(IMAGE_SUFFIXES)]
        rule = " named KEY.jpg, where KEY ends at the first dot" if dotted else ""
        given = f"KEY.{dotted[0]}" if dotted else "none"
        raise layout_error(root, f"images in train-*.tar{rule}", given)

    def read(part: str, row: int) -> io.BytesIO:
        sample = samples[part][row]
        with sample.shard.open("rb") as file:
            return io.BytesIO(os.pread(file.fileno(), sample.size, sample.start))

    return DataLayout(
        root=root, labels=labels, open=read, unread=list_counts(others),
        describe=lambda: (f"{s} {stamp(s.shard)}" for part in DATA_PARTS for s in samples[part]),
        digest=files_digest(
            (f"{s.shard.name}/{s.name} {s.label}", s.size)
            for part in DATA_PARTS
            for s in samples[part]
        ),
        name=lambda part, row: f"{samples[part][row].shard}: {samples[part][row].name}",
    )  # fmt: skip


def _shards(root: Path) -> dict[str, list[Path]]:
    if not root.is_dir():
        raise layout_error(root, "a folder of train-*.tar files", "no such folder")
    paths = sorted(root.glob("*.tar"))
    of = {
        part: [path for path in paths if path.stem == part or path.name.startswith(f"{part}-")]
        for part in ("train", *HELD_OUT)
    }
    if not of["train"]:
        raise layout_error(
            root, "train-*.tar", listed([path.name for path in sorted(root.iterdir())])
        )
    parts = {"train": of["train"], "test": next((of[name] for name in HELD_OUT if of[name]), [])}
    for part in DATA_PARTS:
        require_all_numbered(root, parts[part])
    return parts


def _samples(shard: Path, classes: Counter[str], rest: Counter[str]) -> Iterator[Sample]:
    """The samples of a tar file, in its order. Other files are counted by their ends: `classes`
    has those with the number of a class, `rest` all others.
    """
    images: dict[str, tarfile.TarInfo] = {}
    labels: dict[str, dict[str, int]] = {}
    try:
        require_regular(shard)
        with tarfile.open(shard, "r:") as archive:
            for member in filter(tarfile.TarInfo.isfile, archive):
                folder, _, name = member.name.removeprefix("./").rpartition("/")
                if len(shown_names(names := [*folder.split("/"), name])) < len(names):
                    continue
                key, _, kind = name.partition(".")
                key = f"{folder}/{key}"
                if f".{kind.lower()}" in IMAGE_SUFFIXES:
                    if key in images:
                        given = f"{images[key].name} and {member.name}"
                        raise ValueError(f"expected one image a sample, given {given}")
                    images[key] = member
                    continue
                label = None
                if (kind := kind.lower()) in _CLASSES:
                    file = archive.extractfile(member)
                    text = file.read(_MAX_CLASS_BYTES) if file else b""
                    label = _class_in(text)
                    if label is None and kind == "cls":
                        raise classes_error(f"{shard}: {member.name}", f"{text!r:.40}")
                if label is None:
                    rest[kind] += 1
                else:
                    classes[kind] += 1
                    labels.setdefault(key, {})[kind] = label
            _require_end(shard, archive.offset)
        if alone := sorted(key.lstrip("/") for key in labels.keys() - images):
            raise layout_error(shard, "an image beside each class", f"none beside {listed(alone)}")
    except RequestError:
        raise
    except (OSError, ValueError, tarfile.TarError) as error:
        raise layout_error(shard, "a plain tar file", error) from None
    for key, at in images.items():
        yield Sample(shard, at.name, at.offset_data, at.size, labels.get(key, {}))


def _require_end(shard: Path, at: int) -> None:
    """ValueError where a tar file has no end, or more behind it: `tarfile` takes a damaged head of
    a file for the end, too.
    """
    with shard.open("rb") as file:
        file.seek(at)
        num_zeros = 0
        while block := file.read(2**20):
            num_zeros += len(block)
            if block.strip(b"\0"):
                raise ValueError(f"expected zeros to the end from byte {at} on, given other bytes")
    if not num_zeros:
        raise ValueError(f"expected zeros at the end, given none: cut after {at} bytes")


def _class_in(text: bytes) -> int | None:
    """The number of a class, alone or as `label` of a table in JSON."""
    try:
        content = int(text) if text.strip().isdigit() else json.loads(text)
    except (ValueError, RecursionError):
        return None
    content = content.get("label") if isinstance(content, dict) else content
    return content if type(content) is int and 0 <= content < 2**63 else None
