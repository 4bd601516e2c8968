"""Images that are on both sides of a split: files of the same bytes, and others that look alike.

Two look alike where their small grey images differ by less than a share of their contrast, as one
of another size or compression does.
"""

from __future__ import annotations

import hashlib
from typing import TypeAlias

import numpy as np
from PIL import Image

from clsweep.data.image_files import grey_thumbnail, read_bytes, sampled_rows
from clsweep.data.sources import DataLayout

MOST_COMPARED = 500  # of each part: a plan is not to take seconds
_SIDE = 16  # pixels of a small grey image
_ALIKE = 0.06  # root mean square difference of two, as a share of their contrast
_FLAT = 4.0  # levels of 255: a contrast below it shows nothing to compare
_Pairs: TypeAlias = list[tuple[str, str]]  # names, held out and trained on


def copies_between(layout: DataLayout) -> tuple[tuple[int, int], _Pairs, _Pairs]:
    """The test images that are training images too; where no part is held out, training images that
    another one repeats, as either may be. What cannot be decoded is left out.

    Returns how many were compared, held out and trained on; pairs of the same bytes; and other
    pairs that look alike.
    """
    held_out = "test" if len(layout.labels["test"]) else "train"
    trained = _small_images(layout, "train")
    tested = trained if held_out == "train" else _small_images(layout, held_out)
    if not trained or not tested:
        return (len(tested), len(trained)), [], []
    first = {digest: name for name, digest, _ in reversed(trained)}
    exact = [(name, first[of]) for name, of, _ in tested if first.get(of, name) != name]
    a, b = (np.stack([image for *_, image in part]) for part in (tested, trained))
    squares = (a**2).mean(1)[:, None] + (b**2).mean(1)[None] - 2 * (a @ b.T) / _SIDE**2
    variances = np.minimum.outer(a.var(1), b.var(1))
    is_alike = (squares < _ALIKE**2 * variances) & (variances > _FLAT**2)
    known, near = {name for pair in exact for name in pair}, _Pairs()
    for row, column in zip(*np.nonzero(is_alike), strict=True):
        name, other = tested[row][0], trained[column][0]
        if name not in known and (held_out == "test" or column < row):
            near.append((name, other))
            known.add(name)
    return (len(tested), len(trained)), exact, near


def _small_images(layout: DataLayout, part: str) -> list[tuple[str, bytes, np.ndarray]]:
    """Name, digest of the content, and grey levels (_SIDE**2,) of some images of a part."""
    images = []
    for row in sampled_rows(len(layout.labels[part]), MOST_COMPARED):
        try:
            if layout.open is not None:
                file = layout.open(part, row)
                content, small = read_bytes(file), grey_thumbnail(file, _SIDE)
            elif layout.pixels is not None and layout.dtype == "uint8":
                pixels = layout.pixels(part, range(row, row + 1))[0]
                content = pixels.tobytes()
                picture = Image.fromarray(pixels[..., 0] if pixels.shape[-1] == 1 else pixels)
                small = picture.convert("L").resize((_SIDE, _SIDE), Image.Resampling.BILINEAR)
            else:
                return []
        except Exception:  # whatever Pillow raises, which making the cache says
            continue
        digest = hashlib.blake2b(content, digest_size=16).digest()
        images.append((layout.name(part, row), digest, np.asarray(small, np.float32).ravel()))
    return images
