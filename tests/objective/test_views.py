"""How each view of an image is drawn: sizes, crops, and which views are only cropped."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from clsweep.catalog import COMPONENT
from clsweep.catalog.ownership import default_of, owned_params
from clsweep.data.augment import Recipe
from clsweep.objective.framework import Comparison
from clsweep.objective.views import (
    all_pairs,
    core_pairs,
    multicrop_pairs,
    pairs_and_compute,
    recipes,
    targets,
)

COLOUR: dict[str, Any] = {
    "crop_scale": 0.3, "flip_prob": 0.4, "jitter_strength": 0.7, "jitter_brightness": 0.45,
    "jitter_contrast": 0.55, "jitter_saturation": 0.5, "jitter_hue": 0.15, "jitter_prob": 0.6,
    "gray_prob": 0.1, "blur_prob": 0.2, "solarize_prob": 0.3,
}  # fmt: skip
ASYMMETRIC: dict[str, Any] = {
    "recipe": "byol",
    "second_blur_prob": 0.9,
    "second_solarize_prob": 0.8,
}
MULTI_VIEW: dict[str, Any] = {
    "num_views": 4, "num_global_views": 2, "crop_only_share": 0.0, "small_view_size": 6,
    "small_crop_scale": 0.05, "small_crop_max": 0.14,
}  # fmt: skip
KINDS = ("core", "multicrop", "all_pairs", "ecpp")
LARGE = Recipe(**COLOUR)
SMALL = replace(LARGE, output_size=6, crop_scale=0.05, crop_max=0.14)


def made(views: str = "ecpp", **changes: Any) -> tuple[Recipe, ...]:
    return recipes(
        {
            "views": views,
            "recipe": "simclr",
            **COLOUR,
            **(MULTI_VIEW if views != "two" else {}),
            **changes,
        }
    )


def named(recipe: str, views: str = "two") -> dict[str, Any]:
    """All hyperparameters of the views at their defaults, on colour images."""
    parts = {"framework": "simclr", "loss": "dcl", "regularizer": "none", "views": views}
    owned = owned_params(parts, dataset="cifar10", recipe=recipe)
    return {
        **parts,
        **{name: default_of(name, parts, recipe=recipe) for name in owned},
        "recipe": recipe,
    }


def test_one_channel_images_have_no_grayscale_to_choose():
    """It is not owned there, hence not in the configuration; its draws are made all the same."""
    names = ("gray_prob", "jitter_saturation", "jitter_hue")
    config = {"views": "two", "recipe": "simclr"}
    config |= {name: value for name, value in COLOUR.items() if name not in names}
    plain = Recipe()
    expected = replace(LARGE, **{name: getattr(plain, name) for name in names})
    assert recipes(config) == (expected,) * 2


def test_every_second_view_has_what_the_recipe_owns():
    second = replace(LARGE, blur_prob=0.9, solarize_prob=0.8)
    assert made("two", **ASYMMETRIC) == (LARGE, second)
    small = replace(SMALL, blur_prob=0.9, solarize_prob=0.8)
    alternating = (LARGE, second, SMALL, small, SMALL)
    assert made("all_pairs", num_views=5, **ASYMMETRIC) == alternating
    *full, last = made("all_pairs", num_views=4, crop_only_share=0.25, **ASYMMETRIC)
    assert tuple(full) == alternating[:3]
    assert last == small.crop_only()
    assert last.solarize_prob == 0.0


# Of each view, as the papers write them: smallest crop, ColorJitter's ranges and probability,
# probabilities of blur and solarization, pixels.
FULL, HALF = (0.8, 0.8, 0.8, 0.2), (0.4, 0.4, 0.4, 0.1)
BYOL = ((0.08, (0.4, 0.4, 0.2, 0.1), 0.8, 1.0, 0.0), (0.08, (0.4, 0.4, 0.2, 0.1), 0.8, 0.1, 0.2))
PAPERS: dict[str, list[tuple[Any, ...]]] = {
    "simclr": [(0.08, FULL, 0.8, 0.5, 0.0, None)] * 2,
    "simclr_cifar": [(0.08, HALF, 0.8, 0.0, 0.0, None)] * 2,
    "moco_v1": [(0.2, (0.4, 0.4, 0.4, 0.4), 1.0, 0.0, 0.0, None)] * 2,
    "moco_v2": [(0.2, HALF, 0.8, 0.5, 0.0, None)] * 2,
    "byol": [(*view, None) for view in BYOL],
    "byol_224": [(*view, 224) for view in BYOL],
    "ecpp_cifar": [(0.2, HALF, 0.8, 0.0, 0.0, None)] * 2,
    "ecpp_imagenet": [(0.2, FULL, 0.8, 0.5, 0.1, None)] * 2,
}


def test_every_named_recipe_is_that_of_its_paper():
    """That draws and views of any recipe are torchvision's is of test_augment.py."""
    assert list(PAPERS) == list(COMPONENT["recipe"])
    for name, expected in PAPERS.items():
        actual = []
        for r in recipes(named(name)):
            ranges = (r.jitter_brightness, r.jitter_contrast, r.jitter_saturation, r.jitter_hue)
            ranges = tuple(round(r.jitter_strength * x, 12) for x in ranges)
            assert (r.crop_max, r.flip_prob, r.gray_prob) == (1.0, 0.5, 0.2)
            rates = (r.jitter_prob, r.blur_prob, r.solarize_prob)
            actual.append((r.crop_scale, ranges, *rates, r.output_size))
        assert actual == expected, name


