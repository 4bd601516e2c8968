"""Smallest effects that a design can find, before it runs; needs no table library."""

from __future__ import annotations

from collections.abc import Sequence

from scipy import special

from clsweep.analysis import CONFIDENCE, POWER


def smallest_effects(
    sizes: Sequence[int], num_seeds: int, num_tests: int, *, within: bool = False
) -> tuple[float, float]:
    """The smallest effect that a contrast finds, and the smallest that it rules out where there is
    none, each in four of five studies, in standard deviations of one seed's noise.

        (t_{1 - a/2} + t_.8) SE  and  (t_{1 - a/2} + t_.9) SE,   SE = sqrt(sum_k 1 / n_k / S),

    a = (1 - confidence) / tests: each is judged as the last of all (Holm).

    Args:
        sizes: configurations of each side, n_k.
        num_seeds: S, at least two.
        within: of settings of one objective, so that the residual decides. The seeds decide between
            objectives (`contrast`).
    """
    alpha = (1.0 - CONFIDENCE) / num_tests
    freedom = (num_seeds - 1.0) * (sum(sizes) - 1 if within else 1)
    se = (sum(1.0 / size for size in sizes) / num_seeds) ** 0.5
    tail = special.stdtrit(freedom, 1.0 - alpha / 2)
    detected, ruled_out = special.stdtrit(freedom, [POWER, (1.0 + POWER) / 2])
    return float((tail + detected) * se), float((tail + ruled_out) * se)
