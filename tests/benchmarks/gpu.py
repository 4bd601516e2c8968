"""One GPU: whether clsweep computes on it what it should, and how fast it trains there.

First the checks: losses beside float64, the device beside the CPU, bf16 beside fp32, and that no
step waits. Then the speeds: images per second beside a plain loop
(lightly's where it is installed, one of torchvision's transforms where it is not), stages of a
step, and the share of time in which the GPU is busy.

It needs neither Ray nor network nor an installed clsweep: torch, torchvision, numpy, scipy,
scikit-learn, pandas, pillow, filelock, safetensors, typer and rich. What each stage found is
written as it ends, to gpu.json. Stages stand in order of worth, and none begins when the time is
up. Without a GPU all of it runs on the CPU, small.

    python tests/benchmarks/gpu.py [--out FOLDER] [--limit 540] [--device cuda|cpu] [--small]
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))  # where clsweep is not installed

import torch
from _gpu_checks import CHECKS
from _machine import machine
from _speed import SPEED

from clsweep.display.printing import print_table
from clsweep.train.device import trial_device

Row = dict[str, Any]
Stage = Callable[[torch.device, bool], Iterator[Row]]


def run(stage: Stage, device: torch.device, small: bool, end_s: float) -> Row:
    """What a stage finds until it or the time ends. An error is part of that."""
    found: Row = {"rows": [], "ended": "whole"}
    try:
        for row in stage(device, small):
            found["rows"].append(row)
            if time.monotonic() >= end_s:
                found["ended"] = "the time was up"
                break
    except Exception:  # the next stages say something of their own
        found["ended"] = traceback.format_exc(limit=-4)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    has_gpu = torch.cuda.is_available()
    parser.add_argument("--out", type=Path, default=Path("results/gpu"))
    parser.add_argument("--limit", type=float, default=540.0, help="seconds in all")
    parser.add_argument("--device", default="cuda" if has_gpu else "cpu")
    parser.add_argument("--small", action="store_true", default=not has_gpu)
    given = parser.parse_args()
    end_s, device = time.monotonic() + given.limit, trial_device(given.device)
    given.out.mkdir(parents=True, exist_ok=True)
    found: Row = {"machine": machine(), "device": str(device), "stages": {}}
    wrong = []
    for name, stage in {**CHECKS, **SPEED}.items():
        if time.monotonic() >= end_s:
            break
        told = found["stages"][name] = run(stage, device, given.small, end_s)
        (given.out / "gpu.json").write_text(json.dumps(found, indent=1) + "\n")
        print_table(told["rows"], title=f"\n{name}: {told['ended']}")
        wrong += [f"{name}: {row['what']}" for row in told["rows"] if row.get("ok") is False]
        wrong += [f"{name}: {told['ended']}"] * told["ended"].startswith("Traceback")
    if wrong:
        sys.exit("\n".join(wrong))


if __name__ == "__main__":
    main()
