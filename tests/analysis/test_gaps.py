"""Tables that are not fully crossed: what is said of a space does not hang on which seeds a
configuration has.
"""

import re

import numpy as np
import pandas as pd
import pytest

from clsweep.analysis.reading import read_sweeps
from clsweep.analysis.robustness.table import robustness, tolerance_curve
from clsweep.analysis.tuning import best_of_k, tuning_cost
from tests.analysis import truths
from tests.analysis.draws import drawing
from tests.analysis.test_edges import ASKED

LEVELS = np.array([60.0, 72, 74, 80, 76, 74])
TAUS = [0.05, 0.07, 0.1, 0.2, 0.5, 1.0]
ENDS = ("_low", "_high")
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


def crossed(num_seeds=3, noise=0.0):
    level = np.repeat(LEVELS[:, None], num_seeds, axis=1)
    return level + noise * np.random.default_rng(3).normal(size=level.shape)


def reruns(noise=0.0):
    """The best two on seven more seeds."""
    scores = np.where(np.isin(LEVELS, (80, 76))[:, None], crossed(10, noise), np.nan)
    scores[:, :3] = crossed(10, noise)[:, :3]
    return scores


def one_missing(noise=0.0):
    """A trial of the best is missing."""
    scores = crossed(noise=noise)
    scores[3, 1] = np.nan
    return scores


def half_done(noise=0.0):
    """A fourth seed has run at three of the six."""
    scores = crossed(4, noise)
    scores[3:, 3] = np.nan
    return scores


def scattered(noise=0.0):
    """Some trials are missing, one configuration has a single one."""
    scores = crossed(4, noise)
    scores[[0, 1, 2, 2, 4, 5, 5, 5], [1, 3, 0, 2, 0, 0, 1, 2]] = np.nan
    return scores


TABLES = {
    "crossed": crossed,
    "reruns": reruns,
    "one missing": one_missing,
    "half done": half_done,
    "scattered": scattered,
}


@pytest.mark.parametrize("relabel", [lambda trials: trials, own_seeds], ids=["as they are", "own"])
@pytest.mark.parametrize("name", list(TABLES))
def test_without_noise_gaps_change_no_number(name, relabel):
    sweeps = sweeps_of(relabel(trials_of(TABLES[name]())))
    with drawing(200):
        row = robustness(sweeps).iloc[0]
    assert row["regret"] == pytest.approx(80 - LEVELS.mean())  # 7.33
    assert row["worst_10"] == pytest.approx(60)
    assert row["share_within"] == pytest.approx(1 / 6)
    assert row["tolerance_area"] == pytest.approx(np.clip(1 - (80 - LEVELS) / 10, 0, 1).mean())
    assert (row["mean"], row["iqm"]) == pytest.approx((LEVELS.mean(), 74))
    assert row["sd"] == row["sd_star"] == pytest.approx(LEVELS.std(ddof=1))
    assert (row["band_low"], row["band_high"]) == (0.2, 0.2)
    assert (row["band_sure_low"], row["band_sure_high"]) == (0.2, 0.2)
    for statistic in STATISTICS:
        value = row["share_within" if statistic == "share" else statistic]
        assert row[[f"{statistic}{end}" for end in ENDS]].to_list() == pytest.approx([value] * 2)
    # The others say the same.
    with drawing(20):
        curve = tolerance_curve(sweeps)
        expected = best_of_k(sweeps)["expected"]
        cost = tuning_cost(sweeps)
    assert curve["share"].iloc[[0, 20, 30, 50]].to_list() == pytest.approx(
        [1 / 6, 2 / 6, 4 / 6, 5 / 6]
    )
    assert expected.iloc[-1] == pytest.approx(80)
    assert cost["best_level"].iloc[0] == pytest.approx(80)


def numbers(trials):
    with drawing(300):
        row = robustness(sweeps_of(trials)).iloc[0]
    return row[[name for name, value in row.items() if isinstance(value, float)]].astype(float)


@pytest.mark.parametrize("name", [name for name in TABLES if name != "crossed"])
def test_with_gaps_it_does_not_matter_which_seed_is_whose(name):
    """Seeds are noise: a configuration's scores count, not the labels that they stand under."""
    trials = trials_of(TABLES[name](noise=0.5))
    found, own = numbers(trials), numbers(own_seeds(trials))
    changes = ["num_seeds"]
    pd.testing.assert_series_equal(
        found.drop(changes, errors="ignore"), own.drop(changes, errors="ignore"), rtol=1e-12
    )


# What the noise of a trial is, and the ends of intervals of levels, carry a shift.
OF_NOISE = re.compile(
    r"(?<!band)_(low|high)$|^(low|high|p|p_holm|null|first|total|effect|detectable)$|needs|num_"
)
SHIFTS = np.array([9.0, -9.0, 0.0])


@pytest.mark.parametrize("name", [each for each in ASKED if each != "failure_regions"])
@pytest.mark.parametrize("sampler", ["grid", "random"])
def test_one_missing_trial_moves_no_statistic_where_seeds_shift_all(name, sampler):
    """Not even where scores of different seeds meet in a column; nor do the shifts themselves."""
    rng = np.random.default_rng(2)
    space = {"grid": np.indices((3, 2)).reshape(2, 6), "random": rng.random((2, 40))}
    tau, b = 1.0 + space[sampler]
    level = LEVELS / 4 if sampler == "grid" else 4 * tau + 2 * b
    whole = np.stack([level, 0.9 * level])[..., None] + 0.1 * rng.normal(size=(2, len(tau), 3))
    shifted = whole + SHIFTS
    shifted[0, level.argmin(), 2] = np.nan

    def answer(tables):
        trials = [
            trials_of(scores, sampler=sampler, tau=tau, b=b).assign(objective=objective)
            for objective, scores in zip(("dcl", "other"), tables, strict=True)
        ]
        with drawing(200):
            return ASKED[name](read_sweeps(pd.concat(trials), metric="acc", params=["tau", "b"]))

    found, expected = answer(shifted), answer(whole)
    numbers = [each for each in expected.select_dtypes("number") if not OF_NOISE.search(each)]
    pd.testing.assert_frame_equal(found[numbers], expected[numbers], atol=0.2, rtol=0.05)


def test_a_slope_of_rows_that_each_lack_another_seed():
    scores = crossed(5, noise=0.3) + np.array([0.0, 9.0, -4.0, 2.0, 5.0])
    scores[np.arange(6), np.arange(6) % 5] = np.nan
    row = robustness(sweeps_of(trials_of(scores)), by="tau").iloc[0]
    fit = np.polyfit(np.log2(TAUS), np.nanmean(scores, axis=1), 1)[0]
    assert row["slope"] == pytest.approx(fit)
    assert row["slope_low"] < fit < row["slope_high"]
