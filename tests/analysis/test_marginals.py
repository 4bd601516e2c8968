"""The response to one hyperparameter: its usable band, the slope and marginal levels, by hand."""

import itertools

import numpy as np
import pytest
from scipy import stats

from clsweep.analysis.marginals import MARGINAL_COLUMNS, marginal_levels
from clsweep.analysis.reasons import Reason, note
from clsweep.analysis.robustness import robustness
from tests.analysis import truths
from tests.analysis.draws import drawing
from tests.analysis.truths import least_squares

TAU = [0.5, 0.05, 0.1, 0.2, 1.0]  # in any order: 0.05 0.1 0.2 0.5 1


def sweep_of(scores, tau, **given):
    return truths.sweep_of(scores, tau=tau, **given)


def row_of(sweep, by="tau", within=1.0):
    with drawing(2):
        return robustness([sweep], by=by, within=within).iloc[0]


@pytest.mark.parametrize(
    ("levels", "within", "band"),
    [
        ([89.5, 80.0, 89.0, 90.0, 85.0], 1.0, (0.1, 0.5, "")),  # a point away is within
        ([88.0, 89.9, 80.0, 90.0, 89.5], 1.0, (0.2, 0.2, "")),  # what lies beyond a dip is no part
        ([89.5, 80.0, 89.0, 90.0, 89.4], 1.0, (0.1, 1.0, "high")),
        ([90.0, 90.0, 90.0, 90.0, 90.0], 1.0, (0.05, 1.0, "both")),
        ([89.5, 80.0, None, 90.0, 85.0], 1.0, (0.2, 0.5, "")),  # 0.1 failed: nothing is known there
        ([89.5, 80.0, 89.0, 90.0, 85.0], 0.0, (0.2, 0.2, "")),
    ],
)
def test_a_band_is_the_run_around_the_best_value(levels, within, band):
    row = row_of(sweep_of([[x, x] for x in levels], TAU), within=within)
    assert (row["band_low"], row["band_high"], row["band_end"]) == band


def test_a_band_of_bins_has_their_outer_edges():
    u = (np.arange(60) + 0.5) / 60
    scores = np.where((u > 1 / 6) & (u < 0.5), 90.0, 80.0)[:, None] + np.zeros((60, 2))
    row = row_of(sweep_of(scores, u, sampler="qmc"))
    assert (row["band_low"], row["band_high"], row["band_end"]) == (u[10], u[29], "")
    assert row["band_bins"] == 6


def test_a_band_of_bins_has_no_ratio_where_it_reaches_the_end():
    rng = np.random.default_rng(0)
    tau = 0.001 + rng.random(120)
    noise = rng.normal(0, 0.3, (120, 3))
    flat = row_of(sweep_of(80 + noise, tau, sampler="random"))
    assert (flat["band_end"], flat["band_bins"], flat["noise_of"]) == ("both", 6, "configurations")
    assert np.isnan(flat["band_ratio"])  # the smallest number drawn is an accident
    assert flat["band_low"] < flat["band_sure_low"] < flat["band_sure_high"] < flat["band_high"]
    peak = row_of(sweep_of((90 - 30 * (tau - 0.5) ** 2)[:, None] + noise, tau, sampler="random"))
    assert peak["band_end"] == ""
    assert peak["band_ratio"] == peak["band_high"] / peak["band_low"]


def test_slope_per_doubling():
    sizes = [32, 64, 128, 256]
    rng = np.random.default_rng(0)
    scores = 80 + np.arange(4)[:, None] * 1.5 + rng.normal(0, 0.2, (4, 3))
    scores += np.array([0.0, 9.0, -4.0])  # what a seed gives to all is no noise of a slope
    fit = stats.linregress(np.repeat(np.log2(sizes), 3), scores.ravel())
    residual = least_squares(scores)[2]  # about the configurations, not about the line
    half = stats.t.ppf(0.975, 6) * np.sqrt(residual / 3 / 5)  # sum of squares of -1.5 .. 1.5 is 5
    row = row_of(sweep_of(scores, sizes))
    expected = [fit.slope, fit.slope - half, fit.slope + half]
    assert row[["slope", "slope_low", "slope_high"]].to_list() == pytest.approx(expected)
    for tau in ([0, 64, 128, 256], [-1, 2, 3, 4], [0.9, 0.99, 0.999, 0.9999]):
        assert np.isnan(row_of(sweep_of(scores, tau))["slope"])


