"""The files of a results folder, in a folder of this machine or below a prefix of an object store.

One door: whatever a folder holds is read here, and checked before anything is computed from it;
whatever a run writes goes through here, while the folder is its own.
"""

from __future__ import annotations

import functools
import itertools
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from clsweep.errors import RequestError, UserError, first_line
from clsweep.results.disk import Data, Disk
from clsweep.results.integrity import checked_rows, decode_table, of_one_trial
from clsweep.results.lock import FolderLock, ObjectStoreLease

if TYPE_CHECKING:
    from clsweep.results.object_store import ObjectStore

    Files: TypeAlias = Disk | ObjectStore

T = TypeVar("T")

# Waits before each look at parts that a run goes on compacting: 13 s of a loaded machine.
REREAD_PAUSES_S = (0.0, 0.0, 0.05, 0.2, 0.5, 1.0, 1.0, 2.0, 3.0, 5.0)
MISSING = "this file of the results is missing"
# of the files per trial, by their folder
SUFFIX = {"encoders": ".safetensors", "checkpoints": ".ckpt"}


class Store:
    """Files by their names in a folder: `parts/trials/a-0.parquet`.

    `path` is `results/tau`, or a URI: `s3://bucket/tau`, `file:///tau`. `of_run`: in a process of a
    run that holds the folder elsewhere. RequestError where there is nothing like it, or its bucket
    cannot be asked for.
    """

    def __init__(self, path: str, of_run: str | None = None):
        self.path = path
        self.files: Files = _open_uri(path) if "://" in path else Disk(path)
        self._of_run = of_run
        self._known: dict[str, tuple[bytes, Any]] = {}
        # What we have written in parts since the last compaction: opening one takes 6 ms.
        self._written: dict[str, tuple[list[pa.Table], list[pa.Table]]] = {}
        self._written_ids: set[str] = set()

    @functools.cached_property
    def held(self) -> FolderLock | ObjectStoreLease:
        """The right to write to it."""
        if isinstance(self.files, Disk):
            return FolderLock(self.files, self.path, self._of_run)
        return ObjectStoreLease(self.files, self.path, self._of_run)

    @property
    def local_path(self) -> str | None:
        """The folder on this machine, None for an object store."""
        return self.files.folder if isinstance(self.files, Disk) else None

    def stored(self, folder: str) -> list[str]:
        """Trials, by id, that have a file in `folder`: `encoders` or `checkpoints`."""
        suffix = SUFFIX[folder]
        return sorted(
            name.removesuffix(suffix) for name in self.files.names(folder) if name.endswith(suffix)
        )

    def parts(self, kind: str) -> list[str]:
        """The files of trials that wait for the compaction of this table."""
        names = [n for n in self.files.names(f"parts/{kind}") if n.endswith(".parquet")]
        # hidden ones are the system's: macOS writes ._x beside x, NFS keeps .nfs... for a while
        return sorted(f"parts/{kind}/{name}" for name in names if not name.startswith("."))

    def with_parts(
        self,
        name: str,
        fields: Sequence[pa.Field],
        folder: bytes | None,
        *,
        filled: Sequence[str],
        present: Sequence[str] = (),
    ) -> pa.Table:
        """The compacted table and the parts; a trial that stands in both is read from its part.
        See `checked_rows` for what they must hold.
        """

        def rows(data: bytes) -> pa.Table:
            return checked_rows(data, fields, folder, filled=filled, present=present)

        def part(path: str) -> pa.Table:
            return self.decoded(
                path,
                lambda data: of_one_trial(rows(data), _trial_id(path), is_row=name == "trials"),
                "; without it, the trial runs again",
            )

        for pause in REREAD_PAUSES_S:
            time.sleep(pause)
            # The parts are listed first: one that is compacted from here on is missed below, and we
            # begin again.
            parts = self.parts(name)
            tables = [empty(pa.schema(fields))]
            self._require_compacted(name, parts)
            if self.files.is_file(f"{name}.parquet"):
                tables.append(self.decoded(f"{name}.parquet", rows))
            if parts:  # else nothing here loads pandas, as `pa.array` does
                newer = pa.array([_trial_id(path) for path in parts], pa.string())
                tables = [t.filter(pc.invert(pc.is_in(t["trial_id"], newer))) for t in tables]
                if name in self._written:
                    own = pa.concat_tables(itertools.chain(*self._written[name]))
                    own = own.select([field.name for field in fields])
                    tables.append(own.filter(pc.is_in(own["trial_id"], newer)))
            try:
                others = [path for path in parts if _trial_id(path) not in self._written_ids]
                tables += self.files.each(part, others)
            except FileNotFoundError:
                continue
            return pa.concat_tables(tables)
        raise RequestError(f"{self.path}: the results are being rewritten; try again")

    def _require_compacted(self, name: str, parts: Sequence[str]) -> None:
        """Refuse a folder without the one of two tables that a compaction writes together, the
        epochs first, before it removes parts: what has no part in the one is in the other.
        """
        other = {"trials": "epochs", "epochs": "trials"}.get(name)
        if other is None or self.files.is_file(f"{name}.parquet"):
            return
        if not self.files.is_file(f"{other}.parquet"):
            return
        only_ids = functools.partial(decode_table, columns=["trial_id"])
        ids = self.decoded(f"{other}.parquet", only_ids)["trial_id"]
        in_parts = {_trial_id(path) for path in parts} if name == "trials" else set()
        if not in_parts.issuperset(ids.to_pylist()):
            raise RequestError(f"{self.files.place(f'{name}.parquet')}: {MISSING}")

    def decoded(self, name: str, decode: Callable[[bytes], T], advice: str = "") -> T:
        """The content of a file; a part that is gone is for the caller to handle."""
        for attempt in range(3):
            try:
                data = self.files.read(name)
            except FileNotFoundError:
                if name.startswith("parts/"):
                    raise
                raise RequestError(f"{self.files.place(name)}: {MISSING}") from None
            try:
                return decode(data)
            except (OSError, ValueError, pa.ArrowException) as error:
                if self.local_path is None and attempt < 2:
                    continue  # an object may be replaced while it is read
                if isinstance(error, UserError):
                    raise
                reason = f"cannot be read: {first_line(error)}{advice}"
                raise RequestError(f"{self.files.place(name)}: {reason}") from None
        raise AssertionError

    def once(self, name: str, decode: Callable[[bytes], Any]) -> Any:
        """The content of a file, decoded again only where it has changed."""

        def again(data: bytes) -> Any:
            known, value = self._known.get(name, (None, None))
            if known != data:
                self._known[name] = known, value = data, decode(data)
            return value

        return self.decoded(name, again)

    def write(self, name: str, data: Data, *, durable: bool = True) -> None:
        """Replace a file, if the folder is still that of the run."""
        self.held.check()
        self.files.write(name, data, durable=durable)

    def remove(self, name: str) -> None:
        """Remove a file if it is there, as `write`."""
        self.held.check()
        self.files.remove(name)


