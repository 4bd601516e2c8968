"""Images in a folder that Hugging Face's `datasets` wrote, or as its hub keeps them: Arrow files of
`save_to_disk`, or Parquet files named after their split. Read with pyarrow alone.

The images are the one column of type Image, or of {bytes, path}. The classes are `label`, or
another column with such a name, of whole numbers or of names, or else the one of type ClassLabel.
"""

from __future__ import annotations

import io
import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from clsweep.data.image_files import require_regular
from clsweep.data.locations import DataPlace
from clsweep.data.sources import (
    DATA_PARTS,
    HELD_OUT,
    DataLayout,
    classes_error,
    files_digest,
    layout_error,
    list_counts,
    require_all_numbered,
    stamp,
)
from clsweep.errors import RequestError, listed

_LABELS = ("label", "labels", "fine_label", "target", "class")
_UNREADABLE = (OSError, ValueError, KeyError, TypeError, pa.ArrowException)


@dataclass(frozen=True)
class _File:
    """One file of a split: a table in groups of rows, of which an Arrow file has one."""

    path: Path

    @property
    def is_parquet(self) -> bool:
        return self.path.suffix == ".parquet"

    @cached_property
    def starts(self) -> tuple[int, ...]:
        """Where each group of rows begins, and where the last ends."""
        require_regular(self.path)
        if not self.is_parquet:
            return 0, self.arrow.num_rows
        with pq.ParquetFile(self.path) as file:
            meta = file.metadata
            counts = [meta.row_group(group).num_rows for group in range(meta.num_row_groups)]
        return 0, *np.cumsum(counts).tolist()

    def cells(self, name: str) -> list[Any]:
        """A column."""
        table = pq.read_table(self.path, columns=[name]) if self.is_parquet else self.arrow
        return list(table[name].to_pylist())

    @property
    def arrow(self) -> pa.Table:
        return _arrow_table(self.path, stamp(self.path))


@lru_cache(maxsize=64)
def _arrow_table(path: Path, _stamp: str) -> pa.Table:
    """Mapped, not read."""
    return pa.ipc.open_stream(pa.memory_map(str(path))).read_all()


@lru_cache(maxsize=8)
def _parquet_group(path: Path, group: int, column: str, _stamp: str) -> pa.ChunkedArray:
    with pq.ParquetFile(path) as file:
        return file.read_row_group(group, columns=[column])[column]


def hugging_face_layout(place: DataPlace) -> DataLayout:
    """The images of a folder of `datasets`.

    Raises:
        RequestError: place, expected and given.
    """
    root = place.root_folder
    paths, others = _paths(root)
    files = {part: [_File(path) for path in paths[part]] for part in DATA_PARTS}
    try:
        ends = {part: np.cumsum([file.starts[-1] for file in files[part]]) for part in DATA_PARTS}
        first = files["train"][0]
        schema = pq.read_schema(first.path) if first.is_parquet else first.arrow.schema
        image, label, names = _columns(root, schema)
        others.update(name for name in schema.names if name not in (image, label))
        number = None
        if label and _is_text(schema.field(label).type):
            used = {cell for file in files["train"] for cell in file.cells(label)} - {None}
            names = tuple(sorted(used))
            number = {name: i for i, name in enumerate(names)}
        labels = {part: _labels(root, files[part], label, number) for part in DATA_PARTS}
    except RequestError:
        raise
    except _UNREADABLE as error:
        raise layout_error(root, "a folder of datasets", error) from None
    largest = max(numbers.max(initial=-1) for numbers in labels.values())
    if names and largest >= len(names):
        raise layout_error(root, f"classes below {len(names)}", largest)

    def locate(part: str, row: int) -> tuple[_File, int]:
        number = int(np.searchsorted(ends[part], row, side="right"))
        before = int(ends[part][number - 1]) if number else 0
        return files[part][number], row - before

    def read(part: str, row: int) -> io.BytesIO:
        file, at = locate(part, row)
        group = int(np.searchsorted(file.starts, at, side="right")) - 1
        if file.is_parquet:
            column = _parquet_group(file.path, group, image, stamp(file.path))
        else:
            column = file.arrow[image]
        cell = column[at - file.starts[group]].as_py()
        if cell is None or cell["bytes"] is None:
            given = f"the path {path}" if cell and (path := cell.get("path")) else "none"
            expected = "expected an image in the row, as save_to_disk() embeds it"
            raise ValueError(f"{expected}, given {given}")
        return io.BytesIO(cell["bytes"])

    def name(part: str, row: int) -> str:
        file, at = locate(part, row)
        return f"{file.path}: row {at}"

    every = [file.path for part in DATA_PARTS for file in files[part]]
    return DataLayout(
        root=root, labels=labels, unread=list_counts(others), open=read, name=name, classes=names,
        describe=lambda: (f"{path.name} {stamp(path)}" for path in every),
        digest=files_digest((path.name, path.stat().st_size) for path in every),
    )  # fmt: skip


