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

import torch
from _machine import in_turn, machine
from _work import MEAN_3, STD_3, torchvision_recipe
from PIL import Image
from torch import Tensor
from torchvision.transforms import v2

from clsweep.data.augment import Recipe, apply, draw
from clsweep.display.printing import print_table

PER_ROUND = 64  # images of torchvision's sides in a round
BLUR = Recipe().blur_prob


def sides(size: int, batch: int) -> dict[str, Callable[[], float]]:
    """What makes views on each side, and gives their number in a second of one core."""
    generator = torch.Generator().manual_seed(0)
    shape = (batch, 3, size, size)
    bytes_NCHW = torch.randint(0, 256, shape, dtype=torch.uint8, generator=generator)
    images = [Image.fromarray(x.permute(1, 2, 0).numpy()) for x in bytes_NCHW[:PER_ROUND]]
    on_pil, on_tensors = (torchvision_recipe(size, BLUR, *x) for x in ([v2.ToImage()], []))
    mean_3, std_3 = (torch.tensor(values)[:, None, None] for values in (MEAN_3, STD_3))

    def ours() -> Tensor:
        draws = draw(Recipe(), batch, size, generator)
        return apply(bytes_NCHW, draws).sub_(mean_3).div_(std_3)

    def rate(num_views: int, make: Callable[[], object]) -> float:
        start = time.thread_time()
        make()
        return num_views / (time.thread_time() - start)

    return {
        "PIL": lambda: rate(PER_ROUND, lambda: [on_pil(image) for image in images]),
        "v2": lambda: rate(PER_ROUND, lambda: [on_tensors(x) for x in bytes_NCHW[:PER_ROUND]]),
        "ours": lambda: rate(batch, ours),
    }


def compared(size: int, batch: int, rounds: int) -> dict[str, float]:
    rates = in_turn(sides(size, batch), rounds + 1)
    medians = {side: statistics.median(found[1:]) for side, found in rates.items()}
    return {
        "size": size,
        "N": batch,
        **{f"{side} views/s": rate for side, rate in medians.items()},
        **{f"times {side}": medians["ours"] / medians[side] for side in ("PIL", "v2")},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", type=int, nargs="+", default=[32, 96])
    parser.add_argument("--batch", type=int, nargs="+", default=[256, 1024])
    parser.add_argument("--rounds", type=int, default=15)
    given = parser.parse_args()
    torch.set_num_threads(1)
    rows = [compared(size, batch, given.rounds) for size in given.sizes for batch in given.batch]
    title = f"\nSimCLR's views, blur_prob {BLUR}, one thread, on {machine()}"
    print_table(rows, title=title, digits=1)


if __name__ == "__main__":
    main()
