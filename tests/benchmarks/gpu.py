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

Row = dict[str, Any]
Stage = Callable[[torch.device, bool], Iterator[Row]]


class Record:
    """What the stages have found, on disk after every row."""

    def __init__(self, folder: Path, device: torch.device):
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self.found: Row = {"machine": machine(), "device": str(device), "stages": {}}

    def write(self) -> None:
        text = json.dumps(self.found, indent=1, allow_nan=True)
        (self._folder / "gpu.json").write_text(text + "\n")

    def run(self, name: str, stage: Stage, device: torch.device, small: bool, end_s: float) -> None:
        """One stage, row by row, until it or the time ends. An error is part of what it found."""
        entry: Row = {"rows": [], "ended": "whole"}
        self.found["stages"][name] = entry
        start_s = time.monotonic()
        try:
            if start_s >= end_s:
                raise TimeoutError
            for row in stage(device, small):
                entry["rows"].append(row)
                self.write()
                if time.monotonic() >= end_s:
                    raise TimeoutError
        except TimeoutError:
            entry["ended"] = "the time was up"
        except Exception:  # the next stages say something of their own
            entry["ended"] = traceback.format_exc(limit=-4)
        entry["seconds"] = time.monotonic() - start_s
        self.write()

    @property
    def failures(self) -> list[str]:
        """Stages that broke, and checks that did not hold."""
        stages = self.found["stages"].items()
        broken = [f"{n}: {s['ended']}" for n, s in stages if s["ended"].startswith("Traceback")]
        wrong = [f"{n}: {r['what']}" for n, s in stages for r in s["rows"] if r.get("ok") is False]
        return broken + wrong


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
    end_s, device = time.monotonic() + given.limit, torch.device(given.device)
    record = Record(given.out, device)
    for name, stage in {**CHECKS, **SPEED}.items():
        record.run(name, stage, device, given.small, end_s)
        found = record.found["stages"][name]
        print_table(found["rows"], title=f"\n{name}, in {found['seconds']:.0f} s: {found['ended']}")
    if record.failures:
        sys.exit("\n".join(record.failures))


if __name__ == "__main__":
    main()
