"""The named recipes against the torchvision transforms of their papers: every draw, and the views
that come of it.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from scipy import stats
from torch import Tensor
from torchvision.transforms import RandomResizedCrop, v2

from clsweep.catalog import COMPONENT
from clsweep.catalog.ownership import default_of, owned_params
from clsweep.data.augment import Draws, Recipe, apply, draw
from clsweep.objective.views import recipes

pytestmark = pytest.mark.usefixtures("one_thread")

SIZE = 32
PARTS = {"framework": "simclr", "loss": "dcl", "regularizer": "none", "views": "two"}
# (smallest crop, ColorJitter's ranges, probabilities of blur and solarization), as the papers write
# them
PAPERS: dict[tuple[str, int], tuple[float, tuple[float, ...], float, float]] = {
    ("simclr", 0): (0.08, (0.8, 0.8, 0.8, 0.2), 0.5, 0.0),
    ("simclr_cifar", 0): (0.08, (0.4, 0.4, 0.4, 0.1), 0.0, 0.0),
    ("moco_v1", 0): (0.2, (0.4, 0.4, 0.4, 0.4), 0.0, 0.0),
    ("moco_v2", 0): (0.2, (0.4, 0.4, 0.4, 0.1), 0.5, 0.0),
    ("byol", 0): (0.08, (0.4, 0.4, 0.2, 0.1), 1.0, 0.0),
    ("byol", 1): (0.08, (0.4, 0.4, 0.2, 0.1), 0.1, 0.2),
    ("byol_224", 0): (0.08, (0.4, 0.4, 0.2, 0.1), 1.0, 0.0),
    ("byol_224", 1): (0.08, (0.4, 0.4, 0.2, 0.1), 0.1, 0.2),
    ("ecpp_cifar", 0): (0.2, (0.4, 0.4, 0.4, 0.1), 0.0, 0.0),
    ("ecpp_imagenet", 0): (0.2, (0.8, 0.8, 0.8, 0.2), 0.5, 0.1),
}
JITTER_PROB = {"moco_v1": 1.0}  # of the others 0.8
EVERY_VIEW = pytest.mark.parametrize(("name", "view"), PAPERS)
NUM_DRAWS = 4000
NUM_PLAIN = 800  # views of torchvision's


@pytest.fixture(autouse=True)
def seeded() -> Iterator[None]:
    """torchvision draws from the global generator."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        yield


def recipe_of(name: str, view: int) -> Recipe:
    owned = owned_params(PARTS, dataset="cifar10", recipe=name)
    params = {n: default_of(n, PARTS, recipe=name) for n in owned}
    # larger views are compared with torchvision's in test_augment.py
    return recipes({**PARTS, **params, "recipe": name, "view_size": 0})[view]


@functools.cache
def drawn(name: str, view: int) -> Draws:
    return draw(recipe_of(name, view), NUM_DRAWS, SIZE, torch.Generator().manual_seed(2))


def agree(ours: Tensor, theirs: Tensor) -> bool:
    """Two samples of one distribution; of a hundred tests one would fail at another seed's draws at
    0.01.
    """
    return bool(stats.ks_2samp(ours.numpy(), theirs.numpy(), method="asymp").pvalue > 0.001)


def test_every_recipe_of_the_catalog_is_compared() -> None:
    assert {name for name, _ in PAPERS} == set(COMPONENT["recipe"])


@EVERY_VIEW
def test_crops_are_torchvisions(name: str, view: int) -> None:
    blank, draws = torch.empty(1, SIZE, SIZE), drawn(name, view)
    plain = [
        RandomResizedCrop.get_params(blank, [PAPERS[name, view][0], 1.0], [3 / 4, 4 / 3])
        for _ in range(2000)
    ]
    i, j, h, w = torch.tensor(plain, dtype=torch.float64).T
    assert agree((draws.h * draws.w).double(), h * w)
    assert agree(draws.h / draws.w.double(), h / w)
    for ours, theirs in ((draws.i, i), (draws.j, j)):
        assert agree(ours.double(), theirs)


