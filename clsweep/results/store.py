"""The results folder: one small file per finished trial while the study runs, compacted at the end.

Every file is written under a temporary name and renamed. A trial counts as finished when its part of the trials table
is there; its epochs and other side tables are written before. Compaction writes the tables first and removes the parts
afterwards, so an interruption at any point leaves a trial in both at worst, and readers take it from its part.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import IO, TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs
import pyarrow.parquet as pq
import yaml

from clsweep.errors import BusyError, RequestError
from clsweep.results.tables import REFERENCES_SCHEMA, SIDE_SCHEMAS, params_in, plan_schema, to_table, trials_schema

if TYPE_CHECKING:
    import pandas as pd

STALE_S = 60.0  # a run on an object store that has not said anything for so long is taken for dead
LOCK_ATTEMPTS, LOCK_PAUSE_S = 5, 0.1
PARTS_BEFORE_COMPACTION = 500  # opening a part costs about a millisecond


@dataclass
class ResultsFolder:
    """A results folder on any of pyarrow's file systems: `results/tau`, `s3://bucket/tau`."""

    path: str
    _fs: Any = field(init=False, repr=False)
    _base: str = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.path = str(self.path)
        if "://" in self.path:
            try:
                self._fs, self._base = pafs.FileSystem.from_uri(self.path)
            except (pa.ArrowException, OSError) as error:
                raise RequestError(f"{self.path}: expected a folder or an object store's URI: {error}") from None
        else:
            self.path = os.path.normpath(self.path)
            self._fs, self._base = pafs.LocalFileSystem(), os.path.abspath(self.path)

    @property
    def local_path(self) -> str | None:
        """The folder on this machine, None for an object store."""
        return self._base if isinstance(self._fs, pafs.LocalFileSystem) else None

    # What the folder holds.

    def exists(self) -> bool:
        return self._is_file("study.yaml")

    def study(self) -> dict[str, Any]:
        """The study as it was resolved when the folder was made."""
        with self._reading("study.yaml"), self._fs.open_input_stream(self._at("study.yaml")) as stream:
            tree = yaml.safe_load(stream.read())
        if not isinstance(tree, dict):
            raise RequestError(f"{self._at('study.yaml')}: expected a study, found {tree!r:.40}")
        return tree

    def plan(self) -> pa.Table:
        with self._reading("plan.parquet"):
            return self._read("plan.parquet")

    def trials(self) -> pa.Table:
        """All finished and failed trials so far, one row each, in plan order."""
        plan = self.plan()
        table = self._with_parts("trials", trials_schema(params_in(plan.column_names)))
        order = {trial_id: i for i, trial_id in enumerate(plan["trial_id"].to_pylist())}
        ranks = [order.get(trial_id, len(order)) for trial_id in table["trial_id"].to_pylist()]
        return table.take(pa.array(np.argsort(ranks, kind="stable")))

    def side_table(self, name: str) -> pa.Table:
        """`epochs`, `histograms` or `points` of the finished and failed trials so far."""
        table = self._with_parts(name, SIDE_SCHEMAS[name])
        return table.filter(pc.is_in(table["trial_id"], self.trials()["trial_id"].combine_chunks()))

    def references(self) -> pa.Table:
        """Scores of raw pixels and untrained encoders; empty until they are known."""
        if not self._is_file("references.parquet"):
            return REFERENCES_SCHEMA.empty_table()
        with self._reading("references.parquet"):
            return self._read("references.parquet")

    def encoders(self) -> list[str]:
        """Trials whose encoder is stored, by id."""
        names = self._names_in("encoders")
        return sorted(name.removesuffix(".safetensors") for name in names if name.endswith(".safetensors"))

    def encoder(self, trial_id: str) -> bytes:
        """The safetensors file of a trial's encoder."""
        name = encoder_file(trial_id)
        with self._reading(name), self._fs.open_input_stream(self._at(name)) as stream:
            payload: bytes = stream.read()
        return payload

    def has_parts(self) -> bool:
        """Whether trials wait for compaction: the last run was interrupted, or another is at work."""
        return bool(self._parts("trials"))

    def heartbeat(self) -> dict[str, Any]:
        """What the running study last said of itself; empty if it never did, or not readably."""
        if not self._is_file("heartbeat.json"):
            return {}
        with self._fs.open_input_stream(self._at("heartbeat.json")) as stream:
            try:
                beat: dict[str, Any] = json.loads(stream.read())
            except ValueError:
                return {}
        return beat

    def is_running(self) -> bool:
        """Whether a run holds the folder; on an object store, whether it has lately said so."""
        if self.local_path is None:
            beat = self.heartbeat()
            return beat.get("state") == "running" and time.time() - beat.get("time", 0) < STALE_S
        try:
            with open(self._at(".lock")) as handle:  # to be read only: the folder may be somebody else's
                return not _flock(handle, exclusive=False)
        except OSError:
            return False  # no run has ever held it

    # What a run writes.

    def create(self, study_yaml: str, plan_rows: Sequence[Mapping[str, Any]]) -> None:
        """Lay out the folder of a new study. `study.yaml` comes last: with it the folder exists."""
        params = {name for row in plan_rows for name in params_in(row)}
        self._write_table("plan.parquet", to_table(plan_rows, plan_schema(params)))
        header = "# The study as clsweep resolved it: presets and settings are merged in.\n"
        self._write("study.yaml", (header + study_yaml).encode())

    def add_trial(self, row: Mapping[str, Any], **side: Sequence[Mapping[str, Any]]) -> None:
        """Record one finished or failed trial with its rows of the side tables, by name."""
        schema = trials_schema(params_in(self._plan_columns))
        trial_id = row["trial_id"]
        for name, rows in side.items():
            part = f"parts/{name}/{trial_id}.parquet"
            if rows or self._is_file(part):  # an attempt that was killed may have left one
                table = to_table([{"trial_id": trial_id, **more} for more in rows], SIDE_SCHEMAS[name])
                self._write_table(part, table)
        self._write_table(f"parts/trials/{trial_id}.parquet", to_table([row], schema))

    def add_encoder(self, trial_id: str, payload: bytes) -> None:
        """Keep a trial's encoder; on the disk when this returns."""
        self._write(encoder_file(trial_id), payload, durable=True)

    def remove_encoder(self, trial_id: str) -> None:
        try:
            self._fs.delete_file(self._at(encoder_file(trial_id)))
        except FileNotFoundError:
            pass
        except OSError as error:
            raise RequestError(f"{self._at(encoder_file(trial_id))}: cannot be removed: {error}") from error

    def remove_unfinished_encoders(self) -> None:
        """Remove what a writer that was killed left; nobody else may be writing."""
        for name in self._names_in("encoders"):
            if name.endswith(".tmp"):
                self._fs.delete_file(self._at(f"encoders/{name}"))

    def compact(self) -> None:
        """Move all parts into `trials.parquet`, `epochs.parquet` and the other side tables."""
        parts = {name: self._parts(name) for name in ("trials", *SIDE_SCHEMAS)}
        for name in SIDE_SCHEMAS:
            table = self.side_table(name)
            if name == "epochs" or table.num_rows:
                self._write_table(f"{name}.parquet", table)
        self._write_table("trials.parquet", self.trials())
        for names in parts.values():  # trials first: none must survive the epochs that belong to it
            for part in names:
                self._fs.delete_file(self._at(part))

    def add_references(self, rows: Sequence[Mapping[str, Any]]) -> None:
        self._write_table("references.parquet", to_table(rows, REFERENCES_SCHEMA))

    def beat(self, state: Mapping[str, Any]) -> None:
        """Say that the study is alive, for `clsweep status` elsewhere."""
        self._write("heartbeat.json", json.dumps(dict(state)).encode())

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the folder: a second run on it is refused. The lock of a process that died is free again.

        Raises:
            BusyError: another run holds it.
            RequestError: it cannot be made or written.
        """
        if self.local_path is None:
            yield
            return
        with contextlib.ExitStack() as stack:
            try:
                os.makedirs(self.local_path, exist_ok=True)
                handle = stack.enter_context(open(self._at(".lock"), "w"))
            except OSError as error:
                raise RequestError(f"{self.path}: cannot be used as a results folder: {error.strerror}") from None
            # A status command may hold it for an instant; a run holds it for long.
            pause = threading.Event()
            if not any(_flock(handle, exclusive=True) or pause.wait(LOCK_PAUSE_S) for _ in range(LOCK_ATTEMPTS)):
                raise BusyError(
                    f"{self.path}: another clsweep run is writing here. Watch it with: clsweep status {self.path}"
                )
            yield

    @property
    def scratch(self) -> str:
        """A local folder for Ray's own files; nothing in it is read again."""
        return self._at(".ray") if self.local_path else os.path.join(tempfile.gettempdir(), f"clsweep-{os.getpid()}")

    def remove_scratch(self) -> None:
        shutil.rmtree(self.scratch, ignore_errors=True)

    # Files.

    @cached_property
    def _plan_columns(self) -> list[str]:
        names: list[str] = self.plan().column_names
        return names

    def _at(self, name: str) -> str:
        return f"{self._base}/{name}"

    def _is_file(self, name: str) -> bool:
        return bool(self._fs.get_file_info(self._at(name)).type == pafs.FileType.File)

    def _parts(self, kind: str) -> list[str]:
        return sorted(f"parts/{kind}/{name}" for name in self._names_in(f"parts/{kind}") if name.endswith(".parquet"))

    def _names_in(self, folder: str) -> list[str]:
        selector = pafs.FileSelector(self._at(folder), allow_not_found=True)
        try:
            return [info.base_name for info in self._fs.get_file_info(selector)]
        except OSError as error:
            raise RequestError(f"{self._at(folder)}: expected a folder: {error}") from None

    def _with_parts(self, name: str, schema: pa.Schema) -> pa.Table:
        """The compacted table and the parts; a trial that stands in both is read from its part."""
        for _ in range(3):
            # The parts are listed first: one that is compacted from here on is missed below, and we begin again.
            parts = self._parts(name)
            tables = [schema.empty_table()]
            if self._is_file(f"{name}.parquet"):
                with self._reading(f"{name}.parquet"):
                    table = self._read(f"{name}.parquet")
                newer = pa.array([_trial_id(part) for part in parts], pa.string())
                tables.append(table.filter(pc.invert(pc.is_in(table["trial_id"], newer))))
            try:
                for part in parts:
                    with self._reading(part, advice="; without this file, the trial runs again"):
                        tables.append(self._read(part))
            except FileNotFoundError:
                continue
            return pa.concat_tables(tables, promote_options="default").select(schema.names)
        raise RequestError(f"{self.path}: the results are being rewritten; try again")

    def _read(self, name: str) -> pa.Table:
        with self._fs.open_input_file(self._at(name)) as file:
            return pq.ParquetFile(file).read()

    @contextlib.contextmanager
    def _reading(self, name: str, *, advice: str = "") -> Iterator[None]:
        """Turns what can be wrong with a file into a message; a part that is gone is for the caller to handle."""
        try:
            yield
        except FileNotFoundError:
            if name.startswith("parts/"):
                raise
            raise RequestError(f"{self._at(name)}: this file of the results is missing") from None
        except (OSError, pa.ArrowException, yaml.YAMLError, UnicodeDecodeError) as error:
            reason = str(error).splitlines()[0]
            raise RequestError(f"{self._at(name)}: cannot be read: {reason}{advice}") from None

    def _write_table(self, name: str, table: pa.Table) -> None:
        sink = pa.BufferOutputStream()
        pq.write_table(table, sink)
        self._write(name, sink.getvalue())

    def _write(self, name: str, data: Any, *, durable: bool = False) -> None:
        """Readers see the old file or the new one, never a part of either."""
        folder = self._at(name).rpartition("/")[0]
        temporary = f"{folder}/.{uuid.uuid4().hex}.tmp"
        try:
            self._fs.create_dir(folder, recursive=True)
            with self._fs.open_output_stream(temporary) as stream:
                stream.write(data)
            if durable and self.local_path is not None:
                _sync(temporary)
            self._fs.move(temporary, self._at(name))
        except OSError as error:
            with contextlib.suppress(OSError):
                self._fs.delete_file(temporary)
            raise RequestError(f"{self._at(name)}: cannot be written: {error}") from error


