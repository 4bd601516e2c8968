"""Random views of images in SimCLR's family, made for a whole batch at once.

`draw` takes every random number of a view on the CPU; `apply` is a pure function of images and
draws. So a view can be repeated, tested against torchvision image by image, and is the same however
many workers share the batch.

Shape suffixes: N images of the batch, M of a subset, C channels, H = W = S pixels, of a
view V where it may have another size, L pixels of a window of the image; a digit is a length.
"""

import itertools
import math
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor

from clsweep.catalog.plugin_guard import PartError
from clsweep.catalog.rows import Component
from clsweep.data import image_ops, jitter
from clsweep.data.augmentations import ATTEMPTS, rectangles

FULL_SCALE = {torch.uint8: 255.0, torch.uint16: 65535.0}  # what 1 is in whole numbers
_ORDERS_24 = torch.tensor(list(itertools.permutations(range(4))))
_BLUR_SIGMA = (0.1, 2.0)
# Pixels and channels of the images in work at once. On a CPU 3 MiB, near what a core's cache holds.
# On a GPU 128 MiB, of which what is computed on the way takes a small multiple.
VALUES_AT_ONCE = {"cpu": 3 * 2**18, "cuda": 2**25}
_ROUNDING = 0.01  # of half precision, and some steps
# The place of each three bits in the sequence 000, 001, 011, 010, 110, 111, 101, 100: of
# neighbours, one bit differs.
_GRAY_CODE_8 = torch.tensor([0, 1, 3, 2, 7, 6, 4, 5])
_FIRST_BLURRED = 4


