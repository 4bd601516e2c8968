"""`augment` against torchvision: the same pictures from the same numbers, and numbers of the same
distribution.
"""

import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from scipy import stats
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torchvision.transforms import RandomResizedCrop
from torchvision.transforms.v2 import functional as tv

from clsweep.data.augment import _DRAWN_FIELDS, Draws, Recipe, apply, draw_views
from tests.data.launches import Launches

pytestmark = pytest.mark.usefixtures("one_thread")

CROP_ONLY = Recipe().crop_only()
UNTOUCHED = replace(CROP_ONLY, crop_scale=1.0)
ALWAYS = Recipe(flip_prob=1.0, jitter_prob=1.0, gray_prob=1.0, blur_prob=1.0, solarize_prob=1.0)
RECIPES = {
    "crop": CROP_ONLY,
    "flip": replace(UNTOUCHED, flip_prob=1.0),
    "jitter": replace(UNTOUCHED, jitter_prob=1.0),
    "strong_jitter": replace(UNTOUCHED, jitter_prob=1.0, jitter_strength=2.0),
    "gray": replace(UNTOUCHED, gray_prob=1.0),
    "blur": replace(UNTOUCHED, blur_prob=1.0),
    "solarize": replace(UNTOUCHED, solarize_prob=1.0),
    "simclr": Recipe(),
    "byol_second": Recipe(
        jitter_saturation=0.4, jitter_strength=0.5, blur_prob=0.5, solarize_prob=0.5
    ),
    "everything": ALWAYS,
}


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def pictures(num_images: int, num_channels: int, size: int) -> Tensor:
    """Noise, with gray, black, white and primary pixels, at which hue and clamping have their
    corners.
    """
    x_NCHW = torch.rand(num_images, num_channels, size, size, generator=generator(1))
    corner = torch.rand(num_images, 1, size, size, generator=generator(2))
    x_NCHW = torch.where(corner < 0.3, x_NCHW.round(), x_NCHW)
    return torch.where(corner > 0.8, x_NCHW[:, :1], x_NCHW)


