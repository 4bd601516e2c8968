"""Images a second that one core of this machine reads for a trial: decoded where they are kept as
JPEG, cut and resized. The device makes the rest of a view.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from time import thread_time
from typing import Any, NamedTuple

import torch

from clsweep.catalog import Dataset
from clsweep.catalog.ownership import with_defaults
from clsweep.data.augment import Recipe
from clsweep.data.store_form import sampled_pictures
from clsweep.objective.views import recipes
from clsweep.train.crops import cut_middles
from clsweep.train.images import Images

NUM_TIMED, _PASSES = 32, 3


class ReadingRate(NamedTuple):
    """Images a second of a core: in training all views of each, in scoring its middle."""

    trained: float
    scored: float


def reading_rate(dataset: Dataset, config: Mapping[str, Any]) -> ReadingRate:
    """Timed with some pictures of a data set in the form and the size in which it is kept, or with
    a made one of ImageNet's size where its files are not here.

    Args:
        config: of a trial, as `train_trial` takes it.
    """
    config = with_defaults(config)
    return _reading_rate(dataset, recipes(config), config["view_size"] or config["image_size"])


@cache
def _reading_rate(dataset: Dataset, transforms: Sequence[Recipe], side: int) -> ReadingRate:
    pictures = sampled_pictures(dataset)
    rows_M, chosen_M = torch.arange(NUM_TIMED) % len(pictures), torch.arange(NUM_TIMED)
    images = Images(
        pixels_NHWC=torch.from_numpy(pictures.content),
        rows_N=rows_M,
        labels_N=torch.zeros(NUM_TIMED, dtype=torch.int64),
        mean_1C11=torch.zeros(1, dataset.channels, 1, 1),
        std_1C11=torch.ones(1, dataset.channels, 1, 1),
        view_size=side,
        pictures=pictures,
    )
    draws = images.draw(transforms, chosen_M, torch.Generator().manual_seed(0))
    num_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        trained_s = _least_cpu_s(lambda: images.fetch(chosen_M, draws))
        scored_s = _least_cpu_s(lambda: cut_middles(pictures, rows_M, side))
    finally:
        torch.set_num_threads(num_threads)
    return ReadingRate(NUM_TIMED / trained_s, NUM_TIMED / scored_s)


def _least_cpu_s(read: Callable[[], object]) -> float:
    """CPU seconds of this thread, which others on the machine do not change, but for caches."""
    seconds = []
    for _ in range(_PASSES):
        begin = thread_time()
        read()
        seconds.append(thread_time() - begin)
    return min(seconds)
