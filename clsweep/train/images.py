"""The images of a trial on its device, and their batches of views."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from clsweep.data.augment import Recipe, apply
from clsweep.data.datasets import Split, channel_stats
from clsweep.objective.views import draw_views, recipes
from clsweep.train.collectives import rank, world_size
from clsweep.train.seeds import derived_seed


@dataclass(frozen=True)
class Images:
    """The images of one split on the trial's device: uint8 (N, C, H, W), and how to normalise them."""

    pixels_NCHW: Tensor
    labels_N: Tensor
    mean_1C11: Tensor
    std_1C11: Tensor

    def __len__(self) -> int:
        return len(self.pixels_NCHW)

    def normalise(self, x_NCHW: Tensor) -> Tensor:
        """Images in [0, 1] -> what an encoder takes: standardised, three channels."""
        x = (x_NCHW - self.mean_1C11) / self.std_1C11
        return x.expand(-1, 3, -1, -1)

    def plain(self, rows: slice) -> Tensor:
        """Unaugmented images as an encoder takes them."""
        return self.normalise(self.pixels_NCHW[rows].float() / 255)


def on_device(split: Split, statistics: Split, device: torch.device) -> Images:
    """A split on a device, normalised with the channel statistics of another (the training split)."""
    mean_C, std_C = channel_stats(statistics)
    return Images(
        pixels_NCHW=torch.from_numpy(split.images).permute(0, 3, 1, 2).contiguous().to(device),
        labels_N=torch.from_numpy(split.labels).to(device),
        mean_1C11=torch.from_numpy(mean_C)[None, :, None, None].to(device),
        std_1C11=torch.from_numpy(std_C)[None, :, None, None].to(device),
    )


def steps_per_epoch(images: Images, config: Mapping[str, Any]) -> int:
    """Full batches only: a rest would change the number of negatives."""
    return int(len(images) // config["batch_size"])


def batches(
    images: Images, config: Mapping[str, Any], epoch: int, generator: torch.Generator
) -> Iterator[tuple[list[Tensor], Tensor]]:
    """This worker's share of the views of every global batch of an epoch, with the labels of the whole batch.

    Order and views are drawn for the global batch by every worker alike: what a sample looks like does not depend on
    the number of workers. The order depends on seed and epoch alone, so trials with more views see the same batches.
    """
    transforms, batch_size = recipes(config), config["batch_size"]
    per_worker = batch_size // world_size()
    mine = slice(rank() * per_worker, (rank() + 1) * per_worker)
    by_epoch = torch.Generator().manual_seed(derived_seed(config["seed"], f"order of epoch {epoch}"))
    order = torch.randperm(len(images), generator=by_epoch)
    for batch in range(steps_per_epoch(images, config)):
        rows = order[batch * batch_size : (batch + 1) * batch_size]
        yield draw_batch(images, rows, transforms, generator, mine), images.labels_N[rows.to(images.labels_N.device)]


def draw_batch(
    images: Images, rows: Tensor, transforms: Sequence[Recipe], generator: torch.Generator, mine: slice
) -> list[Tensor]:
    """Views of the images in `rows`, drawn for all of them and made of the slice `mine`."""
    draws = draw_views(transforms, len(rows), images.pixels_NCHW.shape[-1], generator)
    x_NCHW = images.pixels_NCHW[rows[mine].to(images.pixels_NCHW.device)].float() / 255
    return [images.normalise(apply(x_NCHW, view[mine])) for view in draws]
