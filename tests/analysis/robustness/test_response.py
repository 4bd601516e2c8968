"""The marginal table of one hyperparameter, its usable band and the slope, by hand."""

import numpy as np
import pytest
from scipy import stats

from clsweep.analysis.reasons import Reason, note
from clsweep.analysis.robustness.response import band, respond, slope
from clsweep.analysis.sweep import read_sweeps
from tests.analysis import truths
from tests.planted import planted


def sweep_of(scores, tau, **given):
    return truths.sweep_of(scores, tau=tau, **given)


def band_of(levels, tau, within=1.0):
    found = band(respond(sweep_of([[x, x] for x in levels], tau), "tau"), within=within)
    return found.low, found.high, bool(found.end)


def test_band_is_the_run_around_the_best_value():
    tau = [0.5, 0.05, 0.1, 0.2, 1.0]  # in any order: 0.05 0.1 0.2 0.5 1
    # A point away is within.
    assert band_of([89.5, 80.0, 89.0, 90.0, 85.0], tau) == (0.1, 0.5, False)
    # What lies beyond a dip is no part of it.
    assert band_of([88.0, 89.9, 80.0, 90.0, 89.5], tau) == (0.2, 0.2, False)
    assert band_of([89.5, 80.0, 89.0, 90.0, 89.4], tau) == (0.1, 1.0, True)
    assert band_of([90.0, 90.0, 90.0, 90.0, 90.0], tau) == (0.05, 1.0, True)
    # 0.1 failed: nothing is known there.
    assert band_of([89.5, 80.0, None, 90.0, 85.0], tau) == (0.2, 0.5, False)
    assert band_of([89.5, 80.0, 89.0, 90.0, 85.0], tau, within=0.0) == (0.2, 0.2, False)


def test_band_of_bins_has_their_outer_edges():
    u = (np.arange(60) + 0.5) / 60
    scores = np.where((u > 1 / 6) & (u < 0.5), 90.0, 80.0)[:, None] + np.zeros((60, 2))
    table = respond(sweep_of(scores, u, sampler="qmc"), "tau")
    assert len(table.low) == 6
    found = band(table, within=1.0)
    assert (found.low, found.high) == (u[10], u[29])
    assert found.end == ""


def test_bins_hold_equal_values_together_and_few_values_are_no_bins():
    rng = np.random.default_rng(0)
    # One value holds three quarters.
    values = np.where(np.arange(400) < 300, 7, rng.integers(8, 200, 400))
    table = respond(sweep_of(np.zeros((400, 1)), values, sampler="random"), "tau")
    assert (table.low[1:] > table.high[:-1]).all()
    assert table.scores.shape[1] == 300
    table = respond(sweep_of(np.zeros((40, 1)), np.tile([1, 2, 4, 8], 10), sampler="random"), "tau")
    assert list(table.low) == [1, 2, 4, 8]


def test_slope_per_doubling():
    sizes = [32, 64, 128, 256]
    rng = np.random.default_rng(0)
    scores = 80 + np.arange(4)[:, None] * 1.5 + rng.normal(0, 0.2, (4, 3))
    sweep = sweep_of(scores, sizes)
    line = slope(sweep, respond(sweep, "tau"))
    fit = stats.linregress(np.repeat(np.log2(sizes), 3), scores.ravel())
    assert line.value == pytest.approx(fit.slope)
    pooled = scores.var(axis=1, ddof=1).mean()  # about the configurations, not about the line
    half = stats.t.ppf(0.975, 8) * np.sqrt(pooled / 3 / 5)  # sum of squares of -1.5 .. 1.5 is 5
    assert (line.low, line.high) == pytest.approx((fit.slope - half, fit.slope + half))
    for tau in ([0, 64, 128, 256], [-1, 2, 3, 4]):
        sweep = sweep_of(scores, tau)
        assert np.isnan(slope(sweep, respond(sweep, "tau")).value)


def test_slope_of_a_sample_has_the_hc3_interval():
    rng = np.random.default_rng(0)
    size, other = 2.0 ** (4 * rng.random(30)), rng.random(30)
    scores = (np.log2(size) ** 2 + other)[:, None] + rng.normal(0, 0.2, (30, 2))
    sweep = sweep_of(scores, size, sampler="random", other=other)
    line = slope(sweep, respond(sweep, "tau"))
    design = np.stack([np.ones(30), np.log2(size)], axis=1)
    inverse = np.linalg.inv(design.T @ design)
    means = scores.mean(axis=1)
    beta = inverse @ design.T @ means
    leverage = np.einsum("ij,jk,ik->i", design, inverse, design)
    errors = (means - design @ beta) / (1 - leverage)
    covariance = inverse @ (design.T * errors**2) @ design @ inverse
    half = stats.t.ppf(0.975, 28) * np.sqrt(covariance[1, 1])
    assert (line.value, line.low, line.high) == pytest.approx(
        (beta[1], beta[1] - half, beta[1] + half)
    )


def lost_grid(lost, *, tau=(0.1, 0.2, 0.5, 1.0), sizes=(32, 64, 128), **options):
    """Level 10 tau's number + size's number; `lost` holds pairs (tau, size) that failed."""
    cells = [(at, size) for at in tau for size in sizes]
    level = {cell: 10.0 * tau.index(cell[0]) + sizes.index(cell[1]) for cell in cells}
    scores = [
        [None, None] if cell in lost else [level[cell] - 0.1, level[cell] + 0.1] for cell in cells
    ]
    sizes = [size for _, size in cells]
    return sweep_of(scores, [at for at, _ in cells], batch_size=sizes, **options)


