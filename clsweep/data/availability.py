"""Whether a data set's files are there, asked without loading torch."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path

from clsweep.catalog import DATASET
from clsweep.errors import RequestError


@dataclass(frozen=True, kw_only=True)
class DataPlace:
    """Where files lie: the user's own in `root`, in `cache` what is made of them once."""

    root: str = "data"
    cache: str = "~/.cache/clsweep"
    download: bool = False  # fetch what is missing
    value_range: str | None = None  # "0, 1": of numbers whose type says none
    transfer_root: str = ""  # of the data set that scores are transferred to; empty: root

    def absolute(self) -> DataPlace:
        """The same folders, wherever a process works. `~` stays, as each machine has a home of its
        own.
        """
        root, cache, transfer_root = (
            path if not path or path.startswith("~") else os.path.abspath(path)
            for path in (self.root, self.cache, self.transfer_root)
        )
        return replace(self, root=root, cache=cache, transfer_root=transfer_root)

    @property
    def transferred(self) -> DataPlace:
        """Where the files of the data set lie that scores are transferred to."""
        return replace(self, root=self.transfer_root or self.root, value_range=None)

    @property
    def root_folder(self) -> Path:
        return Path(self.root).expanduser().absolute()

    @property
    def cache_folder(self) -> Path:
        return Path(self.cache).expanduser().absolute()


def data_folder(name: str, root: Path) -> Path:
    """The folder of a data set's files."""
    return root / DATASET[name].folder


def require_data(name: str, root: Path) -> None:
    """Raise RequestError if the data set's folder is missing; says folder and flag."""
    if DATASET[name].folder and not data_folder(name, root).is_dir():
        raise RequestError(missing_data_message(name, root, "no such folder"))


def missing_data_message(name: str, root: Path, reason: str) -> str:
    """What to do about a data set that is not there."""
    fetch = "Fetch them with --set dataset.download=true, name" if DATASET[name].reader else "Name"
    return (
        f"{name}: expected its files in {data_folder(name, root).absolute()}: {reason}. "
        f"{fetch} another folder with --set dataset.root=FOLDER, "
        "or use the embedded data with --set dataset.name=digits."
    )
