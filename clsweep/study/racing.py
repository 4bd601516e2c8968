"""Which configurations may still be the best after their first seeds."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

Array = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Standing:
    """leader: row of the best mean. gaps: (n,) how far each mean lies behind the leader's on their
    common seeds. margins: (n,) how far it may lie behind by chance; infinite where that cannot be
    told, -1 for a configuration without any score.
    """

    leader: int
    gaps: Array
    margins: Array

    @property
    def beaten(self) -> NDArray[np.bool_]:
        """(n,) bool, configurations that are out."""
        return np.asarray(self.gaps > self.margins)


def standing(scores: Array, *, confidence: float) -> Standing:
    """How the configurations of a race stand after k seeds.

    A configuration is out where d > t s sqrt(2 / k). d is the leader's lead on their k common
    seeds; s^2 is what configuration and seed leave of the variance, at (n - 1) (k - 1) degrees of
    freedom; t is Student's quantile at `confidence`. Seeds are blocks, as in F-Race (Birattari et
    al., GECCO 2002); the test is that of t-race without correction (Lopez-Ibanez et al. 2016, "The
    irace package", section 3), with one variance for all.

    `confidence` is that of one comparison, for normal noise that is the same for all. Over a whole
    race the truly best is lost more often, mostly to one that is hardly worse.

    Args:
        scores: (n, k) of the configurations still in the race, larger is better, NaN = no score.

    Raises ValueError where no configuration has a score, or confidence is out of range.
    """
    if not 0 < confidence < 1:
        raise ValueError(f"confidence: expected between 0 and 1, got {confidence!r}")
    present = np.isfinite(scores)
    counts = present.sum(axis=1)
    if not counts.any():
        raise ValueError("scores: expected one at least, all are missing")
    means = np.where(present, scores, 0.0).sum(axis=1) / np.maximum(counts, 1)
    leader = int(np.where(counts == counts.max(), means, -np.inf).argmax())
    common = present & present[leader]
    shared = common.sum(axis=1)
    leads = np.where(common, scores[leader] - scores, 0.0).sum(axis=1) / np.maximum(shared, 1)
    margins = np.full(len(scores), np.inf)
    whole = scores[present.all(axis=1)]
    freedom = (len(whole) - 1) * (scores.shape[1] - 1)
    if freedom > 0:
        left = whole - whole.mean(axis=1, keepdims=True) - whole.mean(axis=0) + whole.mean()
        noise = math.sqrt(float(np.square(left).sum()) / freedom)
        quantile = -stdtrit(freedom, 1 - confidence)
        known = shared > 0
        margins[known] = quantile * noise * np.sqrt(2 / shared[known])
    margins[counts == 0] = -1.0
    return Standing(leader=leader, gaps=leads, margins=margins)
