"""Whether a data set's files are there, asked without loading torch."""

from __future__ import annotations

from pathlib import Path

from clsweep.errors import RequestError

# Folder inside of the root, as torchvision lays it out; the class that reads it. `digits` needs no files.
_TORCHVISION = {
    "fashion_mnist": ("FashionMNIST", "FashionMNIST/raw"),
    "cifar10": ("CIFAR10", "cifar-10-batches-py"),
    "cifar100": ("CIFAR100", "cifar-100-python"),
}


def require_data(name: str, root: Path) -> None:
    """Raise RequestError if the data set's folder is missing; says folder and flag."""
    if name in _TORCHVISION:
        _, folder = _TORCHVISION[name]
        if not (root / folder).is_dir():
            raise RequestError(missing_data_message(name, root, "no such folder"))


def torchvision_class(name: str) -> str:
    """Name of torchvision's class for a data set."""
    return _TORCHVISION[name][0]


def missing_data_message(name: str, root: Path, reason: str) -> str:
    """What to do about a data set that is not there."""
    return (
        f"{name}: expected its files in {(root / _TORCHVISION[name][1]).absolute()}: {reason}. "
        "Fetch them with --set dataset.download=true, name another folder with --set dataset.root=FOLDER, "
        "or use the embedded data with --set dataset.name=digits."
    )
