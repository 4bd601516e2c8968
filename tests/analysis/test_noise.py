"""The noise of a table whose seeds are blocks: against scipy, and least squares of dummies."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from clsweep.analysis.compare import compare
from clsweep.analysis.marginals import marginal_levels
from clsweep.analysis.mean_tests import difference_parts
from clsweep.analysis.noise import noise_of, square_and_add
from clsweep.analysis.reasons import Reason, note
from clsweep.analysis.robustness import robustness
from clsweep.analysis.score_table import (
    adjusted_for_seeds,
    num_unconnected,
    seed_blocks,
    without_seeds,
)
from clsweep.analysis.sensitivity import sensitivity
from tests.analysis.truths import least_squares, sweep_of


def table_of(rng, num=6, seeds=4, *, gaps=(), shift=1.0):
    scores = 70 + 3 * rng.normal(size=(num, 1)) + shift * rng.normal(size=seeds)
    scores = scores + rng.normal(size=(num, seeds))
    for at in gaps:
        scores[at] = np.nan
    return scores


GAPS = [(0, 0), (3, 2), (5, 1)]


@pytest.mark.parametrize("gaps", [[], GAPS], ids=["complete", "gaps"])
def test_means_and_residual_are_those_of_least_squares(gaps):
    table = table_of(np.random.default_rng(0), gaps=gaps)
    noise, (means, effects, variance, freedom, inverse) = (
        noise_of(table, by_seed=True),
        least_squares(table),
    )
    np.testing.assert_allclose(noise.means, means, rtol=1e-10)
    np.testing.assert_allclose(noise.blocks.effects, effects, atol=1e-10)
    np.testing.assert_allclose(np.nanmean(adjusted_for_seeds(table), axis=1), means, rtol=1e-10)
    assert noise.freedom == pytest.approx(freedom)
    assert noise.pooled == pytest.approx(variance)
    contrast = np.array([0.5, 0.5, 0.0, -1.0, 0.0, 0.0])
    of_sum = noise.of_sum(contrast)
    assert of_sum[1] == pytest.approx(freedom)
    assert of_sum[0] == pytest.approx(variance * contrast @ inverse @ contrast)
    assert noise.parts(contrast) == [of_sum]  # what a seed gives to all cancels


def test_a_mean_over_all_settings_has_the_t_interval_of_its_values_at_each_seed():
    table = table_of(np.random.default_rng(1))
    parts = noise_of(table, by_seed=True).parts(np.full(6, 1 / 6))
    ends = stats.ttest_1samp(table.mean(axis=0), 0).confidence_interval()
    assert square_and_add(parts) == pytest.approx((ends.high - ends.low) / 2)
    assert parts[0][1] == 3


def test_a_level_goes_by_the_mean_squares_of_the_analysis_of_variance():
    """Var = (MS_b + (n - 1) MS_e) / (n S), each with its own t."""
    table = table_of(np.random.default_rng(2))
    effects = table.mean(axis=0) - table.mean()
    left = table - table.mean(axis=1, keepdims=True) - effects
    between, within = 6 * np.square(effects).sum() / 3, np.square(left).sum() / 15
    half = np.hypot(
        stats.t.ppf(0.975, 3) * np.sqrt(between / 24),
        stats.t.ppf(0.975, 15) * np.sqrt(within * 5 / 24),
    )
    noise = noise_of(table, by_seed=True)
    if not noise.doubt.any():
        assert noise.half_widths == pytest.approx(np.full(6, half))
    assert square_and_add(noise.parts(np.eye(6)[0])) == pytest.approx(noise.half_widths[0])


def test_one_setting_is_that_of_its_seeds():
    row = np.random.default_rng(3).normal(70, 1, (1, 4))
    half = stats.t.ppf(0.975, 3) * stats.sem(row[0])
    assert noise_of(row, by_seed=True).half_widths == pytest.approx([half])


def test_seeds_of_one_row_each_are_no_blocks():
    scores = np.random.default_rng(4).normal(70, 1, (4, 3))
    own = np.full((4, 12), np.nan)
    own[np.repeat(range(4), 3), range(12)] = scores.ravel()
    assert seed_blocks(own) is None
    one, other = noise_of(own, by_seed=True), noise_of(scores)
    assert one.half_widths == pytest.approx(other.half_widths)
    assert without_seeds(own) is own


@pytest.mark.parametrize("late", [2, 5])
def test_a_seed_of_few_rows_is_a_block_where_only_one_other_is(late):
    """Half of the noise is a seed's own: without it the mean of 12 covers 64 to 76 %."""
    rng, hits = np.random.default_rng(late), []
    for _ in range(300):
        scores = rng.normal(size=(12, 2)) + rng.normal(size=2)
        scores[late:, 1] = np.nan
        noise = noise_of(scores, by_seed=True)
        evenly = np.full(12, 1 / 12)
        hits.append(abs(evenly @ noise.means) <= square_and_add(noise.parts(evenly)))
    assert np.mean(hits) >= 0.92


