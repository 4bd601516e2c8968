"""Image files as arrays, whole, and many arrays of different sizes in one."""

from __future__ import annotations

import math
import os
import stat
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import IO, TYPE_CHECKING

import numpy as np
from PIL import Image, ImageFile

if TYPE_CHECKING:
    from PIL.Image import Image as Picture


Encoded = Path | IO[bytes]  # a file of an image, or its bytes in another file
_MODES = {1: "L", 3: "RGB"}
SCORED_SHARE = 256 / 224  # the papers' scoring: shorter side resized to 256, the middle 224 taken


@dataclass(frozen=True, eq=False)
class Pictures:
    """Images of different sizes in one array, as a sequence of (H, W, C).

    Args:
        pixels: uint8 or uint16 (T,), all images one behind the other.
        sizes: int64 (A, 2), height and width of each.
        num_channels: C of all.
    """

    pixels: np.ndarray
    sizes: np.ndarray
    num_channels: int

    @cached_property
    def starts(self) -> np.ndarray:
        """Where each image begins, and where the last ends: int64 (A + 1,)."""
        return np.concatenate([[0], np.cumsum(self.sizes.prod(axis=1) * self.num_channels)])

    @property
    def dtype(self) -> np.dtype:
        return self.pixels.dtype

    def __len__(self) -> int:
        return len(self.sizes)

    def __getitem__(self, row: int) -> np.ndarray:
        shape = (*self.sizes[row], self.num_channels)
        return self.pixels[self.starts[row] : self.starts[row + 1]].reshape(shape)


def decode_image(file: Encoded, store_size: int, num_channels: int = 3) -> np.ndarray:
    """An image of one or three channels, whole: uint8 (H, W, C), its shorter side resized to
    `store_size` where it is longer (bicubic, antialiased).

    As torchvision's `Resize` on Pillow's images. An orientation in the EXIF data is ignored, as
    there.

    Raises:
        Exception: whatever Pillow and its plugins raise at a file that is damaged, truncated, too
            large or no image; ValueError where it is no regular file.
    """
    ImageFile.LOAD_TRUNCATED_IMAGES = False  # another library may have asked for half an image
    if isinstance(file, Path):
        require_regular(file)
    with Image.open(file) as opened:
        width, height = opened.size
        # Pillow only warns below twice as many
        if Image.MAX_IMAGE_PIXELS and width * height > Image.MAX_IMAGE_PIXELS:
            raise Image.DecompressionBombError(
                f"{width} x {height} pixels, more than {Image.MAX_IMAGE_PIXELS}"
            )
        picture = _eight_bits(opened).convert(_MODES[num_channels])
    height, width = stored_size(height, width, store_size)
    if picture.size != (width, height):
        picture = picture.resize((width, height), Image.Resampling.BICUBIC)
    return np.asarray(picture).reshape(height, width, num_channels)


def read_image_size(file: Encoded) -> tuple[int, int]:
    """Height and width of an image, of its header alone. Raises as `decode`."""
    if isinstance(file, Path):
        require_regular(file)
    with Image.open(file) as opened:
        width, height = opened.size
    return height, width


def stored_size(height: int, width: int, store_size: int) -> tuple[int, int]:
    """Height and width of an image as `decode` gives it; the longer side is cut to a whole number
    of pixels, as torchvision does.
    """
    shorter = min(height, width)
    if shorter <= store_size:
        return height, width
    return (
        (store_size, int(store_size * width / height))
        if height < width
        else (int(store_size * height / width), store_size)
    )


def needed_size(view_size: int, crop_scale: float) -> int:
    """Shorter side at which the smallest crop of a square has the pixels of a view, and scoring the
    pixels that it resizes to.
    """
    return math.ceil(max(view_size / math.sqrt(crop_scale), view_size * SCORED_SHARE))


def require_regular(path: Path) -> None:
    """ValueError where reading a path may wait for ever or never end: it is no regular file."""
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise ValueError("expected a regular file, given a folder, a pipe or a device")


def _eight_bits(picture: Picture) -> Picture:
    """Of 16 bits the upper eight, where Pillow would cut off all above 255."""
    if picture.mode == "F" or (picture.mode, picture.format) == ("I", "TIFF"):
        raise ValueError("pixels are numbers of 32 bits, of unknown range")
    if picture.mode.startswith("I"):
        levels = np.asarray(picture).astype(np.int64)
        return Image.fromarray((levels.clip(0, 65535) >> 8).astype(np.uint8))
    return picture
