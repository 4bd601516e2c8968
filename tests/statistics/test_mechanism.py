"""Diagnostics beside the metric: loops, and SciPy's Spearman."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from clsweep.analysis.read_sweeps import read_sweeps
from clsweep.analysis.reasons import Reason, note
from clsweep.statistics import mechanism as question
from clsweep.statistics.mechanism import LINK_FORMULAS, MEANINGS
from tests.analysis import truths
from tests.statistics.given import of

NAN = float("nan")
PARAMS = ["tau", "batch_size"]
ABOUT = {"metric": "acc"}


def mechanism(trials, by=None):
    return question.mechanism(of(read(trials), trials=trials, **ABOUT), by=by)


def links(trials):
    return question.links(of(read(trials), trials=trials, **ABOUT))


def trials_of(num=12, seeds=2, *, objective="dcl", sampler="grid", rng=None, **columns):
    """Trials of `num` configurations; columns: (num, seeds) values."""
    rng = rng or np.random.default_rng(0)
    tau = np.arange(num) // 3 / 10 if sampler == "grid" else rng.random(num)
    at = {"tau": tau, "batch_size": 64 * (1 + np.arange(num) % 3)}
    noise = rng.normal(size=(num, seeds))
    acc = np.reshape(columns.pop("acc", 90 + noise), (num, seeds))
    return truths.trials_of(acc, objective=objective, sampler=sampler, **at, **columns)


def read(trials, **options):
    return read_sweeps(trials, metric="acc", params=PARAMS, **options)


def test_means_by_value():
    rng = np.random.default_rng(1)
    parts = [
        trials_of(objective="b", q_b_mean=rng.random(24)),
        trials_of(objective="a").assign(batch_size=128, alignment=NAN),
    ]
    trials = pd.concat(parts, ignore_index=True)
    trials.loc[0, "status"] = "failed"  # its metric is a leftover
    trials.loc[7, "acc"] = NAN
    before = trials.copy(deep=True)
    table = mechanism(trials, by="batch_size")
    pd.testing.assert_frame_equal(trials, before)
    assert list(table) == ["objective", "at", "num_trials", "acc", "q_b_mean", "reason", "note"]
    assert table["at"].to_list() == [f"batch_size={size}" for size in (64, 128, 192, 128)]
    good = trials[(trials["status"] == "finished") & trials["acc"].notna()]
    names = good["objective"] + " batch_size=" + good["batch_size"].astype(str)
    for row in table.to_dict("records"):
        here = good[names == f"{row['objective']} {row['at']}"]
        assert row["num_trials"] == len(here)
        means = here.groupby("config")[["acc", "q_b_mean"]].mean().mean()
        row_means = [row["acc"], row["q_b_mean"]]
        assert row_means == pytest.approx(means.to_list(), nan_ok=True)
    assert np.isnan(table["q_b_mean"].iloc[-1])
    assert mechanism(trials)["at"].to_list() == ["", ""]


def test_links_are_scipys_spearman():
    rng = np.random.default_rng(2)
    trials = trials_of(40, rng=rng)
    trials["alignment"] = trials["acc"] + rng.normal(size=80)
    trials["uniformity"] = -trials["acc"]
    table = links(trials)
    assert list(table.columns) == list(LINK_FORMULAS)
    means = trials.groupby("config")[["acc", "alignment"]].mean()
    oracle = stats.spearmanr(means["acc"], means["alignment"])
    row = table.iloc[0]
    assert (row["diagnostic"], row["num_configs"]) == ("alignment", 40)
    assert row["rho"] == pytest.approx(oracle.statistic)
    place, error = np.arctanh(oracle.statistic), np.sqrt((1 + oracle.statistic**2 / 2) / 37)
    # Holm: the other p is smaller, this stays.
    assert row["p_holm"] == pytest.approx(2 * stats.norm.sf(place / error))
    assert row["p_holm"] > oracle.pvalue
    assert row["high"] == pytest.approx(np.tanh(place + 1.959964 * error))
    assert table["resolved"].to_list() == [True, True]
    assert table["rho"].iloc[0] > 0
    assert table["rho"].iloc[1] == pytest.approx(-1)
    assert table["low"].iloc[1] == pytest.approx(-1)
    assert -1 < table["high"].iloc[1] < -0.9


def test_a_constant_diagnostic_is_no_order_of_rounding():
    trials = trials_of(30, 3, std_per_dim=np.full(90, 0.1))
    trials.loc[4, "status"] = "failed"  # the mean of two is not the mean of three, in the last bit
    row = links(trials).iloc[0]
    assert np.isnan(row["rho"])
    assert row["reason"] == Reason.EQUAL_RANKS


@pytest.mark.filterwarnings("error")
def test_edge_cases():
    trials = trials_of()
    table = mechanism(trials)
    assert table.empty
    assert list(table.columns) == ["objective", "at", "num_trials", "acc", "reason", "note"]
    assert set(MEANINGS) < set(table.columns)
    assert links(trials).empty
    few = trials_of(9, q_b_mean=np.arange(18.0))
    row = links(few).iloc[0]
    assert row["note"] == (note(Reason.FEW_PAIRED, configs=9, least=10),)
    assert not row["resolved"]
    gone = trials_of(q_b_mean=np.arange(24.0)).assign(status="failed")
    assert mechanism(gone).empty
    tpe = trials_of(sampler="tpe", q_b_mean=np.arange(24.0))
    row = mechanism(tpe, by="tau").iloc[0]
    assert np.isnan(row["acc"])
    assert row["reason"] == Reason.ADAPTIVE_SAMPLER
    row = links(tpe).iloc[0]
    assert np.isnan(row["rho"])
    assert row["reason"] == Reason.ADAPTIVE_SAMPLER
