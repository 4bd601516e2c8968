"""Tables that are not fully crossed: what is said of a space does not hang on which seeds a
configuration has.
"""

import re

import numpy as np
import pandas as pd
import pytest

from clsweep.analysis.read_sweeps import read_sweeps
from clsweep.analysis.robustness import robustness
from clsweep.analysis.tolerance_curve import tolerance_curve
from clsweep.analysis.tuning import cost_of_tuning, expected_best_of_k
from tests.analysis import truths
from tests.analysis.draws import drawing
from tests.analysis.test_edges import ASKED

LEVELS = np.array([60.0, 72, 74, 80, 76, 74])
TAUS = [0.05, 0.07, 0.1, 0.2, 0.5, 1.0]
STATISTICS = ("mean", "sd", "sd_star", "regret", "share", "tolerance_area", "iqm", "worst_10")


def trials_of(scores, **at):
    """Trials of scores (configurations, seeds); NaN: did not run, and has no row."""
    trials = truths.trials_of(scores, **(at or {"tau": TAUS}))
    return trials.dropna(ignore_index=True)


def sweeps_of(trials):
    return read_sweeps(trials, metric="acc", params=["tau"])


def own_seeds(trials):
    """Every trial has a seed of its own, as in most tables from elsewhere."""
    return trials.assign(seed=np.arange(len(trials)))


# The best two on seven more seeds; a seed that ran at three of six; one setting has a single trial.
TABLES = {
    "reruns": (10, ~np.isin(LEVELS, (80, 76)), slice(3, None)),
    "half done": (4, slice(3, None), 3),
    "scattered": (4, [0, 1, 2, 2, 4, 5, 5, 5], [1, 3, 0, 2, 0, 0, 1, 2]),
}


def with_gaps(name, noise=0.0):
    num_seeds, rows, columns = TABLES[name]
    scores = LEVELS[:, None] + noise * np.random.default_rng(1).normal(size=(6, num_seeds))
    scores[rows, columns] = np.nan
    return trials_of(scores)


@pytest.mark.parametrize("relabel", [lambda trials: trials, own_seeds], ids=["as they are", "own"])
@pytest.mark.parametrize("name", TABLES)
def test_without_noise_gaps_change_no_number(name, relabel):
    sweeps = sweeps_of(relabel(with_gaps(name)))
    with drawing(200):
        row = robustness(sweeps).iloc[0]
        curve = tolerance_curve(sweeps)["share"]
        expected = expected_best_of_k(sweeps)["expected"]
        cost = cost_of_tuning(sweeps)["best_level"]
    area = np.clip(1 - (80 - LEVELS) / 10, 0, 1).mean()
    spread = LEVELS.std(ddof=1)
    known = [LEVELS.mean(), spread, spread, 80 - LEVELS.mean(), 1 / 6, area, 74, 60]
    points = [{"share": "share_within"}.get(each, each) for each in STATISTICS]
    assert row[points].to_list() == pytest.approx(known)
    for end in ("low", "high"):
        assert row[[f"{each}_{end}" for each in STATISTICS]].to_list() == pytest.approx(known)
        assert row[f"band_{end}"] == row[f"band_sure_{end}"] == 0.2
    assert curve[[0, 20, 30, 50]].to_list() == pytest.approx([1 / 6, 2 / 6, 4 / 6, 5 / 6])
    assert [expected.iloc[-1], cost[0]] == pytest.approx([80, 80])


def numbers(trials):
    with drawing(300):
        row = robustness(sweeps_of(trials)).iloc[0].drop("num_seeds", errors="ignore")
    return row[[name for name, value in row.items() if isinstance(value, float)]].astype(float)


# What the noise of a trial is, and the ends of intervals of levels, carry a shift.
OF_NOISE = re.compile(
    r"(?<!band)_(low|high)$|^(low|high|p|p_holm|null|first|total|effect|detectable)$|needs|num_"
)
in_slow = pytest.mark.slow  # half a minute
SHIFTS = np.array([9.0, -9.0, 0.0])


@pytest.mark.parametrize(
    ("name", "sampler"),
    [
        pytest.param(name, sampler, marks=in_slow) if name == "sensitivity" else (name, sampler)
        for name in ASKED
        for sampler in ("grid", "random")
        if name != "failure_regions"
    ],
)
def test_one_missing_trial_moves_no_statistic_where_seeds_shift_all(name, sampler):
    """Not even where scores of different seeds meet in a column; nor do the shifts themselves."""
    rng = np.random.default_rng(2)
    space = {"grid": np.indices((3, 2)).reshape(2, 6), "random": rng.random((2, 40))}
    tau, b = 1.0 + space[sampler]
    level = LEVELS / 4 if sampler == "grid" else 4 * tau + 2 * b
    whole = np.stack([level, 0.9 * level])[..., None] + 0.1 * rng.normal(size=(2, len(tau), 3))
    shifted = whole + SHIFTS
    shifted[0, level.argmin(), 0] = np.nan

    def answer(tables):
        scores = dict(zip(("dcl", "other"), tables, strict=True))
        trials = truths.trials_by(scores, sampler=sampler, tau=tau, b=b).dropna()
        with drawing(200):
            return ASKED[name](read_sweeps(trials, metric="acc", params=["tau", "b"]))

    actual, expected = answer(shifted), answer(whole)
    numbers = [each for each in expected.select_dtypes("number") if not OF_NOISE.search(each)]
    pd.testing.assert_frame_equal(actual[numbers], expected[numbers], atol=0.2, rtol=0.05)


def test_a_slope_of_rows_that_each_lack_another_seed():
    rng = np.random.default_rng(3)
    scores = LEVELS[:, None] + rng.normal(0, 0.05, (6, 5)) + np.array([0.0, 9.0, -4.0, 2.0, 5.0])
    scores[np.arange(6), np.arange(6) % 5] = np.nan
    row = robustness(sweeps_of(trials_of(scores)), by="tau").iloc[0]
    fit = np.polyfit(np.log2(TAUS), LEVELS, 1)[0]
    assert row["slope"] == pytest.approx(fit, abs=0.02)
    assert row["slope_low"] < fit < row["slope_high"]
