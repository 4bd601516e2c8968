"""What a search did: against plain loops, scipy and numbers made by hand."""

import numpy as np
import pandas as pd
import pytest

from clsweep.analysis.read_sweeps import read_sweeps
from clsweep.statistics.search_history import history, saved, top
from tests.planted import planted
from tests.statistics.given import of

RANGES = {"tau": (0.05, 1.0), "lr": (0.1, 1.0)}


def searched(level=lambda at: 90 - 20 * (at["tau"] - 0.4) ** 2, **options):
    trials = planted(level, ranges=RANGES, **{"num_configs": 40, "num_seeds": 2} | options)
    return trials.assign(sampler="tpe")


def sweeps_of(trials, mode="max"):
    return read_sweeps(trials, metric="knn_top1", params=list(RANGES), mode=mode)


@pytest.mark.parametrize("mode", ["max", "min"])
def test_the_best_so_far_is_that_of_a_plain_loop(mode):
    trials = searched(noise=2.0)
    table = history(of(sweeps_of(trials, mode), trials=trials))
    better, best, expected = (max if mode == "max" else min), None, []
    for _, group in trials.groupby("config"):
        mean = group["knn_top1"].mean()
        best = mean if best is None else better(best, mean)
        expected.append(best)
    np.testing.assert_allclose(table["best"], expected)
    assert table["tried"].tolist() == list(range(1, 41))


def test_one_that_was_stopped_or_lost_a_seed_is_shown_and_is_never_the_best():
    trials = searched(noise=0.0)
    lost = (trials["config"] == 3) & (trials["seed"] == 1)
    trials.loc[trials["config"] == 0, ["status", "knn_top1"]] = ["stopped", 99.0]
    trials.loc[trials["config"] == 3, "knn_top1"] = 99.0
    trials.loc[lost, ["status", "knn_top1"]] = ["failed", np.nan]
    table = history(of(sweeps_of(trials), trials=trials))
    shown = table.loc[[0, 3], ["score", "state", "num_seeds"]].to_numpy().tolist()
    assert shown == [[99.0, "stopped", 0], [99.0, "failed", 1]]
    assert table["best"].max() < 99.0
    assert np.isnan(table.loc[0, "best"])


def test_what_stopping_saved():
    trials = pd.DataFrame(
        {
            "objective": ["a", "a", "a", "b"],
            "status": ["finished", "stopped", "stopped", "finished"],
            "epochs_trained": [9, 3, 1, 9],
            "wall_time_s": [9 * 3600.0, 3 * 3600.0, 2 * 3600.0, 3600.0],
            "workers": [1, 2, 1, 1],
        }
    )
    (row,) = saved(of(trials=trials.assign(epochs=9))).to_dict("records")
    assert (row["objective"], row["stopped"], row["trials"]) == ("a", 2, 3)
    assert row["saved"] == pytest.approx(1 - 13 / 27)
    assert row["hours"] == pytest.approx(9 + 6 + 2)
    assert row["saved_hours"] == pytest.approx(6 / 3 * 6 + 2 / 1 * 8)


@pytest.mark.parametrize(("epochs", "failed"), [((4, 1), 0), ((100, 90), 5)])
def test_what_failed_trials_lost_is_not_saved_and_times_may_be_unknown(epochs, failed):
    trials = pd.DataFrame({"objective": "a", "status": ["finished", "stopped"]})
    trials = trials.assign(epochs_trained=epochs, epochs=epochs[0])
    lost = trials.iloc[[1] * failed].assign(status="failed", epochs_trained=1)
    (row,) = saved(of(trials=pd.concat([trials, lost], ignore_index=True))).to_dict("records")
    planned = epochs[0] * (2 + failed)
    assert row["saved"] == pytest.approx((epochs[0] - epochs[1]) / planned)
    assert row["planned_epochs"] == planned
    assert np.isnan(row["saved_hours"])


def test_the_best_configurations_have_their_seeds():
    trials = searched(noise=3.0)
    table = top(of(sweeps_of(trials)), 3)
    means = trials.groupby("config")["knn_top1"].mean().sort_values(ascending=False)
    assert table["config"].tolist() == means.index[:3].tolist()
    for row in table.to_dict("records"):
        own = trials[trials["config"] == row["config"]].sort_values("seed")["knn_top1"]
        assert list(row["seeds"]) == pytest.approx(own.tolist())
        assert row["low"] < row["score"] < row["high"]
