"""Sensitivity of sampled sweeps: planted truths, the gate, and what cannot be measured."""

import numpy as np
import pytest
from scipy import stats

from clsweep.analysis.read_sweeps import read_sweeps
from clsweep.analysis.reasons import Reason, note
from clsweep.analysis.sensitivity import sensitivity
from tests.analysis.truths import additive, ishigami, planted, sweep, trials_of


def one(swept):
    return sensitivity([swept]).set_index("term")


@pytest.mark.parametrize("sampler", [pytest.param("random", marks=pytest.mark.slow), "qmc"])
def test_ishigami(sampler):
    rng = np.random.default_rng(1)
    table = one(planted(ishigami, rng.random((256, 3)), noise=0.37, rng=rng, sampler=sampler))
    first, total = [0.3139, 0.4424, 0.0], [0.5576, 0.4424, 0.2437]
    np.testing.assert_allclose(table["first"].iloc[:3], first, atol=0.06)
    np.testing.assert_allclose(table["total"].iloc[:3], total, atol=0.06)
    assert table["resolved"].all()
    assert table.index[3] == "x0 x x2"
    assert table["first"].iloc[3] == pytest.approx(0.2437, abs=0.06)
    assert table["first_low"].iloc[2] == 0
    assert table["r2"].iloc[0] > 0.85
    assert table["r2_ceiling"].iloc[0] == pytest.approx(1 - 0.37**2 / 2 / 13.84, abs=0.01)


@pytest.mark.slow
def test_a_category_and_a_log_scale():
    rng = np.random.default_rng(3)
    tau, loss = 10 ** rng.uniform(-2, 0, 96), rng.choice(["a", "b", "c"], 96)
    level = np.log10(tau) + np.select([loss == "a", loss == "b"], [1.0, 0.0], -0.5)
    # Variances: log10 tau uniform over 2 decades 1 / 3; 1, 0, -1/2 over three categories 7 / 18.
    options = {"noise": 0.05, "rng": rng, "tau": tau, "loss": loss}
    table = one(planted(lambda u: 0 * u[:, 0] + level, rng.random((96, 1)), **options))
    np.testing.assert_allclose(table["first"].iloc[:3], [0, 6 / 13, 7 / 13], atol=0.06)
    assert list(table["resolved"].iloc[:3]) == [False, True, True]


def test_a_product_is_all_interaction():
    rng = np.random.default_rng(4)
    u = rng.random((96, 3))
    table = one(planted(lambda u: (u[:, 0] - 0.5) * (u[:, 1] - 0.5), u, noise=0.005, rng=rng))
    assert table.loc["x0 x x1", "first"] > 0.8
    assert table.loc["x0 x x1", "resolved"]
    assert (table["first"].iloc[:3] < 0.15).all()
    assert list(table["resolved"].iloc[:3]) == [True, True, False]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("num", "num_params", "num_seeds"), [(16, 8, 1), (32, 3, 1), (32, 3, 3), (64, 8, 1)]
)
def test_pure_noise_is_not_resolved(num, num_params, num_seeds):
    rng, repeats = np.random.default_rng(5), 25
    options = {"num_seeds": num_seeds, "noise": 1, "rng": rng}
    cubes = rng.random((repeats, num, num_params))
    table = sensitivity([planted(lambda u: 0 * u[:, 0], u, **options) for u in cubes])
    below = table[table["term"] == ""]
    assert len(below) >= stats.binom.ppf(0.01, repeats, 0.95)
    weak = {Reason.SURROGATE_WEAK, Reason.SURROGATE_WEAK_ONE_SEED}
    assert set(below["reason"]) <= weak | {Reason.NO_SPREAD_SEEN}
    nothing = below["reason"] == Reason.NO_SPREAD_SEEN
    assert (nothing == (below["r2_ceiling"] <= 0)).all()


