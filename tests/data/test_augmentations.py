"""The catalog's augmentations against torchvision and a loop over the images, and how a batch of
them is drawn, shared and mixed.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from scipy import special
from torch import Tensor
from torchvision.transforms.v2 import functional as tv

from clsweep.catalog import Component
from clsweep.catalog.plugin_guard import PartError
from clsweep.data import augmentations
from clsweep.data.augment import (
    _DRAWN_FIELDS,
    Augmentation,
    Draws,
    Recipe,
    apply,
    change,
    draw_views,
)
from clsweep.data.augmentations import gaussian_noise, mixup, normal, random_erasing
from clsweep.data.datasets import Split
from clsweep.data.image_files import Pictures
from clsweep.train.images import _drawn, on_device
from tests.contracts.combinations import small_config, some_digits

pytestmark = pytest.mark.usefixtures("one_thread")

ERASING: dict[str, float] = {"erase_prob": 0.6, "erase_max": 0.33}


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def numbers(num_images: int, num_draws: int, seed: int = 0) -> Tensor:
    return torch.rand(num_images, num_draws, generator=generator(seed))


def erased(x_CHW: Tensor, u_K: list[float], prob: float, low: float, high: float) -> Tensor:
    """One image by the lines of torchvision's `RandomErasing.make_params`, with these numbers."""
    height, width = x_CHW.shape[1:]
    for attempt in range(10):
        area = height * width * (low + (high - low) * u_K[attempt])
        # of width to height, from 1/3.3 to 1/0.3
        ratio = math.exp(-math.log(3.3) + (math.log(3.3) - math.log(0.3)) * u_K[10 + attempt])
        h, w = round(math.sqrt(area / ratio)), round(math.sqrt(area * ratio))
        if h < height and w < width:
            i, j = (
                int(u * (n + 1)) for u, n in zip(u_K[20:], (height - h, width - w), strict=False)
            )
            return tv.erase(x_CHW, i, j, h, w, torch.zeros(1)) if u_K[22] < prob else x_CHW
    return x_CHW


@pytest.mark.parametrize("shape", [(3, 32, 32), (1, 8, 8), (5, 15, 15)])
@pytest.mark.parametrize("areas", [(0.02, 0.33), (0.9, 1.0), (0.02, 0.02)])
def test_erasing_is_a_loop_over_the_images(shape, areas, monkeypatch):
    x_NCHW, u_NK = torch.rand(300, *shape, generator=generator(1)), numbers(300, 23)
    if areas[0] != 0.02:
        monkeypatch.setattr(augmentations, "LEAST_ERASED", areas[0])
    actual = random_erasing(x_NCHW, u_NK, erase_prob=0.6, erase_max=areas[1])
    loop = [erased(x, u, 0.6, *areas) for x, u in zip(x_NCHW, u_NK.tolist(), strict=True)]
    assert torch.equal(actual, torch.stack(loop))


def test_noise_has_no_infinity():
    """These numbers have all bits of one pixel set, where a quantile may be infinite."""
    x_NCHW = normal(torch.tensor([[8637495, 1279306]]) / 2**24, torch.Size((3, 32, 32)))
    assert x_NCHW.flatten().argmax() == 2604
    assert 5 < x_NCHW.max() < 6


def _hashed(x: np.ndarray) -> np.ndarray:
    """lowbias32 as its author writes it, in uint32."""
    x = x ^ (x >> np.uint32(16))
    x = x * np.uint32(0x7FEB352D)
    x = x ^ (x >> np.uint32(15))
    x = x * np.uint32(0x846CA68B)
    return x ^ (x >> np.uint32(16))


def test_noise_is_a_loop_over_the_images():
    """Integers decide it, the same on every device, then the quantile function of scipy."""
    x_NCHW, u_NK = torch.rand(40, 2, 5, 5, generator=generator(1)), numbers(40, 2)
    actual = gaussian_noise(x_NCHW, u_NK, noise_std=0.3)
    for x_CHW, u_K, y_CHW in zip(x_NCHW, u_NK.double().tolist(), actual, strict=True):
        first, second = u_K
        key = _hashed(_hashed(np.array([first * 2**24], np.uint32)) ^ np.uint32(second * 2**24))
        bits = _hashed(_hashed(np.arange(50, dtype=np.uint32)) ^ key) >> np.uint32(9)
        noise = special.ndtri((bits + 0.5) / 2**23).reshape(2, 5, 5)
        expected = x_CHW.numpy() + 0.3 * noise
        np.testing.assert_allclose(y_CHW, np.clip(expected, 0, 1), atol=1e-5)


def others(*names: str) -> tuple[Augmentation, ...]:
    every: dict[str, Any] = {
        "erase": (lambda x, u: random_erasing(x, u, **ERASING), 23),
        "noise": (lambda x, u: gaussian_noise(x, u, noise_std=0.1), 2),
        "mix": (lambda x, u, other: mixup(x, u, other, mixup_min=0.4), 1, True),
        "mix_too": (lambda x, u, other: mixup(x, u, other, mixup_min=0.0), 1, True),
    }
    return tuple(one(name, *every[name]) for name in names)


def one(name: str, change: Any, num_draws: int, mixes: bool = False) -> Augmentation:
    own = {"num_draws": num_draws, "mixes": mixes, "source": "-", "doc": "-"}
    return Component(part="augmentation", name=name, **own), change