def test_parts_of_a_table_that_share_no_seed():
    rows, seeds = np.indices((6, 4))
    tables = {
        1: [np.ones((6, 4)), np.isin(seeds, (0, 3)), (seeds - rows) % 4 < 2],
        2: [(seeds < 2) == (rows < 3), ((seeds < 2) == (rows < 3)) | (rows == 1) & (seeds == 1)],
        0: [seeds == rows % 4, np.repeat(np.eye(6), 2, axis=1)],  # a seed each; seeds of their own
    }
    for parts, each in tables.items():
        for known in each:
            assert num_unconnected(np.where(known, 80.0, np.nan)) == parts


def test_settings_on_seeds_of_their_own_are_not_compared():
    scores = 80 + np.random.default_rng(0).normal(size=(6, 4))
    scores[(np.indices((6, 4))[1] < 2) != (np.arange(6)[:, None] < 3)] = np.nan
    sweep = sweep_of(scores, tau=2.0 ** np.arange(6))
    other = replace(sweep, objective="other")
    assert sweep.seeds_apart == note(Reason.SEEDS_APART, parts=2)
    for table in (robustness([sweep]), robustness([sweep], by="tau"), sensitivity([sweep]),
                  compare([sweep, other]), compare([sweep, other], stat="tuned")):  # fmt: skip
        assert set(table["reason"]) == {Reason.SEEDS_APART}
    levels = marginal_levels([sweep])
    assert levels["mean"].notna().all()
    assert levels[["low", "high"]].isna().all(axis=None)


def test_two_objectives_differ_by_their_values_at_each_seed():
    """Of the same seeds a shift that both have cancels, whatever their settings."""
    rng = np.random.default_rng(5)
    a, b = table_of(rng), table_of(rng, num=9)
    sides = [noise_of(x, by_seed=True) for x in (a, b)]
    [part] = difference_parts(*sides, np.full(6, 1 / 6), np.full(9, 1 / 9))
    test = stats.ttest_1samp(a.mean(axis=0) - b.mean(axis=0), 0)
    assert part == pytest.approx((test._standard_error**2, 3))
    both = [noise_of(x + np.array([50.0, -50, 9, 0]), by_seed=True) for x in (a, b)]
    assert difference_parts(*both, np.full(6, 1 / 6), np.full(9, 1 / 9)) == [pytest.approx(part)]


def test_uneven_noise_is_that_of_brown_and_forsythe():
    rng = np.random.default_rng(6)
    seen = []
    for size in np.repeat([1, 2, 4, 8, 16], 20):
        table = rng.normal(size=(4, 10)) * np.array([1, 1, 1, size])[:, None]
        p = stats.levene(*table, center="median").pvalue
        assert noise_of(table).is_uneven == (p < 1e-3)
        seen.append(p < 1e-3)
    assert sum(seen[:20]) == 0 < sum(seen[20:]) < 80


def test_uneven_settings_go_by_their_own_seeds():
    rng = np.random.default_rng(1)
    scores = rng.normal(size=(4, 10)) * np.array([[0.3], [1.0], [3.0], [20.0]])
    noise, reach = noise_of(scores, by_seed=True), stats.t.ppf(0.975, 9)
    assert noise.is_uneven
    assert noise.half_widths == pytest.approx(reach * stats.sem(scores, axis=1))
    weights = np.array([0.5, 0.5, 0.0, 0.0])
    of_both = reach * stats.sem(scores[:2].mean(axis=0))
    assert square_and_add(noise.parts(weights)) == pytest.approx(of_both)


def test_scores_without_noise_have_intervals_of_no_width():
    """The seeds' mean square is 0 but for rounding, and never below it."""
    for level in (0.1, 77.7, 91.3, 1e-7):
        table = np.repeat(level * np.arange(1.0, 7.0)[:, None], 3, axis=1)
        half = noise_of(table, by_seed=True).half_widths
        assert (half >= 0).all()
        assert half.max() <= 1e-12 * max(level, 1.0)
