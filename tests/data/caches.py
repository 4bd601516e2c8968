"""Caches of folders of images: what lies there, and processes that make one slowly."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

from clsweep.data import datasets
from clsweep.data.datasets import Splits, load_splits
from clsweep.data.locations import DataPlace
from clsweep.data.sources import sized_dataset

SIZE, STORED = 16, {"pixels": 16, "jpeg": 48}  # side of a view, and of what is kept, at most
# Writes the name of every file that it decodes, and takes so long for one.
SCRIPT = """
import sys, time
from dataclasses import replace
from clsweep.data import cache, cached_jpegs, datasets, image_files
from clsweep.data.locations import DataPlace
from clsweep.data.sources import sized_dataset
root, log, pause, form, store_size = sys.argv[1:]
cache.BLOCK_IMAGES = cached_jpegs.BLOCK_JPEGS = 2
cache.num_cores = cached_jpegs.num_cores = lambda: 2
cache.missing_bytes = lambda *_: 0
def slowly(read):
    def reading(path, *rest):
        time.sleep(float(pause))
        with open(log, "a") as file:
            file.write("/".join(path.parts[-3:]) + "\\n")
        return read(path, *rest)
    return reading
image_files.decode_image = slowly(image_files.decode_image)
image_files.encode_image = slowly(image_files.encode_image)
place = DataPlace(root=root, cache=root + "/../cache")
row = sized_dataset("imagefolder", place, image_size=16)
datasets.prepare(replace(row, store_size=int(store_size), store_as=form), place)
assert "torch" not in sys.modules
"""


def place_of(root: Path) -> DataPlace:
    return DataPlace(root=str(root), cache=str(root.parent / "cache"))


def load(
    root: Path, form: str = "pixels", *, name: str = "imagefolder", store_size: int = 0
) -> Splits:
    """The splits of pictures as a row of a plan asks for them."""
    row = sized_dataset(name, place_of(root), image_size=SIZE)
    config = {"dataset": name, "val_fraction": 0.2, "image_size": SIZE, "store_as": form,
              "num_train": row.num_train, "num_classes": row.num_classes,
              "store_size": store_size or STORED[form]}  # fmt: skip
    datasets._load.cache_clear()
    return load_splits(config, place_of(root))


def caches(root: Path, suffix: str = "") -> list[Path]:
    """What lies in the cache beside the locks: complete caches, or partial ones."""
    paths = (root.parent / "cache").iterdir()
    return sorted(path for path in paths if path.is_dir() and path.suffix == suffix)


def start(root: Path, log: Path, pause: float, form: str = "pixels") -> subprocess.Popen[bytes]:
    words = map(str, (root, log, pause, form, STORED[form]))
    return subprocess.Popen([sys.executable, "-c", SCRIPT, *words], stderr=subprocess.PIPE)


def lines_of(log: Path) -> list[str]:
    return log.read_text().splitlines() if log.exists() else []


def kill_after(num: int, log: Path, process: subprocess.Popen[bytes]) -> None:
    """As soon as the process has written so many lines."""
    for _ in range(1200):
        if len(lines_of(log)) >= num:
            break
        threading.Event().wait(0.02)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
