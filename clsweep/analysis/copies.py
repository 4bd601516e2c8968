"""Configurations that are copies of each other: deterministic training repeats its scores to the
last digit wherever the parameters that differ are inert. Copies carry one draw of the seed noise.

Shape legend: n = configurations, S = seeds.
"""

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Codes = NDArray[np.intp]


def copies(scores: Array) -> Codes:
    """(n,) number of the group of copies of each configuration; without any, each has its own.

    A copy has the scores of another one at all seeds, of which there are two or more, and which
    differ: what is the same at every seed, as the score of a collapse, carries no noise. One that
    lacks some seeds is a copy where the seeds that it has fit a single group.

    Scores of few digits are equal by chance. So nothing counts as a copy unless most configurations
    that have one seed's score in common have all in common.
    """
    groups = np.arange(len(scores))
    present = np.isfinite(scores)
    in_order = np.sort(scores[present])
    if scores.shape[1] < 2 or (in_order[1:] > in_order[:-1]).all():
        return groups  # no score is there twice
    low = np.where(present, scores, np.inf).min(axis=1)
    noisy = np.where(present, scores, -np.inf).max(axis=1) > low
    whole = np.flatnonzero(present.all(axis=1) & noisy)
    if len(whole) < 2:
        return groups
    different, codes = np.unique(scores[whole], axis=0, return_inverse=True)
    codes = codes.ravel()
    tied = np.mean(
        [_pairs(np.unique(column, return_inverse=True)[1]) for column in scores[whole].T]
    )
    if not _pairs(codes) or 2 * _pairs(codes) < tied:
        return groups
    firsts = np.unique(codes, return_index=True)[1]
    groups[whole] = whole[firsts][codes]
    for row in np.flatnonzero(~present.all(axis=1) & (present.sum(axis=1) > 1) & noisy):
        fits = np.flatnonzero((different[:, present[row]] == scores[row, present[row]]).all(axis=1))
        if len(fits) == 1:
            groups[row] = whole[firsts[fits[0]]]
    return groups


def _pairs(codes: Codes) -> int:
    """Pairs of equal codes."""
    counts = np.bincount(codes)
    return int((counts * (counts - 1) // 2).sum())
