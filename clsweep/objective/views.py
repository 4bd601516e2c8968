"""The views of an image: their number, how each is drawn, and which are positives of each other."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import fields, replace
from functools import partial
from typing import Any

from clsweep.catalog import COMPONENT, implementation
from clsweep.catalog.ownership import num_crop_only, selected_rows
from clsweep.data.augment import Augmentation, Recipe

Pairs = tuple[tuple[int, int], ...]


def core_pairs(num_views: int) -> Pairs:
    """The first view with each other one: K - 1 pairs (ECPP Table 1, core view)."""
    return tuple((0, j) for j in range(1, num_views))


def multicrop_pairs(num_views: int, num_global_views: int = 2) -> Pairs:
    """The global views with every other: of two global ones 2K - 3 pairs (ECPP Table 1; SwAV)."""
    return tuple(pair for pair in all_pairs(num_views) if pair[0] < num_global_views)


def all_pairs(num_views: int) -> Pairs:
    """Every two views: K(K - 1)/2 pairs (ECPP Eq. 3, the full graph)."""
    return tuple(itertools.combinations(range(num_views), 2))


def targets(kind: str, num_views: int, num_global_views: int) -> tuple[int, ...]:
    """The views that others predict, where a framework tells targets from predictions: all, the
    first or the global ones, as a row of the catalog has it.
    """
    return tuple(range({"all": num_views, "first": 1, "global": num_global_views}[kind]))


def num_global_views(config: Mapping[str, Any]) -> int:
    """The first views, which have the size of the image: two where a trial does not choose."""
    return int(config.get("num_global_views", 2))


def recipes(config: Mapping[str, Any]) -> tuple[Recipe, ...]:
    """The random transform of each view of a trial.

    Views after the global ones may be smaller and have crops of their own (ECPP 4.2, SwAV's and
    DINO's multi-crop). The last `crop_only_share` of all views are only cropped, but never the
    first two, which keep the full augmentation (ECPP 4.1). What a recipe owns belongs to the second
    view and every second one after it (BYOL B).
    """
    names = [field.name for field in fields(Recipe) if config.get(field.name) is not None]
    given = {name: config[name] for name in names}
    first = Recipe(
        **given, output_size=config.get("view_size") or None, others=augmentations(config)
    )
    owned = COMPONENT["recipe"][config["recipe"]].owns
    second = replace(first, **{name.removeprefix("second_"): config[name] for name in owned})
    if config["views"] == "two":
        return (first, second)
    small = {
        "crop_scale": config["small_crop_scale"],
        "crop_max": config["small_crop_max"],
        "output_size": config["small_view_size"],
    }
    num_views, num_large = config["num_views"], num_global_views(config)
    views = [(first, second)[view % 2] for view in range(num_views)]
    views[num_large:] = [replace(view, **small) for view in views[num_large:]]
    for view in range(num_views - num_crop_only(config["crop_only_share"], num_views), num_views):
        views[view] = views[view].crop_only()
    return tuple(views)


def augmentations(config: Mapping[str, Any]) -> tuple[Augmentation, ...]:
    """The augmentations that follow the recipe in a trial's views, in their order."""
    rows = selected_rows("augmentation", config.get("augmentation", "none"))
    return tuple(
        (row, partial(implementation(row), **{name: config[name] for name in row.owns}))
        for row in rows
        if row.impl
    )


def pairs_and_compute(
    config: Mapping[str, Any], pairs: Pairs, image_size: int
) -> dict[str, int | float]:
    """The pairs and the compute of a trial's views, for each image (ECPP Table 1 and Fig. 1).

    Returns:
        pairs_per_image: positive pairs, each of which is one term of the loss.
        compute_per_image: views, each counted by its area as a share of the first view's. What a
            momentum encoder or a second pass adds is not counted.
        pairs_per_compute: the first over the second; 1/2 for two views.
    """
    sizes = [recipe.output_size or image_size for recipe in recipes(config)]
    compute = sum((size / sizes[0]) ** 2 for size in sizes)
    return {
        "pairs_per_image": len(pairs),
        "compute_per_image": compute,
        "pairs_per_compute": len(pairs) / compute,
    }
