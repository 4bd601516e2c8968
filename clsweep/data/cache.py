"""Images decoded once into arrays on disk that every process maps: CACHE/NAME-FINGERPRINT/.

A cache is made under another name, NAME-SIZE-PLACE.partial, block by block; each block is marked
with a digest of what it was made of as soon as it lies on the disk. Whoever was killed goes on
behind the marks; only a complete cache is renamed, and only that name is ever read. A lock lets one
process at a time make a cache: the others wait, then map.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import io
import json
import os
import shutil
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from clsweep.data.pictures import Pictures
from clsweep.display.numbers import byte_size, count
from clsweep.errors import RequestError
from clsweep.machine import num_cores

Images = np.ndarray | Pictures  # of one size, or each of its own
Cached = dict[str, tuple[Images, np.ndarray]]

FORMAT = 2  # of the files here; another one is another cache
BLOCK_IMAGES, BLOCK_BYTES = 512, 2**24  # a block is as large as both allow
_MARK_BYTES = 8
_SHOWN = 10  # files that an error names
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@dataclass(frozen=True, kw_only=True)
class Block:
    """Consecutive images of one part."""

    part: str
    index: int
    rows: range
    mark: bytes


@dataclass(frozen=True, kw_only=True)
class Source:
    """What a cache is made of.

    Args:
        name: of the data set.
        place: tells sources of one name apart: the folder of the files, the options.
        image_size: side S of the images, pixels; of `sizes`, what their shorter sides are at most.
        classes: names, or numbers where there are none.
        labels: int64 (N,) of each part, `train` and `test`; -1 is no class.
        describe: a text of what some consecutive images are made of: names, sizes and times of
            their files.
        fill: writes such images, (M, S, S, C) or a list of M arrays (H, W, C), calls its last
            argument with the number of images done, and returns one line for each that cannot be
            read.
        num_channels, dtype: C and type of the pixels.
        sizes: height and width of each image of a part, int64 (N, 2); None: all are squares of
            `image_size`. Asked when a cache is made, never when it is opened.
    """

    name: str
    place: str
    image_size: int
    classes: tuple[str, ...]
    labels: Mapping[str, np.ndarray] = field(repr=False)
    describe: Callable[[str, range], Iterable[str]]
    fill: Callable[[str, range, Any, Callable[[int], object]], list[str]]
    num_channels: int = 3
    dtype: str = "uint8"
    sizes: Callable[[str], np.ndarray] | None = None

    @cached_property
    def blocks(self) -> list[Block]:
        step = self.block_images
        return [
            Block(
                part=part,
                index=start // step,
                rows=rows,
                mark=_digest(self.describe(part, rows), _MARK_BYTES),
            )
            for part, labels in self.labels.items()
            for start in range(0, len(labels), step)
            for rows in [range(start, min(start + step, len(labels)))]
        ]

    @property
    def block_images(self) -> int:
        return max(1, min(BLOCK_IMAGES, BLOCK_BYTES // self.image_bytes))

    @property
    def image_bytes(self) -> int:
        """Of one square."""
        return self.image_size**2 * self.num_channels * np.dtype(self.dtype).itemsize

    @cached_property
    def starts(self) -> dict[str, np.ndarray]:
        """Where the pixels of each image of a part begin, and where the last ends, bytes."""
        item = self.num_channels * np.dtype(self.dtype).itemsize
        return {
            part: np.concatenate([[0], np.cumsum(self.sizes_of(part).prod(axis=1) * item)])
            for part in self.labels
        }

    def sizes_of(self, part: str) -> np.ndarray:
        """Height and width of each image of a part, int64 (N, 2)."""
        if self.sizes is None:
            return np.full((len(self.labels[part]), 2), self.image_size, np.int64)
        return self._sizes[part]

    @cached_property
    def _sizes(self) -> dict[str, np.ndarray]:
        assert self.sizes is not None
        return {part: self.sizes(part) for part in self.labels}

    @cached_property
    def stem(self) -> str:
        """The same while files of the source come, go and change."""
        return f"{self.name}-{self.image_size}-{_digest([str(FORMAT), self.place], 8).hex()}"

    @cached_property
    def fingerprint(self) -> str:
        marks = (block.mark.hex() for block in self.blocks)
        return _digest([json.dumps(self.manifest), self.place, *marks], 8).hex()

    @cached_property
    def manifest(self) -> dict[str, Any]:
        counts = {part: len(labels) for part, labels in self.labels.items()}
        return {
            "format": FORMAT,
            "image_size": self.image_size,
            "num_channels": self.num_channels,
            "dtype": self.dtype,
            "is_whole": self.sizes is not None,
            "counts": counts,
            "classes": list(self.classes),
        }

    @property
    def total_bytes(self) -> int:
        return int(sum(starts[-1] for starts in self.starts.values()))


def is_complete(source: Source, cache: Path) -> bool:
    """Whether the cache has all images of a source."""
    return _opened(source, cache / f"{source.name}-{source.fingerprint}") is not None


def cached(source: Source, cache: Path) -> Cached:
    """Images, mapped from a file, and labels of each part; decoded now if they never were.

    Raises:
        RequestError: images that cannot be read, a full disk, a cache folder that cannot be
            written.
    """
    folder = cache / f"{source.name}-{source.fingerprint}"
    if found := _opened(source, folder):  # also in a folder that may only be read
        return found
    try:
        from filelock import FileLock

        cache.mkdir(parents=True, exist_ok=True)
        with FileLock(cache / f"{source.stem}.lock"):
            if found := _opened(source, folder):
                return found  # another process was faster
            _make(source, cache / f"{source.stem}.partial", folder)
    except (OSError, NotImplementedError) as error:
        reason = getattr(error, "strerror", None) or error
        hint = "Name another folder with --set dataset.cache=FOLDER"
        raise RequestError(
            f"{cache}: expected a folder to keep {source.name} in, given: {reason}. {hint}"
        ) from error
    made = _opened(source, folder)
    assert made is not None
    return made


def _opened(source: Source, folder: Path) -> Cached | None:
    """The arrays of a complete cache; None if there is none, or a damaged one."""
    try:
        if json.loads((folder / "manifest.json").read_bytes()) != source.manifest:
            return None
        arrays = {part: _arrays(source, folder, part) for part in source.labels}
    except (OSError, ValueError, EOFError):
        return None
    is_whole = all(
        np.array_equal(arrays[part][1], labels) for part, labels in source.labels.items()
    )
    return arrays if is_whole else None


def _arrays(source: Source, folder: Path, part: str) -> tuple[Images, np.ndarray]:
    path, num_images = folder / f"{part}.npy", len(source.labels[part])
    size, channels = source.image_size, source.num_channels
    pixels = np.load(path, mmap_mode="r") if num_images else np.load(path)
    if num_images and pixels.offset + pixels.nbytes != path.stat().st_size:
        raise ValueError(f"{path}: expected {pixels.nbytes} bytes of images")
    images: Images = pixels
    expected: tuple[int, ...] = (num_images, size, size, channels)
    if source.sizes is not None:
        images = Pictures(pixels, np.load(folder / f"{part}_sizes.npy"), channels)
        expected = (int(images.starts[-1]),)
    if pixels.dtype != source.dtype or pixels.shape != expected or len(images) != num_images:
        raise ValueError(f"{path}: expected {expected} pixels")
    return images, np.load(folder / f"{part}_labels.npy")


def _make(source: Source, partial: Path, folder: Path) -> None:
    """Decode what is not decoded yet, and give the complete cache its name."""
    partial.mkdir(exist_ok=True)
    try:
        with contextlib.ExitStack() as stack:
            files = {
                part: stack.enter_context(_PartFile(source, partial, part))
                for part in source.labels
            }
            broken = _decode(source, files)
    except OSError as error:
        if error.errno not in _FULL:
            raise
        shutil.rmtree(partial)
        needed, free = source.total_bytes, shutil.disk_usage(partial.parent).free
        message = (
            f"{partial.parent}: expected {byte_size(needed, 3)} free to keep {source.name} in, "
            f"given {byte_size(free, 3)}"
        )
        raise RequestError(
            f"{message}. Name another folder with --set dataset.cache=FOLDER"
        ) from error
    if broken:
        shown = "\n".join(f"  {line}" for line in broken[:_SHOWN])
        more = f"\n  and {len(broken) - _SHOWN} more" if len(broken) > _SHOWN else ""
        raise RequestError(
            f"{source.name}: expected images that can be read, given {len(broken)} that cannot. "
            "Repair or remove them; what stands before them need not be decoded again:"
            f"\n{shown}{more}"
        )
    for part, labels in source.labels.items():
        (partial / f"{part}.marks").unlink()
        np.save(partial / f"{part}_labels.npy", labels)
        if source.sizes is not None:
            np.save(partial / f"{part}_sizes.npy", source.sizes_of(part))
    (partial / "manifest.json").write_text(json.dumps(source.manifest))
    for path in (*partial.iterdir(), partial):
        _sync(path)
    if folder.exists():  # damaged
        shutil.rmtree(folder)
    os.replace(partial, folder)
    _sync(folder.parent)


class _PartFile:
    """One part's array while it is made: `part.npy`, and `part.marks` that says which of its blocks
    lie there.

    Written with pwrite, not through a map: a disk that fills up is then an error, not a signal.
    """

    def __init__(self, source: Source, folder: Path, part: str):
        self._starts, step = source.starts[part], source.block_images
        num_images, total = len(source.labels[part]), int(self._starts[-1])
        # where whole blocks end
        self._ends = self._starts[[*range(step, num_images, step), num_images]]
        shape: tuple[int, ...] = (total // np.dtype(source.dtype).itemsize,)
        if source.sizes is None:
            shape = (num_images, source.image_size, source.image_size, source.num_channels)
        self._header = _npy_header(shape, source.dtype)
        self._size = len(self._header) + total
        self._array = self._marks = -1
        self._paths = folder / f"{part}.npy", folder / f"{part}.marks"

    def __enter__(self) -> _PartFile:
        try:
            self._array, self._marks = (
                os.open(path, os.O_RDWR | os.O_CREAT, 0o644) for path in self._paths
            )
            self._forget_lost_blocks(os.fstat(self._array).st_size)
            os.ftruncate(self._array, self._size)
            _reserve(self._array, self._size, self._paths[0].parent)
            _write(self._array, self._header, 0)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for descriptor in (self._array, self._marks):
            if descriptor >= 0:
                os.close(descriptor)

    def has(self, block: Block) -> bool:
        """Whether the block lies there, made of what it would be made of now."""
        found = os.pread(self._marks, _MARK_BYTES, block.index * _MARK_BYTES)
        return found == self._mark(block)

    def put(self, block: Block, pixels: np.ndarray) -> None:
        _write(self._array, pixels.data.cast("B"), len(self._header) + self._start(block))
        os.fsync(self._array)
        _write(self._marks, self._mark(block), block.index * _MARK_BYTES)

    def _mark(self, block: Block) -> bytes:
        """Of what the block is made of and where it lies: an image before it may change its
        size.
        """
        return _digest([block.mark.hex(), str(self._start(block))], _MARK_BYTES)

    def _start(self, block: Block) -> int:
        return int(self._starts[block.rows.start])

    def _forget_lost_blocks(self, found: int) -> None:
        """Drop the marks of what does not lie in the array as found, for good: it is about to get
        its full length.

        Before the array changes, as whoever is killed in between must not leave marks of zeros.
        """
        if found == self._size:
            return
        left = min(found, self._size) - len(self._header)
        whole = int(np.searchsorted(self._ends, left, side="right"))
        os.ftruncate(self._marks, min(os.fstat(self._marks).st_size, whole * _MARK_BYTES))
        os.fsync(self._marks)


def _decode(source: Source, files: Mapping[str, _PartFile]) -> list[str]:
    """Fill all blocks that are not there yet, on every core of this process; one line for each
    broken image.
    """
    left = [block for block in source.blocks if not files[block.part].has(block)]
    num_left = sum(len(block.rows) for block in left)

    with _progress(source, num_left) as advance, warnings.catch_warnings():
        warnings.filterwarnings("ignore", module="PIL")  # what matters of an image is an error

        def fill(block: Block) -> list[str]:
            pixels, images = _empty(source, block)
            broken = source.fill(block.part, block.rows, images, advance)
            if not broken:
                files[block.part].put(block, pixels)
            return broken

        executor = ThreadPoolExecutor(num_cores())
        try:
            tasks = [executor.submit(fill, block) for block in left]
            wait(tasks, return_when=FIRST_EXCEPTION)
            # a task behind the one that failed may not have begun: its result would never come
            failed = next((task for task in tasks if task.done() and task.exception()), None)
            return [line for task in ([failed] if failed else tasks) for line in task.result()]
        finally:
            executor.shutdown(cancel_futures=True)


def _empty(source: Source, block: Block) -> tuple[np.ndarray, Any]:
    """Room for a block: all of it, and image by image."""
    if source.sizes is None:
        side, channels = source.image_size, source.num_channels
        images = np.empty((len(block.rows), side, side, channels), source.dtype)
        return images, images
    sizes = source.sizes_of(block.part)[block.rows.start : block.rows.stop]
    num_pixels = int(sizes.prod(axis=1).sum()) * source.num_channels
    whole = Pictures(np.empty(num_pixels, source.dtype), sizes, source.num_channels)
    return whole.pixels, [whole[i] for i in range(len(sizes))]


@contextlib.contextmanager
def _progress(source: Source, num_left: int) -> Iterator[Callable[[int], object]]:
    """A bar on a terminal, nothing elsewhere; gives what is to be called with the number of images
    done.
    """
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        ProgressColumn,
        TimeRemainingColumn,
    )
    from rich.text import Text

    class Speed(ProgressColumn):
        def render(self, task: Any) -> Text:
            return Text(f"{count(task.speed)} images/s" if task.speed else "")

    total = sum(map(len, source.labels.values()))
    columns = (
        "{task.description}",
        BarColumn(),
        MofNCompleteColumn(),
        Speed(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(f"Decoding {source.name}", total=total, completed=total - num_left)
        yield lambda count: progress.advance(task, count)


def _reserve(descriptor: int, size: int, folder: Path) -> None:
    """Have the disk space for `size` bytes of a file now, or an error now."""
    try:
        os.posix_fallocate(descriptor, 0, size)
        return
    except AttributeError:  # macOS
        pass
    except OSError as error:
        if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS):
            raise
    held = os.fstat(descriptor).st_blocks * 512
    if shutil.disk_usage(folder).free < size - held:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _npy_header(shape: tuple[int, ...], dtype: str) -> bytes:
    """NumPy's header of an array; as long for any number of images."""
    buffer = io.BytesIO()
    header = {
        "descr": np.lib.format.dtype_to_descr(np.dtype(dtype)),
        "fortran_order": False,
        "shape": shape,
    }
    np.lib.format.write_array_header_1_0(buffer, header)
    return buffer.getvalue()


def _write(descriptor: int, data: bytes | memoryview, offset: int) -> None:
    view = memoryview(data)
    while view:
        written = os.pwrite(descriptor, view, offset)
        view, offset = view[written:], offset + written


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # some flush no names of a folder
            raise
    finally:
        os.close(descriptor)


def _digest(texts: Iterable[str], size: int) -> bytes:
    digest = hashlib.blake2b(digest_size=size)
    for text in texts:
        digest.update(os.fsencode(text) + b"\0")
    return digest.digest()