# of the catalog, with its hyperparameters
Augmentation = tuple[Component, Callable[..., Tensor]]


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """The distribution of one view: crop, flip, colour jitter, grayscale, blur and solarization, in
    that order, then others of the catalog.

    The defaults are SimCLR's, used by DCL as well (appendix A.4). With all probabilities at 0 a
    view is crop-only.

    Args:
        crop_scale: smallest crop as a share of the image's area, in (0, 1]. The area is uniform up
            to crop_max, the aspect ratio log-uniform in [3/4, 4/3].
        crop_max: largest crop as a share of the image's area, in [crop_scale, 1].
        output_size: side of the view in pixels, at least 1; None is the image's.
        flip_prob, jitter_prob, gray_prob, blur_prob, solarize_prob: how likely each operation is,
            in [0, 1].
        jitter_strength: s in ColorJitter(jitter_brightness s, jitter_contrast s, jitter_saturation
            s, jitter_hue s), in [0, 2.5]; 0 switches the jitter off.
        jitter_brightness, jitter_contrast, jitter_saturation: ranges at strength 1, in [0, 1].
        jitter_hue: the same in turns, in [0, 0.5]; times the strength at most 0.5, half a turn.
    """

    crop_scale: float = 0.08
    crop_max: float = 1.0
    output_size: int | None = None
    flip_prob: float = 0.5
    jitter_strength: float = 1.0
    jitter_brightness: float = 0.8
    jitter_contrast: float = 0.8
    jitter_saturation: float = 0.8
    jitter_hue: float = 0.2
    jitter_prob: float = 0.8
    gray_prob: float = 0.2
    blur_prob: float = 0.5
    solarize_prob: float = 0.0
    others: tuple[Augmentation, ...] = ()

    @property
    def mixes(self) -> bool:
        """A view needs that of another image."""
        return any(row.mixes for row, _ in self.others)

    def crop_only(self) -> "Recipe":
        """The same crops, and nothing else."""
        return replace(
            self, flip_prob=0.0, jitter_prob=0.0, gray_prob=0.0, blur_prob=0.0, solarize_prob=0.0,
            others=(),
        )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Draws:
    """The draws of one view of N images: CPU tensors, one row an image.

    `draws[a:b]` is a worker's share, and so is `draws[rows]` with an int64 tensor.
    """

    image_size: int  # side of the images that the crops were drawn for; 0: each has its own
    output_size: int  # side of the views that `apply` makes
    # (N,) int64 pixels: top of the crop; j left, h height, w width, named as in torchvision
    i: Tensor
    j: Tensor
    h: Tensor
    w: Tensor
    # (N,) bool, as are jitter, gray, blur and solarize: whether the image undergoes it
    flip: Tensor
    jitter: Tensor
    gray: Tensor
    blur: Tensor
    solarize: Tensor
    # float32: brightness, contrast, saturation (1 = unchanged), hue shift in turns (0 = unchanged)
    factor_N4: Tensor
    # int64 permutations: order_N4[n, k] is the column of factor_N4 that image n undergoes k-th
    order_N4: Tensor
    sigma: Tensor  # (N,) float32 pixels: the blur's standard deviation
    others: tuple[Augmentation, ...] = ()
    numbers: tuple[Tensor, ...] = ()  # float32 (N, K) of each of the others
    # where one mixes: the place of another image of the batch, int64 (N,), and that one's draws
    partners: "tuple[Tensor, Draws] | None" = None

    @classmethod
    def join(cls, parts: "Sequence[Draws]") -> "Draws":
        """The draws of several views of equal sizes, one below the other, for one `apply`: without
        those of `change`.
        """
        joined: dict[str, Any] = {
            name: torch.cat([getattr(part, name) for part in parts]) for name in _DRAWN_FIELDS
        }
        return replace(parts[0], **joined, others=(), numbers=(), partners=None)

    @classmethod
    def of_blocks(cls, parts: "Sequence[Draws]") -> "Draws":
        """The draws of one view of several blocks of images, one behind the other. Partners must be
        named by what holds for all blocks, no place in one of them.
        """
        numbers = tuple(torch.cat(each) for each in zip(*(d.numbers for d in parts), strict=True))
        mixed = [part.partners for part in parts if part.partners]
        partners = None
        if mixed:
            places, draws = zip(*mixed, strict=True)
            partners = torch.cat(places), cls.of_blocks(draws)
        others = parts[0].others
        return replace(cls.join(parts), others=others, numbers=numbers, partners=partners)

    def __len__(self) -> int:
        return len(self.i)

    def of_crops(self) -> "Draws":
        """The draws that remain where the crops are made already, resized to output_size."""
        start, side = torch.zeros_like(self.i), torch.full_like(self.i, self.output_size)
        return replace(self, image_size=self.output_size, i=start, j=start, h=side, w=side)

    def __getitem__(self, rows: slice | Tensor) -> "Draws":
        partners = self.partners and (self.partners[0][rows], self.partners[1][rows])
        numbers = tuple(u_NK[rows] for u_NK in self.numbers)
        chosen = {name: getattr(self, name)[rows] for name in _DRAWN_FIELDS}
        return replace(self, **chosen, numbers=numbers, partners=partners)


_DRAWN_FIELDS = [each.name for each in fields(Draws) if each.type is Tensor]  # `apply` needs them


