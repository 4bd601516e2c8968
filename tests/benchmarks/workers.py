"""Two workers of one trial beside one: images per second, on a CPU with one thread a worker.

Sides in turn, in rounds; each is one process, or two. `apart` is two trials of one worker at the
same time: what two workers cannot beat. By the clock, a machine with other work on its cores says
little; the last column is by the processor time of a worker, without what it waits for the other.

    python tests/benchmarks/workers.py [--case conv4-32 resnet18 tiny] [--seconds 8] [--rounds 3]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from typing import Any

import torch
import torch.distributed as dist
from _machine import in_turn, machine, ratios
from _work import config_of, random_images

from clsweep.display.printing import print_table
from clsweep.train.collectives import distributed, of_first
from clsweep.train.loop import train_epoch
from clsweep.train.memory import keep_freed_memory
from clsweep.train.state import new_state

CASES = {  # encoder, width where it is not its usual one, pixels a side, batch
    "conv4-32": ("conv4-32", {}, 32, 256),
    "resnet18": ("resnet18", {}, 32, 128),
    "tiny": ("conv4-32", {"width": 8}, 8, 32),
}
WORKERS, GROUPS = {"one": 1, "two": 2, "apart": 1}, {"one": 1, "two": 1, "apart": 2}
Row = dict[str, Any]


def child(case: str, seconds: float, meeting: str, rank: int, num_workers: int) -> None:
    """Train for some seconds; the first worker prints images per second."""
    torch.set_num_threads(1)
    keep_freed_memory()  # as train_trial does
    if num_workers > 1:
        place = f"file://{meeting}"
        dist.init_process_group("gloo", init_method=place, rank=rank, world_size=num_workers)
    encoder, given, size, batch = CASES[case]
    few = max(2, 256 // batch) * batch  # an epoch of few steps
    config = config_of(encoder, size, batch, "fp32", num_train=few, blur_prob=0.0, **given)
    device = torch.device("cpu")
    train, state = random_images(config, device), new_state(config, device)
    model = distributed(state.objective) if num_workers > 1 else state.objective
    train_epoch(state, model, train, config)  # what happens once
    start, cpu_start, images, goes_on = time.perf_counter(), time.process_time(), 0, True
    while goes_on:
        train_epoch(state, model, train, config)
        images += len(train)
        goes_on = of_first(time.perf_counter() - start < seconds, device)
    used = time.perf_counter() - start, time.process_time() - cpu_start
    if rank == 0:
        print(json.dumps([images / seconds for seconds in used]))


def speed(side: str, case: str, seconds: float) -> list[float]:
    """Images per second of all processes of a side, by the clock and by a worker's processor
    time.
    """
    with tempfile.TemporaryDirectory() as folder:
        started = [
            subprocess.Popen(
                [sys.executable, __file__, f"--case={case}", f"--seconds={seconds}", "--child",
                 f"{folder}/{group}", str(rank), str(WORKERS[side])],
                stdout=subprocess.PIPE, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"},
            )
            for group in range(GROUPS[side])
            for rank in range(WORKERS[side])
        ]  # fmt: skip
        printed = [process.communicate()[0] for process in started]
    if any(process.returncode for process in started):
        raise SystemExit(f"{case}, {side}: a process failed")
    found = [json.loads(text.splitlines()[-1]) for text in printed if text]
    return [sum(values) for values in zip(*found, strict=True)]


def compared(case: str, arguments: argparse.Namespace) -> Row:
    sides = {side: lambda side=side: speed(side, case, arguments.seconds) for side in WORKERS}
    rounds = in_turn(sides, arguments.rounds)
    medians = {side: statistics.median(clock for clock, _ in rounds[side]) for side in WORKERS}
    by_clock, by_cpu = map(
        ratios, zip(*rounds["two"], strict=True), zip(*rounds["one"], strict=True)
    )
    return {"case": case, **medians, **by_clock, "by CPU time": by_cpu["times"]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--case", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        meeting, rank, num_workers = given.child
        child(given.case[0], given.seconds, meeting, int(rank), int(num_workers))
        return
    rows = [compared(case, given) for case in given.case]
    print_table(rows, title=f"\nSimCLR, images / s, on {machine()}")


if __name__ == "__main__":
    main()