def test_what_follows_a_recipe_changes_no_other_draw():
    """Neither of the recipe nor of each other, nor of the next views."""
    given = [(), ("noise",), ("erase", "noise", "mix")]
    generators = [generator() for _ in given]
    draws = [
        draw_views(Recipe(others=others(*names)), 48, 32, g, 16)
        for names, g in zip(given, generators, strict=True)
    ]
    for name in _DRAWN_FIELDS:
        assert all(torch.equal(getattr(each, name), getattr(draws[0], name)) for each in draws)
    assert all(torch.equal(g.get_state(), generators[0].get_state()) for g in generators)
    assert torch.equal(draws[1].numbers[0], draws[2].numbers[1])
    assert [tuple(u_NK.shape) for u_NK in draws[2].numbers] == [(48, 23), (48, 2), (48, 1)]
    both = draw_views(Recipe(others=others("mix", "mix_too")), 48, 32, generator(), 16)
    assert torch.equal(both.numbers[0], draws[2].numbers[2])
    assert not torch.equal(*both.numbers)
    again = draw_views(Recipe(others=others("noise")), 48, 32, generators[0])
    assert not torch.equal(again.numbers[0], draws[1].numbers[0])
    assert Recipe(others=others("noise")).crop_only().others == ()


@pytest.mark.parametrize(("num", "batch"), [(48, 16), (30, 0), (6, 2), (3, 1)])
def test_partners_are_others_of_the_same_batch(num, batch):
    actual: dict[int, set[int]] = {n: set() for n in range(num)}
    for seed in range(300):
        drawn = draw_views(Recipe(others=others("mix")), num, 8, generator(seed), batch)
        assert drawn.partners is not None
        partner_N, their_draws = drawn.partners
        assert torch.equal(their_draws.factor_N4, drawn.factor_N4[partner_N])
        for n, partner in enumerate(partner_N.tolist()):
            actual[n].add(partner)
    size = batch or num
    for n, partners in actual.items():
        same = set(range(n // size * size, n // size * size + size))
        assert partners == (same - {n} or {n})


def test_a_trial_mixes_within_its_batches():
    """Of which one block of draws holds several."""
    parts = {"framework": "simclr", "loss": "dcl", "regularizer": "none", "views": "two"}
    config = small_config(parts, augmentation="mixup")
    ((block, labels),) = _drawn(torch.arange(48), some_digits(48), config, generator())
    assert len(labels) == 3
    for view in block.draws:
        assert view.partners is not None
        assert torch.equal(view.partners[0] // 16, torch.arange(48) // 16)


@pytest.mark.parametrize("kept_whole", [False, True])
def test_mixed_views_are_a_loop_over_the_images(kept_whole):
    """Each with the view of its partner as the recipe makes that, in any order and share."""
    images = _pictures() if kept_whole else some_digits(40)
    rows = torch.randperm(len(images), generator=generator(5))[:12]
    recipe = Recipe(others=others("erase", "mix", "mix_too"), output_size=10)
    draws = images.draw([recipe, replace(recipe, output_size=8), Recipe()], rows, generator(1), 6)
    plain = [replace(d, others=(), numbers=(), partners=None) for d in draws]
    made = images.views(rows, draws)
    assert torch.equal(made[2], images.views(rows, plain)[2])
    for view, before, after in zip(draws[:2], plain, made, strict=False):
        assert view.partners is not None
        assert set(view.partners[0][:6].tolist()) <= set(rows[:6].tolist())
        for n, row in enumerate(rows):
            (x,) = images.views(row[None], [before[[n]]])
            (partner,) = images.views(view.partners[0][n][None], [view.partners[1][[n]]])
            erasing, *mixing = (u_NK[n : n + 1] for u_NK in view.numbers)
            x = images.normalise(random_erasing(_unit(images, x), erasing, **ERASING))
            for u_1K, least in zip(mixing, (0.4, 0.0), strict=True):
                share = 1 - (1 - least) * float(u_1K)
                x = share * x + (1 - share) * partner
            torch.testing.assert_close(after[n], x[0], rtol=0, atol=1e-5)
    some, nothing = torch.tensor([7, 2, 3]), torch.tensor([], dtype=torch.int64)
    for part, whole in zip(images.views(rows[some], [d[some] for d in draws]), made, strict=True):
        torch.testing.assert_close(part, whole[some], rtol=0, atol=1e-6)
    if not kept_whole:
        assert [len(v) for v in images.views(rows[nothing], [d[nothing] for d in draws])] == [0] * 3


def _unit(images: Any, x_NCHW: Tensor) -> Tensor:
    """As it was before it was standardised."""
    return (x_NCHW * images.std_1C11 + images.mean_1C11)[:, : images.mean_1C11.shape[1]]


def _pictures() -> Any:
    rng = np.random.default_rng(0)
    sizes = rng.integers(9, 30, (20, 2))
    pixels = rng.integers(0, 256, int(sizes.prod(1).sum()) * 3, dtype=np.uint8)
    split = Split(Pictures(pixels, sizes, 3), np.arange(20), np.arange(20))
    return replace(on_device(split, split, torch.device("cpu")), view_size=12)


SHAPE, RANGE = r"\(4, 3, 8, 8\) torch.float32", r"values in \[0, 1\], given "


@pytest.mark.parametrize(
    ("wrong", "expected"),
    [
        (lambda x, _: x[:, :1], SHAPE),
        (lambda x, _: x.double(), SHAPE),
        (lambda x, _: x[1:], SHAPE),
        (lambda x, _: x.clamp(0, 1) + 2, f"{RANGE}2"),
        (lambda x, _: x * math.nan, f"{RANGE}nan"),
    ],
)
def test_other_than_such_views_is_an_error_that_names_it(wrong, expected):
    recipe = Recipe(others=(one("mine", wrong, 1),))
    drawn: Draws = draw_views(recipe, 4, 8, generator())
    with pytest.raises(PartError, match=f"augmentation mine: expected {expected}"):
        change(apply(torch.rand(4, 3, 8, 8), drawn), drawn)
