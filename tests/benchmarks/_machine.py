"""What a benchmark's figures depend on beside the code."""

from __future__ import annotations

import os
import platform
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
