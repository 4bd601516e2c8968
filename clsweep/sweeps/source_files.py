"""Files as other tools write them; SQLite is opened so that it cannot be changed."""

from __future__ import annotations

import codecs
import contextlib
import csv
import gzip
import sqlite3
from collections.abc import Collection, Iterator
from pathlib import Path

from clsweep.errors import RequestError, first_line, nearest

_DAMAGED: tuple[type[Exception], ...] = (
    OSError, ValueError, LookupError, TypeError, AttributeError, SyntaxError, RecursionError,
    ArithmeticError, MemoryError, csv.Error,
)  # fmt: skip


@contextlib.contextmanager
def refuse_damaged(place: Path, kind: str, *damaged: type[Exception]) -> Iterator[None]:
    """Refuse in one line a damaged file of that kind, whatever error it comes to.

    damaged: further classes of error that it may come to.
    """
    try:
        yield
    except RequestError:
        raise
    except _DAMAGED + damaged as error:
        raise RequestError(f"{place}: cannot be read as {kind}: {first_line(error)}") from None


def select_groups(known: Collection[str], name: str | None, kind: str, source: Path) -> list[str]:
    """The groups of trials to read: all that are known, or the one of that name.

    Raises:
        RequestError: it is not known.
    """
    if name is not None and name not in known:
        hint = f"{nearest(name, known)} Expected one of: {', '.join(known)}"
        raise RequestError(f"{source}: no {kind} {name!r}.{hint}")
    return [*known] if name is None else [name]


def read_text(path: Path) -> str:
    """A file of text in UTF-8, or in UTF-16 as Excel writes it, which may be packed (.gz).

    Raises:
        RequestError: it is neither; names the line.
    """
    data = path.read_bytes()
    data = gzip.decompress(data) if path.suffix.lower() == ".gz" else data
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return data.decode("utf-16")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line, byte = data.count(b"\n", 0, error.start) + 1, data[error.start]
        raise RequestError(f"{path}:{line}: expected UTF-8, given the byte 0x{byte:02x}") from None


def is_sqlite(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(15) == b"SQLite format 3"


def open_sqlite(path: Path) -> contextlib.closing[sqlite3.Connection]:
    """A connection to a SQLite file that cannot change it.

    Raises:
        ValueError: it has views, which may have no end: neither tool makes one.
    """
    uri = f"{path.absolute().as_uri()}?mode=ro"
    base = sqlite3.connect(uri, uri=True)
    if base.execute("SELECT 1 FROM sqlite_master WHERE type = 'view'").fetchone():
        base.close()
        raise ValueError("expected tables, found a view")
    return contextlib.closing(base)
