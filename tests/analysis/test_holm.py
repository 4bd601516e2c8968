"""Holm's adjustment: by hand, and against the rejections one by one that define it."""

import numpy as np
import pytest

from clsweep.analysis.holm import holm, holm_steps

NAN = float("nan")


def test_by_hand():
    assert holm(np.array([0.01, NAN, 0.04, 0.03])) == pytest.approx(
        [0.03, NAN, 0.06, 0.06], nan_ok=True
    )
    assert holm(np.array([0.9, 0.8])).tolist() == [1.0, 1.0]
    assert holm(np.array([0.2])).tolist() == [0.2]
    assert holm(np.array([])).size == 0
    assert np.isnan(holm(np.array([NAN, NAN]))).all()
    steps = holm_steps(np.array([0.01, NAN, 0.04, 0.03]), 0.05)
    assert steps.tolist() == pytest.approx([3, NAN, 2, 2], nan_ok=True)


def rejected(p, alpha):
    """From the smallest p on: those below alpha / (hypotheses left), until one is not."""
    out = set()
    for rank, k in enumerate(sorted(range(len(p)), key=lambda k: p[k])):
        if p[k] > alpha / (len(p) - rank):
            break
        out.add(k)
    return out


def test_an_adjusted_p_is_the_level_at_which_the_procedure_rejects():
    """And the level of a step decides as the procedure does."""
    rng = np.random.default_rng(0)
    for _ in range(200):
        p = np.round(rng.random(rng.integers(1, 9)) ** 3, 2)  # with ties, zeros and ones
        adjusted = holm(p)
        for alpha in (0.013, 0.057, 0.203, 0.611):
            gone, steps = rejected(p, alpha), holm_steps(p, alpha)
            assert set(np.flatnonzero(adjusted <= alpha)) == gone
            assert set(np.flatnonzero(p * steps <= alpha)) == gone
            left = sorted(set(range(len(p))) - gone)
            assert (steps[left] == len(left)).all()
