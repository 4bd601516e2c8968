"""What a benchmark's figures depend on beside the code, its clock, and its rounds."""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

CLSWEEP = (
    "-c",
    "import sys; sys.argv[0] = 'clsweep'; from clsweep.cli.main import run_app; run_app()",
)
_LOAD = f"load {os.getloadavg()[0]:.1f} before"


def options(text: str | None, **defaults: Any) -> argparse.Namespace:
    """Options of the command line: of the type of each default, several of a list's, a switch for
    False.
    """
    parser = argparse.ArgumentParser(
        description=text, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name, default in defaults.items():
        given: dict[str, Any] = {"action": "store_true"}
        if isinstance(default, list):
            kind = type(default[0]) if default else str
            given = {"nargs": "+", "type": kind, "default": default}
        elif default is not False:
            given = {"type": type(default), "default": default}
        parser.add_argument(f"--{name.replace('_', '-')}", **given)
    return parser.parse_args()


def machine() -> str:
    """GPU, CPU, cores, torch, and how busy the machine was when the benchmark began."""
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    cpu = next(
        (line.split(":")[1].strip() for line in lines if line.startswith("model name")),
        platform.machine(),
    )
    gpu = [torch.cuda.get_device_name()] if torch.cuda.is_available() else []
    return ", ".join([*gpu, cpu, f"{os.cpu_count()} cores", f"torch {torch.__version__}", _LOAD])


def is_gpu(device: torch.device) -> bool:
    """Whether it is a real one: the one that tests pretend has tensors of its own kind."""
    return device.type == "cuda" and type(torch.empty(0, device=device)) is torch.Tensor


def matmul_peak(
    device: torch.device, precision: str, *, budget_s: float = 1.0, small: bool = False
) -> float:
    """FLOP per second of a large square product, the best of some."""
    dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(precision, torch.float32)
    size = 512 if small else 8192 if device.type == "cuda" else 2048
    a = torch.randn(size, size, device=device).to(dtype)
    times_ms = [milliseconds(lambda: a @ a, device, budget_s=budget_s) for _ in range(3)]
    return 2 * size**3 / min(times_ms) * 1000


def milliseconds(
    run: Callable[[], object], device: torch.device, *, budget_s: float = 3.0
) -> float:
    """Median time of a call: CPU time on a CPU."""
    clock = time.perf_counter if device.type == "cuda" else time.process_time
    times: list[float] = []
    deadline = time.perf_counter() + budget_s
    while len(times) < 4 or time.perf_counter() < deadline:
        start = clock()
        run()
        if device.type == "cuda":
            torch.cuda.synchronize()
        times.append(clock() - start)
    return 1000 * statistics.median(times[1:])  # the first one warms up


def in_turn(sides: Mapping[str, Callable[[], Any]], rounds: int) -> dict[str, list[Any]]:
    """What each side gives in each round, so that a slow moment of the machine hits all of them."""
    measured: dict[str, list[Any]] = {side: [] for side in sides}
    for _ in range(rounds):
        for side, measure in sides.items():
            measured[side].append(measure())
    return measured


def seconds(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def python_seconds(*arguments: object) -> float:
    """Wall time of a python command, from the start of its process."""
    command = [sys.executable, *map(str, arguments)]
    return seconds(lambda: subprocess.run(command, check=True, stdout=subprocess.DEVNULL))


def spreads(what: str, times: Mapping[str, list[float]]) -> list[dict[str, object]]:
    """A row per side: median, least and most of its seconds."""
    return [
        {what: name, "median s": statistics.median(t), "min s": min(t), "max s": max(t)}
        for name, t in times.items()
    ]


def ratios(mine: Sequence[float], theirs: Sequence[float]) -> dict[str, float]:
    """How many times the other side, over the rounds: median, least and most."""
    times = [a / b for a, b in zip(mine, theirs, strict=True)]
    return {"times": statistics.median(times), "least": min(times), "most": max(times)}
