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
_Small: TypeAlias = tuple[str, bytes, np.ndarray]
Copies: TypeAlias = tuple[tuple[int, int], _Pairs, _Pairs]


def copies_between(layout: DataLayout, *, is_validated: bool = False) -> dict[str, Copies]:
    """Images of parts that are scored and are training images too. Of the training images, of which
    any may be held out where no part is or the study validates on some, those that repeat another.
    What cannot be decoded is left out.
    """
    trained = _small_images(layout, "train")
    tested = _small_images(layout, "test") if len(layout.labels["test"]) else None
    copies = {} if tested is None else {"test": _copies(tested, trained)}
    return copies | ({"train": _copies(trained, trained)} if is_validated or not copies else {})


def _copies(tested: list[_Small], trained: list[_Small]) -> Copies:
    """The numbers that were compared, held out and trained on; pairs of the same bytes; and other
    pairs that look alike.
    """
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
        if name not in known and (tested is not trained or column < row):
            near.append((name, other))
            known.add(name)
    return (len(tested), len(trained)), exact, near


def _small_images(layout: DataLayout, part: str) -> list[_Small]:
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
