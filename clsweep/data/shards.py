"""Images in tar files, as WebDataset packs them: ROOT/train-*.tar and ROOT/val-*.tar (or test).

The files of one sample share a name up to its first dot: `000123.jpg` and `000123.cls`, which holds
the number of its class. A sample without `.cls` has no class.
"""

from __future__ import annotations

import io
import os
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from clsweep.data.availability import DataPlace
from clsweep.data.folders import SUFFIXES
from clsweep.data.found import HELD_OUT, PARTS, Found, files_digest, listed, numbered, stamp
from clsweep.data.pictures import require_regular
from clsweep.errors import RequestError

_MAX_CLASS_BYTES = 32


@dataclass(frozen=True)
class Sample:
    """One image: where its bytes lie, and its class, -1 for none."""

    shard: Path
    name: str
    start: int
    size: int
    label: int


def find(place: DataPlace) -> Found:
    """The images of tar files.

    Raises:
        RequestError: place, expected and given.
    """
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
