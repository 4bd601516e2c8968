"""The results folder: one small file per finished trial while the study runs, compacted at the end.

What is read may be damaged, or made by anybody: it is checked once, before anything is
computed from it (`store`, `schemas`, `weights`).

Every file is written whole. A trial counts as finished when its part of the trials table is there;
its epochs and other side tables are written before. Compaction writes the tables first and removes
the parts afterwards, so an interruption at any point leaves a trial in both at worst, and readers
take it from its part.
"""

from __future__ import annotations

import contextlib
import copy
import json
import math
import os
import secrets
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from clsweep.catalog.plugins import Plugin, declare
from clsweep.catalog.rows import Row
from clsweep.errors import RequestError
from clsweep.machine import temporary_prefix
from clsweep.results import integrity, schemas
from clsweep.results.disk import Disk
from clsweep.results.integrity import (
    FOLDER_ID,
    SCORE_ON,
    STUDY_DIGEST,
    Plan,
    checked_rows,
    decode_table,
    encode_table,
)
from clsweep.results.lock import read_heartbeat
from clsweep.results.store import MISSING, SUFFIX, Store, empty
from clsweep.study.document import PLUGINS_FILE, Document, from_json, to_json
from clsweep.study.extend import recorded_study

PARTS_BEFORE_COMPACTION = 100  # opening a part takes a reader about 6 ms
# Of the trials that have ended, in a large study: a compaction writes all of them again. A fixed
# number would make their cost grow with the square of the study.
SHARE_BEFORE_COMPACTION = 0.03
CHUNKS = 50  # of what has been written since are joined: a row alone takes 150 KiB of memory
JOURNAL = "optuna.journal"
STUDY = "study.yaml"
EXTENDED = "study.extended.yaml"  # the same while a run writes the plan that it is of
CLOCK, SEARCH_END = "clock.json", "search_end.json"
PAPER_TABLES, CELLS = "references", "cells.parquet"  # a paper's numbers, and the cells at its scale
RUNNING = "parts/running.parquet"


