"""Files as other tools write them; SQLite is opened so that it cannot be changed."""

from __future__ import annotations

import codecs
import contextlib
import csv
import gzip
import shutil
import sqlite3
import tempfile
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


@contextlib.contextmanager
def open_sqlite(path: Path) -> Iterator[sqlite3.Connection]:
    """A connection to a SQLite file that changes neither it nor its folder: of one with a log of
    writes that no process has open, a copy is read, or it has no log beside it.

    Raises:
        ValueError: it has views, which may have no end: no tool makes one.
    """
    log, shared = (path.with_name(path.name + end) for end in ("-wal", "-shm"))
    with contextlib.ExitStack() as opened:
        option = "mode=ro"
        with path.open("rb") as header:
            has_log = header.read(20)[18:] == b"\2\2"
        if has_log and not shared.exists():  # reading would leave both there
            option = "immutable=1"
            if log.exists():
                folder = Path(opened.enter_context(tempfile.TemporaryDirectory(prefix="clsweep-")))
                for file in (path, log):
                    shutil.copyfile(file, folder / file.name)
                path, option = folder / path.name, "mode=rw"
        uri = f"{path.absolute().as_uri()}?{option}"
        base = opened.enter_context(contextlib.closing(sqlite3.connect(uri, uri=True)))
        if base.execute("SELECT 1 FROM sqlite_master WHERE type = 'view'").fetchone():
            raise ValueError("expected tables, found a view")
        yield base


def refuse_links_out(source: Path, *paths: Path) -> None:
    """RequestError for a path of a sweep's folder that a link leads out of it."""
    root = source.resolve()
    for path in paths:
        if not path.resolve().is_relative_to(root):
            raise RequestError(f"{path}: expected a file in {source}, given a link out of it")
