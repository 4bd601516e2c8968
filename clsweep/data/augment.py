"""Random views of images in SimCLR's family, made for a whole batch at once.

`draw` takes every random number of a view on the CPU; `apply` is a pure function of images and draws. So a view can be
repeated, tested against torchvision image by image, and is the same however many workers share the batch.

Shape suffixes: N images of the batch, M of a subset, C channels (1 or 3), H = W = S pixels, of a view V where it may
have another size, L pixels of a window of the image; a digit is a length.
"""

from dataclasses import dataclass, fields, replace

import torch
import torch.nn.functional as F
from torch import Tensor

_CROP_ATTEMPTS = 10
_JITTER_RANGE_4 = (0.8, 0.8, 0.8, 0.2)  # brightness, contrast, saturation, hue at strength 1
_BLUR_SIGMA = (0.1, 2.0)
_GRAY_WEIGHTS = (0.2989, 0.587, 0.114)  # BT.601 luma, with torchvision's digits


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """The distribution of one view: crop, flip, colour jitter, grayscale and blur, in that order.

    The defaults are SimCLR's, used by DCL as well (appendix A.4). With all four probabilities at 0 a view is crop-only.
    A value outside its range raises ValueError.

    Args:
        crop_scale: smallest crop as a share of the image's area, in (0, 1]. The area is uniform up to crop_max, the
            aspect ratio log-uniform in [3/4, 4/3].
        crop_max: largest crop as a share of the image's area, in [crop_scale, 1].
        output_size: side of the view in pixels, at least 1; None is the image's.
        flip_prob, jitter_prob, gray_prob, blur_prob: how likely each operation is, in [0, 1].
        jitter_strength: s in ColorJitter(0.8 s, 0.8 s, 0.8 s, 0.2 s), in [0, 2.5]; 0 switches the jitter off.
    """

    crop_scale: float = 0.08
    crop_max: float = 1.0
    output_size: int | None = None
    flip_prob: float = 0.5
    jitter_strength: float = 1.0
    jitter_prob: float = 0.8
    gray_prob: float = 0.2
    blur_prob: float = 0.5

    def __post_init__(self) -> None:
        if not 0.0 < self.crop_scale <= 1.0:
            raise ValueError(f"crop_scale must be in (0, 1], got {self.crop_scale}")
        if not self.crop_scale <= self.crop_max <= 1.0:
            raise ValueError(f"crop_max must be in [crop_scale, 1] = [{self.crop_scale}, 1], got {self.crop_max}")
        if self.output_size is not None and self.output_size < 1:
            raise ValueError(f"output_size must be None or at least 1, got {self.output_size}")
        if not 0.0 <= self.jitter_strength <= 2.5:  # where the hue shift reaches half a turn
            raise ValueError(f"jitter_strength must be in [0, 2.5], got {self.jitter_strength}")
        for name in ("flip_prob", "jitter_prob", "gray_prob", "blur_prob"):
            if not 0.0 <= getattr(self, name) <= 1.0:
                raise ValueError(f"{name} must be in [0, 1], got {getattr(self, name)}")


@dataclass(frozen=True, kw_only=True)
class Draws:
    """What was drawn for one view of N images: CPU tensors, one row an image. `draws[a:b]` is a worker's share."""

    sizes: tuple[int, int]  # image_size and output_size; every other field has one row an image
    i: Tensor  # (N,) int64 pixels: top of the crop; j left, h height, w width, named as in torchvision
    j: Tensor
    h: Tensor
    w: Tensor
    flip: Tensor  # (N,) bool, as are jitter, gray and blur: whether the image undergoes it
    jitter: Tensor
    gray: Tensor
    blur: Tensor
    factor_N4: Tensor  # float32: brightness, contrast, saturation (1 = unchanged), hue shift in turns (0 = unchanged)
    order_N4: Tensor  # int64 permutations: order_N4[n, k] is the column of factor_N4 that image n undergoes k-th
    sigma: Tensor  # (N,) float32 pixels: the blur's standard deviation

    @property
    def image_size(self) -> int:
        """Side of the images that the crops were drawn for."""
        return self.sizes[0]

    @property
    def output_size(self) -> int:
        """Side of the views that `apply` makes."""
        return self.sizes[1]

    def __len__(self) -> int:
        return len(self.i)

    def __getitem__(self, rows: slice) -> "Draws":
        return replace(self, **{field.name: getattr(self, field.name)[rows] for field in fields(self)[1:]})


