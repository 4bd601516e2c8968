"""The child process that has the pretended device."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import subprocess
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import resource_tracker
from pathlib import Path
from typing import Any, TypeVar
from unittest import mock

from tests.pretended.device import install

T = TypeVar("T")
SOURCES = Path(__file__).with_name("driver")


def compiled(folder: Path) -> dict[str, str]:
    """Build the stand-ins for CUDA's libraries; the environment of a process that shall load them.

    Raises:
        FileNotFoundError: this machine has no C compiler.
    """
    compiler = next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), None)
    if compiler is None:
        raise FileNotFoundError("the stand-ins for CUDA's libraries need a C compiler: cc")
    runtime, driver = folder / "libcudart_pretended.so", folder / "libcuda.so.1"
    for source, library in (("cudart.c", runtime), ("cuda.c", driver)):
        subprocess.run(
            [compiler, "-w", "-shared", "-fPIC", "-o", library, SOURCES / source], check=True
        )
    return {
        "LD_PRELOAD": str(runtime),
        "LD_LIBRARY_PATH": os.pathsep.join([str(folder), os.environ.get("LD_LIBRARY_PATH", "")]),
        "CUDA_VISIBLE_DEVICES": "0",
        "OMP_NUM_THREADS": "1",
    }


class Child:
    """A process with the device, in which functions are called.

    Args:
        environment: as `compiled` gives it.
    """

    def __init__(self, environment: Mapping[str, str]):
        resource_tracker.ensure_running()  # without the stand-ins: it outlives the child
        context = multiprocessing.get_context("spawn")
        self._pool = ProcessPoolExecutor(1, mp_context=context, initializer=install)
        with mock.patch.dict(os.environ, environment):
            self._pool.submit(os.getpid).result()

    def call(self, function: Callable[..., T], *args: Any, **named: Any) -> T:
        """What a module's function gives there, or raises; tensors come back on the CPU."""
        return self._pool.submit(function, *args, **named).result()

    def close(self) -> None:
        self._pool.shutdown()
