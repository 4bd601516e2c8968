"""Who wins where: planted winners, planted ties, and what cannot compete."""

import numpy as np
import pytest

from clsweep.analysis.comparison.table import WINNER_COLUMNS as COLUMNS
from clsweep.analysis.comparison.table import winners
from clsweep.analysis.reasons import Reason, note
from tests.analysis.comparison.test_table import sweep
from tests.analysis.draws import drawing


def field(rng, levels, *, noise=0.3, num_seeds=3):
    """One sweep of tau per name: its level at each of the values."""
    return [
        sweep(
            name,
            np.asarray(level, float)[:, None] + rng.normal(0, noise, (len(level), num_seeds)),
            tau=range(len(level)),
        )
        for name, level in levels.items()
    ]


def test_planted_winners():
    rng = np.random.default_rng(0)
    other = sweep("fixed", rng.normal(0, 1, (2, 3)), sigma=[1, 2])
    adaptive = sweep("searched", rng.normal(9, 1, (6, 3)), tau=range(6), sampler="tpe")
    levels = {"a": [3, 3, 3, 0, 0, 0], "b": [0, 0, 0, 3, 3, 0], "c": [-1] * 6}
    out = winners([*field(rng, levels), other, adaptive], by="tau")
    assert list(out.columns) == list(COLUMNS)
    assert list(out["region"]) == [f"tau={k}" for k in range(6)]
    assert list(out["value_low"]) == list(out["value_high"]) == list(range(6))
    assert list(out["winner"]) == ["a", "a", "a", "b", "b", ""]
    assert list(out["resolved"]) == [True] * 5 + [False]
    assert list(out["runner_up"][:3]) == ["b"] * 3
    assert ((out["low"] < out["lead"]) & (out["lead"] < out["high"]))[:5].all()
    assert note(Reason.NOT_SWEPT, param="tau").of("fixed") in out["note"][0]
    assert adaptive.not_measured.of("searched") in out["note"][0]


def test_nobody_to_beat_and_nobody_at_all():
    rng = np.random.default_rng(1)
    out = winners(field(rng, {"a": [1, 2, 3]}), by="tau")
    assert (out["winner"] == "").all()
    assert (out["reason"] == Reason.NOBODY_ELSE).all()
    tpe = sweep("a", rng.normal(0, 1, (3, 3)), tau=range(3), sampler="tpe")
    assert list(winners([tpe], by="tau")["reason"]) == [Reason.NOBODY_COMPETES]
    with pytest.raises(ValueError, match=r"no objective sweeps 'taus'. Did you mean 'tau'"):
        winners([tpe], by="taus")


@pytest.mark.slow
def test_planted_ties_have_few_false_winners():
    rng = np.random.default_rng(3)
    curve, false = [0, 1, 2, 2, 1, 0], 0
    for k in range(100):
        with drawing(400, k):
            false += winners(field(rng, dict.fromkeys("abc", curve)), by="tau")["resolved"].any()
    assert false <= 10
