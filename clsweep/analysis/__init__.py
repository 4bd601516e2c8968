"""The numbers: robustness, sensitivity and comparison of objectives, from plain trials tables."""

from __future__ import annotations

# Of every interval, and 1 - that of the tests: what papers print and readers expect.
CONFIDENCE = 0.95
TAIL = (1 - CONFIDENCE) / 2  # of the chance, beyond each end of an interval
SIGNIFICANCE = 0.05  # of tests that no interval stands beside
POWER = 0.8  # of the smallest effects that are said to be found
MIN_SAMPLED = 10  # configurations of a sample that a surrogate needs
