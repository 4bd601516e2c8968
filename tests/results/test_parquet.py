"""Parquet files that tell when a bit of them has changed; no link leads out of a folder."""

import contextlib
import os
import random
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from clsweep.errors import RequestError
from clsweep.results import integrity as parquet
from clsweep.results.disk import LARGEST_DOCUMENT, Disk
from clsweep.results.integrity import decode_table, encode_table, typed

TABLE = pa.table({"trial_id": ["a-0", "b-1"], "config": [0, 1], "tau": [0.1, None]})


def test_any_flipped_bit_is_seen():
    """Parquet's checksums of pages alone let some pass: those of the footer."""
    data, rng = encode_table(TABLE), random.Random(0)
    assert decode_table(data) == TABLE
    for _ in range(300):
        flipped = bytearray(data)
        flipped[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        with contextlib.suppress(ValueError, OSError, pa.ArrowException):
            assert decode_table(bytes(flipped)) == TABLE


@pytest.mark.parametrize("kind", [pa.string(), pa.dictionary(pa.int32(), pa.string())], ids=str)
def test_texts_that_repeat_keep_values_gaps_and_type(kind):
    values = pa.array(["a", None, "ä", "b", ""] * 1000).cast(kind)
    table = pa.table({"loss": values, "none": [None] * 5000})
    assert decode_table(encode_table(table), table.column_names) == table


def test_a_text_that_is_none_is_seen():
    values = pa.array([b"a", b"\xff"] * 2500).view(pa.string())
    data = encode_table(pa.table({"loss": values, "tau": [0.1] * 5000}))
    with pytest.raises(pa.ArrowInvalid, match="UTF8"):
        decode_table(data)
    assert decode_table(data, ["tau"]).column_names == ["tau"]


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (["x" * 10_000_000] * 8, "bytes that come to 80,"),
        (np.zeros(20_000_000, np.int8), "in 20,000,000 rows"),
        ([["x"]], "expected no list"),
    ],
    ids=["texts", "rows", "a list"],
)
def test_what_would_fill_the_memory_is_refused_before_it_is_read(column, message):
    sink = pa.BufferOutputStream()
    table = pa.table({"trial_id": column})
    pq.write_table(table, sink, compression="zstd", use_dictionary=False)
    data = sink.getvalue().to_pybytes()
    assert len(data) < 200_000
    before = pa.total_allocated_bytes()
    with pytest.raises(ValueError, match=message):
        decode_table(data)
    assert pa.total_allocated_bytes() - before < 2**26


def test_no_table_of_ours_is_too_large():
    """What becomes as small as it can be: by its rows, and by its bytes."""
    ids = [f"infonce-{row // 1000:04d}-s0" for row in range(150_000)]
    constant = pa.table({"trial_id": ids, "tau": [0.5] * len(ids), "none": [None] * len(ids)})
    texts = pa.table({"text": ["x" * 4000 + str(row) for row in range(20_000)]})
    for table in (constant, texts):
        assert decode_table(encode_table(table)) == table


def test_other_readers_see_the_table_and_verify_its_pages(tmp_path):
    file = tmp_path / "x.parquet"
    file.write_bytes(encode_table(TABLE))
    assert pq.read_table(file, page_checksum_verification=True) == TABLE
    data = bytearray(file.read_bytes())
    data[data.index(b"a-0")] ^= 1
    file.write_bytes(data)
    with pytest.raises(OSError, match=r"(?i)crc|checksum"):
        pq.read_table(file, page_checksum_verification=True)


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (pa.array(["0", "1"]), "expected int64, found string"),
        (pa.array([0.0, float("nan")]), "nan"),
        (pa.array([0.5, 1.0]), "truncated"),
        (pa.array([0, None]), "found gaps"),
        (pa.array([[0], [1]]), "expected int64, found list"),
    ],
)
def test_a_column_of_another_kind_is_refused(column, message):
    fields = [pa.field("config", pa.int64())]
    with pytest.raises((ValueError, pa.ArrowException), match=message):
        typed(pa.table({"config": column}), fields, filled=["config"])


def test_what_holds_the_same_values_is_read():
    fields = [pa.field("config", pa.int64()), pa.field("objective", pa.string())]
    other = pa.table({"config": [0.0, 1.0], "objective": pa.array(["a", "b"]).dictionary_encode()})
    actual = typed(other, fields, filled=["config"])
    assert actual.to_pydict() == {"config": [0, 1], "objective": ["a", "b"]}


@pytest.mark.parametrize(
    "make",
    [
        os.mkfifo,
        os.mkdir,
        lambda path: os.symlink(path, path),
        lambda path: os.symlink("nowhere", path),
        lambda path: os.symlink("/etc/hostname", path),
    ],
    ids=["pipe", "folder", "loop", "dead link", "link out"],
)
def test_only_files_of_the_folder_are_opened(tmp_path, make):
    make(tmp_path / "trials.parquet")
    disk = Disk(str(tmp_path))
    for action in (disk.is_file, disk.read):
        with pytest.raises(RequestError, match=r"trials\.parquet: "):
            action("trials.parquet")


def test_nothing_is_written_listed_or_removed_outside(tmp_path):
    outside, inside = tmp_path / "outside", tmp_path / "inside"
    outside.mkdir()
    inside.mkdir()
    (outside / "x").write_text("kept")
    (inside / "parts").symlink_to(outside)
    disk = Disk(str(inside))
    for action in (
        lambda: disk.write("parts/y", b"1"),
        lambda: disk.remove("parts/x"),
        lambda: disk.remove("../outside/x"),
        lambda: disk.names("parts"),
        lambda: disk.remove_unfinished(["parts"]),
    ):
        with pytest.raises(RequestError, match="expected to stay in this folder"):
            action()
    assert [path.name for path in outside.iterdir()] == ["x"]


def test_a_document_without_end_is_not_read(tmp_path):
    file = tmp_path / "heartbeat.json"
    file.touch()
    os.truncate(file, LARGEST_DOCUMENT + 1)
    with pytest.raises(RequestError, match=r"expected at most 8,388,608 bytes, given 8,388,609"):
        Disk(str(tmp_path)).read(file.name)


def test_arrow_s_threads_hold_no_bytes_of_python_s():
    """A thread that lets go of them as the interpreter ends would abort the process."""
    data = encode_table(pa.table({"a": [1, 2]}))
    before = sys.getrefcount(data)
    source = parquet._source(data)
    assert sys.getrefcount(data) == before
    assert source.read() == data


def test_a_file_without_a_group_of_rows_is_an_empty_table():
    sink = pa.BufferOutputStream()
    schema = pa.schema([("name", pa.string()), ("number", pa.float64())])
    pq.ParquetWriter(sink, schema).close()
    table = decode_table(sink.getvalue().to_pybytes())
    assert (table.num_rows, table.schema) == (0, schema)
