"""The numbers: robustness, sensitivity and comparison of objectives, from plain trials tables."""

CONFIDENCE = (
    0.95  # of every interval, and 1 - that of the tests: what papers print and readers expect
)
TAIL = (1 - CONFIDENCE) / 2  # of the chance, beyond each end of an interval
SIGNIFICANCE = 0.05  # of tests that no interval stands beside