def draw(recipe: Recipe, num_images: int, image_size: int, generator: torch.Generator) -> Draws:
    """Draw a view's parameters for N = num_images >= 0, the *global* batch, of which each worker takes its slice.

    Everything is drawn whether or not it is used, so recipes that differ in one probability, strength or size agree in
    all other draws: a sweep over an augmentation compares like with like. The generator, a CPU one, advances by an
    amount that depends on N alone. Raises ValueError for num_images < 0 or image_size < 1.
    """
    if num_images < 0 or image_size < 1:
        raise ValueError(f"expected num_images >= 0 and image_size >= 1, got {num_images} and {image_size}")

    def uniform(*shape: int) -> Tensor:
        # float64, as a crop's side is a rounded product: float32 would round some the other way than torchvision
        return torch.rand(num_images, *shape, generator=generator, dtype=torch.float64)

    i, j, h, w = _crops(uniform(_CROP_ATTEMPTS, 2), uniform(2), recipe.crop_scale, recipe.crop_max, image_size)
    return Draws(
        sizes=(image_size, image_size if recipe.output_size is None else recipe.output_size), i=i, j=j, h=h, w=w,
        flip=uniform() < recipe.flip_prob,
        # strength 0 must skip the jitter, not run it with neutral factors, which would round the colours
        jitter=uniform() < (recipe.jitter_prob if recipe.jitter_strength > 0.0 else 0.0),
        gray=uniform() < recipe.gray_prob,
        blur=uniform() < recipe.blur_prob,
        factor_N4=_jitter_factors(uniform(4), recipe.jitter_strength),
        order_N4=uniform(4).argsort(dim=1),
        sigma=(_BLUR_SIGMA[0] + (_BLUR_SIGMA[1] - _BLUR_SIGMA[0]) * uniform()).float(),
    )  # fmt: skip


def apply(images_NCHW: Tensor, draws: Draws) -> Tensor:
    """Make the drawn view of each image: crop and resize to draws.output_size, flip, colour jitter, grayscale, blur.

    Equal, image by image and up to rounding, to torchvision.transforms.v2.functional's `resized_crop` (bilinear,
    antialias), `horizontal_flip`, `adjust_*` in the drawn order, `rgb_to_grayscale` and `gaussian_blur` (reflected
    border; SimCLR's kernel, a tenth of the view, odd, at least 3). On 1-channel images saturation, hue and grayscale
    do nothing, as in torchvision; brightness and contrast do.

    Runs on the images' device. Every subset is known on the host, so nothing waits for a GPU; no operation here is
    lowered to bfloat16 by autocast.

    Args:
        images_NCHW: float in [0, 1], C = 1 or 3, H = W = draws.image_size, else ValueError; left unchanged.
        draws: one row an image, else ValueError.

    Returns values in [0, 1], (N, C, output_size, output_size), of the images' dtype and device; channels_last if they
    are.
    """
    size, shape = draws.image_size, tuple(images_NCHW.shape)
    if shape not in ((len(draws), 1, size, size), (len(draws), 3, size, size)):
        raise ValueError(f"images must have shape ({len(draws)}, 1 or 3, {size}, {size}) for these draws, got {shape}")
    if not images_NCHW.is_floating_point():
        raise ValueError(f"images must be floating point in [0, 1], got {images_NCHW.dtype}")
    resize = _crop_resize_flip if draws.output_size == size else _crop_rescale_flip
    x_NCHW = resize(images_NCHW, draws)
    _jitter_(x_NCHW, draws)
    _grayscale_(x_NCHW, draws)
    _blur_(x_NCHW, draws)
    # colour operations work on whole channel planes, so only the result takes the layout that convolutions prefer
    is_channels_last = not images_NCHW.is_contiguous() and images_NCHW.is_contiguous(memory_format=torch.channels_last)
    return x_NCHW.contiguous(memory_format=torch.channels_last) if is_channels_last else x_NCHW