def test_slope_of_a_sample_has_the_hc3_interval():
    rng = np.random.default_rng(0)
    size, other = 2.0 ** (4 * rng.random(30)), rng.random(30)
    scores = (np.log2(size) ** 2 + other)[:, None] + rng.normal(0, 0.2, (30, 2))
    design = np.stack([np.ones(30), np.log2(size)], axis=1)
    inverse, means = np.linalg.inv(design.T @ design), scores.mean(axis=1)
    beta = inverse @ design.T @ means
    leverage = np.einsum("ij,jk,ik->i", design, inverse, design)
    errors = (means - design @ beta) / (1 - leverage)
    covariance = inverse @ (design.T * errors**2) @ design @ inverse
    half = stats.t.ppf(0.975, 28) * np.sqrt(covariance[1, 1])
    row = row_of(sweep_of(scores, size, sampler="random", other=other))
    expected = [beta[1], beta[1] - half, beta[1] + half]
    assert row[["slope", "slope_low", "slope_high"]].to_list() == pytest.approx(expected)


def lost_grid(lost, **options):
    """Level 10 tau's number + size's number; `lost` holds pairs (tau, size) that failed."""
    tau, sizes = (0.1, 0.2, 0.5, 1.0), (32, 64, 128)
    cells = list(itertools.product(tau, sizes))
    level = np.array([np.nan if (at, size) in lost else 10 * tau.index(at) + sizes.index(size)
                      for at, size in cells])  # fmt: skip
    at, size = zip(*cells, strict=True)
    return sweep_of(level[:, None] + [-0.1, 0.1], at, batch_size=size, **options)


WHOLE = {(1.0, size) for size in (32, 64, 128)}


@pytest.mark.parametrize(
    ("lost", "by", "options", "levels", "reason"),
    [  # least-squares means: the levels of an additive table, whatever it lacks
        ({(1.0, 64)}, "batch_size", {}, [15, 16, 17], (Reason.LEAST_SQUARES, 1)),
        ({(0.1, 64), (0.2, 64), (0.5, 64)}, "batch_size", {}, [15, 16, 17],
         (Reason.LEAST_SQUARES, 3)),
        (WHOLE, "tau", {}, [1, 11, 21, np.nan], None),  # one that failed everywhere takes nothing
        ({(0.1, 32), (0.2, 64), (0.5, 128), (1.0, 32)}, "batch_size", {}, [15, 16, 17],
         (Reason.LEAST_SQUARES, 4)),
        # A failure that counts takes no setting from the others; the worst score seen is -0.1.
        ({(1.0, 64)}, "batch_size", {"failed_as": "worst"}, [15, (1 + 11 + 21 - 0.1) / 4, 17],
         None),
        (WHOLE, "tau", {"failed_as": "worst"}, [1, 11, 21, -0.1], None),
    ],
)  # fmt: skip
def test_lost_configurations_take_their_settings_along(lost, by, options, levels, reason):
    sweep = lost_grid(lost, **options)
    table = marginal_levels([sweep]).query("param == @by")
    if levels:
        assert table["mean"].to_list() == pytest.approx(levels, nan_ok=True)
    figures = {"lost": reason[1]} if reason and reason[1] else {}
    expected = [note(reason[0], param=by, **figures)] if reason else []
    for notes in (row_of(sweep, by)["note"], table["note"].iloc[0]):
        reasons = (Reason.LEAST_SQUARES, Reason.UNBALANCED)
        assert [each for each in notes if each.reason in reasons] == expected


@pytest.mark.parametrize(
    ("lost", "by", "options", "within", "band"),
    [
        ({(1.0, 64)}, "batch_size", {}, 2.5, (32, 128)),
        (WHOLE, "tau", {"failed_as": "worst"}, 100.0, (0.1, 0.5)),  # near enough, yet all failed
        ({(0.5, 32), (0.5, 64)}, "tau", {}, 100.0, (1.0, 1.0)),  # what mostly fails is in no band
        ({(0.5, 32)}, "tau", {}, 100.0, (0.1, 1.0)),
    ],
)
def test_a_band_without_what_failed(lost, by, options, within, band):
    row = row_of(lost_grid(lost, **options), by, within)
    assert (row["band_low"], row["band_high"]) == band
    assert (row["band_sure_low"], row["band_sure_high"]) == band


def test_the_sure_band_by_hand():
    rng, tau = np.random.default_rng(2), np.array([1, 2, 4, 8, 16])
    scores = np.array([88.0, 89.5, 90.0, 89.9, 85.0])[:, None] + 0.2 * rng.standard_normal((5, 3))
    means, pooled = scores.mean(axis=1), least_squares(scores)[2]
    width = stats.t.ppf(1 - 0.05 / 4, 8) * np.sqrt(pooled * 2 / 3)
    for within in (0.1, 0.5, 1.0, 2.0, 6.0):
        row = row_of(sweep_of(scores, tau), within=within)
        assert row["level_noise"] == pytest.approx(np.sqrt(pooled / 3))
        assert row["noise_of"] == "seeds"
        shown = tau[means - width >= means.max() - within]
        sure = row["band_sure_low"], row["band_sure_high"]
        if len(shown):
            assert sure == (shown[0], shown[-1])
            assert row["band_low"] <= sure[0] <= sure[1] <= row["band_high"]
        else:
            assert np.isnan(sure).all()
    one = row_of(sweep_of(scores[:, :1], tau))
    assert one[["level_noise", "band_sure_low", "band_sure_high"]].isna().all()
    assert one[["band_low", "band_high"]].notna().all()


