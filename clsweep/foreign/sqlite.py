"""A SQLite file of another tool, opened so that it cannot be changed."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

Rows = Callable[[str], list[Any]]


def is_sqlite(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(15) == b"SQLite format 3"


@contextlib.contextmanager
def opened(path: Path) -> Iterator[Rows]:
    """What answers a query with all its rows; the file is read only."""
    connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)
    try:
        yield lambda query: connection.execute(query).fetchall()
    finally:
        connection.close()
