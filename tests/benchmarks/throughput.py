"""SimCLR pre-training on a CPU, images per second: clsweep beside lightly's documented loop, two
workers of a trial beside one, views and crops alone beside torchvision's, and where a step's time
goes. `gpu.py` has the same of a GPU.

The same network, batch size, images (32 x 32 x 3), augmentation (lightly's for CIFAR: no blur) and
precision. Sides alternate in rounds; each is a process, or two, with one thread for the network.
lightly's has two loaders beside it. `two apart` is two trials at the same time: what two workers
cannot beat. By the clock, a machine with other work on its cores says little. CPU seconds are those
of a worker with its loaders, without what it waits for the other.

    python tests/benchmarks/throughput.py [--encoder conv4-16 conv4-32 resnet18] [--batch 64 256]
        [--side ours lightly] [--precision fp32] [--seconds 15] [--rounds 3]
"""

from __future__ import annotations

import gc
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from _machine import in_turn, machine, matmul_peak, options, ratios
from _speed import stages_of
from _work import MEAN_3, STD_3, config_of, ours, peer, torchvision_recipe
from PIL import Image
from torchvision.transforms import v2

from clsweep.data.augment import Recipe, apply, draw_views
from clsweep.data.image_files import Pictures
from clsweep.display.printing import print_table
from clsweep.train.collectives import of_first
from clsweep.train.crops import cut_crops
from clsweep.train.memory import keep_freed_memory

CPU = torch.device("cpu")
# Trials at the same time, workers of each, and the side that it is compared with.
SIDES = {
    "ours": (1, 1, "lightly"),
    "lightly": (1, 1, ""),
    "two workers": (1, 2, "ours"),
    "two apart": (2, 1, "ours"),
}
VIEWS = 64  # that torchvision makes in a round
PICTURE = (375, 500)  # pixels, of ImageNet's usual photograph
Row = dict[str, Any]


def config(encoder: str, batch: int, precision: str) -> Row:
    """Epochs of a few steps, so that a slow network does not run for minutes beyond its time."""
    return config_of(encoder, 32, batch, precision, num_train=max(2 * batch, 1024), blur_prob=0.0)


def child(side: str, case: Row, seconds: float, meeting: str, rank: int) -> None:
    """Train for some seconds; the first worker prints images per second of both clocks."""
    torch.set_num_threads(1)
    num_workers = SIDES[side][1]
    if num_workers > 1:
        place = f"file://{meeting}"
        dist.init_process_group("gloo", init_method=place, rank=rank, world_size=num_workers)
    if side != "lightly":
        keep_freed_memory()  # as train_trial does
    running = peer(config(**case), CPU, 2) if side == "lightly" else ours(config(**case), CPU)
    next(running)  # what happens once: loading, first allocations, the start of the loaders
    start, cpu_start, images, goes_on = time.perf_counter(), cpu_seconds(), 0, True
    while goes_on:
        images += next(running)
        goes_on = of_first(time.perf_counter() - start < seconds, CPU)
    clock_s = time.perf_counter() - start
    del running  # ends the loaders, whose time counts only then
    gc.collect()
    if rank == 0:
        print(json.dumps([images / clock_s, images / (cpu_seconds() - cpu_start)]))


