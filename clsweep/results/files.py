"""Whole files under one place, a folder or an object store: a reader sees the old file or the new one, never a part."""

from __future__ import annotations

import contextlib
import os
import re
import uuid
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from clsweep.errors import RequestError

if TYPE_CHECKING:
    import pyarrow as pa

    from clsweep.results.object_store import ObjectStore

T = TypeVar("T")
Data: TypeAlias = "bytes | pa.Buffer"

UNFINISHED = ".tmp"


class Disk:
    """A folder of this machine. Files are written under a temporary name and renamed."""

    def __init__(self, folder: str):
        self.folder = os.path.abspath(folder)

    def place(self, name: str) -> str:
        """Where a user finds the file."""
        return f"{self.folder}/{name}"

    def is_file(self, name: str) -> bool:
        return os.path.isfile(self.place(name))

    def names(self, folder: str) -> list[str]:
        """Names of the files in a folder; none if there is no such folder."""
        try:
            return [name for name in os.listdir(self.place(folder)) if not name.endswith(UNFINISHED)]
        except FileNotFoundError:
            return []
        except OSError as error:
            raise RequestError(f"{self.place(folder)}: expected a folder: {error.strerror}") from None

    def read(self, name: str) -> bytes:
        """The content of a file.

        Raises:
            FileNotFoundError: there is none.
            RequestError: it cannot be read.
        """
        try:
            with open(self.place(name), "rb") as file:
                return file.read()
        except FileNotFoundError:
            raise
        except OSError as error:
            raise RequestError(f"{self.place(name)}: cannot be read: {error.strerror}") from None

    def write(self, name: str, data: Data, *, durable: bool = True) -> None:
        """Replace a file; with `durable`, it is on the disk when this returns."""
        path = self.place(name)
        folder = os.path.dirname(path)
        temporary = f"{folder}/.{uuid.uuid4().hex}{UNFINISHED}"
        try:
            os.makedirs(folder, exist_ok=True)
            with open(temporary, "wb") as file:
                file.write(data)
                if durable:
                    file.flush()
                    os.fsync(file.fileno())
            os.replace(temporary, path)
            if durable:
                _sync_folder(folder)
        except OSError as error:
            with contextlib.suppress(OSError):
                os.remove(temporary)
            raise RequestError(f"{path}: cannot be written: {error}") from error

    def remove(self, name: str) -> None:
        """Remove a file if it is there."""
        try:
            os.remove(self.place(name))
        except FileNotFoundError:
            pass
        except OSError as error:
            raise RequestError(f"{self.place(name)}: cannot be removed: {error.strerror}") from error

    def remove_unfinished(self, folders: Iterable[str]) -> None:
        """Remove what writers that were killed left in these folders; nobody else may be writing."""
        for folder in folders:
            with contextlib.suppress(FileNotFoundError):
                for name in os.listdir(self.place(folder)):
                    if re.fullmatch(rf"\.[0-9a-f]+{re.escape(UNFINISHED)}", name):  # others may be the user's
                        self.remove(f"{folder}/{name}")

    def each(self, action: Callable[[str], T], names: Iterable[str]) -> list[T]:
        """The results of an action on every file, in order."""
        return [action(name) for name in names]


def open_files(path: str) -> Disk | ObjectStore:
    """The files at a folder, `results/tau`, or at a URI, `s3://bucket/tau`.

    Raises:
        RequestError: there is nothing like it.
    """
    if "://" not in path:
        return Disk(path)
    from clsweep.results.object_store import open_uri  # deferred: a local folder does not wait for it

    return open_uri(path)


def _sync_folder(folder: str) -> None:
    """Return once the names in a folder are on the disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
