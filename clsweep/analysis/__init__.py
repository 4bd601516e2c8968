"""The numbers: robustness, sensitivity and comparison of objectives, from plain trials tables."""

from __future__ import annotations

import math
from collections.abc import Iterable

# Of every interval, and 1 - that of the tests: what papers print and readers expect.
CONFIDENCE = 0.95
TAIL = (1 - CONFIDENCE) / 2  # of the chance, beyond each end of an interval
SIGNIFICANCE = 0.05  # of tests that no interval stands beside
POWER = 0.8  # of the smallest effects that are said to be found
MIN_SAMPLED = 10  # configurations of a sample that a surrogate needs

RankKey = tuple[int, float, int]  # of a configuration among others; the best has the lowest


def rank_key(config: int, scores: Iterable[float], mode: str) -> RankKey:
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
