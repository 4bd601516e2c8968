"""Tables as the bytes of Parquet files, and their checks before anything is computed from them.

Parquet's own checksums cover the pages, and most of a small file is its footer: of 1,500 flipped
bits in the file of one trial, 41 changed the table without a word. So a checksum of the whole file
stands in front of the footer, where Parquet looks at nothing.

Every function raises ValueError, or an error of Arrow's, that says what was expected.
"""

from __future__ import annotations

import functools
import hashlib
import json
import string
import zlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from clsweep.catalog import PARAM
from clsweep.catalog.ownership import ALL_THERE_IS, NEWER_COLUMNS
from clsweep.results.schemas import (
    ID_FIELDS,
    TRIAL_KEYS,
    TRIAL_STATUSES,
    outcome_fields,
    param_fields,
    params_of,
    plan_schema,
)
from clsweep.study.extend import defining
from clsweep.study.space import declared_spaces

_MARK, _CHECK_SIZE = b"clsweep1", 4  # the checksum stands behind the mark
_TAIL_SIZE = 8  # the footer's length, and PAR1
_MANY_ROWS = 1000  # fewer are read without threads, which would take longer
# What a file may come to: so much, and so many times its own bytes. The compression with which we
# write comes to at most 22 times. Of our tables, one with constant columns has 7 rows a byte.
_PAGES, _PAGES_PER_BYTE = 2**26, 22  # bytes, unpacked
_ROWS, _ROWS_PER_BYTE = 100_000, 30
_COLUMNS = 2_000


def encode_table(table: pa.Table) -> bytes:
    """A table as a Parquet file with checksums."""
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, write_page_checksum=True)
    data = memoryview(sink.getvalue())
    start = _footer_start(data)
    return b"".join([data[:start], _MARK, _checksum(data[:start], data[start:]), data[start:]])


def decode_table(
    data: bytes, columns: Sequence[str] | None = None, *, of_others: bool = False
) -> pa.Table:
    """A Parquet file, or those of the columns that it has. One without checksums is read as well.
    One `of_others` may have lists, whose number is not known before they are read. ValueError,
    OSError or an error of Arrow's where it is damaged, or cannot be what it says.
    """
    view = memoryview(data)
    footer = _footer_start(view)
    at = footer - len(_MARK) - _CHECK_SIZE
    is_ours = at > 0 and view[at : at + len(_MARK)] == _MARK
    if is_ours and view[footer - _CHECK_SIZE : footer] != _checksum(view[:at], view[footer:]):
        raise ValueError("its checksum is wrong: the file has changed since it was written")
    file = pq.ParquetFile(_source(data), page_checksum_verification=not is_ours)
    metadata = file.metadata
    names = metadata.schema.to_arrow_schema().names
    if len(names) > _COLUMNS:
        raise ValueError(f"expected at most {_COLUMNS:,} columns, found {len(names):,}")
    if twice := [name for i, name in enumerate(names) if name in names[:i]]:
        raise ValueError(f"column {twice[0]!r} stands twice")
    lists = [path for path in metadata.schema.names if path not in names]
    if lists and not of_others:
        raise ValueError(f"column {lists[0]!r}: expected no list")
    num_rows, groups = metadata.num_rows, range(metadata.num_row_groups)
    unpacked = sum(metadata.row_group(group).total_byte_size for group in groups)
    is_large = unpacked > _PAGES + _PAGES_PER_BYTE * len(data)
    if is_large or num_rows > _ROWS + _ROWS_PER_BYTE * len(data):
        raise ValueError(f"{len(data):,} bytes that come to {unpacked:,} in {num_rows:,} rows")
    chosen = [name for name in columns or names if name in names]
    table = file.read(columns=chosen, use_threads=num_rows >= _MANY_ROWS)
    table.validate(full=True)  # else the first look at a text may fail
    return table


def schema_of(data: bytes) -> pa.Schema:
    """The columns that a Parquet file says it has."""
    return pq.read_schema(pa.BufferReader(data))


def _source(data: bytes) -> pa.BufferReader:
    """Bytes in Arrow's own memory. One of its threads lets go of them last: of Python's it would
    have to ask the interpreter, and where that is just ending, the process aborts.
    """
    buffer = pa.allocate_buffer(len(data))
    pa.FixedSizeBufferWriter(buffer).write(data)
    return pa.BufferReader(buffer)


