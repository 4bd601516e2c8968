"""One GPU: whether clsweep computes on it what it should, and how fast it trains there.

Numbers come first: losses beside float64, the device beside the CPU, bf16 and fp16 beside fp32,
that no step waits, memory beside the plan's estimate. Then the speeds: images per second beside a
plain loop (lightly's where it is installed, one of torchvision's transforms where it is not), the
share of time in which the GPU is busy, CUDA graphs of a step, a study that shares the GPU, and
the stages of a step.

It needs neither Ray nor network nor an installed clsweep: torch, torchvision, numpy, scipy,
scikit-learn, pandas, pillow, filelock, safetensors, typer and rich. Rows are written as they are
found, to gpu.json. Each stage has its share of the time, and what one leaves is the next one's.
Without a GPU all of it runs on the CPU, small.

    python tests/benchmarks/gpu.py [--out FOLDER] [--limit 540] [--device cuda:0|cpu] [--small]
        [--stage NAME ...]
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))  # where clsweep is not installed

import torch
from _gpu_checks import agrees_with_the_cpu, half_agrees, losses_in_float64
from _gpu_graphs import graphs
from _gpu_study import study
from _gpu_waits import memory, never_waits
from _machine import machine
from _speed import busy, stages, throughput

from clsweep.display.printing import print_table
from clsweep.train.device import trial_device

Row = dict[str, Any]
Stage = Callable[[torch.device, bool], Iterator[Row]]
# What each is to have of the time, as a share: in order of worth.
STAGES: dict[str, tuple[Stage, float]] = {
    "losses beside float64": (losses_in_float64, 0.06),
    "device beside CPU": (agrees_with_the_cpu, 0.08),
    "half precision beside fp32": (half_agrees, 0.03),
    "no waiting in a step": (never_waits, 0.08),
    "memory beside the estimate": (memory, 0.12),
    "throughput": (throughput, 0.25),
    "busy": (busy, 0.06),
    "graphs": (graphs, 0.08),
    "study": (study, 0.16),
    "stages": (stages, 0.08),
}
USED = {"lightly": "the plain loop is torchvision's", "triton": "nothing here compiles"}


def missing() -> list[str]:
    """What this machine lacks, and what follows."""
    return [
        f"{name} is not installed: {follows}"
        for name, follows in USED.items()
        if name in sys.modules or importlib.util.find_spec(name) is None
    ]


def run(
    stage: Stage, device: torch.device, small: bool, end_s: float, write: Callable[[Row], None]
) -> Row:
    """What a stage finds until it or the time ends; `write` sees it after every row. An error is
    part of that.
    """
    outcome: Row = {"rows": [], "ended": "under way"}
    start = time.monotonic()
    try:
        for row in stage(device, small):
            outcome["rows"].append(row)
            write(outcome)
            if time.monotonic() >= end_s:
                outcome["ended"] = "the time was up"
                break
        else:
            outcome["ended"] = "whole"
    except Exception:  # the next stages say something of their own
        outcome["ended"] = traceback.format_exc(limit=-4)
    outcome["s"] = time.monotonic() - start
    write(outcome)
    return outcome


def keep(path: Path, outcome: Row) -> None:
    """Write it so that a reader sees all of the old or all of the new."""
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(outcome, indent=1) + "\n")
    os.replace(partial, path)


def ends(names: list[str], limit_s: float) -> dict[str, float]:
    """When each stage has to end, seconds from the beginning."""
    shares = [STAGES[name][1] for name in names]
    return {
        name: limit_s * sum(shares[: place + 1]) / sum(shares) for place, name in enumerate(names)
    }


def wrong_in(name: str, outcome: Row) -> list[str]:
    """What of a stage is not as it should be."""
    wrong = [f"{name}: {row['what']}" for row in outcome["rows"] if row.get("ok") is False]
    return wrong + [f"{name}: {outcome['ended']}"] * outcome["ended"].startswith("Traceback")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    has_gpu = torch.cuda.is_available()
    parser.add_argument("--out", type=Path, default=Path("results/gpu"))
    parser.add_argument("--limit", type=float, default=540.0, help="seconds in all")
    parser.add_argument("--device", default="cuda:0" if has_gpu else "cpu")
    parser.add_argument("--small", action="store_true", default=not has_gpu)
    parser.add_argument("--stage", nargs="+", choices=STAGES, default=list(STAGES))
    given = parser.parse_args()
    begin_s, device = time.monotonic(), trial_device(given.device)
    given.out.mkdir(parents=True, exist_ok=True)
    outcome: Row = {"machine": machine(), "device": str(device), "missing": missing(), "stages": {}}
    print("\n".join([outcome["machine"], *outcome["missing"]]), flush=True)
    wrong: list[str] = []
    for name, end_s in ends(given.stage, given.limit).items():

        def write(stage: Row, name: str = name) -> None:
            outcome["stages"][name] = stage
            keep(given.out / "gpu.json", outcome)

        stage = run(STAGES[name][0], device, given.small, begin_s + end_s, write)
        names = dict.fromkeys(key for row in stage["rows"] for key in row)
        rows = [{key: row.get(key) for key in names} for row in stage["rows"]]
        print_table(rows, title=f"\n{name}: {stage['ended']}, {stage['s']:.0f} s")
        sys.stdout.flush()
        wrong += wrong_in(name, stage)
    if wrong:
        sys.exit("\n".join(wrong))


if __name__ == "__main__":
    main()
