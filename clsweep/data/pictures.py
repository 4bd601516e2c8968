"""An image file as a square of pixels."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image, ImageFile

if TYPE_CHECKING:
    from PIL.Image import Image as Picture


def decode(path: Path, size: int) -> np.ndarray:
    """An image as RGB, its shorter side resized to `size` (bicubic, antialiased), its centre cut
    out: uint8 (S, S, 3).

    As torchvision's `Resize` and `CenterCrop` on Pillow's images, of which the parts that are cut
    off are never made; pixels differ by a level or two, on sharp noise by more. An orientation in
    the EXIF data is ignored, as there.

    Raises:
        Exception: whatever Pillow and its plugins raise at a file that is damaged, truncated, too
            large or no image.
    """
    ImageFile.LOAD_TRUNCATED_IMAGES = False  # another library may have asked for half an image
    with Image.open(path) as opened:
        width, height = opened.size
        # Pillow only warns below twice as many
        if Image.MAX_IMAGE_PIXELS and width * height > Image.MAX_IMAGE_PIXELS:
            raise Image.DecompressionBombError(
                f"{width} x {height} pixels, more than {Image.MAX_IMAGE_PIXELS}"
            )
        picture = _rgb(opened)
    # the longer side is a whole number of pixels, of which the middle is taken
    shown = [
        size if side == min(width, height) else int(size * side / min(width, height))
        for side in (width, height)
    ]
    starts = [round((side - size) / 2) for side in shown]
    (left, right), (top, bottom) = (
        (start * full / side, (start + size) * full / side)
        for start, side, full in zip(starts, shown, (width, height), strict=True)
    )
    square = picture.resize((size, size), Image.Resampling.BICUBIC, box=(left, top, right, bottom))
    return np.asarray(square)


def _rgb(picture: Picture) -> Picture:
    """Any mode as RGB; of 16 bits the upper eight, where Pillow would cut off all above 255."""
    if picture.mode.startswith("I"):
        levels = np.asarray(picture).astype(np.int64)
        picture = Image.fromarray((levels.clip(0, 65535) >> 8).astype(np.uint8))
    elif picture.mode == "F":
        raise ValueError("pixels are real numbers of unknown range")
    return picture.convert("RGB")
