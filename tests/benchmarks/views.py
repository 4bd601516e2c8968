"""SimCLR's views beside torchvision's: bytes to normalised float views, on one thread.

Three sides in turn, in rounds: torchvision on PIL images and on tensors, image by image as a data
set does it, and `draw` with `apply` on a batch of N. Medians over the rounds, of the thread's CPU
time, not of a clock.

    python tests/benchmarks/views.py [--sizes 32 96] [--batch 256 1024] [--rounds 15]
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from _machine import machine
from PIL import Image
from torch import Tensor
from torchvision.transforms import v2

from clsweep.data.augment import Recipe, apply, draw
from clsweep.display.printing import print_table

MEAN_3, STD_3 = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)
PER_ROUND = 64  # images of torchvision's sides in a round


def torchvision_recipe(size: int, *steps: Any) -> Callable[[Any], Tensor]:
    """SimCLR's transform of one image, as its users write it."""
    kernel = max(3, 2 * (size // 20) + 1)
    return v2.Compose(
        [
            v2.RandomResizedCrop(size, scale=(0.08, 1.0)),
            v2.RandomHorizontalFlip(),
            v2.RandomApply([v2.ColorJitter(0.8, 0.8, 0.8, 0.2)], p=0.8),
            v2.RandomGrayscale(p=0.2),
            v2.RandomApply([v2.GaussianBlur(kernel, sigma=(0.1, 2.0))], p=0.5),
            *steps,
            v2.Normalize(MEAN_3, STD_3),
        ]
    )


def ours(bytes_NCHW: Tensor, generator: torch.Generator) -> Callable[[], object]:
    mean_3, std_3 = (torch.tensor(values)[:, None, None] for values in (MEAN_3, STD_3))

    def views() -> Tensor:
        draws = draw(Recipe(), len(bytes_NCHW), bytes_NCHW.shape[3], generator)
        return apply(bytes_NCHW, draws).sub_(mean_3).div_(std_3)

    return views


def sides(size: int, batch: int) -> dict[str, tuple[int, Callable[[], object]]]:
    """Views and maker of each side."""
    generator = torch.Generator().manual_seed(0)
    bytes_NCHW = torch.randint(
        0, 256, (batch, 3, size, size), dtype=torch.uint8, generator=generator
    )
    images = [Image.fromarray(x.permute(1, 2, 0).numpy()) for x in bytes_NCHW[:PER_ROUND]]
    on_pil = torchvision_recipe(size, v2.ToImage(), v2.ToDtype(torch.float32, scale=True))
    on_tensors = torchvision_recipe(size, v2.ToDtype(torch.float32, scale=True))
    return {
        "PIL": (len(images), lambda: [on_pil(image) for image in images]),
        "v2": (len(images), lambda: [on_tensors(x) for x in bytes_NCHW[:PER_ROUND]]),
        "ours": (batch, ours(bytes_NCHW, generator)),
    }


def rates(size: int, batch: int, rounds: int) -> dict[str, float]:
    """Views per second of one core."""
    makers = sides(size, batch)
    for _, make in makers.values():
        make()
    seconds: dict[str, list[float]] = {side: [] for side in makers}
    for _ in range(rounds):
        for side, (
            num_views,
            make,
        ) in makers.items():  # in turn, so that a slow moment of the machine hits all
            start = time.thread_time()
            make()
            seconds[side].append((time.thread_time() - start) / num_views)
    return {side: 1.0 / statistics.median(times) for side, times in seconds.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", type=int, nargs="+", default=[32, 96])
    parser.add_argument("--batch", type=int, nargs="+", default=[256, 1024])
    parser.add_argument("--rounds", type=int, default=15)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    for size in arguments.sizes:
        for batch in arguments.batch:
            rate = rates(size, batch, arguments.rounds)
            rows.append(
                {
                    "size": size,
                    "N": batch,
                    "PIL views/s": rate["PIL"],
                    "v2 views/s": rate["v2"],
                    "ours views/s": rate["ours"],
                    "times PIL": rate["ours"] / rate["PIL"],
                    "times v2": rate["ours"] / rate["v2"],
                }
            )
    print_table(
        rows, title=f"\nSimCLR's views, blur_prob 0.5, one thread, on {machine()}", digits=1
    )


if __name__ == "__main__":
    main()
