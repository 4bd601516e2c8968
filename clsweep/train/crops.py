"""Crops and middles of images of different sizes, cut and resized on the host by all of a trial's
threads, which decode them where they are kept as JPEG.

Shape suffixes as in `images`; V = pixels a side of a view.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from clsweep.data.augment import Draws
from clsweep.data.image_files import SCORED_SHARE, Jpegs, Pictures


def cut_crops(
    pictures: Pictures, rows_M: Tensor, draws: Sequence[Draws], *, pin: bool = False
) -> list[Tensor]:
    """The crops of each view resized to its size, (M, C, V, V) each in the pictures' type and
    channels_last, as torchvision's `resized_crop` makes them of an image of that type.

    pin: into page-locked memory, from which a GPU reads while the host goes on.
    """
    made = [_room(pictures, len(rows_M), drawn.output_size, pin) for drawn in draws]
    boxes = [torch.stack([d.i, d.j, d.h, d.w], dim=1).tolist() for d in draws]

    def cut(m: int, picture_CHW: Tensor) -> None:
        for crops, box_M4 in zip(made, boxes, strict=True):
            i, j, h, w = box_M4[m]
            # dense pixels are resized in one pass; others would be taken apart by channel before
            crop_CHW = picture_CHW[:, i : i + h, j : j + w]
            dense_1CHW = crop_CHW[None].contiguous(memory_format=torch.channels_last)
            crops[m] = _resized(dense_1CHW, *crops.shape[2:])

    _for_each(pictures, rows_M, cut)
    return made


def cut_middles(pictures: Pictures, rows_M: Tensor, side: int, *, pin: bool = False) -> Tensor:
    """The middle squares of pictures whose shorter side is resized to 8/7 of `side`: (M, C, side,
    side) in channels_last, as torchvision's `Resize` and `CenterCrop` make them.
    """
    shorter = round(side * SCORED_SHARE)
    middles = _room(pictures, len(rows_M), side, pin)

    def cut(m: int, picture_CHW: Tensor) -> None:
        lengths = picture_CHW.shape[1:]
        height, width = (int(shorter * length / min(lengths)) for length in lengths)
        top, left = (round((length - side) / 2) for length in (height, width))
        resized_CHW = _resized(picture_CHW[None], height, width)
        middles[m] = resized_CHW[:, top : top + side, left : left + side]

    _for_each(pictures, rows_M, cut)
    return middles


def as_tensor(pixels: Any) -> Tensor:
    """An array's own memory."""
    with warnings.catch_warnings():
        # a mapped file cannot be written to; nothing here does
        warnings.simplefilter("ignore", UserWarning)
        return torch.from_numpy(pixels)


def _room(pictures: Pictures, num_images: int, side: int, pin: bool) -> Tensor:
    shape = num_images, side, side, pictures.num_channels
    dtype = as_tensor(pictures.content).dtype
    return torch.empty(shape, dtype=dtype, pin_memory=pin).permute(0, 3, 1, 2)


def _for_each(pictures: Pictures, rows_M: Tensor, cut: Callable[[int, Tensor], None]) -> None:
    """`cut` of each picture with its place in the batch, on as many threads as torch has here."""
    num_threads = torch.get_num_threads()
    content, rows = as_tensor(pictures.content), rows_M.tolist()
    starts, sizes = pictures.starts, pictures.sizes
    decode: Callable[[Tensor], Tensor] | None = None
    if isinstance(pictures, Jpegs):
        from torchvision.io import decode_jpeg  # loads torchvision, which other data do without

        decode = decode_jpeg  # a third less time than Pillow's, which copies the pixels twice

    def cut_some(first: int) -> None:
        for m in range(first, len(rows), num_threads):
            picture = content[int(starts[rows[m]]) : int(starts[rows[m] + 1])]
            if decode:
                cut(m, decode(picture))
                continue
            picture_HWC = picture.view(*sizes[rows[m]].tolist(), pictures.num_channels)
            cut(m, picture_HWC.permute(2, 0, 1))

    if num_threads == 1:
        cut_some(0)
        return
    # an operation of these threads starts no threads of its own
    with ThreadPoolExecutor(num_threads, "crops", torch.set_num_threads, (1,)) as pool:
        list(pool.map(cut_some, range(num_threads)))
    torch.set_num_threads(num_threads)  # threads that begin later take the number set last


def _resized(x_1CHW: Tensor, height: int, width: int) -> Tensor:
    return F.interpolate(x_1CHW, (height, width), mode="bilinear", antialias=True)[0]
