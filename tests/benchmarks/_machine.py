"""What a benchmark's figures depend on beside the code, and its clock."""

from __future__ import annotations

import os
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch

_LOAD = f"load {os.getloadavg()[0]:.1f} before"


def machine() -> str:
    """GPU, CPU, cores, torch, and how busy the machine was when the benchmark began."""
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    cpu = next(
        (line.split(":")[1].strip() for line in lines if line.startswith("model name")),
        platform.machine(),
    )
    gpu = [torch.cuda.get_device_name()] if torch.cuda.is_available() else []
    return ", ".join([*gpu, cpu, f"{os.cpu_count()} cores", f"torch {torch.__version__}", _LOAD])


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