@dataclass(frozen=True)
class StudyResults:
    """The tables of one results folder, read when first asked for; open the folder again to see what came since."""

    folder: ResultsFolder

    @property
    def path(self) -> str:
        return self.folder.path

    @cached_property
    def study(self) -> dict[str, Any]:
        """The resolved study file as a plain tree."""
        return self.folder.study()

    @cached_property
    def plan(self) -> pd.DataFrame:
        return _frame(self.folder.plan())

    @cached_property
    def trials(self) -> pd.DataFrame:
        """One row per finished or failed trial."""
        return _frame(self.folder.trials())

    @cached_property
    def epochs(self) -> pd.DataFrame:
        """One row per trial and epoch; diagnostics where the encoder was scored."""
        return _frame(self.folder.side_table("epochs"))

    @cached_property
    def histograms(self) -> pd.DataFrame:
        """Histograms of q_B: one row per trial, scored epoch and bin."""
        return _frame(self.folder.side_table("histograms"))

    @cached_property
    def points(self) -> pd.DataFrame:
        """t-SNE points of the last epoch's features: one row per trial and image."""
        return _frame(self.folder.side_table("points"))

    @cached_property
    def references(self) -> pd.DataFrame:
        """Scores of raw pixels and of untrained encoders on the same yardstick."""
        return _frame(self.folder.references())

    @property
    def metric(self) -> str:
        """Name of the metric that the study optimises."""
        return str(self.study.get("metric", {}).get("name", "knn_top1"))

    @property
    def mode(self) -> str:
        return str(self.study.get("metric", {}).get("mode", "max"))


