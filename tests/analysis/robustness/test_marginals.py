"""Marginal levels: against means by hand, bins, bands, and what gets no band."""

import numpy as np
import pytest
from scipy import stats

from clsweep.analysis.reasons import Reason
from clsweep.analysis.robustness.response import COLUMNS, marginals
from tests.analysis.truths import grid, sweep

RNG = np.random.default_rng(0)


def test_a_grid_has_the_mean_of_every_value_and_a_band_of_seed_noise():
    scores = RNG.normal(size=(6, 3)) + np.repeat([1.0, 5.0], 3)[:, None]
    table = marginals([sweep(scores, grid(2, 3))])
    assert list(table.columns) == list(COLUMNS)
    assert list(table["param"]) == ["a", "a", "b", "b", "b"]
    assert table["mean"].iloc[0] == pytest.approx(scores[:3].mean())
    assert table["mean"].iloc[3] == pytest.approx(scores[[1, 4]].mean())
    noise = np.sqrt(scores.var(axis=1, ddof=1).mean())
    half = 2.1788 * noise / np.sqrt(9)  # t on 6 x 2 degrees of freedom, 3 configurations of 3 seeds
    assert (table["high"] - table["mean"]).iloc[0] == pytest.approx(half, rel=1e-4)
    assert list(table["label"].iloc[2:]) == ["0", "1", "2"]
    assert not table["note"].map(len).any()


def test_samples_are_cut_into_bins_of_equal_count():
    tau = 10 ** RNG.uniform(-2, 0, 100)
    table = marginals([sweep(np.log10(tau)[:, None], {"tau": tau}, sampler="random")])
    assert len(table) == 8
    assert set(table["num_configs"]) <= {12, 13}
    assert (table["value_low"].iloc[1:].to_numpy() > table["value_high"].iloc[:-1].to_numpy()).all()
    # The middle on the log axis.
    np.testing.assert_allclose(np.log10(table["position"]), table["mean"])
    assert ".." in table["label"].iloc[0]
    assert (table["low"] < table["high"]).all()


def test_categories_and_few_values():
    loss, size = np.resize(["a", "b"], 40), np.resize([32, 64, 128, 256, 512], 40)
    swept = sweep(RNG.normal(size=(40, 1)), {"loss": loss, "size": size}, sampler="qmc")
    table = marginals([swept])
    assert list(table["label"]) == ["a", "b", "32", "64", "128", "256", "512"]
    assert table["position"].isna().tolist() == [True] * 2 + [False] * 5
    assert (table["value_low"].iloc[2:] == table["value_high"].iloc[2:]).all()


@pytest.mark.parametrize(
    ("scores", "options", "reason"),
    [
        (RNG.normal(size=(6, 1)), {}, Reason.ONE_SEED),
        (RNG.normal(size=(6, 2)), {"sampler": "tpe"}, Reason.FEW_FOR_SURROGATE),
        (np.full((6, 2), np.nan), {}, Reason.ALL_FAILED),
        (np.where([[k % 4 == 0] for k in range(6)], np.nan, RNG.normal(size=(6, 2))), {},
         Reason.UNBALANCED),
    ],
)  # fmt: skip
def test_notes(scores, options, reason):
    table = marginals([sweep(scores, grid(2, 3), **options)])
    assert reason in {each.reason for notes in table["note"] for each in notes}
    assert table["low"].isna().all() == (reason != Reason.UNBALANCED)


def test_configurations_that_failed_on_every_seed_say_nothing_of_the_noise():
    """The interval of a value without failures is the t interval of the noise of measured ones."""
    scores = np.arange(6.0)[:, None] * 3 + np.random.default_rng(1).normal(size=(6, 3))
    scores[:2] = np.nan
    found = marginals([sweep(scores, {"tau": 2.0 ** np.arange(6)}, failed_as="worst")])
    noise = scores[2:].var(axis=1, ddof=1).mean()
    half = stats.t.ppf(0.975, 4 * 2) * np.sqrt(noise / 3)
    middle = found[found["label"].isin(["8", "16"])]  # the highest and the lowest may be doubted
    assert (middle["high"] - middle["mean"]).to_numpy() == pytest.approx([half, half])
    assert found["low"].isna().tolist() == [True] * 2 + [False] * 4
