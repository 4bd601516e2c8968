"""Values and files as other tools write them; SQLite is opened so that it cannot be changed."""

from __future__ import annotations

import codecs
import contextlib
import csv
import gzip
import json
import math
import re
import sqlite3
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from clsweep.errors import RequestError, first_line, nearest

INTEGER = re.compile(r"[+-]?(0|[1-9][0-9]{0,17})")
DECIMAL = re.compile(
    r"[+-]?((0|[1-9][0-9]*)\.[0-9]*|\.[0-9]+|(0|[1-9][0-9]*)(?=[eE]))([eE][+-]?[0-9]{1,4})?"
)
ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")  # of functions among settings
TENSOR = re.compile(r"tensor\((.+?)(, .*)?\)")  # a number, as text
DAMAGED: tuple[type[Exception], ...] = (
    OSError, ValueError, LookupError, TypeError, AttributeError, SyntaxError, RecursionError,
    ArithmeticError, MemoryError, csv.Error,
)  # fmt: skip


@contextlib.contextmanager
def told(place: Path, kind: str, *damaged: type[Exception]) -> Iterator[None]:
    """Say in one line of whatever a damaged file comes to that it is no such thing.

    damaged: what it may come to beside `DAMAGED`.
    """
    try:
        yield
    except RequestError:
        raise
    except DAMAGED + damaged as error:
        raise RequestError(f"{place}: cannot be read as {kind}: {first_line(error)}") from None


def chosen(known: Collection[str], asked: str | None, kind: str, source: Path) -> list[str]:
    """The groups of trials to read: all that are known, or the one that is asked for.

    Raises:
        RequestError: it is not known.
    """
    if asked is not None and asked not in known:
        hint = f"{nearest(asked, known)} Expected one of: {', '.join(known)}"
        raise RequestError(f"{source}: no {kind} {asked!r}.{hint}")
    return [*known] if asked is None else [asked]


def flat(tree: Mapping[str, Any], root: str = "", separator: str = ".") -> dict[str, Any]:
    """Nested settings under one name each; a list is a text.

    Raises:
        ValueError: `{"a.b": 5, "a": {"b": 1}}` has two values of one name.
    """
    found: dict[str, Any] = {}
    for name, value in tree.items():
        key = f"{root}{name}"
        plain = json.dumps(value) if isinstance(value, list | tuple) else value
        is_nested = isinstance(value, Mapping)
        new = flat(value, f"{key}{separator}", separator) if is_nested else {key: plain}
        if twice := [each for each in new if repr(found.get(each, new[each])) != repr(new[each])]:
            raise ValueError(f"two values are called {twice[0]}")
        found |= new
    return found


def numbers(tree: Mapping[str, Any], separator: str = ".") -> dict[str, float]:
    """The numbers among nested results, which may stand as texts; true and false are none."""
    found = {
        name: parsed(TENSOR.sub(r"\1", value)) if isinstance(value, str) else value
        for name, value in flat(tree, separator=separator).items()
    }
    return {
        name: float(value)
        for name, value in found.items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    }


def text_of(path: Path) -> str:
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


def parsed(text: str) -> Any:
    """The number, truth value or text that a tool wrote as text. 64_64, 007 and 12e4567 are texts,
    which Python's own reading would make 6464, 7 and infinity of.
    """
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    if text in ("None", "null", ""):
        return None
    if INTEGER.fullmatch(text):
        return int(text)
    if DECIMAL.fullmatch(text) and math.isfinite(float(text)):
        return float(text)
    return float(text) if text.lower().lstrip("+-") in ("nan", "inf", "infinity") else text


def is_sqlite(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(15) == b"SQLite format 3"


def opened(path: Path) -> contextlib.closing[sqlite3.Connection]:
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
