"""The records of a file that an offline run of W&B wrote, in LevelDB's log format.

After a header of 7 bytes come blocks of 32 KiB with pieces of records: checksum, length, kind. Each
record is a protocol buffer, which the `wandb` package reads.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from clsweep.errors import RequestError

_BLOCK, _HEADER = 32 * 1024, 7


def read_records(file: Path) -> Iterator[Any]:
    """Each `Record` of the file, as `wandb.proto` has it.

    Raises:
        RequestError: `wandb` is not installed.
        ValueError: the file is no such log, or a record is none of W&B's.
    """
    try:
        from wandb.proto.wandb_internal_pb2 import Record
    except ModuleNotFoundError:
        needs = "an offline run of W&B is read by its package: pip install 'clsweep[wandb]'"
        raise RequestError(f"{file}: {needs}") from None
    for data in _records_of_log(file.read_bytes()):
        try:
            yield Record.FromString(data)
        except Exception as error:  # protobuf's own, a package that wandb brings
            raise ValueError(f"expected a record of W&B: {error}") from None


def values_of_items(items: Iterable[Any]) -> dict[str, Any]:
    """The entries of a config, summary or history by name; nested names are joined by dots."""
    names = ((item.key or ".".join(item.nested_key), item.value_json) for item in items)
    return {name: json.loads(text or "null") for name, text in names}


def _records_of_log(data: bytes) -> Iterator[bytes]:
    """The records' bytes; one that was cut off when the run died is left out."""
    if not data.startswith(b":W&B"):
        raise ValueError("expected a file that begins with :W&B")
    start, record = _HEADER, b""
    while start + _HEADER <= len(data):
        if _BLOCK - start % _BLOCK < _HEADER:  # the rest of a block that holds no further head
            start += _BLOCK - start % _BLOCK
            continue
        size, kind = int.from_bytes(data[start + 4 : start + 6], "little"), data[start + 6]
        piece = data[start + _HEADER : start + _HEADER + size]
        if len(piece) < size or not kind:
            return
        record = piece if kind in (1, 2) else record + piece  # 1: whole, 2: first, 4: last
        if kind in (1, 4):
            yield record
        start += _HEADER + size
