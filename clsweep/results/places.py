"""Where whole files lie: in a folder of this machine, or below a prefix of an object store."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Protocol, TypeVar

from clsweep.errors import RequestError
from clsweep.results.disk import Data, Disk

T = TypeVar("T")


class Files(Protocol):
    """What a results folder needs of a place. Names are relative: `parts/trials/a-0.parquet`."""

    def place(self, name: str) -> str:
        """Where a user finds the file."""

    def is_file(self, name: str) -> bool: ...

    def names(self, folder: str) -> list[str]:
        """Names of the files in a folder; none if there is no such folder."""

    def read(self, name: str) -> bytes:
        """The content of a file.

        Raises:
            FileNotFoundError: there is none.
            RequestError: it cannot be read.
        """

    def write(self, name: str, data: Data, *, durable: bool = True) -> None:
        """Replace a file; with `durable`, it is safe when this returns."""

    def remove(self, name: str) -> None:
        """Remove a file if it is there."""

    def remove_unfinished(self, folders: Iterable[str]) -> None:
        """Remove what writers that were killed left in these folders; nobody else may be
        writing.
        """

    def each(self, action: Callable[[str], T], names: Iterable[str]) -> list[T]:
        """The results of an action on every file, in order."""


def open_files(path: str) -> Files:
    """The files at a folder, `results/tau`, or at a URI, `s3://bucket/tau` or `file:///tau`.

    Raises:
        RequestError: there is nothing like it, or its bucket cannot be asked for.
    """
    return _open_uri(path) if "://" in path else Disk(path)


# Opening a store looks for credentials and asks for the bucket's region.
@functools.lru_cache(maxsize=64)
def _open_uri(uri: str) -> Files:
    import pyarrow as pa
    import pyarrow.fs as pafs

    from clsweep.results.object_store import STORES, ObjectStore, patiently, reason

    try:
        fs, base = patiently(uri, lambda: pafs.FileSystem.from_uri(_with_short_writes(uri)))
    except (pa.ArrowException, OSError) as error:
        raise RequestError(
            f"{uri}: expected a folder or an object store's URI: {reason(error)}"
        ) from None
    if isinstance(fs, pafs.LocalFileSystem):
        return Disk(base)
    if fs.type_name not in STORES:
        raise RequestError(
            f"{uri}: expected a folder or an object store's URI, as in "
            f"s3://bucket/{base or 'results'}"
        )
    return ObjectStore(uri, fs, base)


def _with_short_writes(uri: str) -> str:
    """One request instead of three for a small object; a missing bucket is then noticed at its
    end.
    """
    if not uri.startswith("s3://") or "allow_delayed_open=" in uri:
        return uri
    return f"{uri}{'&' if '?' in uri else '?'}allow_delayed_open=true"
