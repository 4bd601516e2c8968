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

_MARK, _MARK_SIZE = b"clsweep1", 12  # with the checksum behind it
_TAIL_SIZE = 8  # the footer's length, and PAR1
_MANY_ROWS = 1000  # in a smaller table the detour by dictionaries costs more than it saves
# Runs of equal values take next to nothing, yet no table of ours comes near this.
MOST_ROWS_PER_BYTE = 1000


_MOST_TEXT = 2**31  # bytes of a column, written out: a few kilobytes of file can name far more


def encode(table: pa.Table) -> bytes:
    """A table as a Parquet file with checksums."""
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, write_page_checksum=True)
    data = memoryview(sink.getvalue())
    start = _footer_start(data)
    return b"".join([data[:start], _MARK, _checksum(data[:start], data[start:]), data[start:]])


def decode(data: bytes, columns: Sequence[str] | None = None) -> pa.Table:
    """A Parquet file, or those of the columns that it has. One without checksums is read as well.

    Raises:
        ValueError, OSError, pa.ArrowException: it is damaged, or cannot be what it says.
    """
    view = memoryview(data)
    if not _has_checksum(view):
        return _read(data, columns, by_page=True)
    _verify(view)
    return _read(data, columns, by_page=False)


def schema_of(data: bytes) -> pa.Schema:
    """The columns that a Parquet file says it has."""
    return pq.read_schema(pa.BufferReader(data))


def _read(data: bytes, columns: Sequence[str] | None, *, by_page: bool) -> pa.Table:
    """Our texts repeat: they are read, and checked, once per value where there are many rows."""
    source = _source(data)
    metadata = pq.read_metadata(source)
    num_rows, schema = metadata.num_rows, metadata.schema.to_arrow_schema()
    if num_rows > MOST_ROWS_PER_BYTE * len(data):
        raise ValueError(f"{num_rows:,} rows in {len(data):,} bytes")
    names = schema.names
    if twice := [name for i, name in enumerate(names) if name in names[:i]]:
        raise ValueError(f"column {twice[0]!r} stands twice")
    texts = [field.name for field in schema if _family(field.type) == "text"]
    file = pq.ParquetFile(
        source,
        metadata=metadata,
        read_dictionary=_repeating(metadata, texts),
        page_checksum_verification=by_page,
    )
    table = file.read(columns=columns)
    # else the first look at a text may fail
    table.select([n for n in texts if n in table.column_names]).validate(full=True)
    for name, column in zip(table.column_names, table.columns, strict=True):
        if pa.types.is_dictionary(column.type) and _family(column.type) == "text":
            _require_bounded(name, column)
    return table.cast(pa.schema([schema.field(name) for name in table.column_names]))


def _source(data: bytes) -> pa.BufferReader:
    """Bytes in Arrow's own memory. One of its threads lets go of them last: of Python's it would
    have to ask the interpreter, and where that is just ending, the process aborts.
    """
    buffer = pa.allocate_buffer(len(data))
    pa.FixedSizeBufferWriter(buffer).write(data)
    return pa.BufferReader(buffer)


def _require_bounded(name: str, column: pa.ChunkedArray) -> None:
    """Refuse a text that would fill the memory once every row has it."""
    lengths = [pc.binary_length(chunk.dictionary) for chunk in column.chunks]
    if sum((pc.max(n).as_py() or 0) for n in lengths) * len(column) <= _MOST_TEXT:
        return
    sums = (
        pc.sum(n.take(c.indices)).as_py() or 0 for n, c in zip(lengths, column.chunks, strict=True)
    )
    if (total := sum(sums)) > _MOST_TEXT:
        raise ValueError(f"column {name!r}: {total:,} bytes of text in {len(column):,} rows")


def _repeating(metadata: pq.FileMetaData, names: Sequence[str]) -> list[str]:
    """Those of the columns that hold few values, many times each."""
    if metadata.num_rows < _MANY_ROWS or not metadata.num_row_groups:
        return []
    first = metadata.row_group(0)
    columns = [first.column(i) for i in range(first.num_columns)]
    most = 4 * first.num_rows  # bytes: else the values are longer than their numbers
    few = {c.path_in_schema for c in columns if c.total_uncompressed_size < most}
    return [name for name in names if name in few]


def typed(
    table: pa.Table,
    fields: Iterable[pa.Field],
    *,
    filled: Collection[str] = (),
    present: Collection[str] = (),
) -> pa.Table:
    """These columns of a table in their types; null where an earlier version had none.

    Args:
        filled: those that have a value in every row.
        present: those that must be there too.

    Raises:
        ValueError, pa.ArrowException: a column is missing, or is another one's.
    """
    schema = pa.schema(fields)
    if missing := sorted({*filled, *present} & {*schema.names} - {*table.column_names}):
        raise ValueError(f"expected a column {missing[0]!r}, found none")
    if not table.schema.equals(schema):  # else it is of this version
        table = pa.table([_column(table, field) for field in schema], schema=schema)
    if gaps := [name for name in filled if table[name].null_count]:
        raise ValueError(f"column {gaps[0]!r}: expected a value in every row, found gaps")
    return table.cast(schema)


def distinct(table: pa.Table, name: str) -> None:
    """Refuse a value of a column that stands in two rows.

    Raises:
        ValueError: one does.
    """
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


def _has_checksum(data: memoryview) -> bool:
    """Whether a file is one of ours; those of earlier versions are not."""
    start = _footer_start(data) - _MARK_SIZE
    return start > 0 and data[start : start + len(_MARK)] == _MARK


def _verify(data: memoryview) -> None:
    footer = _footer_start(data)
    pages = data[: footer - _MARK_SIZE]
    if data[footer - _MARK_SIZE + len(_MARK) : footer] != _checksum(pages, data[footer:]):
        raise ValueError("its checksum is wrong: the file has changed since it was written")


def _checksum(pages: memoryview, footer: memoryview) -> bytes:
    return zlib.crc32(footer, zlib.crc32(pages)).to_bytes(4, "little")


def _footer_start(data: memoryview) -> int:
    """Where the footer begins; below 0 in what is no Parquet file."""
    return len(data) - _TAIL_SIZE - int.from_bytes(data[-_TAIL_SIZE:-4], "little")