def test_where_configurations_are_lost_the_averages_are_over_the_settings_that_all_values_share():
    table = respond(lost_grid({(1.0, 64)}), "batch_size")
    assert table.scores.mean(axis=1) == pytest.approx([10, 11, 12])  # over the first three of tau
    assert note(Reason.SHARED_SETTINGS, param="batch_size", settings=3) in table.notes
    found = band(table, within=2.5)
    assert (found.sure_low, found.sure_high, found.end) == (32, 128, "both")
    table = respond(lost_grid({(0.1, 64), (0.2, 64), (0.5, 64)}), "batch_size")
    assert note(Reason.SHARED_SETTINGS, param="batch_size", settings=1) in table.notes
    # A value that failed everywhere takes nothing from the others.
    whole = {(1.0, size) for size in (32, 64, 128)}
    table = respond(lost_grid(whole), "tau")
    assert table.balanced
    assert np.nanmean(table.scores[:3], axis=1) == pytest.approx([1, 11, 21])
    assert not table.alive[3]


def test_values_that_share_no_setting_are_not_balanced():
    table = respond(lost_grid({(0.1, 32), (0.2, 64), (0.5, 128), (1.0, 32)}), "batch_size")
    assert not table.balanced
    assert note(Reason.UNBALANCED, param="batch_size") in table.notes


def test_a_failure_that_counts_takes_no_setting_from_the_others():
    table = respond(lost_grid({(1.0, 64)}, failed_as="worst"), "batch_size")
    assert table.balanced
    assert table.notes == ()
    level = (1 + 11 + 21 - 0.1) / 4  # the worst score seen is -0.1
    assert table.scores.mean(axis=1) == pytest.approx([15, level, 17])
    whole = {(1.0, size) for size in (32, 64, 128)}
    table = respond(lost_grid(whole, failed_as="worst"), "tau")
    assert table.scores.mean(axis=1) == pytest.approx([1, 11, 21, -0.1])
    found = band(table, within=100.0)
    assert (found.low, found.high) == (0.1, 0.5)  # near enough, yet every trial failed


def test_a_value_that_mostly_fails_is_in_no_band():
    table = respond(lost_grid({(0.5, 32), (0.5, 64)}), "tau")
    assert table.failing.tolist() == [False, False, True, False]
    found = band(table, within=100.0)
    assert (found.low, found.high) == (1.0, 1.0)
    assert (found.low, found.high, found.end) == (found.sure_low, found.sure_high, "high")
    assert not respond(lost_grid({(0.5, 32)}), "tau").failing.any()


def test_the_sure_band_by_hand():
    rng = np.random.default_rng(1)
    scores = np.array([88.0, 89.5, 90.0, 89.9, 85.0])[:, None] + 0.2 * rng.standard_normal((5, 3))
    table = respond(sweep_of(scores, [1, 2, 4, 8, 16]), "tau")
    means, pooled = scores.mean(axis=1), scores.var(axis=1, ddof=1).mean()
    width = stats.t.ppf(1 - 0.05 / 4, 10) * np.sqrt(pooled * 2 / 3)
    for within in (0.1, 0.5, 1.0, 2.0, 6.0):
        found = band(table, within=within)
        shown = [
            tau
            for tau, mean in zip([1, 2, 4, 8, 16], means, strict=True)
            if mean - width >= means.max() - within
        ]
        assert found.noise == pytest.approx(np.sqrt(pooled / 3))
        if shown:
            assert (found.sure_low, found.sure_high) == (min(shown), max(shown))
            assert found.low <= found.sure_low <= found.sure_high <= found.high
        else:
            assert np.isnan(found.sure_low)
    one = band(respond(sweep_of(scores[:, :1], [1, 2, 4, 8, 16]), "tau"), within=1.0)
    assert np.isnan([one.noise, one.sure_low, one.sure_high]).all()
    assert np.isfinite([one.low, one.high]).all()


@pytest.mark.slow
@pytest.mark.parametrize("num_params", [1, 2, 3])
def test_the_sure_band_of_bins_holds_no_place_that_is_truly_worse(num_params):
    """Of 80 - 2 log2(tau / 0.1)^2, on a sample: the bins' edges are worse by up to 2 points, their
    middles are not.
    """
    wrong = claims = 0
    for seed in range(100):
        ranges = {"tau": (0.05, 0.5), "b": (0.0, 1.0), "c": (0.0, 1.0)}
        trials = planted(
            lambda at: 80 - 2 * np.log2(at["tau"] / 0.1) ** 2 + at.get("b", 0) + at.get("c", 0),
            ranges={name: ranges[name] for name in list(ranges)[:num_params]},
            seed=seed,
        )
        (sweep,) = read_sweeps(trials, metric="knn_top1", params=list(ranges)[:num_params])
        found = band(respond(sweep, "tau"), within=1.0)
        claims += np.isfinite(found.sure_low)
        outside = found.sure_low < 0.1 / 2**0.5**0.5 or found.sure_high > 0.1 * 2**0.5**0.5
        wrong += outside
    assert claims >= 50
    assert wrong <= 5
