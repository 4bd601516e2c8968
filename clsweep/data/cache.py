"""Images decoded once into arrays on disk, or made JPEGs, that every process maps:
CACHE/NAME-FINGERPRINT/.

A cache is made under another name, NAME-SIZE-PLACE.partial, and gets its own when all of it lies on
the disk; only that name is ever read. A lock lets one process at a time make a cache: the others
wait, then map. What a killed process left is made anew; of JPEGs the rest is made.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import shutil
import warnings
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from clsweep.data.cached_jpegs import Encode, missing_bytes, open_jpegs, write_jpegs
from clsweep.data.image_files import JPEG_QUALITY, Pictures
from clsweep.data.preparation import progress_bar
from clsweep.display.numbers import byte_size
from clsweep.errors import RequestError
from clsweep.files import sync
from clsweep.machine import num_cores

StoredImages: TypeAlias = "np.ndarray | Pictures"  # of one size, or each of its own
Cached: TypeAlias = "dict[str, tuple[StoredImages, np.ndarray]]"

_FORMAT = 4  # of the files here; another one is another cache
BLOCK_IMAGES, BLOCK_BYTES = 512, 2**24  # as many images are decoded at a time as both allow
_SHOWN = 10  # files that an error names
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_ELSEWHERE = "Name another folder with --set dataset.cache=FOLDER"


@dataclass(frozen=True, kw_only=True)
class Source:
    """The images and labels that a cache is made of.

    Args:
        name: of the data set.
        place: tells sources of one name apart: the folder of the files, the options.
        image_size: side S of the images, pixels; of `sizes`, what their shorter sides are at most.
        classes: names, or numbers where there are none.
        labels: int64 (N,) of each part, `train` and `test`; -1 is no class.
        describe: of what the images are made, as texts: names, sizes and times of their files.
        fill: writes consecutive images of a part, (M, S, S, C) or a list of M arrays (H, W, C), and
            returns one line for each that cannot be read.
        num_channels, dtype: C and type of the pixels.
        sizes: height and width of each image of a part, int64 (N, 2); None: all are squares of
            `image_size`. Asked when a cache is made, never when it is opened.
        encode: the JPEGs of some images of a part, each with height and width, and one line for
            each that cannot be read; a cache of JPEGs is made of it. None: one of pixels.
    """

    name: str
    place: str
    image_size: int
    classes: tuple[str, ...]
    labels: Mapping[str, np.ndarray] = field(repr=False)
    describe: Callable[[], Iterable[str]]
    fill: Callable[[str, range, Any], list[str]]
    num_channels: int = 3
    dtype: str = "uint8"
    sizes: Callable[[str], np.ndarray] | None = None
    encode: Encode | None = None

    @property
    def counts(self) -> dict[str, int]:
        """Images of each part."""
        return {part: len(labels) for part, labels in self.labels.items()}

    @cached_property
    def manifest(self) -> dict[str, Any]:
        """The description in a cache of its content."""
        return {
            "format": _FORMAT,
            "image_size": self.image_size,
            "num_channels": self.num_channels,
            "dtype": self.dtype,
            "is_whole": self.sizes is not None,
            "counts": self.counts,
            "classes": list(self.classes),
            **({"jpeg_quality": JPEG_QUALITY} if self.encode else {}),
        }

    def folder(self, cache: Path) -> Path:
        """Where its complete cache lies."""
        texts = [json.dumps(self.manifest), self.place, *self.describe()]
        return cache / f"{self.name}-{_digest(texts)}"

    def partial(self, cache: Path) -> Path:
        """Where its cache is made; the same while files of the source come, go and change."""
        return cache / f"{self.name}-{self.image_size}-{_digest([self.place])}.partial"

    @cached_property
    def sizes_of(self) -> dict[str, np.ndarray]:
        """Height and width of each image of a part, int64 (N, 2)."""
        if self.sizes is not None:
            return {part: self.sizes(part) for part in self.labels}
        return {
            part: np.full((len(labels), 2), self.image_size, np.int64)
            for part, labels in self.labels.items()
        }

    @cached_property
    def starts(self) -> dict[str, np.ndarray]:
        """Where the pixels of each image of a part begin, and where the last ends, bytes."""
        item = self.num_channels * np.dtype(self.dtype).itemsize
        return {
            part: np.concatenate([[0], np.cumsum(sizes.prod(axis=1) * item)])
            for part, sizes in self.sizes_of.items()
        }


def cached(source: Source, cache: Path) -> Cached:
    """Images, mapped from a file, and labels of each part; decoded now if they never were.

    Raises:
        RequestError: images that cannot be read, a full disk, a cache folder that cannot be
            written.
    """
    folder, partial = source.folder(cache), source.partial(cache)
    if arrays := _opened(source, folder):  # also in a folder that may only be read
        return arrays
    try:
        from filelock import FileLock

        cache.mkdir(parents=True, exist_ok=True)
        with FileLock(partial.with_suffix(".lock")):
            if arrays := _opened(source, folder):
                return arrays  # another process was faster
            _make(source, partial, folder)
    except (OSError, NotImplementedError) as error:
        reason = getattr(error, "strerror", None) or error
        raise RequestError(
            f"{cache}: expected a folder to keep {source.name} in, given: {reason}. {_ELSEWHERE}"
        ) from error
    made = _opened(source, folder)
    assert made is not None
    return made


def _opened(source: Source, folder: Path) -> Cached | None:
    """The arrays of a complete cache; None if there is none, or a damaged one."""
    try:
        if json.loads((folder / "manifest.json").read_bytes()) != source.manifest:
            return None
        return {part: _arrays(source, folder, part) for part in source.labels}
    except (OSError, ValueError, EOFError):
        return None


def _arrays(source: Source, folder: Path, part: str) -> tuple[StoredImages, np.ndarray]:
    """ValueError if they are not those of the source."""
    is_jpeg, num_images = source.encode is not None, len(source.labels[part])
    images: StoredImages = (
        open_jpegs(folder, part, source.num_channels)
        if is_jpeg
        else _pixels(source, folder, part, num_images)
    )
    labels = np.load(folder / f"{part}_labels.npy")
    if len(images) != num_images or not np.array_equal(labels, source.labels[part]):
        raise ValueError(f"{folder}: expected the images and labels of {source.name}")
    return images, labels


def _pixels(source: Source, folder: Path, part: str, num_images: int) -> StoredImages:
    path, size = folder / f"{part}.npy", source.image_size
    pixels = np.load(path, mmap_mode="r") if num_images else np.load(path)
    if num_images and pixels.offset + pixels.nbytes != path.stat().st_size:
        raise ValueError(f"{path}: expected {pixels.nbytes} bytes of images")
    images: StoredImages = pixels
    expected: tuple[int, ...] = (num_images, size, size, source.num_channels)
    if source.sizes is not None:
        images = Pictures(pixels, np.load(folder / f"{part}_sizes.npy"), source.num_channels)
        expected = (int(images.starts[-1]),)
    if pixels.dtype != source.dtype or pixels.shape != expected:
        raise ValueError(f"{path}: expected {expected} pixels")
    return images


def _make(source: Source, partial: Path, folder: Path) -> None:
    """Decode all images, and give the complete cache its name."""
    begun = partial / "begun"  # names the cache whose JPEGs a killed process has begun
    if source.encode is None or not begun.exists() or begun.read_text() != folder.name:
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir()
        begun.write_text(folder.name)
    needed = (
        missing_bytes(source.encode, source.counts, partial)
        if source.encode
        else int(sum(starts[-1] for starts in source.starts.values()))
    )
    text, total = f"Decoding {source.name}", sum(source.counts.values())
    bar = progress_bar(text, total, lambda done: f"decoding image {done:,} of {total:,}")
    try:
        if shutil.disk_usage(partial).free < needed:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        with bar as advance, warnings.catch_warnings():
            warnings.filterwarnings("ignore", module="PIL")  # what matters of an image is an error
            if source.encode:
                broken = write_jpegs(source.encode, source.counts, partial, advance)
            else:
                broken = _decode(source, partial, advance)
    except OSError as error:
        if error.errno not in _FULL:
            raise
        if source.encode is None or not any(partial.glob("*.index")):  # else it goes on from these
            shutil.rmtree(partial)
        free = byte_size(shutil.disk_usage(partial.parent).free, 3)
        raise RequestError(
            f"{partial.parent}: expected {byte_size(needed, 3)} free to keep {source.name} in, "
            f"given {free}. {_ELSEWHERE}"
        ) from error
    if broken:
        shutil.rmtree(partial)
        shown = "\n".join(f"  {line}" for line in broken[:_SHOWN])
        more = f"\n  and {len(broken) - _SHOWN} more" if len(broken) > _SHOWN else ""
        raise RequestError(
            f"{source.name}: expected images that can be read, given {len(broken)} that cannot. "
            f"Repair or remove them:\n{shown}{more}"
        )
    for part, labels in source.labels.items():
        np.save(partial / f"{part}_labels.npy", labels)
        if source.sizes is not None and source.encode is None:
            np.save(partial / f"{part}_sizes.npy", source.sizes_of[part])
    begun.unlink()
    (partial / "manifest.json").write_text(json.dumps(source.manifest))
    for path in (*partial.iterdir(), partial):
        sync(path)
    if folder.exists():  # damaged
        shutil.rmtree(folder)
    os.replace(partial, folder)
    sync(folder.parent)


def _decode(source: Source, folder: Path, advance: Callable[[int], object]) -> list[str]:
    """Write the array of each part, on every core of this process; one line for each broken image.

    Not through a map: a disk that fills up is then an error, not a signal.
    """
    image_bytes = source.image_size**2 * source.num_channels * np.dtype(source.dtype).itemsize
    step = max(1, min(BLOCK_IMAGES, BLOCK_BYTES // image_bytes))
    blocks = [
        (part, range(first, min(first + step, len(labels))))
        for part, labels in source.labels.items()
        for first in range(0, len(labels), step)
    ]
    with contextlib.ExitStack() as stack:
        files = {part: stack.enter_context((folder / f"{part}.npy").open("wb", 0))
                 for part in source.labels}  # fmt: skip
        offsets = {part: _write_header(file, source, part) for part, file in files.items()}

        def fill(block: tuple[str, range]) -> list[str]:
            part, rows = block
            pixels, images = _empty(source, part, rows)
            broken = source.fill(part, rows, images)
            view = pixels.reshape(-1).view(np.uint8).data
            at = offsets[part] + int(source.starts[part][rows.start])
            while view:
                written = os.pwrite(files[part].fileno(), view, at)
                view, at = view[written:], at + written
            advance(len(rows))
            return broken

        pool = ThreadPoolExecutor(num_cores())
        try:
            return [line for lines in pool.map(fill, blocks) for line in lines]
        finally:
            pool.shutdown(cancel_futures=True)


def _write_header(file: Any, source: Source, part: str) -> int:
    """NumPy's header of a part's array; its length, bytes."""
    item, size = np.dtype(source.dtype), source.image_size
    shape: tuple[int, ...] = (len(source.labels[part]), size, size, source.num_channels)
    if source.sizes is not None:
        shape = (int(source.starts[part][-1]) // item.itemsize,)
    header = {"descr": np.lib.format.dtype_to_descr(item), "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(file, header)
    return int(file.tell())


def _empty(source: Source, part: str, rows: range) -> tuple[np.ndarray, Any]:
    """Room for some images: all of it, and image by image."""
    if source.sizes is None:
        side, channels = source.image_size, source.num_channels
        images = np.empty((len(rows), side, side, channels), source.dtype)
        return images, images
    sizes = source.sizes_of[part][rows.start : rows.stop]
    num_pixels = int(sizes.prod(axis=1).sum()) * source.num_channels
    whole = Pictures(np.empty(num_pixels, source.dtype), sizes, source.num_channels)
    return whole.content, [whole[i] for i in range(len(sizes))]


def _digest(texts: Iterable[str]) -> str:
    digest = hashlib.blake2b(digest_size=8)
    for text in texts:
        digest.update(os.fsencode(text) + b"\0")
    return digest.hexdigest()