@pytest.mark.parametrize(
    ("kind", "num_views", "num_global"),
    [
        *((kind, num_views, 2) for kind in KINDS for num_views in (2, 3, 8)),
        *(("multicrop", *counts) for counts in ((3, 3), (16, 4))),
    ],
)
def test_views_after_the_global_ones_are_small_and_have_crops_of_their_own(
    kind, num_views, num_global
):
    actual = made(kind, num_views=num_views, num_global_views=num_global, crop_max=0.9)
    large = (replace(LARGE, crop_max=0.9),) * num_global
    assert actual == large + (SMALL,) * (num_views - num_global)


@pytest.mark.parametrize(
    ("kind", "pairs", "num_targets", "num_views"),
    [
        *(("global", multicrop_pairs(v, g), g, v) for v, g in ((2, 2), (4, 2), (4, 3), (10, 4))),
        ("all", all_pairs(3), 3, 3),
        ("first", core_pairs(3), 1, 3),
    ],
)
def test_every_view_predicts_every_target_but_itself(kind, pairs, num_targets, num_views):
    """Of global views SwAV's and DINO's two loops: over these, and over all others."""
    chosen = targets(kind, num_views, num_targets)
    comparison = Comparison(criterion=torch.zeros, pairs=pairs, targets=chosen)
    expected = {(i, v) for i in range(num_targets) for v in range(num_views) if v != i}
    assert set(comparison.directions) == expected
    assert len(comparison.directions) == len(expected)


@pytest.mark.parametrize(
    ("num_views", "share", "num_crop_only"),
    [
        (4, 0.5, 2), (6, 0.5, 3), (8, 0.5, 4),  # ECPP Table 3
        (2, 0.5, 0), (3, 0.5, 1), (4, 0.0, 0), (4, 1.0, 2), (6, 1 / 3, 2), (7, 3 / 7, 3),
        (5, 1 - 0.8, 1),  # a little less than 1 in floating point
    ],
)  # fmt: skip
def test_the_last_views_are_only_cropped_and_never_the_first_two(num_views, share, num_crop_only):
    views = made(num_views=num_views, crop_only_share=share)
    coloured = (LARGE, LARGE, *[SMALL] * (num_views - num_crop_only - 2))
    assert views == coloured + (SMALL.crop_only(),) * num_crop_only, "crops and sizes stay"


@pytest.mark.parametrize("num_views", [2, 3, 8])
def test_pairs_and_compute_are_those_of_ecpp_table_1(num_views):
    """Per image, that is over N; the small views are of 96 pixels among 224. No pair comes twice,
    in either order, and every view is in one.
    """
    two = {"views": "two", "recipe": "simclr", **COLOUR}
    expected = {"pairs_per_image": 1, "compute_per_image": 2, "pairs_per_compute": 0.5}
    assert pairs_and_compute(two, all_pairs(2), 8) == expected
    small, k = 96**2 / 224**2, num_views
    table = {
        "core": (core_pairs, k - 1),
        "multicrop": (multicrop_pairs, 2 * k - 3),
        "ecpp": (all_pairs, k * (k - 1) / 2),
    }
    for views, (pairs_of, num_pairs) in table.items():
        assert len({frozenset(pair) for pair in pairs_of(k)}) == num_pairs
        assert all(0 <= i < j < k for i, j in pairs_of(k))
        assert {view for pair in pairs_of(k) for view in pair} == set(range(k))
        config = {"views": views, "recipe": "simclr", **COLOUR, **MULTI_VIEW}
        config |= {"num_views": k, "small_view_size": 96, "view_size": 224}
        actual = pairs_and_compute(config, pairs_of(k), 500)
        assert actual["pairs_per_image"] == num_pairs
        assert actual["compute_per_image"] == pytest.approx(2 + (k - 2) * small)
        assert actual["pairs_per_compute"] == pytest.approx(num_pairs / (2 + (k - 2) * small))
        full = pairs_and_compute(config | {"small_view_size": 224}, pairs_of(k), 500)
        assert full["compute_per_image"] == k
