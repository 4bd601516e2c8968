"""No interval of a percentage leaves 0 to 100, and nothing else of it changes."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import clsweep
from clsweep.opened_results import Results
from tests.planted import planted

GRID = {"tau": [0.1, 0.2, 0.4, 0.8]}
RANGES = {"tau": (0.1, 1.0)}
LEVELS = {  # the columns of intervals of levels
    "robustness": ["mean", "iqm", "worst_10"],
    "marginals": [""],
    "best_of_k": [""],
    "recommend": [""],
}


def trials(level: float, sampler: str) -> pd.DataFrame:
    """Scores at an end of the range, but for one seed of one configuration."""
    space = {"grid": GRID} if sampler == "grid" else {"ranges": RANGES, "num_configs": 5}
    frame = planted(lambda _: level, sampler=sampler, num_seeds=2, noise=0.0, **space)
    frame.loc[3, "knn_top1"] += 12.0 if level < 50 else -12.0
    return frame


def intervals(findings: Results, name: str) -> np.ndarray:
    """(rows, 2) ends of the intervals of levels in one table."""
    frame = getattr(findings, name)()
    stems = [f"{stem}_" if stem else "" for stem in LEVELS[name]]
    return np.concatenate([frame[[f"{stem}low", f"{stem}high"]].to_numpy(float) for stem in stems])


@pytest.mark.parametrize(("sampler", "level"), [("grid", 99.9), ("random", 0.1)])
def test_intervals_of_a_percentage_end_at_0_and_100(level, sampler):
    frame = trials(level, sampler)
    percent = clsweep.analyse(frame, metric="knn_top1")
    other = frame.rename(columns={"knn_top1": "score"})
    free = clsweep.analyse(other, metric="score", mode="max", params=["tau"])
    for name in LEVELS:
        clipped, wide = intervals(percent, name), intervals(free, name)
        assert ((wide < 0) | (wide > 100)).any(), "else this shows nothing"
        np.testing.assert_array_equal(clipped, np.clip(wide, 0, 100))


def test_scores_beyond_the_limits_have_none():
    """Somebody else's column of that name, not in percent."""
    frame = trials(99.5, "grid")
    frame["knn_top1"] += 50
    findings = clsweep.analyse(frame, metric="knn_top1")
    assert (findings.recommend()["high"] > 100).all()


@pytest.mark.parametrize("options", [{"stat": "mean"}, {"stat": "tuned"}, {"by": "tau"}])
def test_two_percentages_differ_by_no_more_than_100_points(options):
    """Of two seeds that contradict each other an interval of t reaches further."""
    scores = [(95.0, 5.0), (10.0, 90.0)]
    rows = [
        {"objective": name, "config": config, "seed": seed, "tau": tau,
         "knn_top1": of[seed] - 3 * config * seed}
        for name, of in zip("ab", scores, strict=True)
        for config, tau in enumerate((0.1, 0.2))
        for seed in (0, 1)
    ]  # fmt: skip
    trials = pd.DataFrame(rows).assign(status="finished", sampler="grid")
    pairs = clsweep.analyse(trials).compare("a", "b", **options)
    assert (pairs["low"] == -100).all() & (pairs["high"] == 100).all()
