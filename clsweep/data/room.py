"""Whether the disk has room for what is made of the user's own files."""

from __future__ import annotations

import math
import shutil
from pathlib import Path

from clsweep.catalog import Dataset
from clsweep.data.availability import DataPlace
from clsweep.data.found import cache_bytes, source
from clsweep.display.numbers import byte_size
from clsweep.errors import RequestError

_BLOCK_BYTES = 512  # of what a file holds on the disk


def cache_room(dataset: Dataset, place: DataPlace) -> str:
    """What the cache of a data set takes, and where, for a reader; empty if it has none, or if the
    files are not here.

    Raises:
        RequestError: the disk has no room for it.
    """
    if not dataset.images_digest or not dataset.files:
        return ""
    folder = place.cache_folder
    size, is_exact = cache_bytes(dataset, place)
    free = shutil.disk_usage(_existing(folder)).free
    about = "" if is_exact else "about "
    if size > free and (left := size - _held(dataset, place)) > free:
        raise RequestError(
            f"{folder}: expected {about}{byte_size(left, 3)} free to keep {dataset.name} in, given "
            f"{byte_size(free, 3)}. Name another folder with --set dataset.cache=FOLDER, or keep "
            "smaller pictures with dataset.store_size"
        )
    kept = f", shorter sides up to {dataset.store_size} pixels" if dataset.store_size else ""
    return (
        f"{dataset.name} takes {about}{byte_size(size, 3)} in {place.cache}{kept}; "
        f"{byte_size(free, 3)} are free"
    )


def _held(dataset: Dataset, place: DataPlace) -> float:
    """Bytes that the disk holds of the cache already; all that it takes once it is made."""
    from clsweep.data.cache import is_complete

    made_of = source(dataset, place)
    if is_complete(made_of, place.cache_folder):
        return math.inf
    begun = (place.cache_folder / f"{made_of.stem}.partial").glob("*.npy")
    return sum(path.stat().st_blocks * _BLOCK_BYTES for path in begun)


def _existing(folder: Path) -> Path:
    """The nearest folder above that is there."""
    return next(path for path in (folder, *folder.parents) if path.exists())
