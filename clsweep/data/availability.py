"""Whether a data set's files are there, asked without loading torch."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from clsweep.errors import RequestError


@dataclass(frozen=True, kw_only=True)
class DataPlace:
    """Where files lie: the user's own in `root`, in `cache` what is made of them once."""

    root: str = "data"
    cache: str = "~/.cache/clsweep"
    download: bool = False  # fetch what is missing

    def absolute(self) -> DataPlace:
        """The same folders, wherever a process works. `~` stays, as each machine has a home of its own."""
        root, cache = (path if path.startswith("~") else os.path.abspath(path) for path in (self.root, self.cache))
        return DataPlace(root=root, cache=cache, download=self.download)

    @property
    def root_folder(self) -> Path:
        return Path(self.root).expanduser().absolute()

    @property
    def cache_folder(self) -> Path:
        return Path(self.cache).expanduser().absolute()


# Folder inside of the root, as torchvision lays it out; the class that reads it. The others need no such files.
_TORCHVISION = {
    "fashion_mnist": ("FashionMNIST", "FashionMNIST/raw"),
    "cifar10": ("CIFAR10", "cifar-10-batches-py"),
    "cifar100": ("CIFAR100", "cifar-100-python"),
    "stl10": ("STL10", "stl10_binary"),
}


def data_folder(name: str, root: Path) -> Path:
    """The folder of one of torchvision's data sets."""
    return root / _TORCHVISION[name][1]


def require_data(name: str, root: Path) -> None:
    """Raise RequestError if the data set's folder is missing; says folder and flag."""
    if name in _TORCHVISION and not data_folder(name, root).is_dir():
        raise RequestError(missing_data_message(name, root, "no such folder"))


def torchvision_class(name: str) -> str:
    """Name of torchvision's class for a data set."""
    return _TORCHVISION[name][0]


def missing_data_message(name: str, root: Path, reason: str) -> str:
    """What to do about a data set that is not there."""
    return (
        f"{name}: expected its files in {data_folder(name, root).absolute()}: {reason}. "
        "Fetch them with --set dataset.download=true, name another folder with --set dataset.root=FOLDER, "
        "or use the embedded data with --set dataset.name=digits."
    )
