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
_MANY_ROWS = 1000  # in a smaller table the detour by dictionaries costs more than it saves
# What a file may come to in memory: so much, and so many times its own bytes. Of our tables the
# largest factors are 3 for the pages, 25 for the values, and half a row.
_PAGES, _PAGES_PER_BYTE = 2**26, 20  # bytes, unpacked
_VALUES, _VALUES_PER_BYTE = 2**30, 25  # bytes
_ROWS, _ROWS_PER_BYTE = 100_000, 10
_COLUMNS = 2_000
_TEXT = 2**16  # bytes of one text of ours; errors, the longest, are cut long before
_SNAPPY = 22  # how often its length this compression, with which we write, can come to


def encode(table: pa.Table) -> bytes:
    """A table as a Parquet file with checksums."""
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, write_page_checksum=True)
    data = memoryview(sink.getvalue())
    start = _footer_start(data)
    return b"".join([data[:start], _MARK, _checksum(data[:start], data[start:]), data[start:]])


def decode(
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
    """Our texts repeat: they are read, and checked, once per value where there are many rows."""
    source = _source(data)
    file = pq.ParquetFile(source, page_checksum_verification=by_page)
    metadata = file.metadata
    schema = metadata.schema.to_arrow_schema()
    names = schema.names
    if len(names) > _COLUMNS:
        raise ValueError(f"expected at most {_COLUMNS:,} columns, found {len(names):,}")
    if twice := [name for i, name in enumerate(names) if name in names[:i]]:
        raise ValueError(f"column {twice[0]!r} stands twice")
    chosen = [name for name in columns or names if name in names]
    room = _VALUES + _VALUES_PER_BYTE * len(data)
    texts = _sizes_of_texts(data, metadata, {*chosen}, room)
    repeating = [
        name
        for name, (size, worst, _) in texts.items()
        if worst > room or (metadata.num_rows >= _MANY_ROWS and size < 4 * metadata.num_rows)
    ]  # else the values are longer than their numbers
    lists = [path for path in metadata.schema.names if path not in names] if not of_others else []
    if lists := [*lists, *(name for name in repeating if name not in names)]:
        raise ValueError(f"column {lists[0]!r}: expected no list")
    if repeating:
        file = pq.ParquetFile(
            source,
            metadata=metadata,
            read_dictionary=repeating,
            page_checksum_verification=by_page,
        )
    table = file.read(columns=chosen, use_threads=metadata.num_rows >= _MANY_ROWS)
    # else the first look at a text may fail
    strings = [name for name in chosen if _family(schema.field(name).type) == "text"]
    table.select(strings).validate(full=True)
    if (total := sum(_text_bytes(table[name]) for name in repeating)) > room:
        raise ValueError(_too_large(data, total, table.num_rows))
    long = [name for name in strings if name in texts and texts[name][2] > _TEXT and not of_others]
    texts_of = {name: table[name].chunks for name in long}
    each = [getattr(chunk, "dictionary", chunk) for chunks in texts_of.values() for chunk in chunks]
    longest = max((pc.max(pc.binary_length(found)).as_py() or 0 for found in each), default=0)
    if longest > _TEXT:
        raise ValueError(f"a text of {longest:,} bytes, expected at most {_TEXT:,}")
    if not repeating:
        return table
    return table.cast(pa.schema([schema.field(name) for name in table.column_names]))


def _source(data: bytes) -> pa.BufferReader:
    """Bytes in Arrow's own memory. One of its threads lets go of them last: of Python's it would
    have to ask the interpreter, and where that is just ending, the process aborts.
    """
    buffer = pa.allocate_buffer(len(data))
    pa.FixedSizeBufferWriter(buffer).write(data)
    return pa.BufferReader(buffer)


def _sizes_of_texts(
    data: bytes, metadata: pq.FileMetaData, chosen: Collection[str], room: int
) -> dict[str, tuple[int, int, int]]:
    """Of each column of texts: the bytes of its pages, as the footer says, what they come to if
    each value is a whole page, and what a text may have. ValueError where that would fill the
    memory.
    """
    pages, values, texts = 0, 0, dict[str, tuple[int, int, int]]()
    for group in map(metadata.row_group, range(metadata.num_row_groups)):
        for i in range(group.num_columns):
            column, kind = group.column(i), metadata.schema.column(i)
            if (name := column.path_in_schema).partition(".")[0] not in chosen:
                continue
            unpacked = _unpacked(data, column)
            pages += unpacked
            values += max(column.num_values, group.num_rows) * max(8, kind.length)
            if column.physical_type == "BYTE_ARRAY":
                size, worst, longest = texts.get(name, (0, 0, 0))
                size += column.total_uncompressed_size
                worst += unpacked * column.num_values
                texts[name] = size, worst, max(longest, unpacked)
    is_bomb = (
        pages > _PAGES + _PAGES_PER_BYTE * len(data)
        or values > room
        or metadata.num_rows > _ROWS + _ROWS_PER_BYTE * len(data)
    )
    if is_bomb:
        raise ValueError(_too_large(data, max(pages, values), metadata.num_rows))
    return texts


def _unpacked(data: bytes, column: pq.ColumnChunkMetaData) -> int:
    """Bytes that the pages of a column can come to. The footer says so too, and may lie."""
    most = max(column.total_uncompressed_size, _SNAPPY * column.total_compressed_size)
    if column.compression in ("SNAPPY", "UNCOMPRESSED") and most <= _PAGES:
        return most
    starts = (column.dictionary_page_offset, column.data_page_offset)
    total, at = 0, min(start for start in starts if start)
    end = at + column.total_compressed_size
    try:
        while at < end:
            header, at = _header(data, at)
            total, at = total + header[_UNPACKED], at + max(0, header[_PACKED])
    except (LookupError, RecursionError):
        raise ValueError("a page has no header of Parquet's") from None
    return total


_UNPACKED, _PACKED = 2, 3  # of the fields of a page's header: its sizes in bytes


def _header(data: bytes, at: int) -> tuple[dict[int, int], int]:
    """The integers of a Thrift struct without lists, by the numbers of their fields; its end."""
    found, number = dict[int, int](), 0
    while head := data[at]:
        kind, at = head & 15, at + 1
        number += head >> 4
        if kind in (4, 5, 6):
            value, at = _varint(data, at)
            found[number] = (value >> 1) ^ -(value & 1)
        elif kind == 8:  # a text
            length, at = _varint(data, at)
            at += length
        elif kind == 12:
            _, at = _header(data, at)
        elif kind not in (1, 2) or head < 16:  # booleans
            raise LookupError
    return found, at + 1


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while data[at] >= 128 and shift < 64:
        value |= (data[at] & 127) << shift
        shift, at = shift + 7, at + 1
    return value | data[at] << shift, at + 1


def _too_large(data: bytes, num_bytes: int, num_rows: int) -> str:
    return f"{len(data):,} bytes that come to {num_bytes:,} in {num_rows:,} rows"


def _text_bytes(column: pa.ChunkedArray) -> int:
    """Bytes of texts once every row has its own."""
    total = 0
    for chunk in column.chunks:
        lengths = pc.binary_length(chunk.dictionary)
        if (pc.max(lengths).as_py() or 0) * len(chunk):
            total += pc.sum(lengths.take(chunk.indices)).as_py() or 0
    return total


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