def draw_views(
    recipe: Recipe,
    num_images: int,
    image_size: int | Tensor,
    generator: torch.Generator,
    batch_size: int = 0,
) -> Draws:
    """Draw a view's parameters for N = num_images >= 0, the *global* batch, of which each worker
    takes its slice.

    image_size: side of all images, or height and width of each, int64 (2, N); then the recipe has
    an output_size. batch_size: images of a batch, of which N has several; 0: N.

    Everything is drawn whether or not it is used, so recipes that differ in one probability,
    strength or size agree in all other draws: a sweep over an augmentation compares like with like.
    The generator, a CPU one, advances by an amount that depends on N alone: what `others` need
    comes from a stream of each one's own.
    """
    one_size = 0 if isinstance(image_size, Tensor) else image_size
    size_2N = torch.as_tensor(image_size).expand(2, num_images)
    # float64, as a crop's side is a rounded product: float32 would round some the other way than
    # torchvision
    columns = (2 * ATTEMPTS, 2, 4, 1, 1, 5)
    uniform = torch.rand(num_images * sum(columns), generator=generator, dtype=torch.float64)
    attempts, corner, factor, order, sigma, flags = uniform.split([num_images * c for c in columns])
    bounds = recipe.crop_scale, recipe.crop_max
    corner_2N, side_2N = _crops(
        attempts.view(2, num_images, ATTEMPTS), corner.view(2, num_images), bounds, size_2N
    )
    # strength 0 must skip the jitter, not run it with neutral factors, which would round the
    # colours
    jitter_prob = recipe.jitter_prob if recipe.jitter_strength > 0.0 else 0.0
    probs = recipe.flip_prob, jitter_prob, recipe.gray_prob, recipe.blur_prob, recipe.solarize_prob
    flag_5N = flags.view(5, num_images) < torch.tensor(probs, dtype=torch.float64)[:, None]
    draws = Draws(
        image_size=one_size,
        output_size=one_size if recipe.output_size is None else recipe.output_size,
        i=corner_2N[0], j=corner_2N[1], h=side_2N[0], w=side_2N[1],
        flip=flag_5N[0], jitter=flag_5N[1], gray=flag_5N[2], blur=flag_5N[3], solarize=flag_5N[4],
        factor_N4=_jitter_factors(factor.view(num_images, 4), recipe),
        order_N4=_ORDERS_24[(order * len(_ORDERS_24)).long()],
        sigma=(_BLUR_SIGMA[0] + (_BLUR_SIGMA[1] - _BLUR_SIGMA[0]) * sigma).float(),
    )  # fmt: skip
    if not recipe.others:
        return draws
    rows, partners = [row for row, _ in recipe.others], None
    numbers = (_uniform(generator, row.name, num_images, row.num_draws) for row in rows)
    if recipe.mixes:
        place_N, batch = torch.arange(num_images), batch_size or num_images
        step_N = 1 + (_uniform(generator, "partners", num_images, 1)[:, 0] * (batch - 1)).long()
        partner_N = place_N - place_N % batch + (place_N + step_N) % batch
        partners = partner_N, draws[partner_N]
    return replace(draws, others=recipe.others, numbers=tuple(numbers), partners=partners)


def _uniform(generator: torch.Generator, name: str, *shape: int) -> Tensor:
    """Numbers in [0, 1) of a stream that the generator's state, which stays, and name decide."""
    (seed,) = torch.randint(2**31, (1,), generator=generator.clone_state()).tolist()
    own = torch.Generator().manual_seed(seed ^ zlib.crc32(name.encode()))
    return torch.rand(shape, generator=own)


