"""The results folder: one small file per finished trial while the study runs, compacted at the end.

What is read may be damaged, or made by anybody: it is checked here, once, before anything is
computed from it (`checked`, `study.recorded`, `weights`).

Every file is written whole. A trial counts as finished when its part of the trials table is there;
its epochs and other side tables are written before. Compaction writes the tables first and removes
the parts afterwards, so an interruption at any point leaves a trial in both at worst, and readers
take it from its part.
"""

from __future__ import annotations

import contextlib
import copy
import json
import os
import secrets
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import InitVar, dataclass, field
from functools import cached_property
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from clsweep.catalog.plugins import Plugin, declare
from clsweep.catalog.rows import Row
from clsweep.errors import RequestError, UserError
from clsweep.results.checked import (
    FOLDER,
    KEYS,
    SCORE_ON,
    STUDY,
    Plan,
    checked_plan,
    checked_rows,
    digest,
    in_plan_order,
    of_one_trial,
    plan_columns,
    why_not_of,
)
from clsweep.results.disk import Data, Disk
from clsweep.results.hold import Hold, hold_of, read_heartbeat
from clsweep.results.places import Files, open_files
from clsweep.results.processes import temporary_prefix
from clsweep.results.schemas import (
    PLANNED,
    SIDE_TABLES,
    param_fields,
    params_of,
    plan_schema,
    references_schema,
    side_schema,
    to_table,
    trials_schema,
)
from clsweep.results.tables import decode, encode
from clsweep.study.continuation import recorded_study
from clsweep.study.document import Document
from clsweep.study.plugged import KEPT, from_json, to_json

T = TypeVar("T")

PARTS_BEFORE_COMPACTION = 250  # opening a part costs about a millisecond
# Of the trials that have ended, in a large study: a compaction writes all of them again. A fixed
# number would make their cost grow with the square of the study.
SHARE_BEFORE_COMPACTION = 0.05
# of the files per trial, by their folder
SUFFIX = {"encoders": ".safetensors", "checkpoints": ".ckpt"}
JOURNAL = "optuna.journal"
PRINTED, CELLS = "references", "cells.parquet"  # a paper's numbers, and the cells at its scale
LEFTOVERS = ".leftovers.json"
RUNNING = "parts/running.parquet"
_MISSING = "this file of the results is missing"


