"""Noise of one configuration of a small table that its scores do not show."""

from __future__ import annotations

import numpy as np
from scipy import special

from clsweep.analysis.array_types import Array
from clsweep.analysis.noise import MOST, UNEVEN, WIDER, WORST, chance_of_own_variance, noise_of
from clsweep.analysis.reasons import Note, Reason, note

# A factor of noise that is missed this often is said, from so much on, where the worst tenth is one
# of so few configurations.
MISSED, LEAST_SAID, FEW = 0.2, 3.0, 20


def hidden_noise_note(values: Array) -> tuple[Note, ...]:
    """A note on how much more noise the worst of few configurations (n, S) may have unseen."""
    noise = noise_of(values)
    if len(values) >= FEW or not noise.pooled > 0 or noise.is_uneven:
        return ()
    least = int(noise.freedoms[noise.freedoms > 0].min())
    factor = hidden_factor(least, noise.freedom - least)
    if not LEAST_SAID <= factor < np.inf:
        return ()
    figures = {"settings": len(values), "seeds": least + 1, "factor": round(factor)}
    return (note(Reason.UNEVEN_UNSEEN, **figures),)


def hidden_factor(freedom: int, others: int) -> float:
    """The factor of noise of the worst configuration at which its chance to have noise of its own
    stays below a half in `MISSED` of all tables; degrees of freedom of it and of the others.

    Seen is a ratio of mean squares above F_0; with a factor f the ratio is f^2 F, so
    f = sqrt(F_0 / F^-1(MISSED)).
    """
    if not others:
        return np.inf
    ratios = np.geomspace(0.1, 1e6, 1000)
    ones = np.ones(len(ratios))
    sums = ratios * freedom, ones * freedom, ones * others, ones * others
    seen = chance_of_own_variance(*sums, UNEVEN, WIDER, MOST) > 1.0 / (1.0 + WORST)
    return float(np.sqrt(ratios[seen.argmax()] / special.fdtri(freedom, others, MISSED)))