class ResultsFolder(Store):
    """A results folder on this machine or in an object store, as `Store` opens it."""

    _scratch: str | None = None
    _is_declared = False
    _study_file = STUDY

    def __init__(self, path: str, of_run: str | None = None):
        super().__init__(str(path) if "://" in str(path) else os.path.normpath(path), of_run)

    def __repr__(self) -> str:
        return f"ResultsFolder({self.path!r})"

    @property
    def confirmation(self) -> ResultsFolder:
        """The folder inside for what `clsweep confirm` runs, which exists once it has."""
        if isinstance(self.files, Disk):
            self.files.inside("confirm")
        local = self.local_path is not None
        return ResultsFolder(os.path.join(self.path, "confirm") if local else self.place("confirm"))

    def place(self, name: str) -> str:
        """A file of the folder as messages name it, and as a command takes it."""
        return self.files.place(name)

    # What the folder holds.

    def exists(self) -> bool:
        """The folder has a study; RequestError where it has trials without one."""
        if self.files.is_file(STUDY):
            return True
        if self.files.is_file("trials.parquet") or self.parts("trials"):
            advice = "A table of trials, as `import` writes it, has no study to be run again"
            raise RequestError(f"{self.place('study.yaml')}: {MISSING}. {advice}")
        return False

    def check(self) -> None:
        """Raise RequestError for a plan that is not of the study beside it, or damaged."""
        for pause_s in (0.2, 1.0, 0.0):  # a run that extends a study writes one after the other
            if not (reason := integrity.why_not_of(self._plan, self._document.tree)):
                return
            time.sleep(pause_s)
        if self._is_cut_off():
            self._study_file = EXTENDED
            return
        advice = "The command that made the folder writes it anew, unless it was edited"
        raise RequestError(f"{self.place('study.yaml')}: {reason}. {advice}")

    def _is_cut_off(self) -> bool:
        """True if a run was killed between a plan and its study, which lies beside it whole."""
        if not self.files.is_file(EXTENDED):
            return False
        study = self.once(EXTENDED, self._recorded)
        return not integrity.why_not_of(self._plan, study.tree)

    def _finish_extension(self) -> None:
        """Do what a run that was killed had left to do."""
        if self.files.is_file(EXTENDED):
            if self._is_cut_off():
                self.write(STUDY, self.files.read(EXTENDED))
            self.remove(EXTENDED)
        self._study_file = STUDY

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
        table = self.decoded("plan.parquet", lambda data: integrity.plan_columns(data, names))
        return table.select(names).replace_schema_metadata(None)

    def params(self) -> list[str]:
        """The hyperparameters among the columns of plan and trials, of whatever version."""
        return [field.name for field in schemas.params_of(self._plan.schema)]

    def trials(self, columns: Sequence[str] | None = None) -> pa.Table:
        """All trials that have ended, one row each, in plan order; or these columns of them."""
        known = self._plan  # asked for once: an object store is asked anew each time
        params = schemas.params_of(known.schema)
        schema = schemas.trials_schema(params)
        columns = list(columns or schema.names)
        metric = self._document.tree.get("metric", {}).get("name", "knn_top1")
        present = (*schemas.TRIAL_KEYS, "status")
        names = (*schemas.PLANNED, *(field.name for field in params))
        planned = [name for name in names if name in known.schema.names]
        fields = [schema.field(name) for name in dict.fromkeys([*columns, *present, *planned])]
        table = self.with_parts("trials", fields, known.folder, filled=present, present=[metric])
        # the plan is read last: no run records a trial before it is planned
        try:
            plan = self.plan(list(dict.fromkeys([*schemas.TRIAL_KEYS, *planned])))
            return integrity.in_plan_order(table, plan, planned).select(columns)
        except ValueError as error:
            reason, *trial = error.args
            where = f"{self.place('trials.parquet')} or a part"
            if trial:
                part = f"parts/trials/{trial[0]}.parquet"
                where = self.place(part if self.files.is_file(part) else "trials.parquet")
            raise RequestError(f"{where}: {str(reason).splitlines()[0]}") from None

    def side_table(self, name: str) -> pa.Table:
        """`epochs`, `histograms`, `points` or `hits` of the trials that have ended so far."""
        rows = self._side_rows(name)
        return _of_trials(rows, self.trials(["trial_id"])) if rows.num_rows else rows

    def _side_rows(self, name: str) -> pa.Table:
        fields = [*schemas.side_schema(name)]
        return self.with_parts(name, fields, self._plan.folder, filled=["trial_id"])

    def clock_s(self) -> float:
        """Seconds that runs of a study with a budget have taken, up to the last trial's end."""
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            seconds = float(json.loads(self.files.read(CLOCK))["seconds"])
            return seconds if 0.0 <= seconds < math.inf else 0.0
        return 0.0

    def keep_clock_s(self, seconds: float) -> None:
        self.write(CLOCK, json.dumps({"seconds": seconds}).encode())

    def search_end(self, num_left: int) -> str:
        """The end of a search that leaves so many trials of its plan out, and why; empty where
        they are left for another reason.
        """
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            recorded = json.loads(self.files.read(SEARCH_END)) if num_left else {}
            if recorded and recorded["left"] == num_left:
                why = "; ".join(str(end).rstrip(".") for end in recorded["ends"])
                return f"the search ended with {num_left} trials left out. {why}"
        return ""

    def keep_search_end(self, ends: Sequence[str], num_left: int) -> None:
        if ends:
            self.write(SEARCH_END, json.dumps({"ends": [*ends], "left": num_left}).encode())
        else:
            self.remove(SEARCH_END)

    def running_epochs(self) -> pa.Table:
        """The epochs of trials under way when this was last written; some may have ended since."""
        schema = schemas.side_schema("epochs")
        with contextlib.suppress(FileNotFoundError):
            return self.decoded(
                RUNNING,
                lambda data: checked_rows(data, [*schema], self._plan.folder, filled=["trial_id"]),
                "; without it, nothing is lost",
            )
        return empty(schema)

    def references(self) -> pa.Table:
        """Scores of raw pixels and untrained encoders; empty until they are known."""
        schema = schemas.references_schema()
        if not self.files.is_file("references.parquet"):
            return empty(schema)
        return self.decoded(
            "references.parquet",
            lambda data: checked_rows(data, [*schema], self._plan.folder, filled=["reference"]),
        )

    def paper_tables(self) -> dict[str, str]:
        """The files of a paper's numbers that the study has, by name; empty if it has none."""
        names = sorted(name for name in self.files.names(PAPER_TABLES) if name.endswith(".csv"))
        return {
            name: self.decoded(f"{PAPER_TABLES}/{name}", lambda data: data.decode("utf-8"))
            for name in names
        }

    def paper_cells(self) -> pa.Table:
        """A row for each configuration that the study plans at the paper's scale."""
        return self.decoded(f"{PAPER_TABLES}/{CELLS}", decode_table)

    def checkpoint(self, trial_id: str) -> bytes | None:
        """The last checkpoint of a trial, None if there is none."""
        try:
            return self.files.read(checkpoint_file(trial_id))
        except FileNotFoundError:
            return None

    def has_parts(self) -> bool:
        """Trials wait for compaction: the last run was cut off, or another is at work."""
        return any(self.parts(name) for name in ("trials", *schemas.SIDE_TABLES))

    def heartbeat(self) -> dict[str, Any]:
        """The last heartbeat of the run; empty if there is none, or none that can be read."""
        return read_heartbeat(self.files)

    def is_running(self) -> bool:
        """A run holds the folder; in an object store, by its latest heartbeat."""
        return self.held.is_held()

    # What a run writes.

    def create(
        self, study_yaml: str, plan_rows: Sequence[Row], plugins: Sequence[Plugin] = ()
    ) -> None:
        """Lay out the folder of a new study. `study.yaml` comes last: with it the folder exists.
        Where there is one, the new one lies beside the plan before either is replaced.
        """
        if plugins:
            self.write(PLUGINS_FILE, to_json(plugins))
        params = schemas.param_fields({name for row in plan_rows for name in row})
        place = self.place(STUDY)
        tree = recorded_study(study_yaml.encode(), place, lambda: tuple(plugins)).tree
        plan = schemas.to_table(plan_rows, schemas.plan_schema(params))
        drawn = None if self.files.is_file(STUDY) else secrets.token_hex().encode()
        marks = {STUDY_DIGEST: integrity.digest(tree), FOLDER_ID: drawn or self._plan.folder}
        if "test" in plan["score_on"].to_pylist():
            marks[SCORE_ON] = b"test"
        marks = {key: value for key, value in marks.items() if value}
        header = "# The study as clsweep resolved it: presets and settings are merged in.\n"
        study = (header + study_yaml).encode()
        if not drawn:
            self.write(EXTENDED, study)
        self.write("plan.parquet", encode_table(plan.replace_schema_metadata(marks)))
        self.write(STUDY, study)
        if not drawn:
            self.remove(EXTENDED)
        for of_plan in ("_marks", "_row_schema"):
            self.__dict__.pop(of_plan, None)
        self._forget_parts()  # which may have fewer columns

    def add_trial(self, row: Row, **side: Sequence[Row]) -> None:
        """Record one trial that has ended with its rows of the side tables, by name. BusyError
        where another run has taken the folder over, RequestError where it cannot be written.
        """
        trial_id, tables = row["trial_id"], dict[str, pa.Table]()
        for name, rows in side.items():
            # an attempt that was killed may have left one
            if rows or self.files.is_file(f"parts/{name}/{trial_id}.parquet"):
                labelled = [{"trial_id": trial_id, **more} for more in rows]
                tables[name] = schemas.to_table(labelled, schemas.side_schema(name))
        tables["trials"] = schemas.to_table([row], self._row_schema)
        for name, table in tables.items():
            self._write_table(f"parts/{name}/{trial_id}.parquet", table)
        if trial_id in self._written_ids:
            self._forget_parts()
        for name, table in tables.items():
            joined, single = self._written.setdefault(name, ([], []))
            single.append(table)
            if len(single) == CHUNKS:
                joined.append(pa.concat_tables(single).combine_chunks())
                single.clear()
        self._written_ids.add(trial_id)

    def _forget_parts(self) -> None:
        self._written.clear()
        self._written_ids.clear()

    def keep_running(self, epochs: Mapping[str, Sequence[Row]]) -> None:
        """Replace the epochs of trials under way, by their ids: one file for all of them, which
        nothing that is computed reads. Errors as in `add_trial`.
        """
        rows = [{"trial_id": name, **row} for name, own in epochs.items() for row in own]
        if not rows:
            self.remove(RUNNING)
            return
        self._write_table(
            RUNNING, schemas.to_table(rows, schemas.side_schema("epochs")), durable=False
        )

    def remove_unfinished(self) -> None:
        """Remove what writers that were killed left; nobody else may be writing."""
        parts = (f"parts/{name}" for name in ("trials", *schemas.SIDE_TABLES))
        self.files.remove_unfinished(["", PAPER_TABLES, *SUFFIX, "parts", *parts])

    def compact(self) -> None:
        """Move all parts into `trials.parquet`, `epochs.parquet` and the other side tables."""
        self.held.check()
        parts = {name: self.parts(name) for name in ("trials", *schemas.SIDE_TABLES)}
        trials = self.trials()  # once: their parts are many files
        for name in schemas.SIDE_TABLES:
            table = _of_trials(self._side_rows(name), trials)
            if name == "epochs" or table.num_rows:
                self._write_table(f"{name}.parquet", table)
        self._write_table("trials.parquet", trials)
        for names in parts.values():  # trials first: none must survive the epochs that belong to it
            self.files.each(self.remove, names)
        self._forget_parts()

    def add_references(self, rows: Sequence[Row]) -> None:
        self._write_table("references.parquet", schemas.to_table(rows, schemas.references_schema()))

    def add_paper_tables(self, files: Mapping[str, str], cells: Sequence[Row]) -> None:
        """Keep a paper's numbers: the study's cells at its scale, then the files by name."""
        params = schemas.param_fields({name for row in cells for name in row})
        self._write_table(
            f"{PAPER_TABLES}/{CELLS}", schemas.to_table(cells, schemas.plan_schema(params))
        )
        for name, text in files.items():
            self.write(f"{PAPER_TABLES}/{name}", text.encode())

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the folder; BusyError where another run holds it, RequestError where it cannot be
        made. The lock of a process that died is free at once on this machine, after a minute in a
        store.
        """
        with self.held.hold():
            try:
                self._finish_extension()
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
        """The Optuna journal, a file here; of an object store a copy, see `keep_journal`."""
        if self.local_path is not None:
            self.files.is_file(JOURNAL)  # or nothing: Optuna would open whatever is there
            return f"{self.local_path}/{JOURNAL}"
        path = f"{self.scratch}/{JOURNAL}"
        if not os.path.exists(path):
            with contextlib.suppress(FileNotFoundError):
                Disk(self.scratch).write(JOURNAL, self.files.read(JOURNAL))
        return path

    def keep_journal(self) -> None:
        """Copy the journal, up to its last whole line, to the object store, which cannot append."""
        if self.local_path is None and self._scratch is not None:
            with contextlib.suppress(FileNotFoundError):
                lines = Disk(self._scratch).read(JOURNAL)
                self.write(JOURNAL, lines[: lines.rfind(b"\n") + 1])

    @property
    def _document(self) -> Document:
        if self._study_file == EXTENDED and not self.files.is_file(EXTENDED):
            self._study_file = STUDY  # somebody has finished the extension
        document: Document = self.once(self._study_file, self._recorded)
        if document.plugins:
            declare(document.plugins)
        if len({*(names := schemas.trials_schema([]).names)}) < len(names):
            place = self.place(self._study_file)
            raise RequestError(f"{place}: a plug-in's score has the name of another column")
        self._is_declared = True
        return document

    def _recorded(self, data: bytes) -> Document:
        place = self.place(self._study_file)
        return recorded_study(data, place, lambda: self.decoded(PLUGINS_FILE, from_json))

    def declare(self) -> None:
        """Know the rows of the study's plug-ins, without which its columns have no meaning."""
        if not self._is_declared or self._document.plugins:
            self._document  # noqa: B018

    @property
    def _plan(self) -> Plan:
        self.declare()
        return self.once("plan.parquet", integrity.checked_plan)

    @cached_property
    def _row_schema(self) -> pa.Schema:
        """Of the rows that a run writes: the plan is not read again for every trial."""
        return schemas.trials_schema(schemas.params_of(self._plan.schema))

    @cached_property
    def _marks(self) -> dict[bytes, bytes]:
        """Every table's metadata: its folder, and if scores are of the test split."""
        known = self._plan.schema.metadata or {}
        return {key: known[key] for key in (FOLDER_ID, SCORE_ON) if key in known}

    def _write_table(self, name: str, table: pa.Table, *, durable: bool = True) -> None:
        marks = self._marks | (table.schema.metadata or {})
        self.write(name, encode_table(table.replace_schema_metadata(marks)), durable=durable)


def _of_trials(table: pa.Table, trials: pa.Table) -> pa.Table:
    """The rows of these trials."""
    return table.filter(pc.is_in(table["trial_id"], trials["trial_id"].combine_chunks()))


def encoder_file(trial_id: str) -> str:
    """Where a results folder has the encoder of a trial."""
    return f"encoders/{trial_id}{SUFFIX['encoders']}"


def checkpoint_file(trial_id: str) -> str:
    """Where a results folder has the last checkpoint of a trial."""
    return f"checkpoints/{trial_id}{SUFFIX['checkpoints']}"
