"""Objectives and pairs of them side by side: the arrays are large, and numpy lets go of the
interpreter.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

NUM_THREADS = 2  # the interpreter's own work lets no more run at once


def in_threads(work: Callable[[Any], Any], items: Iterable[Any]) -> list[Any]:
    """`work` of each item, in their order."""
    # The matrices are small: a thread of the linear algebra mostly waits.
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    with threadpool_limits(1), ThreadPoolExecutor(min(NUM_THREADS, os.cpu_count() or 1)) as pool:
        return list(pool.map(work, items))
