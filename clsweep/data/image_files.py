"""Image files as arrays, whole, and many arrays of different sizes in one, or as many JPEGs."""

from __future__ import annotations

import io
import math
import os
import stat
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import IO

import numpy as np
from PIL import Image, ImageFile
from PIL.Image import Image as Picture

Encoded = Path | IO[bytes]  # a file of an image, or its bytes in another file
_MODES = {1: "L", 3: "RGB"}
SCORED_SHARE = 256 / 224  # the papers' scoring: shorter side resized to 256, the middle 224 taken
SAMPLED_PICTURES = 32  # of which bytes and rates of all are reckoned
JPEG_QUALITY = 80  # of pictures kept as JPEG; docs/performance.md has its effect on scores


@dataclass(frozen=True, eq=False)
class Pictures:
    """Images of different sizes in one array, as a sequence of (H, W, C).

    Args:
        content: uint8 or uint16 (T,), all images one behind the other.
        sizes: int64 (A, 2), height and width of each.
        num_channels: C of all.
    """

    content: np.ndarray
    sizes: np.ndarray
    num_channels: int

    @cached_property
    def starts(self) -> np.ndarray:
        """Where each image begins, and where the last ends: int64 (A + 1,)."""
        return np.concatenate([[0], np.cumsum(self.sizes.prod(axis=1) * self.num_channels)])

    @property
    def dtype(self) -> np.dtype:
        return self.content.dtype

    def __len__(self) -> int:
        return len(self.sizes)

    def __getitem__(self, row: int) -> np.ndarray:
        shape = (*self.sizes[row], self.num_channels)
        return self.content[self.starts[row] : self.starts[row + 1]].reshape(shape)


@dataclass(frozen=True, eq=False)
class Jpegs(Pictures):
    """Pictures whose content is a JPEG each, decoded whenever one is read.

    Args:
        lengths: int64 (A,), bytes of each.
    """

    lengths: np.ndarray

    @cached_property
    def starts(self) -> np.ndarray:
        """Where each JPEG begins, and where the last ends: int64 (A + 1,)."""
        return np.concatenate([[0], np.cumsum(self.lengths)])

    def __getitem__(self, row: int) -> np.ndarray:
        content = self.content[self.starts[row] : self.starts[row + 1]].tobytes()
        with Image.open(io.BytesIO(content)) as picture:
            return np.asarray(picture).reshape(*self.sizes[row], self.num_channels)


def decode_image(file: Encoded, store_size: int, num_channels: int = 3) -> np.ndarray:
    """An image of one or three channels, whole: uint8 (H, W, C), its shorter side resized to
    `store_size` where it is longer (bicubic, antialiased).

    As torchvision's `Resize` on Pillow's images. An orientation in the EXIF data is ignored, as
    there.

    Raises:
        Exception: whatever Pillow and its plugins raise at a file that is damaged, truncated, too
            large or no image; ValueError where it is no regular file.
    """
    with _opened(file) as opened:
        height, width = stored_size(opened.height, opened.width, store_size)
        picture = _shrunk(opened, height, width, num_channels)
    return np.asarray(picture).reshape(height, width, num_channels)


def encode_image(file: Encoded, store_size: int, num_channels: int = 3) -> tuple[bytes, int, int]:
    """A JPEG of an image as `decode_image` gives it, its height and width; a file's own bytes where
    it is a baseline JPEG of these channels that is not shrunk.

    Raises as `decode_image`.
    """
    content = io.BytesIO()
    with _opened(file) as opened:
        height, width = stored_size(opened.height, opened.width, store_size)
        is_plain = opened.format == "JPEG" and not opened.info.get("progressive")
        if is_plain and (opened.size, opened.mode) == ((width, height), _MODES[num_channels]):
            opened.load()  # damage is an error
            return read_bytes(file), height, width
        # of a large JPEG no more than twice as many pixels a side are decoded as are needed
        opened.draft(None, (2 * width, 2 * height))
        picture = _shrunk(opened, height, width, num_channels)
        picture.save(content, "JPEG", quality=JPEG_QUALITY)
    return content.getvalue(), height, width


def grey_thumbnail(file: Encoded, side: int) -> Picture:
    """An image in grey levels of side x side pixels, whatever its shape; of a large JPEG few pixels
    are decoded. Raises as `decode_image`.
    """
    with _opened(file) as opened:
        opened.draft("L", (4 * side, 4 * side))
        return _eight_bits(opened).convert("L").resize((side, side), Image.Resampling.BILINEAR)


def read_bytes(file: Encoded) -> bytes:
    """All bytes of an encoded image. Raises as `decode_image`."""
    if isinstance(file, Path):
        require_regular(file)
        return file.read_bytes()
    file.seek(0)
    return file.read()


def _opened(file: Encoded) -> Picture:
    """An image of which the head is read."""
    ImageFile.LOAD_TRUNCATED_IMAGES = False  # another library may have asked for half an image
    if isinstance(file, Path):
        require_regular(file)
    opened = Image.open(file)
    width, height = opened.size
    # Pillow only warns below twice as many
    if Image.MAX_IMAGE_PIXELS and width * height > Image.MAX_IMAGE_PIXELS:
        opened.close()
        raise Image.DecompressionBombError(
            f"{width} x {height} pixels, more than {Image.MAX_IMAGE_PIXELS}"
        )
    if opened.format == "TIFF" and _is_stack(opened):
        opened.close()
        raise ValueError("several pages of one size: expected one picture a file")
    return opened


def _is_stack(opened: Picture) -> bool:
    """True of a microscope's planes, not of a picture with a small one of itself."""
    size = opened.size
    try:
        opened.seek(1)
    except EOFError:
        return False
    is_stack = opened.size == size
    opened.seek(0)
    return is_stack


def _shrunk(opened: Picture, height: int, width: int, num_channels: int) -> Picture:
    picture = _eight_bits(opened).convert(_MODES[num_channels])
    size = width, height
    return picture if picture.size == size else picture.resize(size, Image.Resampling.BICUBIC)


def read_image_size(file: Encoded) -> tuple[int, int]:
    """Height and width of an image, of its header alone. Raises as `decode_image`."""
    with _opened(file) as opened:
        return opened.height, opened.width


def stored_size(height: int, width: int, store_size: int) -> tuple[int, int]:
    """Height and width of an image as `decode` gives it; the longer side is cut to a whole number
    of pixels, as torchvision does.
    """
    shorter = min(height, width)
    if shorter <= store_size:
        return height, width
    return int(store_size * height / shorter), int(store_size * width / shorter)


def needed_size(view_size: int, crop_scale: float) -> int:
    """Shorter side at which a crop of this share of a square has the pixels of a view, and scoring
    the pixels that it resizes to.
    """
    return math.ceil(max(view_size / math.sqrt(crop_scale), view_size * SCORED_SHARE))


def sampled_rows(num_images: int, most: int = SAMPLED_PICTURES) -> list[int]:
    """Rows of so many images as are sampled at most, evenly spaced."""
    number = min(num_images, most)
    return [place * num_images // number for place in range(number)]


def highest_level(file: Encoded) -> int:
    """The highest level of an image of 16 bits, 0 of others. Raises as `decode_image`."""
    with _opened(file) as opened:
        return int(np.asarray(opened).max()) if opened.mode.startswith("I") else 0


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
