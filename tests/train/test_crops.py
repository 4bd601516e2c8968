"""Crops and middles of images of different sizes: torchvision's, by all threads of a trial."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor
from torchvision.transforms.v2 import functional as tv

from clsweep.data.augment import Draws, Recipe, draw_views
from clsweep.data.image_files import Pictures
from clsweep.train import crops
from clsweep.train.crops import cut_crops, cut_middles
from tests.train.test_images import pictures

VIEWS = (24, 17)


@pytest.fixture(params=[1, 2, 3])
def num_threads(request: pytest.FixtureRequest) -> Iterator[int]:
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


def some_pictures(channels: int) -> tuple[list[Tensor], Pictures]:
    """Pictures of as many sizes, (C, H, W) each and as one array."""
    sizes = np.array([(40, 60), (90, 30), (25, 25), (61, 200), (33, 32)])
    each, split = pictures(np.random.default_rng(0), sizes, channels)
    return [torch.from_numpy(x).permute(2, 0, 1) for x in each], split.images


def some_draws(pictures: Pictures, rows: Tensor) -> list[Draws]:
    sizes, generator = torch.from_numpy(pictures.sizes)[rows].T, torch.Generator().manual_seed(1)
    recipes = (replace(Recipe(), output_size=side) for side in VIEWS)
    return [draw_views(recipe, len(rows), sizes, generator) for recipe in recipes]


ROWS = torch.tensor([3, 1, 0, 2, 1, 4, 3])


@pytest.mark.usefixtures("num_threads")
@pytest.mark.parametrize("channels", [1, 3])
def test_crops_are_torchvisions(channels):
    each, whole = some_pictures(channels)
    draws = some_draws(whole, ROWS)
    for drawn, made, side in zip(draws, cut_crops(whole, ROWS, draws), VIEWS, strict=True):
        boxes = torch.stack([drawn.i, drawn.j, drawn.h, drawn.w], dim=1).tolist()
        expected = [
            tv.resized_crop(each[row], *box, [side, side], antialias=True)
            for row, box in zip(ROWS.tolist(), boxes, strict=True)
        ]
        assert torch.equal(made, torch.stack(expected))


@pytest.mark.usefixtures("num_threads")
@pytest.mark.parametrize("channels", [1, 3])
def test_middles_are_torchvisions(channels):
    each, whole = some_pictures(channels)
    expected = [tv.center_crop(tv.resize(each[row], [32]), [28]) for row in ROWS.tolist()]
    assert torch.equal(cut_middles(whole, ROWS, 28), torch.stack(expected))


def test_as_many_threads_as_torch_has_cut_at_once_and_none_begins_more(num_threads, monkeypatch):
    all_cut, inner, resized = threading.Barrier(num_threads), set(), crops._resized

    def meet(*given: object) -> Tensor:
        all_cut.wait(timeout=20)  # BrokenBarrierError where fewer threads are at work
        inner.add((threading.get_ident(), torch.get_num_threads()))
        return resized(*given)

    monkeypatch.setattr(crops, "_resized", meet)
    rows = ROWS[:num_threads]
    cut_middles(some_pictures(3)[1], rows, 28)
    assert [count for _, count in inner] == [1] * num_threads
    monkeypatch.undo()
    later: list[int] = []
    thread = threading.Thread(target=lambda: later.append(torch.get_num_threads()))
    thread.start()
    thread.join()
    assert later == [torch.get_num_threads()] == [num_threads]


@pytest.mark.usefixtures("num_threads")
def test_nothing_to_cut_gives_nothing():
    whole, none = some_pictures(3)[1], ROWS[:0]
    assert cut_middles(whole, none, 28).shape == (0, 3, 28, 28)
    assert [x.shape for x in cut_crops(whole, none, some_draws(whole, none))] == [
        (0, 3, side, side) for side in VIEWS
    ]
