"""Whole files in a folder of this machine: a reader sees the old file or the new one.

A folder may come from anybody. Only regular files are opened, as a pipe would be waited for, and no
link leads out of the folder.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
import uuid
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from clsweep.errors import RequestError
from clsweep.files import sync

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T")
Data: TypeAlias = "bytes | pa.Buffer"

UNFINISHED = ".tmp"
LARGEST_DOCUMENT = 2**23  # bytes of a YAML or JSON file; reading more takes minutes
DOCUMENTS = (".yaml", ".json")


class Disk:
    """A folder of this machine. Files are written under a temporary name and renamed."""

    def __init__(self, folder: str):
        self.folder = os.path.abspath(folder)

    def place(self, name: str) -> str:
        """Where a user finds a file. Names are relative: `parts/trials/a-0.parquet`."""
        return f"{self.folder}/{name}"

    def inside(self, name: str) -> str:
        """The path of a file or folder with all links followed; RequestError outside of it."""
        root, path = os.path.realpath(self.folder), os.path.realpath(self.place(name))
        if os.path.commonpath([root, path]) != root:
            raise RequestError(
                f"{self.place(name)}: expected to stay in this folder, given a link to {path}; "
                "cp -rL makes a folder of the files themselves"
            )
        return path

    def is_file(self, name: str) -> bool:
        """The file is there; RequestError where that is no file of this folder."""
        path = self.inside(name)
        try:
            status = os.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            if not os.path.islink(self.place(name)):
                return False
            raise RequestError(f"{self.place(name)}: expected a file, given a dead link") from None
        except OSError as error:
            raise RequestError(f"{self.place(name)}: cannot be read: {error.strerror}") from None
        if not stat.S_ISREG(status.st_mode):
            kind = "a folder" if stat.S_ISDIR(status.st_mode) else "something else"
            raise RequestError(f"{self.place(name)}: expected a file, found {kind}")
        return True

    def descriptor(self, name: str, flags: int = os.O_RDONLY) -> int:
        """An open file, for the caller to close; with `os.O_CREAT` it is made. FileNotFoundError
        where there is none, RequestError for what is no file of this folder, or cannot be opened.
        """
        self.is_file(name)
        try:
            return os.open(self.inside(name), flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o644)
        except FileNotFoundError:
            raise
        except OSError as error:
            raise RequestError(f"{self.place(name)}: cannot be opened: {error.strerror}") from None

    def names(self, folder: str) -> list[str]:
        """Names of the files in a folder; none if there is no such folder."""
        return [name for name in self._listed(folder) if not name.endswith(UNFINISHED)]

    def _listed(self, folder: str) -> list[str]:
        try:
            return os.listdir(self.inside(folder))
        except OSError as error:
            if isinstance(error, FileNotFoundError) or not os.path.isdir(self.folder):
                return []
            place = self.place(folder)
            raise RequestError(f"{place}: expected a folder: {error.strerror}") from None

    def read(self, name: str) -> bytes:
        """The content of a file; FileNotFoundError if there is none, RequestError if unreadable."""
        with open(self.descriptor(name), "rb") as file:
            require_size(self.place(name), os.fstat(file.fileno()).st_size)
            try:
                return file.read()
            except (OSError, MemoryError) as error:
                reason = getattr(error, "strerror", "it does not fit into memory")
                raise RequestError(f"{self.place(name)}: cannot be read: {reason}") from None

    def write(self, name: str, data: Data, *, durable: bool = True) -> None:
        """Replace a file; with `durable`, it is safe when this returns."""
        path = self.place(name)
        folder = self.inside(os.path.dirname(name))
        temporary = f"{folder}/.{uuid.uuid4().hex}{UNFINISHED}"
        try:
            os.makedirs(folder, exist_ok=True)
            with open(temporary, "wb") as file:
                file.write(data)
                if durable:
                    file.flush()
                    os.fsync(file.fileno())
            os.replace(temporary, f"{folder}/{os.path.basename(name)}")
            if durable:
                sync(folder)
        except OSError as error:
            with contextlib.suppress(OSError):
                os.remove(temporary)
            raise RequestError(f"{path}: cannot be written: {error.strerror or error}") from error

    def remove(self, name: str) -> None:
        """Remove a file if it is there."""
        folder, _, file = name.rpartition("/")
        try:
            os.remove(f"{self.inside(folder)}/{file}")
        except FileNotFoundError:
            pass
        except OSError as error:
            place = self.place(name)
            raise RequestError(f"{place}: cannot be removed: {error.strerror}") from error

    def remove_unfinished(self, folders: Iterable[str]) -> None:
        """Remove what writers that were killed left in these folders; nobody else may write."""
        for folder in folders:
            for name in self._listed(folder):
                # others may be the user's
                if re.fullmatch(rf"\.[0-9a-f]+{re.escape(UNFINISHED)}", name):
                    self.remove(f"{folder}/{name}")

    def each(self, action: Callable[[str], T], names: Iterable[str]) -> list[T]:
        """The results of an action on every file, in order."""
        return [action(name) for name in names]


def require_size(place: str, num_bytes: int) -> None:
    """Raise RequestError for a document of more than `LARGEST_DOCUMENT` bytes."""
    if place.partition("?")[0].endswith(DOCUMENTS) and num_bytes > LARGEST_DOCUMENT:
        expected = f"expected at most {LARGEST_DOCUMENT:,} bytes"
        raise RequestError(f"{place}: {expected}, given {num_bytes:,}")