# Marginal levels.
RNG = np.random.default_rng(0)


def test_a_grid_has_the_mean_of_every_value_and_a_band_of_seed_noise():
    scores = RNG.normal(size=(6, 3)) + np.repeat([1.0, 5.0], 3)[:, None]
    table = marginal_levels([truths.sweep(scores, truths.grid(2, 3))])
    assert list(table.columns) == list(MARGINAL_COLUMNS)
    assert list(table["param"]) == ["a", "a", "b", "b", "b"]
    assert table["mean"].iloc[0] == pytest.approx(scores[:3].mean())
    assert table["mean"].iloc[3] == pytest.approx(scores[[1, 4]].mean())
    # Half of the six configurations of three seeds: a third of the variance is of the seeds.
    shift = scores.mean(axis=0) - scores.mean()
    left = scores - scores.mean(axis=1, keepdims=True) - shift
    of_seeds = stats.t.ppf(0.975, 2) ** 2 * np.square(shift).sum() / 2 / 3
    of_rest = stats.t.ppf(0.975, 10) ** 2 * np.square(left).sum() / 10 / 18
    half = np.sqrt(of_seeds + of_rest)
    assert (table["high"] - table["mean"]).iloc[0] == pytest.approx(half)
    assert list(table["label"].iloc[2:]) == ["0", "1", "2"]
    assert not table["note"].map(len).any()


def test_samples_are_cut_into_bins_of_equal_count():
    tau = 10 ** RNG.uniform(-2, 0, 100)
    table = marginal_levels([truths.sweep(np.log10(tau)[:, None], {"tau": tau}, sampler="random")])
    assert len(table) == 8
    assert set(table["num_configs"]) <= {12, 13}
    assert (table["value_low"].iloc[1:].to_numpy() > table["value_high"].iloc[:-1].to_numpy()).all()
    # The middle on the log axis.
    np.testing.assert_allclose(np.log10(table["position"]), table["mean"])
    assert ".." in table["label"].iloc[0]
    assert (table["low"] < table["high"]).all()


def test_categories_and_few_values():
    loss, size = np.resize(["a", "b"], 40), np.resize([32, 64, 128, 256, 512], 40)
    swept = truths.sweep(RNG.normal(size=(40, 1)), {"loss": loss, "size": size}, sampler="qmc")
    table = marginal_levels([swept])
    assert list(table["label"]) == ["a", "b", "32", "64", "128", "256", "512"]
    assert table["position"].isna().tolist() == [True] * 2 + [False] * 5
    assert (table["value_low"].iloc[2:] == table["value_high"].iloc[2:]).all()


@pytest.mark.parametrize(
    ("scores", "reason"),
    [
        (RNG.normal(size=(6, 1)), Reason.ONE_SEED),
        (np.where([[k in (0, 1, 5)] for k in range(6)], np.nan, RNG.normal(size=(6, 2))),
         Reason.UNBALANCED),
    ],
)  # fmt: skip
def test_notes(scores, reason):
    table = marginal_levels([truths.sweep(scores, truths.grid(2, 3))])
    assert reason in {each.reason for notes in table["note"] for each in notes}
    assert table["low"].isna().all() == (reason != Reason.UNBALANCED)


def test_configurations_that_failed_on_every_seed_say_nothing_of_the_noise():
    """The interval of a value without failures is the t interval of the noise of measured ones."""
    scores = np.arange(6.0)[:, None] * 3 + np.random.default_rng(1).normal(size=(6, 3))
    scores[:2] = np.nan
    table = marginal_levels([truths.sweep(scores, {"tau": 2.0 ** np.arange(6)}, failed_as="worst")])
    _, effects, residual, freedom, _ = least_squares(scores[2:])
    by_rest = stats.t.ppf(0.975, freedom) ** 2 * residual * 3 / 4
    by_seeds = stats.t.ppf(0.975, 2) ** 2 * np.square(effects).sum() / 2
    half = np.sqrt((by_rest + by_seeds) / 3)
    middle = table[table["label"].isin(["8", "16"])]  # the highest and the lowest may be doubted
    assert (middle["high"] - middle["mean"]).to_numpy() == pytest.approx([half, half])
    assert table["low"].isna().tolist() == [True] * 2 + [False] * 4
