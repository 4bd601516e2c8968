"""Brightness, contrast, saturation and hue of a batch, of each image in its own order, in few
operations.

The hue parts an order in two words of the other three letters: what comes before it, and what comes
after. The images of a batch lie in the order of WORDS, in which each of the stages acts on a slice.
One after the other, the stages spell every word.

Shape suffixes are those of `image_ops`, whose rules hold here as well; P planes at a time.
"""

import itertools
from collections.abc import Sequence
from functools import lru_cache

import torch
from torch import Tensor

from clsweep.data.image_ops import gray

_LETTERS = "bcsh"  # the adjustments, as factor_N4's columns
# Brightness is the cheapest, so it has most of the slices.
WORDS = (
    "", "b", "bs", "s", "sb", "scb", "sc", "sbc", "bsc", "bc", "bcs", "cbs", "cs", "csb", "cb", "c",
)  # fmt: skip
# the adjustment, the first and the last of the words that lie beside each other
STAGES = (
    ("b", "b", "bs"), ("b", "bsc", "bcs"), ("s", "bs", "bsc"), ("b", "sbc", "sbc"),
    ("c", "scb", "c"), ("b", "sb", "scb"), ("b", "cbs", "cbs"), ("s", "bcs", "csb"),
    ("b", "csb", "cb"),
)  # fmt: skip
_DIGITS_4 = torch.tensor([64, 16, 4, 1])  # that make a number of an order


def places(order_N4: Tensor) -> Tensor:
    """Where the word before the hue stands in WORDS, and the one after it: int64 (2, N).

    order_N4: int64 permutations of the columns of `_LETTERS`, on the CPU.
    """
    return _places_of_orders()[:, order_N4 @ _DIGITS_4]


@lru_cache(maxsize=1)
def _places_of_orders() -> Tensor:
    places = torch.zeros(2, 256, dtype=torch.int64)
    for order in itertools.permutations(range(4)):
        halves = "".join(_LETTERS[k] for k in order).split("h")
        number = sum(k * digit for k, digit in zip(order, _DIGITS_4.tolist(), strict=True))
        places[:, number] = torch.tensor([WORDS.index(word) for word in halves])
    return places


def adjust_(x_MCHW: Tensor, factor_4M: Tensor, rest_4M: Tensor, stops: Sequence[int]) -> None:
    """The values of images that lie in the order of WORDS.

    Args:
        factor_4M: of each adjustment; rest_4M: 1 - factor_4M.
        stops: how many images have a word before each of WORDS.
    """
    for letter, first, last in STAGES:
        start, stop = stops[WORDS.index(first)], stops[WORDS.index(last) + 1]
        if stop > start:
            row = _LETTERS.index(letter)
            factors = (of_4M[row, start:stop, None, None, None] for of_4M in (factor_4M, rest_4M))
            _ADJUSTMENTS[letter](x_MCHW[start:stop], *factors)


def _brightness_(x_MCHW: Tensor, factor_M111: Tensor, _: Tensor) -> None:
    x_MCHW.mul_(factor_M111).clamp_(0.0, 1.0)


def _contrast_(x_MCHW: Tensor, factor_M111: Tensor, rest_M111: Tensor) -> None:
    # the gray of the mean is the mean of the gray image
    gray_M111 = gray(x_MCHW.mean(dim=(2, 3), keepdim=True))
    x_MCHW.mul_(factor_M111).add_(gray_M111 * rest_M111).clamp_(0.0, 1.0)


def _saturation_(x_MCHW: Tensor, factor_M111: Tensor, rest_M111: Tensor) -> None:
    if x_MCHW.shape[1] == 3:
        gray_M1HW = gray(x_MCHW).mul_(rest_M111)
        x_MCHW.mul_(factor_M111).add_(gray_M1HW).clamp_(0.0, 1.0)


_ADJUSTMENTS = {"b": _brightness_, "c": _contrast_, "s": _saturation_}


def hue_(x_MCHW: Tensor, shift_M: Tensor) -> None:
    """Turn the hue of HSV. Value and chroma stay, so no saturation or table of sextants is needed.

    The hue is measured in sextants from red, in [-3, 3]. With q = |green - blue| / chroma and p =
    (value - red) / chroma it is +-(q + p (3 - 2 q)), positive where green > blue: p is 0 where red
    is the largest, 1 where it is the smallest, and q is 1 where it is neither. A channel is value -
    chroma * clip(2 - d, 0, 1), d = distance on the circle from the hue to the channel's opposite
    colour (3 for red, -1 for green, 1 for blue). Neither has a branch.
    """
    if x_MCHW.shape[1] != 3:
        return
    red, green, blue = x_MCHW.split(1, dim=1)
    value = x_MCHW.amax(dim=1, keepdim=True)
    chroma = x_MCHW.amin(dim=1, keepdim=True)
    torch.sub(value, chroma, out=chroma)
    # chroma 0 has any hue, but it must not be NaN
    divisor = chroma.clamp(min=torch.finfo(chroma.dtype).tiny)
    signed = (green - blue).div_(divisor)
    share, size = (value - red).div_(divisor), torch.abs(signed, out=divisor)
    # twice the size is exact
    hue = torch.addcmul(size, share, torch.rsub(size, 3.0, alpha=2.0), out=size)
    hue.copysign_(signed).add_(shift_M[:, None, None, None], alpha=6.0)
    turns = torch.mul(hue, 1 / 6, out=share).round_()
    hue.sub_(turns, alpha=6.0)
    # On [-3, 3] the way around the circle is never the one that counts, except for red, where d = 3
    # - |hue|: all three are of the form 2 - d = sign * |hue - opposite| + least.
    opposite_3, sign_3, least_3 = _channels(x_MCHW.dtype, x_MCHW.device)
    torch.sub(hue, opposite_3, out=x_MCHW).abs_().mul_(sign_3).add_(least_3).clamp_(0.0, 1.0)
    torch.addcmul(value, chroma, x_MCHW, value=-1.0, out=x_MCHW)


@lru_cache(maxsize=8)
def _channels(dtype: torch.dtype, device: torch.device) -> tuple[Tensor, ...]:
    """Of red, green and blue what `hue_` needs, (1, 3, 1, 1) each."""
    table = torch.tensor([[0, -1, 1], [1, -1, -1], [-1, 2, 2]], dtype=dtype)
    return table[:, None, :, None, None].to(device).unbind()