def cpu_seconds() -> float:
    """Of this process and of those of its children that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(u.ru_utime + u.ru_stime for u in used)


def speed(side: str, case: Row, seconds: float) -> list[float]:
    """Images per second of all processes of a side, by the clock and by the CPU, in one round."""
    groups, workers, _ = SIDES[side]
    with tempfile.TemporaryDirectory() as folder:
        started = [
            subprocess.Popen(
                [sys.executable, __file__, "--child", side, json.dumps(case), str(seconds),
                 f"{folder}/{group}", str(rank)],
                stdout=subprocess.PIPE, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"},
            )
            for group in range(groups)
            for rank in range(workers)
        ]  # fmt: skip
        printed = [process.communicate()[0] for process in started]
    if any(process.returncode for process in started):
        raise SystemExit(f"{case}, {side}: a process failed")
    rates = [json.loads(text.splitlines()[-1]) for text in printed if text]
    return [sum(values) for values in zip(*rates, strict=True)]


def compared(case: Row, sides: list[str], seconds: float, rounds: int) -> list[Row]:
    """A row per side, with how many times as fast as another it is."""
    speeds = in_turn({side: lambda s=side: speed(s, case, seconds) for side in sides}, rounds)
    rows = []
    for side in sides:
        row: Row = {**case, "side": side}
        for i, clock in enumerate(("s", "CPU s")):
            rates = [each[i] for each in speeds[side]]
            others = [each[i] for each in speeds.get(SIDES[side][2], ())]
            times = ratios(rates, others) if others else dict.fromkeys(("times", "least", "most"))
            row[f"images / {clock}"] = statistics.median(rates)
            row |= {f"{name}, {clock}": value for name, value in times.items()}
        rows.append(row)
    return rows


def views(size: int, batch: int, rounds: int) -> Row:
    """Views a second of one core: torchvision's on PIL images and on tensors, image by image as a
    data set does it, beside `draw` with `apply` on a batch.
    """
    generator = torch.Generator().manual_seed(0)
    shape = (batch, 3, size, size)
    bytes_NCHW = torch.randint(0, 256, shape, dtype=torch.uint8, generator=generator)
    images = [Image.fromarray(x.permute(1, 2, 0).numpy()) for x in bytes_NCHW[:VIEWS]]
    blur = Recipe().blur_prob
    on_pil, on_tensors = (torchvision_recipe(size, blur, *x) for x in ([v2.ToImage()], []))
    mean_3, std_3 = (torch.tensor(values)[:, None, None] for values in (MEAN_3, STD_3))

    def made() -> torch.Tensor:
        draws = draw_views(Recipe(), batch, size, generator)
        return apply(bytes_NCHW, draws).sub_(mean_3).div_(std_3)

    sides = {
        "PIL": lambda: rate(VIEWS, lambda: [on_pil(image) for image in images]),
        "v2": lambda: rate(VIEWS, lambda: [on_tensors(x) for x in bytes_NCHW[:VIEWS]]),
        "ours": lambda: rate(batch, made),
    }
    medians = {side: statistics.median(x[1:]) for side, x in in_turn(sides, rounds + 1).items()}
    times = {f"times {side}": medians["ours"] / medians[side] for side in ("PIL", "v2")}
    return {"size": size, "N": batch, **medians, **times}


def rate(num_views: int, make: Callable[[], object]) -> float:
    """Views a second of this thread."""
    start = time.thread_time()
    make()
    return num_views / (time.thread_time() - start)


def crops(size: int, rounds: int) -> Row:
    """Crops a second of one core, two of each picture: torchvision's v2 picture by picture, beside
    those of a batch.
    """
    sizes, generator = np.array([PICTURE] * VIEWS), torch.Generator().manual_seed(0)
    pixels = np.random.default_rng(0).integers(0, 256, (VIEWS, *PICTURE, 3), dtype=np.uint8)
    pictures, rows = Pictures(pixels.ravel(), sizes, 3), torch.arange(VIEWS)
    each = torch.from_numpy(pixels).permute(0, 3, 1, 2)
    recipe, crop = Recipe(output_size=size).crop_only(), v2.RandomResizedCrop(size, (0.08, 1.0))

    def made() -> object:
        draws = [draw_views(recipe, VIEWS, torch.from_numpy(sizes.T), generator) for _ in range(2)]
        return cut_crops(pictures, rows, draws)

    sides = {
        "v2": lambda: rate(2 * VIEWS, lambda: [(crop(x), crop(x)) for x in each]),
        "ours": lambda: rate(2 * VIEWS, made),
    }
    measured = {side: statistics.median(x[1:]) for side, x in in_turn(sides, rounds + 1).items()}
    return {"size": size, **measured, "times v2": measured["ours"] / measured["v2"]}


def main() -> None:
    choices = {"encoder": ["conv4-16", "conv4-32", "resnet18"], "side": ["ours", "lightly"]}
    numbers = {"batch": [64, 256], "seconds": 15.0, "rounds": 3}
    given = options(__doc__, precision="fp32", **choices, **numbers, child=[])
    if given.child:
        side, case, seconds, meeting, rank = given.child
        child(side, json.loads(case), float(seconds), meeting, int(rank))
        return
    cases = [
        {"encoder": encoder, "batch": batch, "precision": given.precision}
        for encoder in given.encoder
        for batch in given.batch
    ]
    rows = [
        row for case in cases for row in compared(case, given.side, given.seconds, given.rounds)
    ]
    print_table(rows, title=f"\nSimCLR on {machine()}")
    torch.set_num_threads(1)
    keep_freed_memory()
    rows = [views(size, max(given.batch), 5 * given.rounds) for size in (32, 96)]
    print_table(rows, title="\nViews a second of SimCLR's full recipe, one thread", digits=1)
    rows = [crops(size, 5 * given.rounds) for size in (96, 224)]
    title = "\nCrops a second of pictures of {} x {}, one thread".format(*PICTURE)
    print_table(rows, title=title, digits=1)
    peak = matmul_peak(CPU, given.precision)
    rows = [
        {**case, **row}
        for case in cases
        for row in stages_of(config(**case), CPU, peak, budget_s=min(3.0, given.seconds))
    ]
    print_table(rows, title="\nStages of a step, one thread")


if __name__ == "__main__":
    main()
