"""How many views an image gets, and how each is drawn."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Generator

from clsweep.data.augment import Draws, Recipe, draw
from clsweep.objective.catalog import COMPONENT


def recipe(config: Mapping[str, Any]) -> Recipe:
    """The random transform of a trial's views, from the hyperparameters that its `views` component owns."""
    owned = COMPONENT["views"][config["views"]].owns
    return Recipe(**{name: config[name] for name in owned if config.get(name) is not None})


def draw_two(transform: Recipe, num_images: int, image_size: int, generator: Generator) -> tuple[Draws, ...]:
    """Two independent views of each image of the global batch (DCL A.4)."""
    return tuple(draw(transform, num_images, image_size, generator) for _ in range(2))
