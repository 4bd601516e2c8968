"""The toy of EqCo Appendix C: pairs of known mutual information, and what each loss finds of it."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from clsweep.catalog.ownership import default_of, owned_params
from clsweep.train import mutual_information
from clsweep.train.finite import DivergedError
from clsweep.train.loop import train_trial
from clsweep.train.mutual_information import DIM, correlation, draw_pairs
from tests.tiers import in_tiers

pytestmark = pytest.mark.usefixtures("one_thread")

# EqCo Table 9, by true mutual information (nats) and number of pairs K.
TABLE_9 = {
    ("infonce", 4.0): {64: 2.9, 128: 3.2, 256: 3.4, 512: 3.6},
    ("eqco", 4.0): {64: 3.8, 128: 3.7, 256: 3.6, 512: 3.6},
    ("infonce", 10.0): {64: 4.1, 128: 4.7, 256: 5.4, 512: 6.0},
    ("eqco", 10.0): {64: 6.1, 128: 6.0, 256: 6.0, 512: 6.0},
}


def config(loss: str, **changes: Any) -> dict[str, Any]:
    parts = {"framework": "mi_critic", "loss": loss, "regularizer": "none", "views": "two"}
    owned = owned_params(parts, dataset="gaussian_mi")
    return {
        **parts,
        "dataset": "gaussian_mi",
        "seed": 0,
        **{n: default_of(n, parts) for n in owned},
        **changes,
    }


def estimate(loss: str, **changes: Any) -> float:
    return float(train_trial(config(loss, **changes), lambda _: None)["mi_estimate"])


@pytest.mark.parametrize("nats", [0.5, 10.0])
def test_pairs_are_standard_normal_and_correlated_as_eq_15_asks(nats):
    rho = correlation(nats)
    assert -DIM / 2 * math.log(1 - rho**2) == pytest.approx(nats)
    x_ND, y_ND = draw_pairs(50_000, nats, torch.Generator().manual_seed(0))
    for z_ND in (x_ND, y_ND):
        assert z_ND.mean(0).abs().max() < 0.02
        assert (z_ND.std(0) - 1).abs().max() < 0.02
    covariance_DD = x_ND.T @ y_ND / len(x_ND)
    assert (covariance_DD - rho * torch.eye(DIM)).abs().max() < 0.03


@pytest.mark.parametrize("loss", ["infonce", "eqco"])
def test_an_epoch_is_250_steps_and_the_estimate_is_of_fresh_pairs(loss):
    rows: list[dict[str, Any]] = []
    result = train_trial(config(loss, epochs=2, batch_size=32, estimate_batches=400), rows.append)
    assert [row["epoch"] for row in rows] == [1, 2]
    assert "mi_estimate" not in rows[0]
    assert result["mi_estimate"] == rows[1]["mi_estimate"]
    assert result["num_images"] == 2 * 250 * 32
    largest = math.log(1 + (31 if loss == "infonce" else 512))
    assert rows[1]["mi_bound"] == pytest.approx(largest - rows[1]["train_loss"])
    assert rows[0]["mi_bound"] < result["mi_estimate"] < largest


def test_one_seed_one_estimate_and_eqco_is_infonce_where_alpha_is_the_number_of_negatives(
    monkeypatch,
):
    monkeypatch.setattr(mutual_information, "STEPS_PER_EPOCH", 20)
    short = {"epochs": 1, "batch_size": 16, "estimate_batches": 10}
    actual = estimate("infonce", **short)
    assert estimate("infonce", **short) == actual
    assert estimate("infonce", **short, seed=1) != actual
    assert estimate("eqco", **short, alpha=15.0) == pytest.approx(actual, rel=1e-4)


def test_divergence_is_said():
    with pytest.raises(DivergedError, match="the loss is"):
        estimate("infonce", epochs=2, batch_size=16, lr=1e30)


@pytest.mark.parametrize("num_pairs", in_tiers([64, 128, 256, 512], full=[64]))
@pytest.mark.parametrize(("loss", "nats"), TABLE_9)
def test_table_9(loss, nats, num_pairs):
    actual = estimate(loss, mutual_information=nats, batch_size=num_pairs)
    assert actual == pytest.approx(TABLE_9[loss, nats][num_pairs], abs=0.2)
