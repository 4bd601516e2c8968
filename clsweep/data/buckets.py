"""Images that lie in an object store, or in whatever else pyarrow reads by a URI:
s3://BUCKET/PREFIX, gs://BUCKET/PREFIX, and file:///FOLDER of a disk that machines share.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias, TypeVar

import pyarrow as pa
import pyarrow.fs as pafs

from clsweep.data.locations import AbsentError
from clsweep.errors import RequestError
from clsweep.outages import is_out_of_order, patiently, reason

INDEX = "clsweep-index"  # begins the names of counts and classes where names do not tell them
RECENT_S = 30.0
T = TypeVar("T")


class Stored(NamedTuple):
    """Bytes of an object, and the second in which it was written, 0 where a store knows none."""

    size: int
    time: int


def file_of(uri: str) -> str:
    """The name of the one object that a URI names, of arrays; else empty."""
    name = uri.partition("?")[0].rpartition("/")[2]
    return name if name.endswith(".npz") else ""


class Bucket:
    """The objects below a URI; `folder` is a part of them. One that is not needed, for a plan, is
    not waited for where it cannot be reached.

    All methods wait for a store that is out of order. They raise, in one line, AbsentError where it
    cannot be reached or may not be read, and RequestError where it stays out of order.
    """

    def __init__(self, uri: str, folder: str = "", *, is_needed: bool = True):
        place, _, options = uri.partition("?")
        self.place = "/".join(filter(None, [place.rstrip("/"), folder]))
        if place.startswith("gs://") and "retry_limit_seconds" not in options:
            uri += f"{'&' if options else '?'}retry_limit_seconds=20"  # else it is 15 minutes
        self._is_needed = is_needed
        self._fs, base = self.reported(lambda: pafs.FileSystem.from_uri(uri))
        self._base = "/".join(filter(None, [base.rstrip("/"), folder]))
        self._file = file_of(uri)
        self._base = self._base.removesuffix(f"/{self._file}") if self._file else self._base

    def objects(self) -> dict[str, Stored]:
        """All objects by their names, but indexes.

        Raises:
            RequestError: there are none, or one would lead out of the folder or one of copies.
        """
        of_all = pafs.FileSelector(self._base, recursive=True)
        wanted = [f"{self._base}/{self._file}"] if self._file else of_all
        with contextlib.ExitStack() as stack:
            if sys.stderr.isatty():
                from rich.console import Console

                stack.enter_context(Console(stderr=True).status(f"Listing {self.place}"))
            self.reported(self._require_no_link)
            infos = self.reported(lambda: self._fs.get_file_info(wanted))
        objects = {
            info.path.removeprefix(f"{self._base}/"): Stored(
                info.size, (info.mtime_ns or 0) // 10**9
            )
            for info in infos
            if info.type == pafs.FileType.File and not info.base_name.startswith(INDEX)
        }
        for name in objects:
            if not {"", ".", ".."}.isdisjoint(name.split("/")) or "\0" in name:
                expected = "expected objects whose names can be those of files"
                raise RequestError(f"{self.place}: {expected}, given {name!r:.200}")
        if not objects:
            raise self._absent("none")
        return objects

    @property
    def _disk_folder(self) -> str:
        """The folder that is read as a whole, on a disk; else empty."""
        return "" if self._file or self._fs.type_name != "local" else self._base

    def _require_no_link(self) -> None:
        """A link may lead out of the folder, or back into it. pyarrow would follow both."""
        left = [self._disk_folder] if self._disk_folder else []
        while left:
            with os.scandir(left.pop()) as entries:
                for entry in entries:
                    if entry.is_symlink():
                        name = os.path.relpath(entry.path, self._base)
                        raise RequestError(
                            f"{self.place}: expected no links in a folder that is copied, given "
                            f"{name:.200}. Put there what it leads to, or read the folder in "
                            "place, without file://"
                        )
                    if entry.is_dir():
                        left.append(entry.path)

    def require_outside(self, cache: Path) -> None:
        """Refuse a folder for copies that lies among what is copied."""
        folder, inside = self._disk_folder, Path(os.path.realpath(cache))
        if folder and inside.is_relative_to(os.path.realpath(folder)):
            raise RequestError(
                f"{self.place}: expected dataset.cache outside of it, as it is copied there, given "
                f"{cache}. Name another folder with --set dataset.cache=FOLDER"
            )

    def stream(self, name: str) -> Any:
        """An open object, to be read from its begin; raises what pyarrow does."""
        return self._fs.open_input_stream(f"{self._base}/{name}")

    def read(self, name: str, most: int | None = None) -> bytes:
        """The content of an object, or so many bytes of it."""

        def content() -> bytes:
            with self.stream(name) as stream:
                return bytes(stream.read(most))

        return self.reported(content)

    def write(self, name: str, content: bytes) -> None:
        """Nothing is written where that is not allowed."""
        with contextlib.suppress(OSError, pa.ArrowException):
            stream = self._fs.open_output_stream(f"{self._base}/{name}")
            stream.write(content)
            stream.close()

    def reported(self, action: Callable[[], T]) -> T:
        """The result of an action on the store."""
        try:
            return patiently(self.place, action, is_needed=self._is_needed)
        except (OSError, pa.ArrowException) as error:
            if is_out_of_order(error):  # a plan without its files would be another one
                raise RequestError(f"{self.place}: {reason(error):.300}. Try again later") from None
            is_lost = isinstance(error, FileNotFoundError)
            raise self._absent("no such place" if is_lost else reason(error)) from None

    def _absent(self, given: str) -> AbsentError:
        expected = "expected files that may be listed and read"
        return AbsentError(f"{self.place}: {expected}, given: {given:.300}")


Listed: TypeAlias = "tuple[Bucket, dict[str, Stored]]"
_recent: dict[tuple[str, str], tuple[float, Listed | RequestError]] = {}


def listed_bucket(uri: str, folder: str = "") -> Listed:
    """A bucket and its objects, or the error, of half a minute ago at most: all cells of a study
    want them.
    """
    key = uri, folder
    if key not in _recent or time.monotonic() - _recent[key][0] > RECENT_S:
        listed: Listed | RequestError
        try:
            bucket = Bucket(uri, folder, is_needed=False)
            listed = bucket, bucket.objects()
        except RequestError as error:
            listed = error
        _recent[key] = time.monotonic(), listed
    if isinstance(listed := _recent[key][1], RequestError):
        raise listed
    return listed
