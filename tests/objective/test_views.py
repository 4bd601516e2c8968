"""How each view of an image is drawn: sizes, crops, and which views are only cropped."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from clsweep.data.augment import Recipe
from clsweep.objective.views import draw_views, recipes

COLOUR: dict[str, Any] = {
    "crop_scale": 0.3, "flip_prob": 0.4, "jitter_strength": 0.7, "jitter_prob": 0.6, "gray_prob": 0.1, "blur_prob": 0.2,
}  # fmt: skip
MULTI_VIEW: dict[str, Any] = {
    "num_views": 4, "crop_only_share": 0.0, "small_view_size": 6, "small_crop_scale": 0.05, "small_crop_max": 0.14,
}  # fmt: skip
KINDS = ("core", "multicrop", "all_pairs", "ecpp")
LARGE = Recipe(**COLOUR)
SMALL = replace(LARGE, output_size=6, crop_scale=0.05, crop_max=0.14)


def made(views: str = "ecpp", **changes: Any) -> tuple[Recipe, ...]:
    return recipes({"views": views, **COLOUR, **(MULTI_VIEW if views != "two" else {}), **changes})


def is_crop_only(recipe: Recipe) -> bool:
    """Neither flip nor colour nor blur; the strength of a jitter that never happens may be anything."""
    return recipe.flip_prob == recipe.jitter_prob == recipe.gray_prob == recipe.blur_prob == 0.0


def test_two_views_share_the_full_augmentation() -> None:
    assert made("two") == (LARGE, LARGE)


def test_one_channel_images_have_no_grayscale_to_choose() -> None:
    """It is not owned there, hence not in the configuration; its draws are made all the same."""
    config = {"views": "two", **COLOUR}
    del config["gray_prob"]
    assert recipes(config) == (replace(LARGE, gray_prob=Recipe().gray_prob),) * 2


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("num_views", range(2, 9))
def test_views_after_the_second_are_small_and_have_crops_of_their_own(kind: str, num_views: int) -> None:
    assert made(kind, num_views=num_views) == (LARGE, LARGE, *[SMALL] * (num_views - 2))


@pytest.mark.parametrize(
    ("num_views", "share", "num_crop_only"),
    [
        (4, 0.5, 2), (6, 0.5, 3), (8, 0.5, 4),  # ECPP Table 3
        (2, 0.5, 0), (3, 0.5, 1), (5, 0.5, 2), (4, 0.0, 0), (4, 0.25, 1), (4, 0.75, 2), (4, 1.0, 2), (8, 1.0, 6),
        (3, 1 / 3, 1), (6, 1 / 3, 2), (7, 3 / 7, 3), (5, 0.6, 3),
        (5, 1 - 0.8, 1),  # a little less than 1 in floating point
    ],
)  # fmt: skip
def test_the_last_views_are_only_cropped_and_never_the_first_two(
    num_views: int, share: float, num_crop_only: int
) -> None:
    views = made(num_views=num_views, crop_only_share=share)
    assert [is_crop_only(view) for view in views] == [False] * (num_views - num_crop_only) + [True] * num_crop_only
    assert views[:2] == (LARGE, LARGE)
    for view in views[2:]:
        kept = replace(SMALL, flip_prob=0.0, jitter_prob=0.0, gray_prob=0.0, blur_prob=0.0)
        assert view == (kept if is_crop_only(view) else SMALL), "crops and sizes stay; colour is kept for the rest"


def test_drawn_views_have_the_sizes_and_operations_of_their_recipes() -> None:
    draws = draw_views(made(crop_only_share=0.5), 200, 8, torch.Generator().manual_seed(0))
    assert [(view.image_size, view.output_size) for view in draws] == [(8, 8), (8, 8), (8, 6), (8, 6)]
    assert [bool(view.flip.any()) for view in draws] == [True, True, False, False]
    assert [bool(view.blur.any()) for view in draws] == [True, True, False, False]
    assert [bool(view.jitter.any()) for view in draws] == [True, True, False, False]
    area = [float((view.h * view.w).double().mean()) / 64 for view in draws]
    assert min(area[:2]) > 0.4
    assert max(area[2:]) < 0.2


def test_views_are_drawn_independently() -> None:
    first, second, *_ = draw_views(made(), 50, 8, torch.Generator().manual_seed(0))
    assert not torch.equal(first.i, second.i)
    assert not torch.equal(first.flip, second.flip)
    again = draw_views(made(), 50, 8, torch.Generator().manual_seed(0))
    assert torch.equal(again[1].i, second.i)


def test_crop_only_views_change_no_other_view() -> None:
    """A sweep over the share compares like with like: crops stay where they are, as do all draws of the others."""
    without, half = (
        draw_views(made(crop_only_share=share), 50, 8, torch.Generator().manual_seed(0)) for share in (0.0, 0.5)
    )
    for a, b in zip(without, half, strict=True):
        assert torch.equal(a.i, b.i)
        assert torch.equal(a.w, b.w)
    assert all(torch.equal(a.flip, b.flip) for a, b in zip(without[:2], half[:2], strict=True))
