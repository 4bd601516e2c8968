"""SimCLR pre-training on a CPU beside lightly's documented loop: images per CPU second, and where a
step's time goes. `gpu.py` has the same of a GPU.

The same network, batch size, images (32 x 32 x 3), augmentation (lightly's for CIFAR: no blur) and
precision. What counts are images per CPU second, loader processes included: trials share the cores,
so that is what a study costs. lightly's loop loads with two worker processes and, to its advantage,
one thread for the network, which wastes less than torch's default on a few cores. Rounds alternate;
each is a process of its own.

    python tests/benchmarks/throughput.py [--encoder conv4-16 conv4-32 resnet18] [--batch 64 256]
        [--precision fp32] [--seconds 15] [--rounds 3]
"""

from __future__ import annotations

import argparse
import gc
import json
import resource
import statistics
import subprocess
import sys
import time
from typing import Any

import torch
from _machine import in_turn, machine, matmul_peak, ratios
from _speed import stages_of
from _work import ENCODERS, config_of, ours, peer

from clsweep.display.printing import print_table
from clsweep.train.memory import keep_freed_memory

CPU = torch.device("cpu")
SIDES = ("ours", "lightly")
Row = dict[str, Any]


def config(encoder: str, batch: int, precision: str) -> Row:
    """Epochs of a few steps, so that a slow network does not run for minutes beyond its time."""
    return config_of(encoder, 32, batch, precision, num_train=max(2 * batch, 1024), blur_prob=0.0)


def child(side: str, encoder: str, batch: int, precision: str, seconds: float) -> None:
    torch.set_num_threads(1)
    trained = config(encoder, batch, precision)
    if side == "ours":
        keep_freed_memory()  # as train_trial does
    running = ours(trained, CPU) if side == "ours" else peer(trained, CPU, 2)
    next(running)  # what happens once: loading, first allocations, the start of the loaders
    start, cpu_start, images = time.perf_counter(), cpu_seconds(), 0
    while time.perf_counter() - start < seconds:
        images += next(running)
    del running  # ends the loaders, whose time counts only then
    gc.collect()
    print(json.dumps(images / (cpu_seconds() - cpu_start)))


def cpu_seconds() -> float:
    """Of this process and of those of its children that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(u.ru_utime + u.ru_stime for u in used)


def rate(side: str, *case: object) -> float:
    """Images per CPU second of one round."""
    command = [sys.executable, __file__, "--child", side, *map(str, case)]
    result = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return float(json.loads(result.stdout.splitlines()[-1]))


def compared(encoder: str, batch: int, given: argparse.Namespace) -> Row:
    case = (encoder, batch, given.precision, given.seconds)
    found = in_turn({side: lambda side=side: rate(side, *case) for side in SIDES}, given.rounds)
    medians = {side: statistics.median(rates) for side, rates in found.items()}
    return {"encoder": encoder, "batch": batch, **medians, **ratios(*found.values())}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    usual = ["conv4-16", "conv4-32", "resnet18"]
    parser.add_argument("--encoder", nargs="+", choices=ENCODERS, default=usual)
    parser.add_argument("--batch", type=int, nargs="+", default=[64, 256])
    parser.add_argument("--precision", default="fp32")
    parser.add_argument("--seconds", type=float, default=15.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--child", nargs=5, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        side, encoder, batch, precision, seconds = given.child
        child(side, encoder, int(batch), precision, float(seconds))
        return
    cases = [(encoder, batch) for encoder in given.encoder for batch in given.batch]
    rows = [compared(*case, given) for case in cases]
    print_table(rows, title=f"\nSimCLR, images / CPU s, on {machine()}")
    torch.set_num_threads(1)
    keep_freed_memory()
    peak = matmul_peak(CPU, given.precision)
    rows = [
        {"encoder": encoder, "batch": batch, **row}
        for encoder, batch in cases
        for row in stages_of(config(encoder, batch, given.precision), CPU, peak, budget_s=3.0)
    ]
    print_table(rows, title="\nStages of a step, one thread")


if __name__ == "__main__":
    main()