@dataclass
class ResultsFolder:
    """A results folder on this machine or in an object store: `results/tau`, `s3://bucket/tau`."""

    path: str
    of_run: InitVar[str | None] = None  # in a process of a run that holds the folder elsewhere
    _files: Files = field(init=False, repr=False)
    held: Hold = field(init=False, repr=False)  # the right to write to it
    _scratch: str | None = field(init=False, repr=False, default=None)
    _is_declared: bool = field(init=False, repr=False, default=False)
    _known: dict[str, tuple[bytes, Any]] = field(init=False, repr=False, default_factory=dict)

    def __post_init__(self, of_run: str | None) -> None:
        self.path = str(self.path) if "://" in str(self.path) else os.path.normpath(self.path)
        self._files = open_files(self.path)
        self.held = hold_of(self._files, self.path, of_run)

    @property
    def local_path(self) -> str | None:
        """The folder on this machine, None for an object store."""
        return self._files.folder if isinstance(self._files, Disk) else None

    @property
    def confirmation(self) -> ResultsFolder:
        """The folder inside for what `clsweep confirm` runs, which exists once it has."""
        if isinstance(self._files, Disk):
            self._files.inside("confirm")
        return ResultsFolder(
            os.path.join(self.path, "confirm") if self.local_path else self.place("confirm")
        )

    def place(self, name: str) -> str:
        """A file of the folder as messages name it, and as a command takes it."""
        return self._files.place(name)

    # What the folder holds.

    def exists(self) -> bool:
        """Whether the folder has a study.

        Raises:
            RequestError: it has trials without one, which would become another study's.
        """
        if self._files.is_file("study.yaml"):
            return True
        if self._files.is_file("trials.parquet") or self._parts("trials"):
            raise RequestError(f"{self.place('study.yaml')}: {_MISSING}")
        return False

    def check(self) -> None:
        """Refuse a plan that is not of the study beside it.

        Raises:
            RequestError: it is not, or one of the two is damaged.
        """
        for pause_s in (0.2, 1.0, 0.0):  # a run that extends a study writes one after the other
            if not (reason := why_not_of(self._plan, self._document.tree)):
                return
            time.sleep(pause_s)
        advice = "The command that made the folder writes it anew, unless it was edited"
        raise RequestError(f"{self.place('study.yaml')}: {reason}. {advice}")

    def document(self) -> Document:
        """The study as it was resolved when the folder was made, with its lines in the file."""
        return copy.deepcopy(self._document)

    def study(self) -> dict[str, Any]:
        """The same as a plain tree."""
        return self.document().tree

    def plan(self, columns: Sequence[str] | None = None) -> pa.Table:
        """The planned trials, or those of these columns that they have."""
        known = self._plan.schema.names
        names = [name for name in columns or known if name in known]
        table = self._decoded("plan.parquet", lambda data: plan_columns(data, names))
        return table.select(names).replace_schema_metadata(None)

    def params(self) -> list[str]:
        """The hyperparameters among the columns of plan and trials, of whatever version."""
        return [field.name for field in self._param_fields]

    def trials(self, columns: Sequence[str] | None = None) -> pa.Table:
        """All trials that have ended so far, one row each, in plan order; or these columns of
        them.
        """
        fields = self._param_fields
        schema = trials_schema(fields)
        columns = list(columns or schema.names)
        metric = self._document.tree.get("metric", {}).get("name", "knn_top1")
        present = (*KEYS, "status")
        planned = [n for n in (*PLANNED, *self.params()) if n in self._plan.schema.names]
        table = self._with_parts(
            "trials", schema, [*columns, *present, *planned], filled=present, present=[metric]
        )
        # the plan is read last: no run records a trial before it is planned
        try:
            plan = self.plan(list(dict.fromkeys([*KEYS, *planned])))
            return in_plan_order(table, plan, planned).select(columns)
        except ValueError as error:
            reason, *trial = error.args
            where = f"{self.place('trials.parquet')} or a part"
            if trial:
                part = f"parts/trials/{trial[0]}.parquet"
                where = self.place(part if self._files.is_file(part) else "trials.parquet")
            raise RequestError(f"{where}: {str(reason).splitlines()[0]}") from None

    def side_table(self, name: str) -> pa.Table:
        """`epochs`, `histograms` or `points` of the trials that have ended so far."""
        table = self._side_rows(name)
        return _of_trials(table, self.trials(["trial_id"]))

    def _side_rows(self, name: str) -> pa.Table:
        schema = side_schema(name)
        return self._with_parts(name, schema, schema.names, filled=["trial_id"])

    def running_epochs(self) -> pa.Table:
        """The epochs, so far, of trials that were under way when this was last written; trials
        that have ended since are among them.
        """
        schema = side_schema("epochs")
        with contextlib.suppress(FileNotFoundError):
            return self._decoded(
                RUNNING,
                lambda data: checked_rows(data, [*schema], self._plan.folder, filled=["trial_id"]),
                "; without it, nothing is lost",
            )
        return schema.empty_table()

    def references(self) -> pa.Table:
        """Scores of raw pixels and untrained encoders; empty until they are known."""
        if not self._files.is_file("references.parquet"):
            return references_schema().empty_table()
        fields = [*references_schema()]
        return self._decoded(
            "references.parquet",
            lambda data: checked_rows(data, fields, self._plan.folder, filled=["reference"]),
        )

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
        return self._decoded(f"{PRINTED}/{CELLS}", decode)

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
        return self.held.is_held()

    # What a run writes.

    def create(
        self, study_yaml: str, plan_rows: Sequence[Row], plugins: Sequence[Plugin] = ()
    ) -> None:
        """Lay out the folder of a new study. `study.yaml` comes last: with it the folder exists."""
        if plugins:
            self._write(KEPT, to_json(plugins))
        params = param_fields({name for row in plan_rows for name in row})
        place = self.place("study.yaml")
        tree = recorded_study(study_yaml.encode(), place, lambda: tuple(plugins)).tree
        plan = to_table(plan_rows, plan_schema(params))
        drawn = None if self._files.is_file("study.yaml") else secrets.token_hex().encode()
        marks = {STUDY: digest(tree), FOLDER: drawn or self._plan.folder}
        if "test" in plan["score_on"].to_pylist():
            marks[SCORE_ON] = b"test"
        marks = {key: value for key, value in marks.items() if value}
        self._write("plan.parquet", encode(plan.replace_schema_metadata(marks)))
        header = "# The study as clsweep resolved it: presets and settings are merged in.\n"
        self._write("study.yaml", (header + study_yaml).encode())
        for of_plan in ("_marks", "_row_schema"):
            self.__dict__.pop(of_plan, None)

    def add_trial(self, row: Row, **side: Sequence[Row]) -> None:
        """Record one trial that has ended with its rows of the side tables, by name.

        Raises:
            BusyError: another run has taken the folder over.
            RequestError: it cannot be written.
        """
        trial_id = row["trial_id"]
        for name, rows in side.items():
            part = f"parts/{name}/{trial_id}.parquet"
            if rows or self._files.is_file(part):  # an attempt that was killed may have left one
                table = to_table(
                    [{"trial_id": trial_id, **more} for more in rows], side_schema(name)
                )
                self._write_table(part, table)
        self._write_table(f"parts/trials/{trial_id}.parquet", to_table([row], self._row_schema))

    def keep_running(self, epochs: Mapping[str, Sequence[Row]]) -> None:
        """Replace the epochs of trials under way, by their ids: one file for all of them. Nothing
        that is computed reads it.

        Raises:
            BusyError: another run has taken the folder over.
            RequestError: it cannot be written.
        """
        rows = [{"trial_id": name, **row} for name, found in epochs.items() for row in found]
        if not rows:
            self._remove(RUNNING)
            return
        self._write_table(RUNNING, to_table(rows, side_schema("epochs")), durable=False)

    def add_encoder(self, trial_id: str, payload: bytes) -> None:
        """Keep a trial's encoder; on the disk when this returns."""
        self._write(encoder_file(trial_id), payload)

    def remove_encoder(self, trial_id: str) -> None:
        self._remove(encoder_file(trial_id))

    def add_checkpoint(self, trial_id: str, payload: bytes) -> None:
        """Replace the checkpoint of a trial; on the disk when this returns."""
        self._write(checkpoint_file(trial_id), payload)

    def remove_checkpoint(self, trial_id: str) -> None:
        self._remove(checkpoint_file(trial_id))

    def remove_unfinished(self) -> None:
        """Remove what writers that were killed left; nobody else may be writing."""
        parts = (f"parts/{name}" for name in ("trials", *SIDE_TABLES))
        self._files.remove_unfinished(["", PRINTED, *SUFFIX, "parts", *parts])

    def compact(self) -> None:
        """Move all parts into `trials.parquet`, `epochs.parquet` and the other side tables."""
        self.held.check()
        parts = {name: self._parts(name) for name in ("trials", *SIDE_TABLES)}
        trials = self.trials()  # once: their parts are many files
        for name in SIDE_TABLES:
            table = _of_trials(self._side_rows(name), trials)
            if name == "epochs" or table.num_rows:
                self._write_table(f"{name}.parquet", table)
        self._write_table("trials.parquet", trials)
        for names in parts.values():  # trials first: none must survive the epochs that belong to it
            self._files.each(self._remove, names)

    def add_references(self, rows: Sequence[Row]) -> None:
        self._write_table("references.parquet", to_table(rows, references_schema()))

    def add_printed(self, files: Mapping[str, str], cells: Sequence[Row]) -> None:
        """Keep a paper's numbers: the files by name, and the study's cells at the paper's scale.
        The files come last: with one of them there are cells.
        """
        params = param_fields({name for row in cells for name in row})
        self._write_table(f"{PRINTED}/{CELLS}", to_table(cells, plan_schema(params)))
        for name, text in files.items():
            self._write(f"{PRINTED}/{name}", text.encode())

    def beat(self, state: Mapping[str, Any]) -> None:
        """Say that the study is alive, for `clsweep status` elsewhere.

        Raises:
            BusyError: another run took this one, which had been silent, for dead, and has the
                folder now.
        """
        self.held.beat(state)

    def leftovers(self) -> Any:
        """What `note_leftovers` was last given, or whatever stands there; None if that is nothing,
        or no JSON.
        """
        try:
            return json.loads(self._files.read(LEFTOVERS))
        except (FileNotFoundError, ValueError, RecursionError):
            return None

    def note_leftovers(self, noted: Mapping[str, Any]) -> None:
        """Say what a run would leave on its machine if it were killed now."""
        self._write(LEFTOVERS, json.dumps(noted).encode(), durable=False)

    def forget_leftovers(self) -> None:
        self._remove(LEFTOVERS)

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the folder: a second run on it is refused. The lock of a process that died is free
        again: at once on this machine, after a minute in an object store.

        Raises:
            BusyError: another run holds it.
            RequestError: it cannot be made or written.
        """
        with self.held.hold():
            try:
                yield
            except Exception:
                self.held.check()  # what goes wrong in a folder of somebody else follows from that
                raise
            finally:
                self.remove_scratch()

    @property
    def scratch(self) -> str:
        """A local folder of this run, for Ray's own files too; nothing in it is read again. It lies
        apart: who writes there would make a folder of results anew that was deleted.
        """
        if self._scratch is None:
            self._scratch = tempfile.mkdtemp(prefix=temporary_prefix())
        return self._scratch

    def remove_scratch(self) -> None:
        if self._scratch is not None:
            shutil.rmtree(self._scratch, ignore_errors=True)
            self._scratch = None

    @property
    def journal_path(self) -> str:
        """The Optuna journal, a file of this machine; of an object store's it is a copy, see
        `keep_journal`.
        """
        if self.local_path is not None:
            self._files.is_file(JOURNAL)  # or nothing: Optuna would open whatever is there
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
            with contextlib.suppress(FileNotFoundError):
                lines = Disk(self._scratch).read(JOURNAL)
                self._write(JOURNAL, lines[: lines.rfind(b"\n") + 1])

    # Files.

    @property
    def _document(self) -> Document:
        place = self.place("study.yaml")
        found: Document = self._once(
            "study.yaml", lambda data: recorded_study(data, place, self._kept_plugins)
        )
        declare(found.plugins)
        if len({*(names := trials_schema([]).names)}) < len(names):
            raise RequestError(f"{place}: a plug-in's score has the name of another column")
        self._is_declared = True
        return found

    def _kept_plugins(self) -> tuple[Plugin, ...]:
        return self._decoded(KEPT, from_json)

    def declare(self) -> None:
        """Know the rows of the study's plug-ins, without which its columns have no meaning."""
        if not self._is_declared or self._document.plugins:
            self._document  # noqa: B018

    @property
    def _plan(self) -> Plan:
        self.declare()
        return self._once("plan.parquet", checked_plan)

    def _once(self, name: str, decode: Callable[[bytes], Any]) -> Any:
        """What a file holds, decoded again only where it has changed."""

        def again(data: bytes) -> Any:
            known, value = self._known.get(name, (None, None))
            if known != data:
                self._known[name] = known, value = data, decode(data)
            return value

        return self._decoded(name, again)

    @property
    def _param_fields(self) -> list[pa.Field]:
        return params_of(self._plan.schema)

    @cached_property
    def _row_schema(self) -> pa.Schema:
        """Of the rows that a run writes: who holds the folder alone changes its plan, which is not
        read again for every trial.
        """
        return trials_schema(self._param_fields)

    def _stored(self, folder: str) -> list[str]:
        """Trials that have a file in `folder`."""
        suffix = SUFFIX[folder]
        return sorted(
            name.removesuffix(suffix) for name in self._files.names(folder) if name.endswith(suffix)
        )

    def _parts(self, kind: str) -> list[str]:
        names = [n for n in self._files.names(f"parts/{kind}") if n.endswith(".parquet")]
        # hidden ones are the system's: macOS writes ._x beside x, NFS keeps .nfs... for a while
        return sorted(f"parts/{kind}/{name}" for name in names if not name.startswith("."))

    def _with_parts(
        self,
        name: str,
        schema: pa.Schema,
        columns: Sequence[str],
        *,
        filled: Sequence[str],
        present: Sequence[str] = (),
    ) -> pa.Table:
        """The compacted table and the parts; a trial that stands in both is read from its part."""
        fields, of = [schema.field(column) for column in dict.fromkeys(columns)], self._plan.folder

        def rows(data: bytes) -> pa.Table:
            return checked_rows(data, fields, of, filled=filled, present=present)

        def part(path: str) -> pa.Table:
            return self._decoded(
                path,
                lambda data: of_one_trial(rows(data), _trial_id(path), is_row=name == "trials"),
                "; without it, the trial runs again",
            )

        for _ in range(3):
            # The parts are listed first: one that is compacted from here on is missed below, and we
            # begin again.
            parts = self._parts(name)
            tables = [pa.schema(fields).empty_table()]
            self._require_compacted(name, parts)
            if self._files.is_file(f"{name}.parquet"):
                table = self._decoded(f"{name}.parquet", rows)
                if parts:
                    newer = pa.array([_trial_id(path) for path in parts], pa.string())
                    table = table.filter(pc.invert(pc.is_in(table["trial_id"], newer)))
                tables.append(table)
            try:
                tables += self._files.each(part, parts)
            except FileNotFoundError:
                continue
            return pa.concat_tables(tables)
        raise RequestError(f"{self.path}: the results are being rewritten; try again")

    def _require_compacted(self, name: str, parts: Sequence[str]) -> None:
        """Refuse a folder without a table that a compaction has written with the other one: the
        epochs first, and both before it removes parts. So a trial of the one that has no part is in
        the other.
        """
        other = {"trials": "epochs", "epochs": "trials"}.get(name)
        if other is None or self._files.is_file(f"{name}.parquet"):
            return
        if not self._files.is_file(f"{other}.parquet"):
            return
        ids = self._decoded(f"{other}.parquet", lambda data: decode(data, ["trial_id"]))["trial_id"]
        in_parts = {_trial_id(path) for path in parts} if name == "trials" else set()
        if not in_parts.issuperset(ids.to_pylist()):
            raise RequestError(f"{self.place(f'{name}.parquet')}: {_MISSING}")

    def _decoded(self, name: str, decode: Callable[[bytes], T], advice: str = "") -> T:
        """What a file holds; a part that is gone is for the caller to handle."""
        for attempt in range(3):
            try:
                data = self._files.read(name)
            except FileNotFoundError:
                if name.startswith("parts/"):
                    raise
                raise RequestError(f"{self.place(name)}: {_MISSING}") from None
            try:
                return decode(data)
            except (OSError, ValueError, pa.ArrowException) as error:
                if self.local_path is None and attempt < 2:
                    continue  # an object may be replaced while it is read
                if isinstance(error, UserError):
                    raise
                reason = str(error).splitlines()[0]
                raise RequestError(
                    f"{self.place(name)}: cannot be read: {reason}{advice}"
                ) from None
        raise AssertionError

    @cached_property
    def _marks(self) -> dict[bytes, bytes]:
        """What every table says in its metadata: its folder, and that its scores are of the test
        split.
        """
        known = self._plan.schema.metadata or {}
        return {key: known[key] for key in (FOLDER, SCORE_ON) if key in known}

    def _write_table(self, name: str, table: pa.Table, *, durable: bool = True) -> None:
        marks = self._marks | (table.schema.metadata or {})
        self._write(name, encode(table.replace_schema_metadata(marks)), durable=durable)

    def _write(self, name: str, data: Data, *, durable: bool = True) -> None:
        self.held.check()
        self._files.write(name, data, durable=durable)

    def _remove(self, name: str) -> None:
        self.held.check()
        self._files.remove(name)


def _of_trials(table: pa.Table, trials: pa.Table) -> pa.Table:
    """The rows of these trials."""
    return table.filter(pc.is_in(table["trial_id"], trials["trial_id"].combine_chunks()))


def encoder_file(trial_id: str) -> str:
    """Where a results folder has the encoder of a trial."""
    return f"encoders/{trial_id}{SUFFIX['encoders']}"


def checkpoint_file(trial_id: str) -> str:
    """Where a results folder has the last checkpoint of a trial."""
    return f"checkpoints/{trial_id}{SUFFIX['checkpoints']}"


def _trial_id(part: str) -> str:
    return part.rpartition("/")[2].removesuffix(".parquet")
