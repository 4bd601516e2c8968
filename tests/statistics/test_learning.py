"""Learning curves against numbers made by hand."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from clsweep.statistics.learning import learning_curves

ANYWHERE = (-np.inf, np.inf)


TRIALS = pd.DataFrame({"trial_id": ["a0", "a1", "b0"], "objective": ["a", "a", "b"],
                       "config": [4, 4, 0], "num_images": [400, 400, 800],
                       "epochs_trained": 4})  # fmt: skip
EPOCHS = pd.DataFrame({"trial_id": np.repeat(["a0", "a1", "b0"], 4), "epoch": [1, 2, 3, 4] * 3,
                       "time_s": np.repeat([2.0, 3.0, 2.0], 4)})  # fmt: skip
SCORES = [np.nan, 50.0, np.nan, 60.0, np.nan, 52.0, np.nan, 66.0, np.nan, 40.0, np.nan, 45.0]


def curves(**options):
    given = {"metric": "acc", "pairs": {"a0": 1, "a1": 1, "b0": 6}, "limits": ANYWHERE} | options
    epochs = EPOCHS.assign(acc=SCORES).sample(frac=1, random_state=0)
    return learning_curves(epochs, TRIALS, **given)


def test_every_axis_is_counted():
    table = curves()
    assert table["objective"].tolist() == ["a", "a", "b", "b"]
    assert table["epoch"].tolist() == [2, 4, 2, 4]
    assert table["images"].tolist() == [200, 400, 400, 800]
    assert table["pairs"].tolist() == [200, 400, 2400, 4800]
    assert table["seconds"].tolist() == [5, 10, 4, 8]  # the mean of the seeds' 2 and 3 an epoch
    assert table["mean"].tolist() == [51, 63, 40, 45]


def test_the_interval_pools_the_variance_of_a_curve():
    """Two seeds that agree by chance at one epoch do not make it certain."""
    first, second = curves().head(2).to_dict("records")
    half = stats.t.ppf(0.975, 1) * np.sqrt(np.mean([2.0, 18.0]) / 2)
    assert first["high"] - first["mean"] == pytest.approx(half)
    assert second["mean"] - second["low"] == pytest.approx(half)


def test_an_interval_ends_where_the_metric_does_and_one_seed_has_none():
    table = curves(limits=(0.0, 90.0))
    assert table["high"].max() == 90.0
    assert table["low"].tail(2).isna().all()


def test_what_is_not_recorded_has_no_axis():
    table = curves(pairs={})
    assert table["pairs"].isna().all()
    assert table["images"].notna().all()
    never = EPOCHS.assign(acc=np.nan)  # scored at the end alone, in the trials
    assert learning_curves(never, TRIALS, metric="acc", pairs={"a0": 1}, limits=ANYWHERE).empty
