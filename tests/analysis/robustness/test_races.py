"""A race drops by the scores that are then measured: intervals of planted races, truth known."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from clsweep.analysis.comparison.table import compare
from clsweep.analysis.reading import read_sweeps
from clsweep.analysis.robustness.table import robustness
from clsweep.cluster.search import standing
from tests.analysis.draws import drawing

NUM_CONFIGS, NUM_SEEDS, RACES = 24, 5, 150


def raced(name, levels, rng):
    """A race of settings of these levels, whose seeds have noise of 1."""
    scores = levels[:, None] + rng.normal(size=(len(levels), NUM_SEEDS))
    racing, last = np.arange(len(levels)), np.full(len(levels), NUM_SEEDS)
    for turn in range(2, NUM_SEEDS):
        _, gaps, margins = standing(scores[racing, :turn], confidence=0.95)
        last[racing[gaps > margins]] = turn
        racing = racing[gaps <= margins]
    rows = [
        {"objective": name, "config": i, "seed": s, "tau": float(i), "sampler": "grid",
         "status": "finished" if s < last[i] else "skipped",
         "acc": x if s < last[i] else np.nan}
        for i, row in enumerate(scores) for s, x in enumerate(row)
    ]  # fmt: skip
    return pd.DataFrame(rows)


def covers(low, high, truth):
    return bool(low <= truth <= high)


@pytest.mark.slow
def test_intervals_of_raced_objectives_hold_their_truth():
    """Of one with hardly any spread, whose unlucky settings are dropped, against one with a cliff.

    The mean over all seeds does not: it keeps the bad luck of those that were dropped.
    """
    rng, held = np.random.default_rng(0), []
    cliff = np.where(np.arange(NUM_CONFIGS) < 5, -10.0, 0.0)
    for _ in range(RACES):
        levels = 0.3 * rng.normal(size=NUM_CONFIGS), cliff + 0.7 * rng.normal(size=NUM_CONFIGS)
        tables = [raced(name, each, rng) for name, each in zip("ab", levels, strict=True)]
        sweeps = read_sweeps(pd.concat(tables), metric="acc", params=["tau"])
        with drawing(num=200):
            a, b = robustness(sweeps).to_dict("records")
            (pair,) = compare([each.of_space for each in sweeps]).to_dict("records")
        truth = [each.mean() for each in levels]
        flat = sweeps[0]
        half = stats.t.ppf(0.975, flat.noise.freedom) * np.sqrt(
            flat.noise.variance * (1 / flat.counts).sum()
        )
        means = flat.means.mean()
        held.append([
            covers(a["mean_low"], a["mean_high"], truth[0]),
            covers(b["mean_low"], b["mean_high"], truth[1]),
            covers(pair["low"], pair["high"], truth[0] - truth[1]),
            covers(means - half / NUM_CONFIGS, means + half / NUM_CONFIGS, truth[0]),
        ])  # fmt: skip
    *ours, naive = np.mean(held, axis=0)
    assert min(ours) > 0.92 - 2 * np.sqrt(0.95 * 0.05 / RACES), ours
    assert naive < 0.85


def test_the_best_of_a_race_is_that_of_all_its_seeds():
    rng = np.random.default_rng(1)
    (sweep,) = read_sweeps(raced("a", np.arange(6.0), rng), metric="acc", params=["tau"])
    assert sweep.of_space.scores.shape == (6, 2)
    assert sweep.not_measured
    assert not sweep.of_space.not_measured
    (row,) = robustness([sweep]).to_dict("records")
    assert row["best"] == pytest.approx(sweep.scores[5].mean())
    assert row["mean"] == pytest.approx(sweep.scores[:, :2].mean())
