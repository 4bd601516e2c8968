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
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from _machine import machine

from clsweep.data.availability import DataPlace
from clsweep.data.datasets import load_splits
from clsweep.display.printing import print_table
from clsweep.study.design import plan_row, plan_trials
from clsweep.study.resolve import load_study
from clsweep.train.collectives import distributed, of_first
from clsweep.train.images import on_device
from clsweep.train.loop import train_epoch
from clsweep.train.memory import keep_freed_memory
from clsweep.train.state import new_state

STUDY = """
name: workers
dataset: {{name: synthetic, image_size: {size}, num_train: 3000, val_fraction: 0.1}}
seeds: [0]
base: {{{encoder}, epochs: 1000, batch_size: {batch}, lr: 0.06, precision: fp32, blur_prob: 0}}
objectives:
  simclr: {{framework: simclr, loss: infonce}}
search: {{method: grid}}
"""
CASES = {
    "conv4-32": {"encoder": "encoder: conv4, width: 32", "batch": 256, "size": 32},
    "resnet18": {"encoder": "encoder: resnet18", "batch": 128, "size": 32},
    "tiny": {"encoder": "encoder: conv4, width: 8", "batch": 32, "size": 8},
}
WORKERS, GROUPS = {"one": 1, "two": 2, "apart": 1}, {"one": 1, "two": 1, "apart": 2}
Row = dict[str, Any]


def planned(case: str) -> Row:
    """The configuration of one trial, as a study makes it."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "study.yaml"
        path.write_text(STUDY.format(**CASES[case]))
        study = load_study(path)
        return plan_row(study, plan_trials(study)[0])


def child(case: str, seconds: float, meeting: str, rank: int, num_workers: int) -> None:
    """Train for some seconds; the first worker prints images per second."""
    torch.set_num_threads(1)
    keep_freed_memory()  # as train_trial does
    if num_workers > 1:
        place = f"file://{meeting}"
        dist.init_process_group("gloo", init_method=place, rank=rank, world_size=num_workers)
    config, device = planned(case), torch.device("cpu")
    split, batch = load_splits(config, DataPlace()).train, config["batch_size"]
    rows = torch.arange(max(2, 256 // batch) * batch).numpy()  # an epoch of few steps
    train, state = on_device(split.take(rows), split, device), new_state(config, device)
    model = distributed(state.objective) if num_workers > 1 else state.objective
    train_epoch(state, model, train, config)  # what happens once
    start, cpu_start, images, goes_on = time.perf_counter(), time.process_time(), 0, True
    while goes_on:
        train_epoch(state, model, train, config)
        images += len(rows)
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
    rounds = [
        {side: speed(side, case, arguments.seconds) for side in WORKERS}
        for _ in range(arguments.rounds)
    ]
    medians = {side: statistics.median(each[side][0] for each in rounds) for side in WORKERS}
    by_clock, by_cpu = ([each["two"][i] / each["one"][i] for each in rounds] for i in (0, 1))
    return {
        "case": case, **medians, "two / one": statistics.median(by_clock), "least": min(by_clock),
        "most": max(by_clock), "by CPU time": statistics.median(by_cpu),
    }  # fmt: skip


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
