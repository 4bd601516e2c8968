"""The rule by which one configuration is better than another."""

from __future__ import annotations

import math
from collections.abc import Iterable

Place = tuple[int, float, int]  # of a configuration among others; the best has the lowest


def place_of(config: int, scores: Iterable[float], mode: str) -> Place:
    """Where a configuration stands: more seeds first, then the better mean, then the one planned
    first.

    Args:
        config: its number.
        scores: the metric on the seeds that have finished, at least one, in any order.
        mode: "max" or "min" is best.
    """
    known = list(scores)
    mean = math.fsum(known) / len(known)  # the same in whatever order the seeds stand
    return -len(known), -mean if mode == "max" else mean, config
