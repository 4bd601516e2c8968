"""Copies of images that lie in a bucket, made once by each machine that trains.

CACHE/copies/NAME-DIGEST/ has the objects under their own names. A file has the size and the time of
its object: by these alone a copy goes on after a kill, and is compared with the bucket. Until it is
whole and on the disk it lies in NAME-DIGEST.partial/. NAME-DIGEST.run names the runs that have
compared all files since one changed, each with the index of a data set in them: the other trials of
that set need not.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import shutil
import stat
import sys
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from clsweep.catalog import Dataset
from clsweep.data.buckets import Bucket, Stored, file_of, listed_bucket
from clsweep.data.locations import DataPlace
from clsweep.data.preparation import progress_bar
from clsweep.data.readers.bucket_layout import index_name, leave_index
from clsweep.data.store_form import free_bytes
from clsweep.display.numbers import byte_size, count
from clsweep.errors import RequestError
from clsweep.files import sync

_CONCURRENT = 24  # as many connections as pyarrow opens
_PASSES = 5  # over a bucket that changes meanwhile
_PIECE_BYTES = 2**23
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def copy_note(dataset: Dataset, place: DataPlace) -> str:
    """A sentence on what each machine copies.

    Raises:
        AbsentError: the bucket cannot be listed.
        RequestError: it cannot be copied.
    """
    bucket, objects = listed_bucket(place.root, dataset.folder)
    bucket.require_outside(place.cache_folder)
    return (
        f"each machine that trains copies {_amount(objects)} from {bucket.place} to {place.cache}"
    )


def local_place(dataset: Dataset, place: DataPlace) -> DataPlace:
    """The place of a data set on this machine, copied there first.

    Raises:
        RequestError: one line: the bucket cannot be read, the disk is full or cannot be written.
    """
    if not (dataset.files or dataset.folder or dataset.is_own):
        return place
    copy = _Copy(place.root, dataset.folder, place.cache_folder)
    here = replace(place, root=str(copy.root / file_of(place.root)))
    with copy.reported():
        from filelock import FileLock

        # not the folder itself, which another process may just be making anew
        copy.root.parent.mkdir(parents=True, exist_ok=True)
        lock = FileLock(copy.beside(".lock")).acquire()
    run = place.run and f"{place.run}/{index_name(dataset, place)}"
    with lock:
        if run not in copy.runs():
            bucket = Bucket(place.root, dataset.folder)
            bucket.require_outside(place.cache_folder)
            leave_index(dataset, here, bucket, copy.update(bucket))
            with copy.reported():
                copy.add(run)
    return here


@dataclass(frozen=True)
class _Copy:
    """The copy of a bucket, or of a folder of it, below the cache of this machine."""

    uri: str
    folder: str
    cache: Path

    @property
    def root(self) -> Path:
        digest = hashlib.blake2b(f"{self.uri}\0{self.folder}".encode(), digest_size=8).hexdigest()
        name = self.uri.partition("?")[0].rstrip("/").rpartition("/")[2]
        return self.cache / "copies" / f"{name}-{digest}"

    @property
    def target(self) -> Path:
        return self.root / self.folder

    def beside(self, suffix: str) -> Path:
        return Path(f"{self.root}{suffix}")

    def runs(self) -> list[str]:
        """The runs that have found the copy complete since it changed last."""
        with contextlib.suppress(OSError):
            return self.beside(".run").read_text().split()
        return []

    def add(self, run: str) -> None:
        """Add a run to these; no name is that of none."""
        self.beside(".run").write_text(" ".join(dict.fromkeys([*self.runs(), *run.split()])))

    @contextlib.contextmanager
    def reported(self, needed: int = 0) -> Iterator[None]:
        """RequestError, in one line, where the disk fails, or has not so many bytes free."""
        try:
            if needed > free_bytes(self.root):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            yield
        except (OSError, NotImplementedError) as error:
            given = getattr(error, "strerror", None) or str(error)
            expected = "a folder that can be written"
            if getattr(error, "errno", None) in _FULL:
                expected = f"{byte_size(needed, 3) if needed else 'more'} free"
                given = byte_size(free_bytes(self.root), 3)
            raise RequestError(
                f"{self.root}: expected {expected} for a copy of {self.uri.partition('?')[0]}, "
                f"given: {given}. "
                "Name another folder with --set dataset.cache=FOLDER"
            ) from None

    def update(self, bucket: Bucket) -> dict[str, Stored]:
        """Copy what is not here, or has changed, until nothing differs; the objects."""
        for _ in range(_PASSES):
            objects = bucket.objects()
            with self.reported():
                missing = self._compare(objects)
            if not missing:
                return objects
            self._fetch(bucket, missing)
        expected = "expected objects that stay as they are while they are copied"
        raise RequestError(f"{bucket.place}: {expected}, given others in {_PASSES} lists of them")

    def _compare(self, objects: Mapping[str, Stored]) -> dict[str, Stored]:
        """The objects that have no file like them here. Files that have no object are removed."""
        missing = {name: of for name, of in objects.items() if not _is_like(self.target / name, of)}
        for at, _, names in os.walk(self.target, topdown=False):
            for name in names:
                path = os.path.join(at, name)
                if os.path.relpath(path, self.target) not in objects:
                    self.beside(".run").unlink(missing_ok=True)
                    os.remove(path)
            with contextlib.suppress(OSError):  # not empty
                os.rmdir(at)
        self.target.mkdir(parents=True, exist_ok=True)
        return missing

    def _fetch(self, bucket: Bucket, missing: Mapping[str, Stored]) -> None:
        """Copy these objects, several at a time."""
        needed = sum(of.size for of in missing.values())
        partial, left = self.beside(".partial"), deque(missing.items())
        with self.reported(needed):
            self.beside(".run").unlink(missing_ok=True)
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir()

        def work(number: int) -> None:
            with contextlib.suppress(IndexError):  # none is left
                while True:
                    self._fetch_one(bucket, *left.popleft(), partial / str(number), advance)

        text, size = f"Copying {_amount(missing)} from {bucket.place}", byte_size(needed)
        if not sys.stderr.isatty():
            print(text, file=sys.stderr, flush=True)
        bar = progress_bar(
            text, needed, lambda done: f"copying images, {byte_size(done)} of {size}", in_bytes=True
        )
        with bar as advance, ThreadPoolExecutor(_CONCURRENT) as pool:
            try:
                for thread in [pool.submit(work, number) for number in range(_CONCURRENT)]:
                    thread.result()
            finally:
                left.clear()
        with self.reported():
            shutil.rmtree(partial)
            for folder in {(self.target / name).parent for name in missing}:
                if folder.is_dir():
                    sync(folder)

    def _fetch_one(
        self,
        bucket: Bucket,
        name: str,
        stored: Stored,
        temporary: Path,
        advance: Callable[[int], object],
    ) -> None:
        """Copy one object. One that has gone, or has another length, is left to the next list."""

        def read() -> None:
            with self.reported():
                file = temporary.open("wb")
            with file, contextlib.suppress(FileNotFoundError), bucket.stream(name) as stream:
                while piece := stream.read(_PIECE_BYTES):
                    with self.reported():
                        file.write(piece)
                    advance(len(piece))
                with self.reported():
                    file.flush()
                    os.fsync(file.fileno())

        bucket.reported(read)
        with self.reported():
            if temporary.stat().st_size == stored.size:
                path = self.target / name
                path.parent.mkdir(parents=True, exist_ok=True)
                os.utime(temporary, (stored.time, stored.time))
                os.replace(temporary, path)


def _is_like(path: Path, stored: Stored) -> bool:
    """True if a file has the size and, where one is known, the time of an object."""
    try:
        status = os.lstat(path)
    except OSError:
        return False
    is_same = stat.S_ISREG(status.st_mode) and status.st_size == stored.size
    return is_same and stored.time in (0, int(status.st_mtime))


def _amount(objects: Mapping[str, Stored]) -> str:
    num_bytes = byte_size(sum(of.size for of in objects.values()), 3)
    return f"{num_bytes} in {count(len(objects))} files"
