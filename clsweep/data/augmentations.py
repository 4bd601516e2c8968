"""The catalog's augmentations: each a function of a batch of views and of random numbers that were
drawn for them, see `catalog.rows.Component`. A new one is a function here and a row there.

Shape suffixes: N images, C channels, H = W = V pixels of a view, K numbers of an image, A attempts.
"""

import math

import torch
from torch import Tensor

ATTEMPTS = 10  # torchvision's, at a rectangle that fits
# of what is erased the smallest area and the ratios of height to width (Zhong et al. 2020)
LEAST_ERASED, _RATIOS = 0.02, (0.3, 3.3)


def random_erasing(x_NCVV: Tensor, u_NK: Tensor, *, erase_prob: float, erase_max: float) -> Tensor:
    """A rectangle is set to 0, with torchvision's distribution (`v2.RandomErasing`); K = 23."""
    u_KN, side = u_NK.double().T, x_NCVV.shape[3]
    low, high = (math.log(ratio) for ratio in _RATIOS)
    size_2N = torch.full_like(u_KN[:2], side).long()
    start_2N, length_2N, is_lost_N = rectangles(
        u_KN[:20].view(2, ATTEMPTS, -1).mT, u_KN[20:22], size_2N, areas=(LEAST_ERASED, erase_max),
        stretch=(-(low + high) / 4, (high - low) / 2), least=0, most_2N=size_2N - 1,
    )  # fmt: skip
    place_2NV = torch.arange(side, device=u_NK.device) - start_2N[:, :, None]
    is_row_NV, is_column_NV = (place_2NV >= 0) & (place_2NV < length_2N[:, :, None])
    is_row_NV &= (~is_lost_N & (u_NK[:, 22] < erase_prob))[:, None]
    return x_NCVV.masked_fill((is_row_NV[:, :, None] & is_column_NV[:, None])[:, None], 0.0)


def gaussian_noise(x_NCHW: Tensor, u_NK: Tensor, *, noise_std: float) -> Tensor:
    """noise_std x standard normal numbers are added, and what leaves [0, 1] is cut; K = 2."""
    noise_NCHW = normal(u_NK, x_NCHW.shape[1:]).to(x_NCHW.dtype)
    return noise_NCHW.mul_(noise_std).add_(x_NCHW).clamp_(0.0, 1.0)


def mixup(x_NCHW: Tensor, u_NK: Tensor, other_NCHW: Tensor, *, mixup_min: float) -> Tensor:
    """m x + (1 - m) other, m uniform in [mixup_min, 1]; K = 1."""
    return x_NCHW.lerp(other_NCHW, (1.0 - mixup_min) * u_NK[:, :, None, None])


def normal(u_N2: Tensor, shape: torch.Size) -> Tensor:
    """Standard normal numbers, float32 (N, *shape), that two numbers of each image decide: the same
    on every device, up to rounding, and for any part of a batch.
    """
    first_N, second_N = (u_N2.double() * 2**24).int().T
    key_N1 = _hashed(_hashed(first_N) ^ second_N)[:, None]
    places = _hashed(torch.arange(math.prod(shape), dtype=torch.int32, device=u_N2.device))
    bits = (_hashed(places ^ key_N1) >> 9) & (2**23 - 1)  # with a half float32 holds no more
    x = bits.float().add_(0.5).mul_(2.0**-22).sub_(1.0)  # of (-1, 1)
    return x.erfinv_().mul_(math.sqrt(2.0)).view(-1, *shape)


def _hashed(x: Tensor) -> Tensor:
    """Each int32 scattered over all of them, one to one: Wellons' lowbias32 (2018)."""
    for shift, factor in ((16, 0x7FEB352D), (15, 0x846CA68B - 2**32)):
        x = (x ^ ((x >> shift) & (2 ** (32 - shift) - 1))) * factor
    return x ^ ((x >> 16) & 0xFFFF)


def rectangles(
    u_2NA: Tensor,
    u_2N: Tensor,
    size_2N: Tensor,
    *,
    areas: tuple[float, float],
    stretch: tuple[float, float],
    least: int,
    most_2N: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    """Turn uniform numbers, float64, into rectangles by torchvision's rule: of A attempts, the
    first that fits into an image of height and width size_2N.

    Args:
        areas: smallest and largest share of the image's, of which it is uniform.
        stretch: middle and width of half the logarithm of width to height, which is uniform.
        least, most_2N: sides that fit, pixels.

    Returns corners (top, left) and sides (height, width), int64 (2, N), and where none fits.
    """
    # of a square of that area
    length_NA = (u_2NA[0] * (areas[1] - areas[0])).add_(areas[0]).sqrt_()
    length_NA.mul_(size_2N.double().prod(dim=0).sqrt_()[:, None])
    stretch_NA = (u_2NA[1] - 0.5).mul_(stretch[1]).add_(stretch[0]).exp_()
    side_2NA = torch.stack([length_NA / stretch_NA, length_NA.mul_(stretch_NA)]).round_()
    fits_NA = ((side_2NA <= most_2N[:, :, None]) & (side_2NA >= least)).all(dim=0)
    first_N = fits_NA.byte().argmax(dim=1)  # of equals, argmax gives the first
    side_2N = side_2NA.gather(2, first_N.expand(2, -1)[..., None])[..., 0].long()
    corner_2N = (u_2N * (size_2N + 1 - side_2N)).long()
    return corner_2N, side_2N, ~fits_NA.any(dim=1)
