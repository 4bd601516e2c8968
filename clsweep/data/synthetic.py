"""Images made from a fixed seed: a data set of any size for a machine without files, the same
everywhere.

A class is an orientation of lines and the share of them that is bright: both remain under crops,
flips, jitter and greyscale. Colours, contrast, the width of the lines and which way they lean are
an image's own. So is the phase, which each tile of an image has for itself: pixels say little.

Larger images have more tiles, finer lines and more noise. The more lines an encoder sees, the
better it does untrained; tiles and noise take some of that back.

Everything is whole numbers made of PCG64's raw output, which NumPy keeps as it is: no rounding of a
platform's own.
"""

from __future__ import annotations

import numpy as np

_VERSION = 2  # of the images
BLOCK_IMAGES = 64  # drawn from one seed, so that image n is the same however many there are
_SEED = 20_240_229
_OWN = 16  # random numbers of an image, beside its cells and phases
_CELLS = 4  # of a background, a side
_TILES = 4  # of a phase each, a side, at most
_TRAIN, _TEST = range(2)  # streams of random numbers
# 256 times the cosine and sine of 0, 22.5, ... 90 degrees; a flip only changes the sign
_DIRECTIONS = np.array([(256, 0), (237, 98), (181, 181), (98, 237), (0, 256)], dtype=np.int32)
_DARK, _BRIGHT = 80, 176  # thresholds of a wave from 0 to 256


def labels(num_images: int, num_classes: int) -> np.ndarray:
    """Classes int64 (N,), in equal shares."""
    return np.arange(num_images, dtype=np.int64) % num_classes


def images(part: str, rows: range, *, image_size: int, num_classes: int) -> np.ndarray:
    """The images of consecutive rows of `train` or `test`, uint8 (N, S, S, 3)."""
    stream = {"train": _TRAIN, "test": _TEST}[part]
    first, last = rows.start // BLOCK_IMAGES, (rows.stop - 1) // BLOCK_IMAGES
    block = np.concatenate(
        [_block(stream, index, image_size, num_classes) for index in range(first, last + 1)]
    )
    return block[rows.start - first * BLOCK_IMAGES :][: len(rows)]


def _block(stream: int, index: int, size: int, num_classes: int) -> np.ndarray:
    """BLOCK_IMAGES images of a stream."""
    count = BLOCK_IMAGES
    draw = _random((stream, index), (count, _OWN + _CELLS**2 + _TILES**2))
    label = (index * count + np.arange(count)) % num_classes
    cells = draw[:, _OWN : _OWN + _CELLS**2].reshape(count, _CELLS, _CELLS)
    lines, background = _lines(draw, label, size, num_classes), _textures(cells, size)
    # each channel has its level and its own part of either
    level, gain = 96 + draw[:, 2:5] // 4, 50 + draw[:, 5:6] * 5 // 16 + draw[:, 6:9] // 12
    other_gain = draw[:, 9:12] // 3
    loudest = 3 * min(size, 64)
    noise = _random((stream, index, 1), (count, size, size, 3)) * loudest // 256 - loudest // 2
    mixed = (
        lines[..., None] * gain[:, None, None] + background[..., None] * other_gain[:, None, None]
    )
    pixels = level[:, None, None] + mixed // 128 + noise
    return np.clip(pixels, 0, 255).astype(np.uint8)


def _lines(draw: np.ndarray, label: np.ndarray, size: int, num_classes: int) -> np.ndarray:
    """int32 (N, S, S), -128 to 127: a class's lines, of a width and phases that are drawn."""
    across, down = _DIRECTIONS[label % len(_DIRECTIONS)].T[..., None, None]
    lean = np.where(draw[:, 0] < 128, 1, -1)[:, None, None]
    period = np.maximum((size + 16) * (64 + draw[:, 1] // 2) // 512, 3)[:, None, None]
    at = np.arange(size)
    # 1, 2, 3 and 4 a side from 8, 16, 32 and 64 pixels on
    tile = at * min(size.bit_length() - 3, _TILES) // size
    phase = draw[:, -(_TILES**2) :].reshape(-1, _TILES, _TILES)[:, tile[:, None], tile]
    place = (at[:, None] * across + at * down * lean) // period + phase
    wave = np.abs(place % 256 - 128) * 2
    steps = max(-(-num_classes // len(_DIRECTIONS)) - 1, 1)
    threshold = _DARK + (_BRIGHT - _DARK) * (label // len(_DIRECTIONS)) // steps
    return np.clip((wave - threshold[:, None, None]) * 4, -128, 127)


def _textures(cells: np.ndarray, size: int) -> np.ndarray:
    """Cells 0 to 255 (N, G, G) -> int32 (N, S, S), -128 to 127: bilinear, periodic twice a side."""
    position = np.arange(size) * (2 * _CELLS * 256) // size % (_CELLS * 256)
    cell, share = position // 256, (position % 256).astype(np.int32)
    following = (cell + 1) % _CELLS
    across = cells[:, :, cell] * (256 - share) + cells[:, :, following] * share
    both = across[:, cell] * (256 - share)[:, None] + across[:, following] * share[:, None]
    return both // 65536 - 128


def _random(seed: tuple[int, ...], shape: tuple[int, ...]) -> np.ndarray:
    """int32 from 0 to 255."""
    count = int(np.prod(shape))
    raw = np.random.PCG64((_SEED, *seed)).random_raw(-(-count // 8))
    return raw.astype("<u8").view(np.uint8)[:count].astype(np.int32).reshape(shape)