@EVERY_VIEW
def test_jitter_and_blur_have_torchvisions_parameters(name: str, view: int) -> None:
    draws, jitter = drawn(name, view), v2.ColorJitter(*PAPERS[name, view][1])
    plain = [jitter.make_params([]) for _ in range(2000)]
    for column, factor in enumerate(
        ("brightness_factor", "contrast_factor", "saturation_factor", "hue_factor")
    ):
        assert agree(
            draws.factor_N4[:, column].double(), torch.tensor([p[factor] for p in plain]).double()
        )
    orders = torch.stack([p["fn_idx"] for p in plain])
    place_44 = torch.tensor([64, 16, 4, 1])
    counts = [
        (order * place_44).sum(dim=1).unique(return_counts=True)[1].numpy()
        for order in (draws.order_N4, orders)
    ]
    assert stats.chi2_contingency(counts).pvalue > 0.001
    blur = v2.GaussianBlur(3, sigma=(0.1, 2.0))
    assert agree(
        draws.sigma.double(),
        torch.tensor([blur.make_params([])["sigma"][0] for _ in range(2000)]).double(),
    )


@EVERY_VIEW
def test_every_operation_is_as_likely_as_in_the_paper(name: str, view: int) -> None:
    draws, (_, _, blur, solarize) = drawn(name, view), PAPERS[name, view]
    rates = {
        "flip": 0.5,
        "jitter": JITTER_PROB.get(name, 0.8),
        "gray": 0.2,
        "blur": blur,
        "solarize": solarize,
    }
    for flag, rate in rates.items():
        assert stats.binomtest(int(getattr(draws, flag).sum()), NUM_DRAWS, rate).pvalue > 0.001, (
            flag
        )


def torchvision_recipe(name: str, view: int) -> Any:
    crop, jitter, blur, solarize = PAPERS[name, view]
    return v2.Compose(
        [
            v2.RandomResizedCrop(SIZE, scale=(crop, 1.0)),
            v2.RandomHorizontalFlip(),
            v2.RandomApply([v2.ColorJitter(*jitter)], p=JITTER_PROB.get(name, 0.8)),
            v2.RandomGrayscale(p=0.2),
            v2.RandomApply([v2.GaussianBlur(3, sigma=(0.1, 2.0))], p=blur),
            v2.RandomSolarize(0.5, p=solarize),
        ]
    )


@EVERY_VIEW
def test_views_have_the_statistics_of_torchvisions(name: str, view: int) -> None:
    """Of many views of one picture: some pixels, and of each channel mean, spread, quartiles,
    whether any is above 1/2 (none in a solarized view) and difference of neighbours (less in a
    blurred one). Their means over the views agree within the standard error.
    """
    y, x = torch.meshgrid(torch.linspace(0, 1, SIZE), torch.linspace(0, 1, SIZE), indexing="ij")
    noise = torch.rand(3, SIZE, SIZE, generator=torch.Generator().manual_seed(3))
    picture = 0.7 * torch.stack([x, y, (x - y).abs()]) + 0.3 * noise
    transform = torchvision_recipe(name, view)
    theirs = torch.stack([transform(picture) for _ in range(NUM_PLAIN)])
    ours = apply(picture.expand(2000, -1, -1, -1), drawn(name, view)[:2000])

    def measures(views: Tensor) -> Tensor:
        flat = views.flatten(2)
        rough = views.diff(dim=3).abs().mean(dim=(2, 3))
        some = views[:, :, ::8, ::8].flatten(1)
        quantiles = (
            flat.quantile(torch.tensor([0.25, 0.5, 0.75]), dim=2).permute(1, 0, 2).flatten(1)
        )
        return torch.cat(
            [flat.mean(dim=2), flat.std(dim=2), quantiles, rough, flat.amax(dim=2) > 0.51, some],
            dim=1,
        ).double()

    a, b = measures(ours), measures(theirs)
    error = (a.var(dim=0) / len(a) + b.var(dim=0) / len(b)).sqrt()
    # of some 70 measures, the largest of as many independent standard normals exceeds 4 in one run
    # of 200
    assert ((a.mean(dim=0) - b.mean(dim=0)).abs() / error).max() < 4.0
    spread = (a.std(dim=0) / b.std(dim=0)).log().abs().max()
    assert spread < 0.25, "the views differ from each other as much"
