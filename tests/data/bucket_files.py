"""Images to put into a bucket, and the requests for them."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow.fs as pafs
from PIL import Image


def write_images(root: Path, *names: str) -> Path:
    rng = np.random.default_rng(len(names))
    for i, name in enumerate(names):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (16 + i % 9, 20, 3), dtype=np.uint8)).save(root / name)
    return root


def by_class(root: Path, count: int = 8) -> Path:
    return write_images(
        root,
        *(f"train/{c}/{i}.png" for c in ("ants", "bees") for i in range(count)),
        *(f"val/{c}/{i}.png" for c in ("ants", "bees") for i in range(2)),
    )


def upload(folder: Path, uri: str) -> None:
    fs, base = pafs.FileSystem.from_uri(uri)
    pafs.copy_files(str(folder), base, destination_filesystem=fs)


def files_below(folder: Path) -> dict[str, bytes]:
    paths = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


def gets(server, since: int) -> Counter[str]:
    """How often each object was read."""
    requests = (request.partition(" ") for request in server.requests[since:])
    return Counter(path for verb, _, path in requests if verb == "GET" and "." in path)