def _crops(
    u_NA2: Tensor, u_N2: Tensor, crop_scale: float, crop_max: float, size: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Turn uniform numbers into crops by torchvision's rule: of A attempts, the first that fits into the image.

    If none fits, torchvision takes the largest centred crop of an allowed ratio, whatever its area: for a square, the
    whole image.
    """
    area_NA = size * size * (crop_scale + (crop_max - crop_scale) * u_NA2[..., 0])
    ratio_NA = (4.0 / 3.0) ** (2.0 * u_NA2[..., 1] - 1.0)  # log-uniform in [3/4, 4/3]
    w_NA = (area_NA * ratio_NA).sqrt().round().long()
    h_NA = (area_NA / ratio_NA).sqrt().round().long()
    fits_NA = (w_NA > 0) & (w_NA <= size) & (h_NA > 0) & (h_NA <= size)
    first_N1 = fits_NA.int().argmax(dim=1, keepdim=True)  # of equals, argmax gives the first
    h, w = (torch.where(fits_NA.any(dim=1), side.gather(1, first_N1)[:, 0], size) for side in (h_NA, w_NA))
    return (u_N2[:, 0] * (size - h + 1)).long(), (u_N2[:, 1] * (size - w + 1)).long(), h, w


def _jitter_factors(u_N4: Tensor, strength: float) -> Tensor:
    neutral_4, range_4 = torch.tensor([(1.0, 1.0, 1.0, 0.0), _JITTER_RANGE_4], dtype=torch.float64).unbind()
    low_4, high_4 = neutral_4 - range_4 * strength, neutral_4 + range_4 * strength
    low_4[:3].clamp_(min=0.0)  # a strength above 1.25 would reach negative brightness; torchvision cuts there as well
    return (low_4 + (high_4 - low_4) * u_N4).float()


def _crop_resize_flip(images_NCHW: Tensor, draws: Draws) -> Tensor:
    """The resize to the image's own size, by sampling."""
    size, start_2N1 = draws.image_size, torch.stack([draws.j, draws.i])[:, :, None]  # x before y, as grid_sample wants
    length_2N1 = torch.stack([draws.w, draws.h])[:, :, None].double()
    position_2NS = (torch.arange(size) + 0.5) * length_2N1 / size - 0.5
    # clamped to the crop, not the image: a resized crop repeats its own border and never sees the pixels around it;
    # as no crop is larger than the output, antialiasing has nothing to do
    position_2NS = start_2N1 + position_2NS.clamp(min=0.0).minimum(length_2N1 - 1.0)
    position_2NS[0] = torch.where(draws.flip[:, None], position_2NS[0].flip(1), position_2NS[0])
    position_2NS = (2.0 * position_2NS + 1.0) / size - 1.0  # from pixels to [-1, 1] of the whole image
    # only the two axes travel to the device; the dense grid is built there
    x_NS, y_NS = _move(position_2NS.to(images_NCHW.dtype), images_NCHW).unbind()
    grid_NHW2 = torch.stack([x_NS[:, None, :].expand(-1, size, -1), y_NS[:, :, None].expand(-1, -1, size)], dim=-1)
    x_NCHW = F.grid_sample(images_NCHW, grid_NHW2, "bilinear", "border", align_corners=False)
    return x_NCHW.contiguous().clamp_(0.0, 1.0)  # the weights of a sample sum to 1 only up to rounding


def _crop_rescale_flip(images_NCHW: Tensor, draws: Draws) -> Tensor:
    """The resize to any other size V, where a crop may be larger than the view, so that antialiasing acts.

    Torchvision's filter is a triangle of half-width max(scale, 1) pixels, cut off at the crop's border. It is
    separable: one matrix an image and axis.
    """
    size, start_2N, length_2N = draws.output_size, torch.stack([draws.j, draws.i]), torch.stack([draws.w, draws.h])
    # each crop is cut out in a window as long as the longest side of any, so that small crops make small matrices
    window = int(length_2N.max()) if len(draws) else 1
    corner_2N = start_2N.clamp(max=draws.image_size - window)
    # positions count from the crop's first pixel, as where it lies in the window depends on the rest of the batch
    pixel_2NL = torch.arange(window) - (start_2N - corner_2N)[:, :, None]
    is_crop_2NL = (pixel_2NL >= 0) & (pixel_2NL < length_2N[:, :, None])
    scale_2N1 = length_2N[:, :, None].double() / size
    centre_2NV = (torch.arange(size) + 0.5) * scale_2N1 - 0.5
    centre_2NV[0] = torch.where(draws.flip[:, None], centre_2NV[0].flip(1), centre_2NV[0])
    # only the axes travel to the device; the matrices are built there
    pixel_2NL, is_crop_2NL, centre_2NV, slope_2N1 = (
        _move(t.to(images_NCHW.dtype), images_NCHW)
        for t in (pixel_2NL, is_crop_2NL, centre_2NV, 1.0 / scale_2N1.clamp(min=1.0))
    )
    weight_2NVL = pixel_2NL[:, :, None, :] - centre_2NV[..., None]
    weight_2NVL.abs_().mul_(slope_2N1[..., None]).neg_().add_(1.0).clamp_(min=0.0).mul_(is_crop_2NL[:, :, None, :])
    weight_2NVL.div_(weight_2NVL.sum(dim=3, keepdim=True))
    x_NCLL = images_NCHW
    if window < draws.image_size:
        every_NLLCLL = images_NCHW.unfold(2, window, 1).unfold(3, window, 1).permute(0, 2, 3, 1, 4, 5)  # a view
        j_N, i_N = _move(corner_2N, images_NCHW).unbind()
        x_NCLL = every_NLLCLL[torch.arange(len(draws), device=images_NCHW.device), i_N, j_N]
    weight_x_N1VL, weight_y_N1VL = weight_2NVL[:, :, None].unbind()
    with torch.autocast(images_NCHW.device.type, enabled=False):
        x_NCVV = weight_y_N1VL @ x_NCLL @ weight_x_N1VL.mT
    return x_NCVV.clamp_(0.0, 1.0)


def _jitter_(x_NCHW: Tensor, draws: Draws) -> None:
    """Four rounds; in each the images are sorted by the operation they undergo, so that it acts on one slice."""
    chosen_M = draws.jitter.nonzero()[:, 0]
    order_M4, factor_M4 = draws.order_N4[chosen_M], draws.factor_N4[chosen_M].to(x_NCHW.dtype)
    x_MCHW = x_NCHW.index_select(0, _move(chosen_M, x_NCHW))
    for k in range(4):
        sorted_M = order_M4[:, k].argsort()
        chosen_M, order_M4, factor_M4 = chosen_M[sorted_M], order_M4[sorted_M], factor_M4[sorted_M]
        x_MCHW = x_MCHW.index_select(0, _move(sorted_M, x_NCHW))
        factor_M111 = _move(factor_M4.gather(1, order_M4[:, k, None])[:, :, None, None], x_NCHW)
        stops = order_M4[:, k].bincount(minlength=4).cumsum(0).tolist()
        for adjust_, start, stop in zip(_ADJUSTMENTS, [0, *stops], stops, strict=False):
            adjust_(x_MCHW[start:stop], factor_M111[start:stop])
    x_NCHW.index_copy_(0, _move(chosen_M, x_NCHW), x_MCHW)


def _adjust_brightness_(x_MCHW: Tensor, factor_M111: Tensor) -> None:
    x_MCHW.mul_(factor_M111).clamp_(0.0, 1.0)


def _adjust_contrast_(x_MCHW: Tensor, factor_M111: Tensor) -> None:
    gray_M111 = _gray(x_MCHW.mean(dim=(2, 3), keepdim=True))  # the gray of the mean is the mean of the gray image
    x_MCHW.lerp_(gray_M111, 1.0 - factor_M111).clamp_(0.0, 1.0)


def _adjust_saturation_(x_MCHW: Tensor, factor_M111: Tensor) -> None:
    if x_MCHW.shape[1] == 3:
        x_MCHW.lerp_(_gray(x_MCHW), 1.0 - factor_M111).clamp_(0.0, 1.0)


def _adjust_hue_(x_MCHW: Tensor, shift_M111: Tensor) -> None:
    """Turn the hue of HSV. Value and chroma stay, so neither saturation nor a table of sextants is needed.

    With the hue in turns, a channel is value - chroma * clip(2 - 6 d, 0, 1), d = distance on the circle from the hue to
    the channel's opposite colour (1/2 for red, 5/6 for green, 1/6 for blue): HSV to RGB without branches.
    """
    if x_MCHW.shape[1] == 1:
        return
    red, green, blue = x_MCHW.unbind(1)
    value = red.maximum(green).maximum(blue)
    chroma = value - red.minimum(green).minimum(blue)
    sextant = chroma.clamp(min=torch.finfo(chroma.dtype).tiny).mul_(6.0)  # chroma 0 has any hue, but it must not be NaN
    # 0/1 floats and lerp, which is exact at both, as torch.where is 4 times slower on the CPU
    is_red, is_green = (torch.eq(value, channel, out=torch.empty_like(value)) for channel in (red, green))
    hue = (red - green).div_(sextant).add_(4 / 6).lerp_((blue - red).div_(sextant).add_(2 / 6), is_green)
    hue = hue.lerp_((green - blue).div_(sextant), is_red).add_(shift_M111[:, 0])
    for channel, opposite in ((red, 3 / 6), (green, 5 / 6), (blue, 1 / 6)):
        distance = hue - opposite
        distance.sub_(distance.round()).abs_()
        torch.addcmul(value, chroma, distance.mul_(-6.0).add_(2.0).clamp_(0.0, 1.0), value=-1.0, out=channel)


_ADJUSTMENTS = (_adjust_brightness_, _adjust_contrast_, _adjust_saturation_, _adjust_hue_)  # factor_N4's columns


def _gray(x_MCHW: Tensor) -> Tensor:
    if x_MCHW.shape[1] == 1:
        return x_MCHW
    red, green, blue = x_MCHW[:, :1], x_MCHW[:, 1:2], x_MCHW[:, 2:]
    return (red * _GRAY_WEIGHTS[0]).add_(green, alpha=_GRAY_WEIGHTS[1]).add_(blue, alpha=_GRAY_WEIGHTS[2])


def _grayscale_(x_NCHW: Tensor, draws: Draws) -> None:
    if x_NCHW.shape[1] == 3:
        chosen_M = _move(draws.gray.nonzero()[:, 0], x_NCHW)
        x_NCHW.index_copy_(0, chosen_M, _gray(x_NCHW.index_select(0, chosen_M)).expand(-1, 3, -1, -1))


def _blur_(x_NCHW: Tensor, draws: Draws) -> None:
    radius = min(max(1, draws.output_size // 20), draws.output_size - 1)  # a border of V pixels cannot be reflected
    chosen_M = draws.blur.nonzero()[:, 0]
    weight_MR = (-0.5 * (torch.arange(radius + 1) / draws.sigma[chosen_M, None].double()) ** 2).exp()
    weight_MR /= weight_MR[:, :1] + 2.0 * weight_MR[:, 1:].sum(dim=1, keepdim=True)
    weight_RM111 = _move(weight_MR.T.to(x_NCHW.dtype)[:, :, None, None, None], x_NCHW)
    chosen_M = _move(chosen_M, x_NCHW)
    x_MCHW = x_NCHW.index_select(0, chosen_M)
    for dim, border in ((2, (0, 0, radius, radius)), (3, (radius, radius, 0, 0))):  # separable: rows, then columns
        padded = F.pad(x_MCHW, border, mode="reflect")
        taps = [padded.narrow(dim, offset, draws.output_size) for offset in range(2 * radius + 1)]
        x_MCHW = taps[radius] * weight_RM111[0]
        for r in range(1, radius + 1):  # the kernel is symmetric
            x_MCHW.addcmul_(taps[radius - r] + taps[radius + r], weight_RM111[r])
    x_NCHW.index_copy_(0, chosen_M, x_MCHW.clamp_(0.0, 1.0))  # for the same rounding


def _move(t: Tensor, like: Tensor) -> Tensor:
    return t.to(like.device, non_blocking=True)
