"""Folders of a study's data set, and a check that its files are there; loads no torch."""

from __future__ import annotations

import gzip
import math
import os
import zlib
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import parse_qsl, unquote

from clsweep.catalog import DATASET
from clsweep.errors import RequestError

# Options of pyarrow's URIs that hold no secret.
_PLAIN_OPTIONS = ("region", "scheme", "endpoint_override", "retry_limit_seconds")


@dataclass(frozen=True, kw_only=True)
class DataPlace:
    """Where files lie: the user's own in `root`, in `cache` what is made of them once. `root` may
    be the URI of a bucket, of which each machine that trains has a copy in `cache`.
    """

    root: str = "data"
    cache: str = "~/.cache/clsweep"
    download: bool = False  # fetch what is missing
    value_range: str | None = None  # "0, 1": of numbers whose type says none
    transfer_root: str = ""  # of the data set that scores are transferred to; empty: root
    run: str = ""  # by which a machine compares its copy with the bucket once

    def absolute(self) -> DataPlace:
        """The same folders, wherever a process works. `~` stays: each machine has its own home."""
        root, cache, transfer_root = (
            path if not path or path.startswith("~") or is_uri(path) else os.path.abspath(path)
            for path in (self.root, self.cache, self.transfer_root)
        )
        return replace(self, root=root, cache=cache, transfer_root=transfer_root)

    @property
    def is_remote(self) -> bool:
        """True if the files lie in a bucket."""
        return is_uri(self.root)

    @property
    def transferred(self) -> DataPlace:
        """Where the files of the data set lie that scores are transferred to."""
        return replace(self, root=self.transfer_root or self.root, value_range=None)

    @property
    def root_folder(self) -> Path:
        return Path(self.root).expanduser().absolute()

    @property
    def cache_folder(self) -> Path:
        """The one that the study names; else that of the machine: XDG_CACHE_HOME or ~/.cache."""
        caches = os.environ.get("XDG_CACHE_HOME", "")
        if self.cache == DataPlace.cache and os.path.isabs(caches):
            return Path(caches) / "clsweep"
        return Path(self.cache).expanduser().absolute()


def is_uri(place: str) -> bool:
    return "://" in place


def secret_in(uri: str) -> str:
    """The part of a URI that may be a key, described without it; empty if none may."""
    place, _, query = uri.partition("://")[2].partition("?")
    user = unquote(place.rpartition("@")[0])
    if ":" in user:
        return f"one of {len(user)} characters"
    options = [name for name, _ in parse_qsl(query, keep_blank_values=True)]
    unknown = [name for name in options if name not in _PLAIN_OPTIONS]
    known = ", ".join(_PLAIN_OPTIONS)
    return f"the option {unknown[0]:.40}, where {known} are no keys" if unknown else ""


def data_folder(name: str, root: Path) -> Path:
    """The folder of a data set's files."""
    return root / DATASET[name].folder


class AbsentError(RequestError):
    """A data set has no folder here; another machine may have it."""


def require_data(name: str, root: Path) -> None:
    """Raise RequestError if a file of the data set is missing, cut or unreadable; AbsentError if
    its folder is missing. Says place, layout, what is wrong and what to do.
    """
    row = DATASET[name]
    if row.folder and not data_folder(name, root).is_dir():
        raise AbsentError(missing_data_message(name, root, "no such folder"))
    for file in row.layout:
        if fault := _fault_of(file_in(data_folder(name, root), file)):
            raise RequestError(missing_data_message(name, root, f"{file}: {fault}"))


def file_in(folder: Path, name: str) -> Path:
    """A file of a data set, or where it is not there the packed one."""
    packed = folder / f"{name}.gz"
    return packed if not (folder / name).exists() and packed.exists() else folder / name


def _fault_of(path: Path) -> str:
    """Why a file cannot be read, from its head and its length; empty if it can."""
    is_packed = path.suffix == ".gz"
    try:
        with path.open("rb") as file:
            head, length = file.read(16), os.fstat(file.fileno()).st_size
            if is_packed:  # RFC 1952: the length unpacked is at the end
                file.seek(max(0, length - 4))
                length = int.from_bytes(file.read(4), "little")
                file.seek(0)
                with gzip.open(file) as content:
                    head = content.read(16)
    except FileNotFoundError:
        return "no such file"
    except (OSError, EOFError, zlib.error) as error:
        return getattr(error, "strerror", None) or str(error)
    if not head:
        return "an empty file"
    if "-idx" in path.name:  # http://yann.lecun.com/exdb/mnist: type and rank, then the shape
        rank = head[3] if len(head) > 3 else 4
        shape = [int.from_bytes(head[i : i + 4]) for i in range(4, 4 + 4 * rank, 4)]
        expected = 4 + 4 * rank + math.prod(shape)
        if head[:3] != b"\0\0\x08" or rank > 3 or length != expected:
            given = "a cut archive" if is_packed else f"{length:,}"
            return f"expected {expected:,} bytes by its head, given {given}"
    return ""


def missing_data_message(name: str, root: Path, reason: str) -> str:
    """The message about a data set that is not there, with the remedies."""
    row = DATASET[name]
    fetch = "Fetch them with --set dataset.download=true, name" if row.reader else "Name"
    packed = ", packed as .gz or not" if "-idx" in "".join(row.layout) else ""
    layout = f"They are {', '.join(row.layout)}{packed}. " if row.layout else ""
    return (
        f"{name}: expected its files in {data_folder(name, root).absolute()}: {reason}. "
        f"{layout}{fetch} another folder with --set dataset.root=FOLDER, "
        "or use the embedded data with --set dataset.name=digits (where data sets are a factor, "
        "with --set 'factors.dataset=[digits]')."
    )
