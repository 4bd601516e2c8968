"""The JPEGs of a cache: those of a part one behind the other in PART.jpegs; in PART.index three
int64 of each: bytes, height and width.

They are appended in order, so that a process goes on where a killed one stopped.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeAlias

import numpy as np

from clsweep.data.image_files import Jpegs, sampled_rows
from clsweep.machine import num_cores

# the JPEG of each image with its height and width, and a line for each image that is broken
Encodings: TypeAlias = tuple[list[tuple[bytes, int, int]], list[str]]
Encode: TypeAlias = Callable[[str, Sequence[int]], Encodings]  # of some rows of a part

BLOCK_JPEGS = 128  # are encoded by a thread at a time
_MARGIN = 1.1  # of the bytes that a sample foretells


def open_jpegs(folder: Path, part: str, num_channels: int) -> Jpegs:
    """The mapped JPEGs of a part; ValueError if their file has not the length of all."""
    path, index = folder / f"{part}.jpegs", _index(folder, part)
    jpegs = np.memmap(path, np.uint8, "r") if len(index) else np.zeros(0, np.uint8)
    pictures = Jpegs(jpegs, index[:, 1:].copy(), num_channels, index[:, 0])
    if len(jpegs) != pictures.starts[-1] or path.stat().st_size != len(jpegs):
        raise ValueError(f"{path}: expected {pictures.starts[-1]} bytes of JPEGs")
    return pictures


def write_jpegs(
    encode: Encode, counts: Mapping[str, int], folder: Path, advance: Callable[[int], object]
) -> list[str]:
    """Append the JPEGs that are missing, on every core of this process; one line for each broken
    image. After one of these nothing is written, as the place of the next would be another's.

    counts: images of each part.
    """
    broken: list[str] = []
    for part, count in counts.items():
        first = _cut(folder, part)
        advance(first)
        blocks = (
            range(start, min(start + BLOCK_JPEGS, count))
            for start in range(first, count, BLOCK_JPEGS)
        )
        with (folder / f"{part}.jpegs").open("ab") as jpegs, \
             (folder / f"{part}.index").open("ab") as index:  # fmt: skip
            for rows, (made, lines) in _in_order(lambda rows: encode(part, rows), blocks):  # noqa: B023
                broken += lines
                if not broken:
                    jpegs.write(b"".join(jpeg for jpeg, _, _ in made))
                    jpegs.flush()
                    os.fsync(jpegs.fileno())  # no index of bytes that a crash has lost
                    index.write(np.array([(len(j), h, w) for j, h, w in made], "<i8").tobytes())
                    index.flush()
                advance(len(rows))
            os.fsync(index.fileno())
    return broken


def missing_bytes(encode: Encode, counts: Mapping[str, int], folder: Path) -> int:
    """About the bytes that `write_jpegs` will write, by some images of each part."""
    num_bytes = 0.0
    for part, count in counts.items():
        jpegs, _ = encode(part, sampled_rows(count))
        mean = sum(len(jpeg) for jpeg, _, _ in jpegs) / max(1, len(jpegs))
        num_bytes += _MARGIN * mean * (count - len(_index(folder, part)))
    return int(num_bytes)


def _index(folder: Path, part: str) -> np.ndarray:
    """Bytes, height and width of each JPEG of a part, int64 (N, 3)."""
    path = folder / f"{part}.index"
    content = path.read_bytes() if path.exists() else b""
    return np.frombuffer(content[: len(content) // 24 * 24], "<i8").reshape(-1, 3)


def _cut(folder: Path, part: str) -> int:
    """The number of whole JPEGs of a part; what is behind them is cut off."""
    jpegs, index = folder / f"{part}.jpegs", _index(folder, part)
    is_whole = (index > 0).all(axis=1)  # a crash may leave zeros
    index = index[: len(index) if is_whole.all() else int(is_whole.argmin())]
    ends = np.cumsum(index[:, 0])
    num_whole = int(np.searchsorted(ends, jpegs.stat().st_size if jpegs.exists() else 0, "right"))
    for path, length in (
        (folder / f"{part}.index", 24 * num_whole),
        (jpegs, int(ends[num_whole - 1]) if num_whole else 0),
    ):
        path.touch()
        os.truncate(path, length)
    return num_whole


def _in_order(
    encode: Callable[[range], Encodings], blocks: Iterable[range]
) -> Iterator[tuple[range, Encodings]]:
    """Each block with its JPEGs, of which as many wait to be written as threads encode."""
    with ThreadPoolExecutor(num_cores()) as pool:
        waiting = deque()  # type: ignore[var-annotated]
        try:
            for rows in blocks:
                waiting.append((rows, pool.submit(encode, rows)))
                if len(waiting) > 2 * num_cores():
                    first, done = waiting.popleft()
                    yield first, done.result()
            while waiting:
                first, done = waiting.popleft()
                yield first, done.result()
        finally:
            pool.shutdown(cancel_futures=True)
