"""The results folder: one small file per finished trial while the study runs, compacted at the end.

Every file is written whole. A trial counts as finished when its part of the trials table is there;
its epochs and other side tables are written before. Compaction writes the tables first and removes
the parts afterwards, so an interruption at any point leaves a trial in both at worst, and readers
take it from its part.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import yaml

from clsweep.catalog.rows import Row
from clsweep.errors import RequestError
from clsweep.results.disk import Disk
from clsweep.results.hold import Hold, hold_of, read_heartbeat
from clsweep.results.places import Files, open_files
from clsweep.results.schemas import (
    SIDE_TABLES,
    param_fields,
    params_of,
    plan_schema,
    references_schema,
    side_schema,
    to_table,
    trials_schema,
)

T = TypeVar("T")

PARTS_BEFORE_COMPACTION = 250  # opening a part costs about a millisecond
# of the files per trial, by their folder
SUFFIX = {"encoders": ".safetensors", "checkpoints": ".ckpt"}
JOURNAL = "optuna.journal"
PRINTED, CELLS = "references", "cells.parquet"  # a paper's numbers, and the cells at its scale


@dataclass
class ResultsFolder:
    """A results folder on this machine or in an object store: `results/tau`, `s3://bucket/tau`."""

    path: str
    _files: Files = field(init=False, repr=False)
    _lock: Hold = field(init=False, repr=False)
    _scratch: str | None = field(init=False, repr=False, default=None)

    def __post_init__(self) -> None:
        self.path = str(self.path) if "://" in str(self.path) else os.path.normpath(self.path)
        self._files = open_files(self.path)
        self._lock = hold_of(self._files, self.path)

    @property
    def local_path(self) -> str | None:
        """The folder on this machine, None for an object store."""
        return self._files.folder if isinstance(self._files, Disk) else None

    @property
    def confirmation(self) -> ResultsFolder:
        """The folder inside for what `clsweep confirm` runs, which exists once it has."""
        return ResultsFolder(
            os.path.join(self.path, "confirm") if self.local_path else self.place("confirm")
        )

    def place(self, name: str) -> str:
        """A file of the folder as messages name it, and as a command takes it."""
        return self._files.place(name)

    # What the folder holds.

    def exists(self) -> bool:
        return self._files.is_file("study.yaml")

    def study(self) -> dict[str, Any]:
        """The study as it was resolved when the folder was made."""
        tree = self._decoded("study.yaml", yaml.safe_load)
        if not isinstance(tree, dict):
            raise RequestError(f"{self.place('study.yaml')}: expected a study, found {tree!r:.40}")
        return tree

    def plan(self, columns: Sequence[str] | None = None) -> pa.Table:
        """The planned trials, or these columns of them."""
        return self._decoded("plan.parquet", lambda data: _table(data, columns))

    def params(self) -> list[str]:
        """The hyperparameters among the columns of plan and trials, of whatever version."""
        return [field.name for field in self._param_fields]

    def trials(self, columns: Sequence[str] | None = None) -> pa.Table:
        """All trials that have ended so far, one row each, in plan order; or these columns of
        them.
        """
        schema = trials_schema(self._param_fields)
        table = self._with_parts("trials", schema, [*(columns or schema.names), "trial_id"])
        planned = self.plan(["trial_id"])["trial_id"].combine_chunks()
        ranks = pc.index_in(table["trial_id"], planned).combine_chunks()
        order = pc.array_sort_indices(ranks)  # a stable sort; what is not planned comes last
        if not order.cast(pa.int64()).equals(pa.arange(0, len(order))):
            table = table.take(order)
        return table.select(columns or schema.names)

    def side_table(self, name: str) -> pa.Table:
        """`epochs`, `histograms` or `points` of the trials that have ended so far."""
        schema = side_schema(name)
        table = self._with_parts(name, schema, schema.names)
        return table.filter(
            pc.is_in(table["trial_id"], self.trials(["trial_id"])["trial_id"].combine_chunks())
        )

    def references(self) -> pa.Table:
        """Scores of raw pixels and untrained encoders; empty until they are known."""
        if not self._files.is_file("references.parquet"):
            return references_schema().empty_table()
        return self._decoded("references.parquet", _table)

    def printed(self) -> dict[str, str]:
        """The files of a paper's numbers that the study has, by name; empty if it has none."""
        names = sorted(name for name in self._files.names(PRINTED) if name.endswith(".csv"))
        return {
            name: self._decoded(f"{PRINTED}/{name}", lambda data: data.decode("utf-8"))
            for name in names
        }

    def paper_cells(self) -> pa.Table:
        """What the study plans at the paper's scale, a row for each configuration; of a folder
        with `printed` files.
        """
        return self._decoded(f"{PRINTED}/{CELLS}", _table)

    def encoders(self) -> list[str]:
        """Trials whose encoder is stored, by id."""
        return self._stored("encoders")

    def encoder(self, trial_id: str) -> bytes:
        """The safetensors file of a trial's encoder."""
        return self._decoded(encoder_file(trial_id), bytes)

    def checkpoints(self) -> list[str]:
        """Trials whose checkpoint is stored, by id."""
        return self._stored("checkpoints")

    def checkpoint(self, trial_id: str) -> bytes | None:
        """The last checkpoint of a trial, None if there is none."""
        try:
            return self._files.read(checkpoint_file(trial_id))
        except FileNotFoundError:
            return None

    def has_parts(self) -> bool:
        """Whether trials wait for compaction: the last run was interrupted, or another is at
        work.
        """
        return any(self._parts(name) for name in ("trials", *SIDE_TABLES))

    def heartbeat(self) -> dict[str, Any]:
        """What the running study last said of itself; empty if it never did, or not readably."""
        return read_heartbeat(self._files)

    def is_running(self) -> bool:
        """Whether a run holds the folder; in an object store, whether it has lately said so."""
        return self._lock.is_held()

    # What a run writes.

    def create(self, study_yaml: str, plan_rows: Sequence[Row]) -> None:
        """Lay out the folder of a new study. `study.yaml` comes last: with it the folder exists."""
        self._lock.check()
        params = param_fields({name for row in plan_rows for name in row})
        self._write_table("plan.parquet", to_table(plan_rows, plan_schema(params)))
        header = "# The study as clsweep resolved it: presets and settings are merged in.\n"
        self._files.write("study.yaml", (header + study_yaml).encode())
        self.__dict__.pop("_param_fields", None)

    def add_trial(self, row: Row, **side: Sequence[Row]) -> None:
        """Record one trial that has ended with its rows of the side tables, by name.

        Raises:
            BusyError: another run has taken the folder over.
            RequestError: it cannot be written.
        """
        self._lock.check()
        schema = trials_schema(self._param_fields)
        trial_id = row["trial_id"]
        for name, rows in side.items():
            part = f"parts/{name}/{trial_id}.parquet"
            if rows or self._files.is_file(part):  # an attempt that was killed may have left one
                table = to_table(
                    [{"trial_id": trial_id, **more} for more in rows], side_schema(name)
                )
                self._write_table(part, table)
        self._write_table(f"parts/trials/{trial_id}.parquet", to_table([row], schema))

    def add_encoder(self, trial_id: str, payload: bytes) -> None:
        """Keep a trial's encoder; on the disk when this returns."""
        self._files.write(encoder_file(trial_id), payload)

    def remove_encoder(self, trial_id: str) -> None:
        self._files.remove(encoder_file(trial_id))

    def add_checkpoint(self, trial_id: str, payload: bytes) -> None:
        """Replace the checkpoint of a trial; on the disk when this returns."""
        self._files.write(checkpoint_file(trial_id), payload)

    def remove_checkpoint(self, trial_id: str) -> None:
        self._files.remove(checkpoint_file(trial_id))

    def remove_unfinished(self) -> None:
        """Remove what writers that were killed left; nobody else may be writing."""
        self._files.remove_unfinished(
            ["", PRINTED, *SUFFIX, "parts/trials", *(f"parts/{name}" for name in SIDE_TABLES)]
        )

    def compact(self) -> None:
        """Move all parts into `trials.parquet`, `epochs.parquet` and the other side tables."""
        self._lock.check()
        parts = {name: self._parts(name) for name in ("trials", *SIDE_TABLES)}
        for name in SIDE_TABLES:
            table = self.side_table(name)
            if name == "epochs" or table.num_rows:
                self._write_table(f"{name}.parquet", table)
        self._write_table("trials.parquet", self.trials())
        for names in parts.values():  # trials first: none must survive the epochs that belong to it
            self._files.each(self._files.remove, names)

    def add_references(self, rows: Sequence[Row]) -> None:
        self._write_table("references.parquet", to_table(rows, references_schema()))

    def add_printed(self, files: Mapping[str, str], cells: Sequence[Row]) -> None:
        """Keep a paper's numbers: the files by name, and the study's cells at the paper's scale.
        The files come last: with one of them there are cells.
        """
        params = param_fields({name for row in cells for name in row})
        self._write_table(f"{PRINTED}/{CELLS}", to_table(cells, plan_schema(params)))
        for name, text in files.items():
            self._files.write(f"{PRINTED}/{name}", text.encode())

    def beat(self, state: Mapping[str, Any]) -> None:
        """Say that the study is alive, for `clsweep status` elsewhere.

        Raises:
            BusyError: another run took this one, which had been silent, for dead, and has the
                folder now.
        """
        self._lock.beat(state)

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the folder: a second run on it is refused. The lock of a process that died is free
        again: at once on this machine, after a minute in an object store.

        Raises:
            BusyError: another run holds it.
            RequestError: it cannot be made or written.
        """
        with self._lock.hold():
            yield

    @property
    def scratch(self) -> str:
        """A local folder of this run for Ray's own files; nothing in it is read again."""
        if self.local_path is not None:
            return f"{self.local_path}/.ray"
        if self._scratch is None:
            self._scratch = tempfile.mkdtemp(prefix="clsweep-")
        return self._scratch

    def remove_scratch(self) -> None:
        shutil.rmtree(self.scratch, ignore_errors=True)
        self._scratch = None

    @property
    def journal_path(self) -> str:
        """The Optuna journal, a file of this machine; of an object store's it is a copy, see
        `keep_journal`.
        """
        if self.local_path is not None:
            return f"{self.local_path}/{JOURNAL}"
        path = f"{self.scratch}/{JOURNAL}"
        if not os.path.exists(path):
            with contextlib.suppress(FileNotFoundError):
                Disk(self.scratch).write(JOURNAL, self._files.read(JOURNAL))
        return path

    def keep_journal(self) -> None:
        """Copy the journal to the object store, which cannot append to it: up to its last whole
        line.
        """
        if self.local_path is None and self._scratch is not None:
            self._lock.check()
            with contextlib.suppress(FileNotFoundError):
                lines = Disk(self._scratch).read(JOURNAL)
                self._files.write(JOURNAL, lines[: lines.rfind(b"\n") + 1])

    # Files.

    @cached_property
    def _param_fields(self) -> list[pa.Field]:
        fields: list[pa.Field] = self._decoded(
            "plan.parquet", lambda data: params_of(pq.read_schema(pa.BufferReader(data)))
        )
        return fields

    def _stored(self, folder: str) -> list[str]:
        """Trials that have a file in `folder`."""
        suffix = SUFFIX[folder]
        return sorted(
            name.removesuffix(suffix) for name in self._files.names(folder) if name.endswith(suffix)
        )

    def _parts(self, kind: str) -> list[str]:
        names = self._files.names(f"parts/{kind}")
        return sorted(f"parts/{kind}/{name}" for name in names if name.endswith(".parquet"))

    def _with_parts(self, name: str, schema: pa.Schema, columns: Sequence[str]) -> pa.Table:
        """The compacted table and the parts; a trial that stands in both is read from its part."""
        schema = pa.schema([schema.field(column) for column in dict.fromkeys(columns)])

        def part(path: str) -> pa.Table:
            return self._decoded(
                path, lambda data: _table(data, schema.names), "; without it, the trial runs again"
            )

        for _ in range(3):
            # The parts are listed first: one that is compacted from here on is missed below, and we
            # begin again.
            parts = self._parts(name)
            tables = [schema.empty_table()]
            if self._files.is_file(f"{name}.parquet"):
                table = self._decoded(f"{name}.parquet", lambda data: _table(data, schema.names))
                if parts:
                    newer = pa.array([_trial_id(path) for path in parts], pa.string())
                    table = table.filter(pc.invert(pc.is_in(table["trial_id"], newer)))
                tables.append(table)
            try:
                tables += self._files.each(part, parts)
            except FileNotFoundError:
                continue
            return pa.concat_tables(tables, promote_options="default").select(schema.names)
        raise RequestError(f"{self.path}: the results are being rewritten; try again")

    def _decoded(self, name: str, decode: Callable[[bytes], T], advice: str = "") -> T:
        """What a file holds; a part that is gone is for the caller to handle."""
        for attempt in range(3):
            try:
                return decode(self._files.read(name))
            except FileNotFoundError:
                if name.startswith("parts/"):
                    raise
                raise RequestError(
                    f"{self.place(name)}: this file of the results is missing"
                ) from None
            except (OSError, pa.ArrowException, yaml.YAMLError, UnicodeDecodeError) as error:
                # an object may be replaced while it is read
                if self.local_path is not None or attempt == 2:
                    reason = str(error).splitlines()[0]
                    raise RequestError(
                        f"{self.place(name)}: cannot be read: {reason}{advice}"
                    ) from None
        raise AssertionError

    def _write_table(self, name: str, table: pa.Table) -> None:
        sink = pa.BufferOutputStream()
        pq.write_table(table, sink)
        self._files.write(name, sink.getvalue())


def _table(data: bytes, columns: Sequence[str] | None = None) -> pa.Table:
    """A Parquet file, or those of the columns that it has."""
    return pq.ParquetFile(pa.BufferReader(data)).read(columns=columns)


def encoder_file(trial_id: str) -> str:
    """Where a results folder has the encoder of a trial."""
    return f"encoders/{trial_id}{SUFFIX['encoders']}"


def checkpoint_file(trial_id: str) -> str:
    """Where a results folder has the last checkpoint of a trial."""
    return f"checkpoints/{trial_id}{SUFFIX['checkpoints']}"


def _trial_id(part: str) -> str:
    return part.rpartition("/")[2].removesuffix(".parquet")