def _flock(handle: IO[str], *, exclusive: bool) -> bool:
    """Try to lock an open file until it is closed; False if somebody else's lock is in the way."""
    import fcntl

    try:
        fcntl.flock(handle, (fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _sync(path: str) -> None:
    """Return once the file is on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def encoder_file(trial_id: str) -> str:
    """Where a results folder has the encoder of a trial."""
    return f"encoders/{trial_id}.safetensors"


def _trial_id(part: str) -> str:
    return part.rpartition("/")[2].removesuffix(".parquet")


def _frame(table: pa.Table) -> pd.DataFrame:
    """A table as pandas; an integer column with gaps stays integer (batch size 64, not 64.0)."""
    import pandas as pd

    frame: pd.DataFrame = table.to_pandas()
    for name, column in zip(table.column_names, table.columns, strict=True):
        if pa.types.is_integer(column.type) and column.null_count:
            frame[name] = column.to_pandas(types_mapper={pa.int64(): pd.Int64Dtype()}.get)
    return frame


def open_folder(path: str | os.PathLike[str]) -> ResultsFolder:
    """The results folder at `path`, local or an object store's URI.

    Raises:
        RequestError: there are no results of clsweep.
    """
    folder = ResultsFolder(str(path))
    if not folder.exists():
        hint = f" It holds: {', '.join(found)}." if (found := _result_folders_below(folder)) else ""
        raise RequestError(f"{path}: expected a results folder (it has a study.yaml), found none.{hint}")
    return folder


def _result_folders_below(folder: ResultsFolder) -> list[str]:
    if folder.local_path is None or not os.path.isdir(folder.local_path):
        return []
    names = sorted(os.listdir(folder.local_path))
    return [name for name in names if os.path.isfile(os.path.join(folder.local_path, name, "study.yaml"))][:5]