def apply(images_NCHW: Tensor, draws: Draws) -> Tensor:
    """Make the drawn view of each image: crop and resize to draws.output_size, flip, jitter, gray,
    blur, solarize. Images of different sizes come as crops, see `Draws.of_crops`.

    Equals torchvision's `resized_crop(antialias=True)`, `horizontal_flip`, `adjust_*`,
    `rgb_to_grayscale`, `gaussian_blur` and `solarize` with the same parameters on float images, up
    to rounding. The blur's kernel is SimCLR's (a tenth of the view, odd, at least 3). Saturation,
    hue and grayscale do nothing on images of other than 3 channels, as in torchvision on 1-channel
    ones; brightness, contrast and solarization do, contrast around the mean of all channels.

    Runs on the images' device. Every subset is known on the host, so nothing waits for a GPU; no
    operation here is lowered to bfloat16 by autocast.

    Args:
        images_NCHW: float in [0, 1], uint8 or uint16, H = W = draws.image_size, else ValueError;
            left unchanged.
        draws: one row an image, else ValueError.

    Returns values in [0, 1], (N, C, output_size, output_size), of the images' dtype (float32 for
    whole numbers) and device; channels_last if they are.
    """
    size, shape = draws.image_size, tuple(images_NCHW.shape)
    if len(shape) != 4 or (shape[0], *shape[2:]) != (len(draws), size, size) or not shape[1]:
        raise ValueError(
            f"images must have shape ({len(draws)}, C, {size}, {size}) for these draws, got {shape}"
        )
    dtype, device = images_NCHW.dtype, images_NCHW.device
    if not dtype.is_floating_point and dtype not in FULL_SCALE:
        raise ValueError(f"images must be floating point in [0, 1], uint8 or uint16, got {dtype}")
    dtype = dtype if dtype.is_floating_point else torch.float32
    # colour operations work on whole channel planes, so only the result takes the layout that
    # convolutions prefer
    is_channels_last = not images_NCHW.is_contiguous() and images_NCHW.is_contiguous(
        memory_format=torch.channels_last
    )
    layout = torch.channels_last if is_channels_last else torch.contiguous_format
    at_once = VALUES_AT_ONCE["cpu" if device.type == "cpu" else "cuda"]
    block = max(1, at_once // (shape[1] * max(size, draws.output_size) ** 2))
    view_shape = (*shape[:2], draws.output_size, draws.output_size)
    view_NCVV = torch.empty(view_shape, dtype=dtype, device=device, memory_format=layout)
    for first in range(0, len(draws), block):
        rows = slice(first, first + block)
        _make(view_NCVV[rows], images_NCHW[rows], draws[rows])
    return view_NCVV


def change(x_NCHW: Tensor, draws: Draws, other_NCHW: Tensor | None = None) -> Tensor:
    """The views that `apply` has made, as the recipe's others leave them, on the same device.

    Args:
        other_NCHW: the views of draws.partners, where there are any.

    Raises PartError where one of them gives another shape, or on a CPU values beyond [0, 1].
    """
    (numbers,) = _ship([draws.numbers], x_NCHW.device, x_NCHW.dtype)
    for (row, function), u_NK in zip(draws.others, numbers, strict=True):
        changed_NCHW = function(x_NCHW, u_NK, *([other_NCHW] if row.mixes else []))
        if changed_NCHW.shape != x_NCHW.shape or changed_NCHW.dtype != x_NCHW.dtype:
            wanted, given = (f"{tuple(x.shape)} {x.dtype}" for x in (x_NCHW, changed_NCHW))
            raise PartError(f"augmentation {row.name}: expected {wanted}, given {given}", row)
        if changed_NCHW.device.type == "cpu" and len(changed_NCHW):  # a GPU would be waited for
            low, high = (end.item() for end in changed_NCHW.aminmax())
            if not -_ROUNDING <= low <= high <= 1 + _ROUNDING:
                wrong = f"expected values in [0, 1], given {low:.3g} to {high:.3g}"
                raise PartError(f"augmentation {row.name}: {wrong}", row)
        x_NCHW = changed_NCHW
    return x_NCHW


def _make(view_NCVV: Tensor, images_NCHW: Tensor, draws: Draws) -> None:
    """As `apply`, into memory of whatever layout.

    In each half of the jitter the images lie sorted by the adjustments that they undergo, and after
    it by what is left to do, so that every operation acts on slices, and only the way from one
    order to the next costs a copy.
    """
    dtype = view_NCVV.dtype
    is_crop_only = not (draws.jitter | draws.gray | draws.blur | draws.solarize).any()
    orders_3N, stops = _orders(draws)
    crops = draws if is_crop_only else draws[orders_3N[0]]
    is_small = draws.output_size < draws.image_size
    resize = _filters(crops) if is_small else _positions(crops)
    rest = [] if is_crop_only else [orders_3N[0], *_rest(draws, orders_3N, stops)]
    resize, rest = _ship([resize, rest], images_NCHW.device, dtype)
    x_NCHW = images_NCHW if is_crop_only else images_NCHW[rest[0]]
    x_NCHW = x_NCHW.to(dtype, memory_format=torch.contiguous_format)
    if images_NCHW.dtype in FULL_SCALE:
        x_NCHW.div_(FULL_SCALE[images_NCHW.dtype])
    resized = image_ops.resize_antialiased if is_small else image_ops.resize
    x_NCHW = resized(x_NCHW, *resize)
    if is_crop_only:
        view_NCVV.copy_(x_NCHW)
        return
    _, moves_3N, factors_24N, weights_MR = rest
    rests_24N = 1.0 - factors_24N
    jitter.adjust_(x_NCHW, factors_24N[0], rests_24N[0], stops[0])
    jitter.hue_(x_NCHW[: stops[0][-1]], factors_24N[0, 3, : stops[0][-1]])
    # the result's memory, as planes
    is_planes = view_NCVV.is_contiguous()
    spare_NCHW = view_NCVV if is_planes else view_NCVV.permute(0, 2, 3, 1).view(x_NCHW.shape)
    torch.index_select(x_NCHW, 0, moves_3N[0], out=spare_NCHW)
    jitter.adjust_(spare_NCHW, factors_24N[1], rests_24N[1], stops[1])
    torch.index_select(spare_NCHW, 0, moves_3N[1], out=x_NCHW)
    _finish_(x_NCHW, weights_MR, stops[2])
    torch.index_select(x_NCHW, 0, moves_3N[2], out=view_NCVV)


def _orders(draws: Draws) -> tuple[Tensor, list[list[int]]]:
    """The three orders that the images are in, (3, N), and in each, how many images have a key
    below 0, 1, ...

    In the first two the key is the place of a half of the jitter in `jitter.WORDS`, beyond all of
    them where there is none. In the last it is the place of (blur, gray, solarize) in a Gray code,
    in which the images that are blurred are neighbours, and so are those turned gray.
    """
    left_N = _GRAY_CODE_8[4 * draws.blur.long() + 2 * draws.gray.long() + draws.solarize.long()]
    num_words = len(jitter.WORDS)
    word_2N = torch.where(draws.jitter, jitter.places(draws.order_N4), num_words)
    key_3N, order_3N = torch.cat([word_2N, left_N[None]]).sort(dim=1, stable=True)
    keys = torch.arange(num_words + 1).expand(3, -1).contiguous()
    return order_3N, torch.searchsorted(key_3N, keys).tolist()


def _rest(draws: Draws, order_3N: Tensor, stops: list[list[int]]) -> tuple[Tensor, Tensor, Tensor]:
    """The draws that follow the resize: the moves to the next order (3, N), the last one
    back to the images' own, the factors of the adjustments in the order of each half of the jitter,
    (2, 4, N), and the weights of the blur.
    """
    place_3N = torch.empty_like(order_3N).scatter_(
        1, order_3N, torch.arange(len(draws)).expand(3, -1)
    )
    moves_3N = torch.cat([place_3N[:2].gather(1, order_3N[1:]), place_3N[2:]])
    sigma_M = draws.sigma[order_3N[2, stops[2][_FIRST_BLURRED] :]]
    weights_MR = _blur_weights(sigma_M, draws.output_size)
    return moves_3N, draws.factor_N4[order_3N[:2]].mT, weights_MR


def _finish_(x_NCHW: Tensor, weights_MR: Tensor, stops: list[int]) -> None:
    """Grayscale, blur and solarization of images in the last order."""
    if stops[6] > stops[2]:
        image_ops.grayscale_(x_NCHW[stops[2] : stops[6]])
    if stops[8] > stops[_FIRST_BLURRED]:
        image_ops.blur_(x_NCHW[stops[_FIRST_BLURRED] :], weights_MR)
    for start, stop in ((stops[1], stops[3]), (stops[5], stops[7])):
        if stop > start:
            image_ops.solarize_(x_NCHW[start:stop])


def _ship(
    groups: Sequence[Sequence[Tensor]], device: torch.device, dtype: torch.dtype
) -> list[list[Tensor]]:
    """The tensors on the images' device, floats in the images' type; one copy for each type.

    The copies start from pinned memory, so that they wait for nothing that the GPU has yet to do.
    """
    cast = [[t.to(dtype) if t.is_floating_point() else t for t in group] for group in groups]
    if device.type == "cpu":
        return cast
    moved: dict[int, Tensor] = {}
    tensors = [t for group in cast for t in group]
    for kind in {t.dtype for t in tensors}:
        alike = [t for t in tensors if t.dtype == kind]
        packed = torch.cat([t.flatten() for t in alike])
        packed = packed.pin_memory() if device.type == "cuda" else packed
        parts = packed.to(device, non_blocking=True).split([t.numel() for t in alike])
        moved |= {id(t): part.view(t.shape) for t, part in zip(alike, parts, strict=True)}
    return [[moved[id(t)] for t in group] for group in cast]


def _crops(
    u_2NA: Tensor, u_2N: Tensor, bounds: tuple[float, float], size_2N: Tensor
) -> tuple[Tensor, Tensor]:
    """Turn uniform numbers into crops, as `rectangles`; where none fits, torchvision takes the
    largest centred crop of an allowed ratio, whatever its area: for a square, the whole image.

    Returns corners (top, left) and sides (height, width), int64 (2, N).
    """
    corner_2N, side_2N, is_lost_N = rectangles(
        u_2NA, u_2N, size_2N, areas=bounds, stretch=(0.0, math.log(4 / 3)), least=1, most_2N=size_2N
    )
    # of a height and a width, at most 4/3 of the other
    widest_2N = torch.minimum(size_2N, (size_2N.flip(0) * (4 / 3)).round().long())
    side_2N = torch.where(is_lost_N, widest_2N, side_2N)
    return torch.where(is_lost_N, (size_2N - side_2N) // 2, corner_2N), side_2N


def _jitter_factors(u_N4: Tensor, recipe: Recipe) -> Tensor:
    ranges = (
        recipe.jitter_brightness, recipe.jitter_contrast, recipe.jitter_saturation,
        recipe.jitter_hue,
    )  # fmt: skip
    range_4 = torch.tensor([r * recipe.jitter_strength for r in ranges], dtype=torch.float64)
    neutral_4 = torch.tensor([1.0, 1.0, 1.0, 0.0], dtype=torch.float64)
    low_4, high_4 = neutral_4 - range_4, neutral_4 + range_4
    # a strength above 1.25 would reach negative brightness; torchvision cuts there as well
    low_4[:3].clamp_(min=0.0)
    return (low_4 + (high_4 - low_4) * u_N4).float()


def _positions(draws: Draws) -> list[Tensor]:
    """Arguments of `image_ops.resize`, for views no smaller than the image."""
    size, start_2N1 = draws.output_size, torch.stack([draws.j, draws.i])[:, :, None]  # x before y
    length_2N1 = torch.stack([draws.w, draws.h])[:, :, None]
    position_2NV = (torch.arange(size) + 0.5) * (length_2N1.double() / size) - 0.5
    # clamped to the crop, not the image: a resized crop repeats its own border and never sees the
    # pixels around it
    position_2NV.clamp_(min=0.0).clamp_(max=length_2N1 - 1.0).add_(start_2N1)
    _flip_(position_2NV, draws)
    # from pixels to [-1, 1]
    return [position_2NV.mul_(2.0).add_(1.0).div_(draws.image_size).sub_(1.0)]


def _filters(draws: Draws) -> list[Tensor]:
    """Arguments of `image_ops.resize_antialiased`, for views smaller than the image."""
    size, start_2N = draws.output_size, torch.stack([draws.j, draws.i])
    length_2N = torch.stack([draws.w, draws.h])
    # each crop is cut out in a window as long as the longest side of any, so that small crops make
    # small matrices
    window = int(length_2N.max()) if len(draws) else 1
    corner_2N = start_2N.clamp(max=draws.image_size - window)
    # positions count from the crop's first pixel, as where it lies in the window depends on the
    # rest of the batch
    pixel_2NL = torch.arange(window) - (start_2N - corner_2N)[:, :, None]
    is_crop_2NL = (pixel_2NL >= 0) & (pixel_2NL < length_2N[:, :, None])
    scale_2N1 = length_2N[:, :, None].double() / size
    centre_2NV = (torch.arange(size) + 0.5) * scale_2N1 - 0.5
    _flip_(centre_2NV, draws)
    slope_2N1 = 1.0 / scale_2N1.clamp(min=1.0)
    return [corner_2N, pixel_2NL.double(), is_crop_2NL.double(), centre_2NV, slope_2N1]


def _flip_(position_2NV: Tensor, draws: Draws) -> None:
    position_2NV[0] = torch.where(draws.flip[:, None], position_2NV[0].flip(1), position_2NV[0])


def _blur_weights(sigma_M: Tensor, size: int) -> Tensor:
    """Gaussian weights (M, R) of the centre and of one side of each kernel."""
    radius = min(max(1, size // 20), size - 1)  # a border of V pixels cannot be reflected
    weight_MR = (-0.5 * (torch.arange(radius + 1) / sigma_M[:, None].double()) ** 2).exp()
    return weight_MR / (weight_MR[:, :1] + 2.0 * weight_MR[:, 1:].sum(dim=1, keepdim=True))