def typed(
    table: pa.Table,
    fields: Iterable[pa.Field],
    *,
    filled: Collection[str] = (),
    present: Collection[str] = (),
) -> pa.Table:
    """These columns of a table in their types; null where an earlier version had none. Those
    `filled` have a value in every row, `present` ones are there; ValueError or an error of Arrow's
    where it is not so.
    """
    schema = pa.schema(fields)
    if missing := sorted({*filled, *present} & {*schema.names} - {*table.column_names}):
        raise ValueError(f"expected a column {missing[0]!r}, found none")
    if not (is_same := table.schema.equals(schema)):  # else it is of this version
        table = pa.table([_column(table, field) for field in schema], schema=schema)
    if gaps := [name for name in filled if table[name].null_count]:
        raise ValueError(f"column {gaps[0]!r}: expected a value in every row, found gaps")
    return table.replace_schema_metadata() if is_same else table.cast(schema)


def distinct(table: pa.Table, name: str) -> None:
    """Raise ValueError for a value of a column that stands in two rows."""
    if len(table[name].unique()) < table.num_rows:
        counts = table[name].value_counts()
        value = counts.filter(pc.greater(counts.field("counts"), 1)).field("values")[0]
        raise ValueError(f"column {name!r}: {value} stands twice")


def _column(table: pa.Table, field: pa.Field) -> pa.ChunkedArray:
    if field.name not in table.column_names:
        return pa.chunked_array([pa.nulls(table.num_rows, field.type)])
    column = table[field.name]
    if column.type != field.type:
        if _family(column.type) not in (_family(field.type), "null"):
            raise ValueError(f"column {field.name!r}: expected {field.type}, found {column.type}")
        column = column.cast(field.type)
    return column


def _family(kind: pa.DataType) -> str:
    """Types of one family hold each other's values, or `cast` says that they do not."""
    if pa.types.is_dictionary(kind):
        return _family(kind.value_type)
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        return "number"
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or kind == pa.string_view():
        return "text"
    return "time" if pa.types.is_timestamp(kind) else str(kind)


def _checksum(pages: memoryview, footer: memoryview) -> bytes:
    return zlib.crc32(footer, zlib.crc32(pages)).to_bytes(4, "little")


def _footer_start(data: memoryview) -> int:
    """Where the footer begins; below 0 in what is no Parquet file."""
    return len(data) - _TAIL_SIZE - int.from_bytes(data[-_TAIL_SIZE:-4], "little")


STUDY_DIGEST = b"study"  # in the metadata of a plan: the digest of the study that it is of
FOLDER_ID = b"folder"  # in that of every table: a number that the folder drew when it was made
SCORE_ON = b"score_on"  # there too: `test`, if that is the split that scores are of
_OF_IDS = (string.ascii_letters + string.digits + "._-").encode()  # they name files too