def torchvision_view(x_CHW: Tensor, draws: Draws, n: int) -> Tensor:
    """The slow reference: one image at a time, through torchvision."""
    size = draws.output_size
    i, j, h, w = (int(side[n]) for side in (draws.i, draws.j, draws.h, draws.w))
    x_CHW = tv.resized_crop(x_CHW, i, j, h, w, [size, size], antialias=True)
    if draws.flip[n]:
        x_CHW = tv.horizontal_flip(x_CHW)
    if draws.jitter[n]:
        adjust = (tv.adjust_brightness, tv.adjust_contrast, tv.adjust_saturation, tv.adjust_hue)
        for operation in draws.order_N4[n].tolist():
            x_CHW = adjust[operation](x_CHW, draws.factor_N4[n, operation].item())
    if draws.gray[n]:
        x_CHW = tv.rgb_to_grayscale(x_CHW, num_output_channels=len(x_CHW))
    if draws.blur[n]:
        kernel = max(3, 2 * (size // 20) + 1)
        x_CHW = tv.gaussian_blur(x_CHW, [kernel, kernel], [draws.sigma[n].item()] * 2)
    if draws.solarize[n]:
        x_CHW = tv.solarize(x_CHW, 0.5)
    return x_CHW


def assert_torchvisions(x_NCHW: Tensor, recipe: Recipe, tolerance: float, **given: Tensor) -> None:
    draws = replace(draw_views(recipe, len(x_NCHW), x_NCHW.shape[-1], generator(3)), **given)
    expected = [torchvision_view(x_CHW, draws, n) for n, x_CHW in enumerate(x_NCHW)]
    torch.testing.assert_close(
        apply(x_NCHW, draws), torch.stack(expected), rtol=0.0, atol=tolerance
    )


@pytest.mark.parametrize("name", RECIPES)
@pytest.mark.parametrize(("num_channels", "size"), [(3, 32), (1, 8), (3, 45)])
def test_a_view_equals_torchvision_image_by_image(name, num_channels, size):
    # a full-strength jitter multiplies the 2e-6 by which float32 sampling positions are off where S
    # is no power of two
    tolerance = 1e-5 if size in (8, 32) else 5e-5
    assert_torchvisions(pictures(30, num_channels, size), RECIPES[name], tolerance)


@pytest.mark.parametrize("jittered", [slice(0, 24), slice(5, 6), slice(3, 24, 4)])
def test_each_order_of_the_jitter_is_torchvisions(jittered):
    """Whether all orders are in the batch, one or some; the other images are left alone."""
    order_24_4 = torch.tensor(list(itertools.permutations(range(4))))
    jitter = torch.zeros(24, dtype=torch.bool)
    jitter[jittered] = True
    given = {"order_N4": order_24_4, "jitter": jitter}
    assert_torchvisions(pictures(24, 3, 32), RECIPES["jitter"], 1e-5, **given)


SIZES = [(3, 224, 96), (3, 32, 16), (1, 32, 16), (1, 8, 4), (1, 8, 6), (3, 16, 32), (1, 28, 224)]
SIZES += [(3, 32, 224), (3, 45, 2), (1, 1, 3)]


@pytest.mark.parametrize("name", ["crop", "everything"])
@pytest.mark.parametrize(("crop_scale", "crop_max"), [(0.08, 1.0), (0.05, 0.14)])
@pytest.mark.parametrize(("num_channels", "size", "output_size"), SIZES)
def test_a_view_of_another_size_equals_torchvision_image_by_image(
    name, crop_scale, crop_max, num_channels, size, output_size
):
    num_images = 8 if 224 in (size, output_size) else 30
    crop = {"crop_scale": crop_scale, "crop_max": crop_max, "output_size": output_size}
    recipe = replace(RECIPES[name], **crop, flip_prob=0.5)
    # with 224 pixels torchvision's float32 filter positions are off by 8e-6 themselves, and a
    # jitter multiplies that
    tolerance = 5e-5 if name != "crop" else 2e-5 if 224 in (size, output_size) else 1e-6
    assert_torchvisions(pictures(num_images, num_channels, size), recipe, tolerance)


@pytest.mark.parametrize("crop_max", [0.14, 1.0])
@pytest.mark.parametrize(("size", "output_size"), [(224, 96), (8, 6), (16, 32)])
def test_a_resize_is_torchvisions_up_to_rounding_alone(size, output_size, crop_max):
    recipe = replace(CROP_ONLY, crop_max=crop_max, output_size=output_size)
    assert_torchvisions(pictures(10, 3, size).double(), recipe, 1e-12)


def crops(recipe: Recipe, height: int, width: int, num: int) -> Iterator[list[Any]]:
    """Our sample of each measure of a crop, and torchvision's."""
    size: Any = height
    if height != width:
        size = torch.tensor([[height], [width]]).expand(2, num)
    draws = draw_views(recipe, num, size, generator(4))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        blank, scale = torch.empty(1, height, width), [recipe.crop_scale, recipe.crop_max]
        drawn = [RandomResizedCrop.get_params(blank, scale, [3 / 4, 4 / 3]) for _ in range(num)]
    assert int((draws.i + draws.h).max()) <= height
    assert int((draws.j + draws.w).max()) <= width
    ours = torch.stack([draws.i, draws.j, draws.h, draws.w]).double()
    for i, j, h, w in (ours, torch.tensor(drawn, dtype=torch.float64).T):
        yield [x.numpy() for x in (i, j, h, w, h * w, h / w, i + h / 2, j + w / 2)]


AREAS = [(0.08, 1.0), (0.2, 1.0), (1.0, 1.0), (0.05, 0.14), (0.001, 0.002)]
# of the last no crop of 8 x 8 exists: torchvision takes the whole image, beyond crop_max
SQUARES = [(size, size, areas) for size in (8, 32) for areas in AREAS]
# also where no crop of an allowed ratio fits, and the middle is taken
PICTURES = [(*size, (low, 1.0)) for size in ((64, 40), (20, 100), (90, 20)) for low in (0.08, 0.5)]


@pytest.mark.parametrize(("height", "width", "areas"), [*SQUARES, *PICTURES])
def test_crops_have_torchvisions_distribution(height, width, areas):
    recipe = replace(CROP_ONLY, crop_scale=areas[0], crop_max=areas[1], output_size=8)
    for ours, theirs in zip(*crops(recipe, height, width, 2000), strict=True):
        assert stats.ks_2samp(ours, theirs, method="asymp").pvalue > 1e-3


def test_jitter_orders_are_uniform_over_the_permutations():
    order_N4 = draw_views(Recipe(), 24_000, 8, generator()).order_N4
    assert (order_N4.sort(dim=1).values == torch.arange(4)).all()
    counts = (order_N4 * torch.tensor([64, 16, 4, 1])).sum(dim=1).unique(return_counts=True)[1]
    assert len(counts) == 24
    assert stats.chisquare(counts.numpy()).pvalue > 0.01


@pytest.mark.parametrize("strength", [0.5, 1.25, 2.0])
@pytest.mark.parametrize("ranges", [(0.8, 0.8, 0.8, 0.2), (0.5, 0.1, 0.3, 0.2)])
def test_factors_are_uniform_between_color_jitters_bounds(ranges, strength):
    """No brightness is negative, where the strongest of 0.8 would begin at 1 - 1.6."""
    names = ("jitter_brightness", "jitter_contrast", "jitter_saturation", "jitter_hue")
    recipe = Recipe(jitter_strength=strength, **dict(zip(names, ranges, strict=True)))
    draws = draw_views(recipe, 10_000, 8, generator(1))
    for column, middle, reach in zip(draws.factor_N4.T, (1.0, 1.0, 1.0, 0.0), ranges, strict=True):
        low = max(0.0 if middle else -1.0, middle - strength * reach)
        inside = stats.uniform(low, middle + strength * reach - low)
        assert stats.kstest(column.numpy(), inside.cdf).pvalue > 0.01
    assert stats.kstest(draws.sigma.numpy(), stats.uniform(0.1, 1.9).cdf).pvalue > 0.01


def test_probabilities_are_honoured_and_independent():
    recipe = Recipe(
        flip_prob=0.5, jitter_prob=0.8, gray_prob=0.2, blur_prob=0.35, solarize_prob=0.1
    )
    draws = draw_views(recipe, 20_000, 8, generator())
    masks = torch.stack([draws.flip, draws.jitter, draws.gray, draws.blur, draws.solarize]).double()
    for mask, prob in zip(masks, (0.5, 0.8, 0.2, 0.35, 0.1), strict=True):
        assert stats.binomtest(int(mask.sum()), 20_000, prob).pvalue > 0.01
    assert (masks.corrcoef() - torch.eye(5)).abs().max() < 0.03


@pytest.mark.parametrize(
    ("first", "second", "differing"),
    [
        (Recipe(), replace(Recipe(), solarize_prob=0.5), {"solarize"}),
        (Recipe(), replace(Recipe(), jitter_saturation=0.1), {"factor_N4"}),
        (Recipe(), replace(Recipe(), output_size=12), set()),
        (Recipe(), replace(Recipe(), crop_max=0.14), {*"ijhw"}),
        (CROP_ONLY, replace(ALWAYS, jitter_strength=0.5),
         {"flip", "jitter", "gray", "blur", "solarize", "factor_N4"}),
    ],
)  # fmt: skip
def test_recipes_share_the_draws_they_have_in_common(first, second, differing):
    """Of another saturation, only the saturation is another."""
    generators = [generator(), generator()]
    a, b = (draw_views(r, 50, 32, g) for r, g in zip((first, second), generators, strict=True))
    names = {n for n in _DRAWN_FIELDS if not torch.equal(getattr(a, n), getattr(b, n))}
    assert names == differing
    if differing == {"factor_N4"}:
        assert torch.equal(a.factor_N4[:, [0, 1, 3]], b.factor_N4[:, [0, 1, 3]])
    assert torch.equal(*(g.get_state() for g in generators))


@pytest.mark.parametrize("output_size", [None, 10, 24])
@pytest.mark.parametrize("num_channels", [1, 3])
def test_workers_shares_make_up_the_global_batch(num_channels, output_size):
    x_NCHW = pictures(40, num_channels, 16)
    draws = draw_views(replace(Recipe(), output_size=output_size), 40, 16, generator())
    shares = [slice(0, 10), slice(10, 25), slice(25, 25), slice(25, 40)]
    parts = [apply(x_NCHW[share], draws[share]) for share in shares]
    assert [len(draws[share]) for share in shares] == [10, 15, 0, 15]
    sizes = {(part.image_size, part.output_size) for part in map(draws.__getitem__, shares)}
    assert sizes == {(16, output_size or 16)}
    whole = apply(x_NCHW, draws)
    torch.testing.assert_close(torch.cat(parts), whole, rtol=0.0, atol=1e-6)
    rows = torch.tensor([3, 39, 4, 4, 17])  # in any order
    torch.testing.assert_close(apply(x_NCHW[rows], draws[rows]), whole[rows], rtol=0.0, atol=1e-6)


@pytest.mark.parametrize("recipe", ["simclr", "byol_second", "crop"])
@pytest.mark.parametrize(("num_channels", "size"), [(3, 32), (1, 8)])
def test_joined_views_are_bit_for_bit_those_made_apart(recipe, num_channels, size):
    x_NCHW, g = pictures(50, num_channels, size), generator()
    views = [
        draw_views(each, 50, size, g) for each in (RECIPES[recipe], RECIPES["everything"], Recipe())
    ]
    joined = Draws.join(views)
    assert (len(joined), joined.image_size, joined.output_size) == (150, size, size)
    assert torch.equal(
        apply(x_NCHW.repeat(3, 1, 1, 1), joined), torch.cat([apply(x_NCHW, view) for view in views])
    )


@pytest.mark.parametrize("output_size", [None, 40])
def test_a_large_batch_is_made_in_blocks_that_do_not_show(output_size):
    x_NCHW = pictures(130, 3, 64)
    draws = draw_views(replace(Recipe(), output_size=output_size), 130, 64, generator())
    last = x_NCHW.contiguous(memory_format=torch.channels_last)
    assert apply(last, draws).is_contiguous(memory_format=torch.channels_last)
    one_by_one = torch.cat([apply(x_NCHW[n : n + 1], draws[n : n + 1]) for n in range(130)])
    for view in (apply(x_NCHW, draws), apply(last, draws)):
        torch.testing.assert_close(view, one_by_one, rtol=0.0, atol=1e-5)


@pytest.mark.parametrize("output_size", [None, 12])
@pytest.mark.parametrize(("dtype", "top"), [(torch.uint8, 255), (torch.uint16, 65535)])
def test_whole_numbers_are_images_in_so_many_steps(dtype, top, output_size):
    levels_NCHW = (pictures(30, 3, 16) * top).to(dtype)
    draws = draw_views(replace(Recipe(), output_size=output_size), 30, 16, generator())
    view = apply(levels_NCHW, draws)
    assert view.dtype == torch.float32
    assert torch.equal(view, apply(levels_NCHW.float() / top, draws))
    last = levels_NCHW.contiguous(memory_format=torch.channels_last)
    assert apply(last, draws).is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(apply(last, draws), view)


class NoMasks(TorchDispatchMode):
    """Fails where a mask is the index of a tensor on the meta device. All else that waits for a GPU
    fails there by itself, as it has no values.
    """

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        tensors = [t for t in tree_leaves((args, kwargs)) if isinstance(t, Tensor)]
        if func.name().startswith(("aten::index.", "aten::index_put")):
            on_device = any(t.device.type == "meta" for t in tensors)
            masks = [t for t in tensors[1:] if t.dtype in (torch.bool, torch.uint8)]
            assert not (on_device and masks), "a mask waits for the device"
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("dtype", [torch.float32, torch.uint8])
@pytest.mark.parametrize("output_size", [None, 12, 48])
def test_nothing_waits_for_the_device(output_size, dtype):
    recipe = Recipe(solarize_prob=0.5, output_size=output_size)
    draws = draw_views(recipe, 40, 32, generator())
    with NoMasks():
        view = apply(torch.empty(40, 3, 32, 32, dtype=dtype, device="meta"), draws)
    assert view.shape == (40, 3, output_size or 32, output_size or 32)
    assert view.device.type == "meta"


def test_a_batch_of_views_takes_few_operations():
    """Of the whole recipe, with every order of the jitter."""
    images = torch.empty(2048, 3, 32, 32, dtype=torch.uint8, device="meta")
    draws = draw_views(replace(Recipe(), solarize_prob=0.5), 2048, 32, generator())
    apply(images, draws)  # some tables are made once
    with Launches() as launches:
        apply(images, draws)
    assert 50 < launches.count <= 125


@pytest.mark.parametrize("sizes", [(224, 224), (224, 96), (96, 224)])
def test_what_a_large_batch_needs_beside_its_views_is_bounded(sizes):
    """On a device other than a CPU: 400 views of 224 x 224 are 241 MB, of 96 x 96 44 MB."""
    size, output_size = sizes
    images = torch.empty(400, 3, size, size, dtype=torch.uint8, device="meta")
    with Launches() as launches:
        view = apply(images, draw_views(Recipe(output_size=output_size), 400, size, generator()))
    assert launches.peak_bytes - view.numel() * 4 < 450e6


@pytest.mark.parametrize("output_size", [None, 1, 5, 40])
@pytest.mark.parametrize(("num_channels", "size"), [(3, 32), (1, 8), (3, 1), (1, 2)])
def test_views_are_finite_within_zero_and_one_and_leave_the_images_alone(
    num_channels, size, output_size
):
    x_NCHW = pictures(300, num_channels, size)
    before = x_NCHW.clone()
    recipe = Recipe(jitter_strength=2.5, output_size=output_size)
    view = apply(x_NCHW, draw_views(recipe, 300, size, generator()))
    assert view.isfinite().all()
    assert 0.0 <= view.min() <= view.max() <= 1.0
    assert view.shape == (300, num_channels, output_size or size, output_size or size)
    assert view.dtype == x_NCHW.dtype
    assert torch.equal(x_NCHW, before)


@pytest.mark.parametrize("output_size", [None, 20])
def test_rounding_does_not_brighten_white(output_size):
    recipe = replace(CROP_ONLY, blur_prob=0.5, output_size=output_size)
    assert apply(torch.ones(300, 3, 45, 45), draw_views(recipe, 300, 45, generator())).max() <= 1.0


@pytest.mark.parametrize("crop_max", [0.14, 1.0])
@pytest.mark.parametrize("output_size", [None, 12])
def test_the_memory_layout_is_kept_and_does_not_matter(output_size, crop_max):
    x_NCHW = pictures(20, 3, 16)
    recipe = Recipe(output_size=output_size, crop_max=crop_max)
    draws = draw_views(recipe, 20, 16, generator())
    view = apply(x_NCHW.contiguous(memory_format=torch.channels_last), draws)
    assert view.is_contiguous(memory_format=torch.channels_last)
    assert apply(x_NCHW, draws).is_contiguous()
    torch.testing.assert_close(view, apply(x_NCHW, draws), rtol=0.0, atol=1e-6)


@pytest.mark.parametrize("output_size", [None, 12])
def test_autocast_does_not_lower_the_precision(output_size):
    x_NCHW = pictures(40, 3, 32)
    draws = draw_views(Recipe(output_size=output_size), 40, 32, generator())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        view = apply(x_NCHW, draws)
    torch.testing.assert_close(view, apply(x_NCHW, draws), rtol=0.0, atol=1e-6)


@pytest.mark.parametrize(
    "shape", [(4, 3, 8, 9), (4, 3, 16, 16), (3, 3, 8, 8), (4, 0, 8, 8), (3, 8, 8), (4, 3, 8, 8)]
)
def test_images_that_do_not_fit_the_draws_are_refused(shape):
    message = "int64" if shape == (4, 3, 8, 8) else r"must have shape \(4, C, 8, 8\)"
    with pytest.raises(ValueError, match=message):
        apply(torch.zeros(shape, dtype=torch.int64), draw_views(Recipe(), 4, 8, generator()))


@pytest.mark.parametrize("num_channels", [2, 5])
def test_colours_of_other_channels_are_left_alone(num_channels):
    """Saturation, hue and grayscale need red, green and blue; brightness does not."""
    x_NCHW = pictures(20, num_channels, 16)
    recipe = replace(UNTOUCHED, flip_prob=0.0, gray_prob=1.0)
    assert torch.allclose(apply(x_NCHW, draw_views(recipe, 20, 16, generator())), x_NCHW, atol=1e-6)
    draws = draw_views(replace(UNTOUCHED, flip_prob=0.0, jitter_prob=1.0), 20, 16, generator())
    neutral = torch.tensor([1.0, 1.0, 1.0, 0.0])
    hue = replace(draws, factor_N4=torch.where(torch.arange(4) > 1, draws.factor_N4, neutral))
    assert torch.allclose(apply(x_NCHW, hue), x_NCHW, atol=1e-6)
    bright = replace(draws, factor_N4=torch.where(torch.arange(4) < 1, draws.factor_N4, neutral))
    expected = (x_NCHW * draws.factor_N4[:, :1, None, None]).clamp(0, 1)
    assert torch.allclose(apply(x_NCHW, bright), expected, atol=1e-6)