# Opening a store looks for credentials and asks for the bucket's region.
@functools.lru_cache(maxsize=64)
def _open_uri(uri: str) -> Files:
    import pyarrow.fs as pafs

    from clsweep.outages import patiently, reason
    from clsweep.results.object_store import STORES, ObjectStore

    delayed, expected = uri, f"{uri}: expected a folder or an object store's URI"
    if uri.startswith("s3://") and "allow_delayed_open=" not in uri:
        # One request instead of three for a small object; a missing bucket is noticed at its end.
        delayed += f"{'&' if '?' in uri else '?'}allow_delayed_open=true"
    try:
        fs, base = patiently(uri, lambda: pafs.FileSystem.from_uri(delayed))
    except (pa.ArrowException, OSError) as error:
        raise RequestError(f"{expected}: {reason(error)}") from None
    if isinstance(fs, pafs.LocalFileSystem):
        return Disk(base)
    if fs.type_name not in STORES:
        raise RequestError(f"{expected}, as in s3://bucket/{base or 'results'}")
    return ObjectStore(uri, fs, base)


def _trial_id(part: str) -> str:
    return part.rpartition("/")[2].removesuffix(".parquet")


def empty(schema: pa.Schema) -> pa.Table:
    """A table without rows. `schema.empty_table` makes one too, and loads pandas for it."""
    return pa.Table.from_batches([], schema=schema)
