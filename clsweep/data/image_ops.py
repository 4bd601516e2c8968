"""The pixel operations of random views, each on a whole batch of images at once, on whatever device
they are.

What is drawn comes in as tensors on that device, and how many images undergo an operation as plain
numbers: nothing here waits for a GPU, and autocast lowers none of it to a half type. Shape suffixes
are those of `augment`; R weights of one side of a blur, its centre first; A = N C planes, B = C L
rows.
"""

from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache

import torch
import torch.nn.functional as F
from torch import Tensor

_GRAY_WEIGHTS = (0.2989, 0.587, 0.114)  # BT.601 luma, with torchvision's digits


def resize(images_NCHW: Tensor, position_2NV: Tensor) -> Tensor:
    """Bilinear samples where columns and rows cross, in [-1, 1] of the image: (N, C, V, V)."""
    size = position_2NV.shape[2]
    x_NV, y_NV = position_2NV.unbind()
    grid_NVV2 = torch.stack(
        [x_NV[:, None, :].expand(-1, size, -1), y_NV[:, :, None].expand(-1, -1, size)], dim=-1
    )
    x_NCVV = F.grid_sample(images_NCHW, grid_NVV2, "bilinear", "border", align_corners=False)
    # the weights of a sample sum to 1 only up to rounding
    return x_NCVV.contiguous().clamp_(0.0, 1.0)


def resize_antialiased(
    images_NCHW: Tensor,
    corner_2N: Tensor,
    pixel_2NL: Tensor,
    is_crop_2NL: Tensor,
    centre_2NV: Tensor,
    slope_2N1: Tensor,
) -> Tensor:
    """Filter a square window of L pixels a side of each image into a view of V; columns come before
    rows throughout.

    Torchvision's filter is a triangle of half-width max(scale, 1) pixels, cut off at the crop's
    border.

    Args:
        corner_2N: int64, the window's first pixel.
        pixel_2NL: where the window's pixels are, counted from the crop's first; is_crop_2NL: 1 for
            those of the crop.
        centre_2NV: where the view's pixels are; slope_2N1: 1 / half-width.
    """
    window = pixel_2NL.shape[2]
    weight_2NVL = pixel_2NL[:, :, None, :] - centre_2NV[..., None]
    weight_2NVL.abs_().mul_(slope_2N1[..., None]).neg_().add_(1.0).clamp_(min=0.0).mul_(
        is_crop_2NL[:, :, None, :]
    )
    weight_2NVL.div_(weight_2NVL.sum(dim=3, keepdim=True))
    x_NCLL = images_NCHW
    if window < images_NCHW.shape[3]:
        every_NLLCLL = (
            images_NCHW.unfold(2, window, 1).unfold(3, window, 1).permute(0, 2, 3, 1, 4, 5)
        )  # a view
        j_N, i_N = corner_2N.unbind()
        x_NCLL = every_NLLCLL[torch.arange(len(images_NCHW), device=images_NCHW.device), i_N, j_N]
    return _combine(x_NCLL, weight_2NVL)


def _combine(x_NCLL: Tensor, weight_2NVL: Tensor) -> Tensor:
    """Weighted sums of columns, then of rows, within [0, 1]."""
    num_images, num_channels, window = x_NCLL.shape[:3]
    view = weight_2NVL.shape[2]
    weight_x_NVL, weight_y_NVL = weight_2NVL.unbind()
    # each channel gets a copy of the matrix: left to broadcasting, the copy is several times slower
    weight_y_AVL = (
        weight_y_NVL[:, None]
        .expand(-1, num_channels, -1, -1)
        .reshape(num_images * num_channels, view, window)
    )
    with _without_autocast(x_NCLL.device):
        x_NBV = torch.bmm(
            x_NCLL.reshape(num_images, num_channels * window, window), weight_x_NVL.mT
        )
        x_AVV = torch.bmm(weight_y_AVL, x_NBV.view(num_images * num_channels, window, view))
    # the weights of a sum are 1 together only up to rounding
    return x_AVV.clamp_(0.0, 1.0).view(num_images, num_channels, view, view)


def _without_autocast(device: torch.device) -> AbstractContextManager[object]:
    # not to a device without values, on which tests run
    known = torch.amp.is_autocast_available(device.type)
    return torch.autocast(device.type, enabled=False) if known else nullcontext()


def gray(x_MCHW: Tensor) -> Tensor:
    """The luma of each pixel, (M, 1, H, W); of other than 3 channels their mean."""
    if x_MCHW.shape[1] != 3:
        return x_MCHW if x_MCHW.shape[1] == 1 else x_MCHW.mean(dim=1, keepdim=True)
    red, green, blue = x_MCHW[:, :1], x_MCHW[:, 1:2], x_MCHW[:, 2:]
    return (
        (red * _GRAY_WEIGHTS[0])
        .add_(green, alpha=_GRAY_WEIGHTS[1])
        .add_(blue, alpha=_GRAY_WEIGHTS[2])
    )


def grayscale_(x_MCHW: Tensor) -> None:
    """The luma in every channel."""
    if x_MCHW.shape[1] == 3:
        x_MCHW.copy_(gray(x_MCHW).expand_as(x_MCHW))


def blur_(x_MCVV: Tensor, weight_MR: Tensor) -> None:
    """Convolve with a symmetric kernel of each image's own; the image is reflected at the edge."""
    size = x_MCVV.shape[3]
    taps_RVV = _reflected_taps(weight_MR.shape[1], size, x_MCVV.dtype, x_MCVV.device)
    with _without_autocast(x_MCVV.device):
        matrix_MVV = (weight_MR @ taps_RVV.flatten(1)).view(-1, size, size)
    x_MCVV.copy_(_combine(x_MCVV, matrix_MVV.expand(2, -1, -1, -1)))


@lru_cache(maxsize=8)
def _reflected_taps(
    num_weights: int, size: int, dtype: torch.dtype, device: torch.device
) -> Tensor:
    """The times that a pixel (columns) adds to a blurred one (rows): two where it is its mirror."""
    source_V = torch.arange(size, device=device)
    target_V1 = source_V[:, None]
    weight_R11 = torch.arange(num_weights, device=device)[:, None, None]
    direct = (target_V1 - source_V).abs() == weight_R11
    above = (target_V1 + source_V == weight_R11) & (source_V > 0)
    below = (2 * (size - 1) - target_V1 - source_V == weight_R11) & (source_V < size - 1)
    return direct.to(dtype) + above.to(dtype) + below.to(dtype)


def solarize_(x_MCHW: Tensor) -> None:
    """Invert the pixels from 1/2 on."""
    torch.minimum(x_MCHW, 1.0 - x_MCHW, out=x_MCHW)
