"""Whole files in a folder of this machine: a reader sees the old file or the new one, never a
part.
"""

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

T = TypeVar("T")
Data: TypeAlias = "bytes | pa.Buffer"

UNFINISHED = ".tmp"


class Disk:
    """A folder of this machine. Files are written under a temporary name and renamed."""

    def __init__(self, folder: str):
        self.folder = os.path.abspath(folder)

    def place(self, name: str) -> str:
        return f"{self.folder}/{name}"

    def is_file(self, name: str) -> bool:
        return os.path.isfile(self.place(name))

    def names(self, folder: str) -> list[str]:
        try:
            return [
                name for name in os.listdir(self.place(folder)) if not name.endswith(UNFINISHED)
            ]
        except FileNotFoundError:
            return []
        except OSError as error:
            raise RequestError(
                f"{self.place(folder)}: expected a folder: {error.strerror}"
            ) from None

    def read(self, name: str) -> bytes:
        try:
            with open(self.place(name), "rb") as file:
                return file.read()
        except FileNotFoundError:
            raise
        except OSError as error:
            raise RequestError(f"{self.place(name)}: cannot be read: {error.strerror}") from None

    def write(self, name: str, data: Data, *, durable: bool = True) -> None:
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
        try:
            os.remove(self.place(name))
        except FileNotFoundError:
            pass
        except OSError as error:
            raise RequestError(
                f"{self.place(name)}: cannot be removed: {error.strerror}"
            ) from error

    def remove_unfinished(self, folders: Iterable[str]) -> None:
        for folder in folders:
            with contextlib.suppress(FileNotFoundError):
                for name in os.listdir(self.place(folder)):
                    # others may be the user's
                    if re.fullmatch(rf"\.[0-9a-f]+{re.escape(UNFINISHED)}", name):
                        self.remove(f"{folder}/{name}")

    def each(self, action: Callable[[str], T], names: Iterable[str]) -> list[T]:
        return [action(name) for name in names]


def _sync_folder(folder: str) -> None:
    """Return once the names in a folder are on the disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