def _paths(root: Path) -> tuple[dict[str, list[Path]], Counter[str]]:
    """The files of either part, and the splits that are neither."""
    if not root.is_dir():
        raise layout_error(root, "a folder of datasets", "no such folder")
    if (root / "dataset_dict.json").is_file():
        splits = {path.parent.name: _arrow_files(path.parent) for path in root.glob("*/state.json")}
    elif (root / "state.json").is_file():
        splits = {"train": _arrow_files(root)}
    else:
        splits = _parquet_files(root)
    test = next((name for name in HELD_OUT if splits.get(name)), None)
    if not splits.get("train"):
        expected = "dataset_dict.json, state.json or train-*.parquet"
        given = listed(sorted(splits) or sorted(path.name for path in root.iterdir()))
        raise layout_error(root, f"{expected}, with a split train", given)
    others = Counter(f"split {name}" for name in splits if name not in ("train", test))
    read = {path for paths in splits.values() for path in paths}
    unread = (str(at.relative_to(root)) for at in root.rglob("*.parquet") if at not in read)
    others.update(re.split("[-.]", at)[0] + "*.parquet" for at in unread if at[0] != ".")
    return {"train": splits["train"], "test": splits[test] if test else []}, others


def _arrow_files(folder: Path) -> list[Path]:
    """The files of a split in the order that its state names them."""
    at = folder / "state.json"
    try:
        require_regular(at)
        state = json.loads(at.read_bytes())
        names = [Path(str(entry["filename"])).name for entry in state["_data_files"]]
        if state.get("_indices_files"):
            raise ValueError("rows chosen by indices: save it again after flatten_indices()")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise layout_error(at, "the state of a data set", error) from None
    return [folder / name for name in names]


def _parquet_files(root: Path) -> dict[str, list[Path]]:
    """Split -> files, named after their split or in a folder of that name, in ROOT or ROOT/data."""
    splits: dict[str, list[Path]] = {}
    for folder in (root, root / "data"):
        for name in ("train", *HELD_OUT):
            paths = [*folder.glob(f"{name}-*.parquet"), *folder.glob(f"{name}.parquet")]
            paths += folder.glob(f"{name}/*.parquet")
            if paths:
                splits.setdefault(name, []).extend(sorted(paths))
    for paths in splits.values():
        require_all_numbered(root, paths)
    return splits


def _columns(root: Path, schema: pa.Schema) -> tuple[str, str, tuple[str, ...]]:
    """The column of the images, that of their classes, or "", and their names, if there are any."""
    metadata = (schema.metadata or {}).get(b"huggingface")
    features: Any = json.loads(metadata)["info"]["features"] if metadata else {}
    typed = [name for name, kind in features.items() if _type(kind) == "Image"]
    structs = [field for field in schema if pa.types.is_struct(field.type)]
    encoded = [f.name for f in structs if {"bytes", "path"} <= {inner.name for inner in f.type}]
    images = typed or encoded
    if len(images) != 1:
        given = listed([f"{field.name} {field.type}" for field in schema])
        raise layout_error(root, "one column of images", given)
    targets = [name for name in _LABELS if name in schema.names]
    label = next((name for name in targets if _is_class(schema.field(name).type)), "")
    if targets and not label:
        given = f"{targets[0]} {schema.field(targets[0]).type}"
        raise classes_error(root, given, names=", or names")
    if not label and (classes := [n for n in features if _type(features[n]) == "ClassLabel"]):
        if len(classes) > 1:
            known = f"{', '.join(_LABELS[:-1])} or {_LABELS[-1]}"
            raise layout_error(root, f"a column of classes called {known}", listed(classes))
        [label] = classes
    names: Sequence[Any] = features.get(label, {}).get("names") or () if label else ()
    return images[0], label, tuple(map(str, names))


def _type(feature: Any) -> str:
    return str(feature.get("_type", "")) if isinstance(feature, dict) else ""


def _is_text(kind: pa.DataType) -> bool:
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _is_class(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_boolean(kind)) or _is_text(kind)


def _labels(
    root: Path, files: Sequence[_File], label: str, number: Mapping[str, int] | None
) -> np.ndarray:
    """int64 (N,), -1 where there is none; `number`: that of each class, of cells with names."""
    parts = [np.zeros(0, np.int64)]
    for file in files:
        labels = np.full(file.starts[-1], -1, np.int64)
        if label:
            cells = file.cells(label)
            if number is not None:
                if unknown := {*cells} - {*number, None}:
                    expected = "test images of classes that the training images have"
                    raise layout_error(root, expected, f"class {min(unknown)}")
                cells = [number.get(cell) for cell in cells]
            labels[:] = [-1 if cell is None else cell for cell in cells]
        if labels.min(initial=0) < -1:
            raise ValueError(f"{file.path.name}: {label}: expected classes from 0 on or -1")
        parts.append(labels)
    return np.concatenate(parts)