def digest(tree: Mapping[str, Any]) -> bytes:
    """Tells studies of different plans apart."""
    text = json.dumps(defining(tree), sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest().encode()


class Plan(NamedTuple):
    """The part of `plan.parquet` that every reader needs: `TRIAL_KEYS`, and the schema of the whole
    table, its hyperparameters marked as such.
    """

    keys: pa.Table
    schema: pa.Schema

    @property
    def folder(self) -> bytes | None:
        """The number of its folder; None in one of an earlier version."""
        return (self.schema.metadata or {}).get(FOLDER_ID)


def checked_plan(data: bytes) -> Plan:
    """`plan.parquet`, without the columns that few ask for."""
    keys, schema = plan_columns(data, TRIAL_KEYS), _plan_schema(data)
    if not keys.num_rows:
        raise ValueError("expected the planned trials, found none")
    texts = [chunk.buffers()[2] for chunk in keys["trial_id"].chunks]
    if b"".join(text or b"" for text in texts).translate(None, _OF_IDS):
        raise ValueError("column 'trial_id': expected names of letters, digits, '.', '_' and '-'")
    distinct(keys, "trial_id")
    return Plan(keys, schema)


def plan_columns(data: bytes, columns: Collection[str]) -> pa.Table:
    """Those of these columns that `plan.parquet` has, in their types."""
    fields = [field for field in _plan_schema(data) if field.name in columns]
    table = decode_table(data, [field.name for field in fields])
    return typed(
        table, fields, filled=[f.name for f in fields if f.name in (*TRIAL_KEYS, "sampler")]
    )


def _plan_schema(data: bytes) -> pa.Schema:
    schema = schema_of(data)
    known = {field.name: field for field in param_fields(PARAM)}
    recorded = {field.name: field for field in params_of(schema)}
    names = [*recorded, *(name for name in known if name in schema.names and name not in recorded)]
    params = [known[name] if name in known else recorded[name] for name in names]
    taken = {field.name for field in (*ID_FIELDS, *outcome_fields())}
    if wrong := [field.name for field in params if field.name in taken]:
        raise ValueError(f"column {wrong[0]!r}: expected no hyperparameter")
    required = {*TRIAL_KEYS, "sampler"}
    fields = [f for f in plan_schema(params) if f.name in required or f.name in schema.names]
    return pa.schema(fields, metadata=schema.metadata)


def why_not_of(plan: Plan, tree: Mapping[str, Any]) -> str:
    """Why a plan is not that of a recorded study; empty if it is."""
    known = (plan.schema.metadata or {}).get(STUDY_DIGEST)
    if known not in (None, digest(tree)):
        return "study.yaml has changed since plan.parquet was made of it"
    others = set(plan.keys["objective"].unique().to_pylist()) - set(declared_spaces(tree))
    if others:
        return f"study.yaml has no objective '{min(others)}' of plan.parquet"
    swept = {name for space in declared_spaces(tree).values() for name in space if name in PARAM}
    missing = swept - set(plan.schema.names)
    if missing and tree.get("base", {}).get("epochs") != 0:  # else nothing is trained
        return f"study.yaml sweeps '{min(missing)}', which is not in plan.parquet"
    return ""


def checked_rows(
    data: bytes,
    fields: Sequence[pa.Field],
    folder: bytes | None,
    *,
    filled: Collection[str],
    present: Collection[str] = (),
) -> pa.Table:
    """These columns of a table that grows with the trials, of this `folder`, see `Plan`: trials of
    two studies may have the same ids. Those `filled` have a value in every row, `present` ones are
    there, should there be any row.
    """
    table = decode_table(data, [field.name for field in fields])
    if folder and (table.schema.metadata or {}).get(FOLDER_ID, folder) != folder:
        raise ValueError("it is a table of another results folder")
    return typed(table, fields, filled=filled, present=present if table.num_rows else ())


def of_one_trial(table: pa.Table, trial_id: str, *, is_row: bool) -> pa.Table:
    """A part, which holds rows of the trial of its name alone; `is_row`: one of them."""
    others = pc.not_equal(table["trial_id"], trial_id)
    if pc.any(others).as_py() or (is_row and table.num_rows != 1):
        raise ValueError(f"expected {'one row' if is_row else 'rows'} of trial {trial_id}")
    return table


def in_plan_order(trials: pa.Table, plan: pa.Table, params: Sequence[str]) -> pa.Table:
    """The trials' rows as they are planned; what the plan says of one of `params`, its trial says
    too. ValueError where it does not; behind its message the trial.
    """
    first = plan.slice(0, trials.num_rows)
    if trials["trial_id"].equals(first["trial_id"]):  # most often: all have ended
        plan = first
    else:
        ranks = pc.index_in(trials["trial_id"], plan["trial_id"].combine_chunks()).combine_chunks()
        if ranks.null_count:
            name = trials.filter(pc.is_null(ranks))["trial_id"][0].as_py()
            raise ValueError(f"trial {name} is not in plan.parquet", name)
        order = pc.array_sort_indices(ranks)
        trials, ranks = trials.take(order), ranks.take(order)
        if pc.any(pc.equal(ranks[1:], ranks[:-1])).as_py():
            distinct(trials, "trial_id")
        plan = plan.take(ranks)
    if unknown := set(trials["status"].unique().to_pylist()) - set(TRIAL_STATUSES):
        raise ValueError(f"status: expected {', '.join(TRIAL_STATUSES)}, found {min(unknown)!r}")
    for name in dict.fromkeys((*TRIAL_KEYS[1:], *params)):
        planned, recorded = plan[name], trials[name]
        if name in NEWER_COLUMNS or (name in PARAM and PARAM[name].implied is not None):
            recorded = pc.coalesce(recorded, planned)  # of trials that are older than the column
            trials = trials.set_column(trials.column_names.index(name), name, recorded)
        if planned.equals(recorded):
            continue
        # a live search plans no value
        differs = pc.and_(pc.is_valid(planned), pc.fill_null(pc.not_equal(planned, recorded), True))
        if name in ALL_THERE_IS:  # it may hang on what a live search has chosen after the plan
            chosen = [pc.and_(pc.is_null(plan[n]), pc.is_valid(trials[n])) for n in params]
            differs = pc.and_not(differs, functools.reduce(pc.or_, chosen))
        if (at := pc.index(differs, True).as_py()) >= 0:
            trial = trials["trial_id"][at].as_py()
            what = f"expected {planned[at]} as planned, found {recorded[at]}"
            raise ValueError(f"trial {trial}: {name}: {what}", trial)
    return trials