def test_below_the_gate_nothing_is_ranked():
    rng = np.random.default_rng(6)
    swept = planted(additive, rng.random((32, 2)), num_seeds=2, noise=4, rng=rng)
    row = sensitivity([swept]).iloc[0]
    assert row["term"] == ""
    assert row[["first", "total", "null"]].isna().all()
    assert np.isfinite(row["r2"])
    needed = {
        Reason.NEEDS_CONFIGS: "needs_configs",
        Reason.NEEDS_SEEDS: "needs_seeds",
        Reason.NO_SPREAD_SEEN: None,
    }[row["note"][-1].reason]
    for name in ("needs_seeds", "needs_configs"):
        assert np.isfinite(row[name]) == (name == needed)


@pytest.mark.slow
def test_a_parameter_that_is_missing_somewhere_does_not_withhold_the_others():
    """A momentum that one of two optimisers has: its effect is averaged over."""
    rng = np.random.default_rng(13)
    u, kind = rng.random((96, 2)), np.arange(96) % 2
    momentum = np.where(kind == 1, rng.random(96), np.nan)
    level = 4 * u[:, 0] + 3 * kind + np.where(kind == 1, momentum, 0.0)
    scores = level[:, None] + 0.1 * rng.normal(size=(96, 2))
    at = {"lr": 1 + u[:, 0], "kind": np.where(kind, "sgd", "adam"), "momentum": momentum}
    table = one(sweep(scores, at, sampler="random"))
    assert list(table.index[:2]) == ["lr", "kind"]
    known = np.array([16 / 12, 3.5**2 / 4])  # without the variance of the momentum
    np.testing.assert_allclose(table["first"].iloc[:2], known / known.sum(), atol=0.06)
    assert table["resolved"].iloc[:2].all()
    assert note(Reason.OFF_AXIS, params=("momentum",)) in table["note"].iloc[0]


@pytest.mark.slow
def test_copies_in_a_sample_are_no_response():
    """Twenty values of one parameter, and another one without any effect, trained alike."""
    rng, false = np.random.default_rng(14), 0
    for _ in range(20):
        a = rng.integers(0, 20, 60)
        at = {"a": a, "b": rng.random(60)}
        swept = sweep(rng.normal(size=(20, 3))[a], at, sampler="random")
        false += bool(sensitivity([swept])["resolved"].any())
    assert false <= 2


def test_one_seed_passes_the_gate_on_r2_alone():
    rng = np.random.default_rng(9)
    table = one(planted(additive, rng.random((64, 3)), num_seeds=1, noise=0.2, rng=rng))
    assert list(table["resolved"].iloc[:3]) == [True, True, False]
    assert table["r2_ceiling"].isna().all()
    assert table["note"].iloc[0] == (note(Reason.CEILING_UNKNOWN),)


def test_of_a_single_hyperparameter_no_share_is_told():
    rng = np.random.default_rng(11)
    row = one(planted(lambda u: 4 * u[:, 0], rng.random((32, 1)), rng=rng)).loc["x0"]
    assert row["resolved"]
    assert row["r2"] > 0.9
    assert row[["first", "first_low", "total", "total_high", "null"]].isna().all()
    noise = one(planted(lambda u: 0 * u[:, 0], rng.random((32, 1)), rng=rng)).iloc[0]
    assert (noise["resolved"], noise["reason"]) == (False, Reason.SURROGATE_WEAK)


def test_settings_that_failed_on_every_seed_are_no_repeat():
    """They count as the worst score at each seed, in which there is no noise to be seen."""
    rng = np.random.default_rng(10)
    scores = rng.normal(size=(40, 2))
    scores[:10] = np.nan
    trials = trials_of(scores, sampler="random", tau=rng.random(40))
    one_seed = trials[(trials["status"] == "failed") | (trials["seed"] == 0)]
    [sweep] = read_sweeps(one_seed, metric="acc", params=["tau"])
    row = sensitivity([sweep]).iloc[0]
    assert np.isnan(row["r2_ceiling"])
    assert row["note"][0].reason == Reason.SURROGATE_WEAK_ONE_SEED
