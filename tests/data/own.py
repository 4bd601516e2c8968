"""Data sets of the user, as they are read."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from clsweep.catalog import DATASET
from clsweep.data.datasets import Splits, load_splits
from clsweep.data.locations import DataPlace
from clsweep.data.sources import dataset_layout, sized_dataset
from clsweep.errors import RequestError

SIZE = 16


def load(name: str, root: Path, value_range: str | None = None, **sizes: Any) -> Splits:
    place = DataPlace(root=str(root), cache=str(root.parent / "cache"), value_range=value_range)
    if DATASET[name].keeps_whole:
        sizes = {"image_size": SIZE, **sizes}
    row = sized_dataset(name, place, val_fraction=0.25, **sizes)
    config = {
        "dataset": name, "val_fraction": 0.25, "image_size": row.image_size,
        "num_train": row.num_train + row.num_unlabeled, "num_unlabeled": row.num_unlabeled,
        "num_classes": row.num_classes, "channels": row.channels, "store_size": 40,
        "images_digest": row.images_digest,
    }  # fmt: skip
    splits = load_splits(config, place)
    assert len(splits.train) + len(splits.val) == config["num_train"]
    assert len(splits.test) == row.num_test
    return splits


def layout_of(name: str, root: Path) -> Any:
    return dataset_layout(DATASET[name], DataPlace(root=str(root)))


def refusal(name: str, root: Path, *arguments: Any) -> str:
    with pytest.raises(RequestError) as caught:
        load(name, root, *arguments)
    [line] = str(caught.value).splitlines()
    return line


def noise(count: int, *shape: int, dtype: str = "uint8") -> np.ndarray:
    high = np.iinfo(dtype).max + 1
    return np.random.default_rng(0).integers(0, high, (count, *shape), dtype=dtype)


def png(pixels: np.ndarray) -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


def write_tar(path: Path, files: dict[str, bytes]) -> None:
    path.parent.mkdir(exist_ok=True)
    with tarfile.open(path, "w") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))


def of_rows(splits: Splits) -> dict[int, tuple[np.ndarray, int]]:
    """Row of the file -> pixels and class, of what is trained and validated on."""
    return {
        int(row): (split.images[row], int(label))
        for split in (splits.train, splits.val)
        for row, label in zip(split.rows, split.labels, strict=True)
    }
