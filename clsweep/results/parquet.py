"""Tables as the bytes of Parquet files, which tell on reading if a bit of them has changed.

Parquet's own checksums cover the pages, and most of a small file is its footer: of 1,500 flipped
bits in the file of one trial, 41 changed the table without a word. So a checksum of the whole file
stands in front of the footer, where Parquet looks at nothing.
"""

from __future__ import annotations

import zlib
from collections.abc import Collection, Iterable, Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

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
    return _read(data, columns, by_page=not is_ours, of_others=of_others)


def schema_of(data: bytes) -> pa.Schema:
    """The columns that a Parquet file says it has."""
    return pq.read_schema(pa.BufferReader(data))


def _read(
    data: bytes, columns: Sequence[str] | None, *, by_page: bool, of_others: bool
) -> pa.Table:
    file = pq.ParquetFile(_source(data), page_checksum_verification=by_page)
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
