"""Counts of trials and the regions where more fails: hand-made tables, and SciPy's own tests."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from clsweep.analysis.holm import holm
from clsweep.analysis.reasons import Reason, note
from clsweep.statistics import health as question
from clsweep.statistics import pareto
from clsweep.statistics.health import HEALTH_COLUMNS, REGION_FORMULAS
from clsweep.statistics.search_history import saved
from tests.analysis import truths
from tests.statistics.given import of

NAN = float("nan")


def health(trials):
    return question.health(of(trials=trials))


def failure_regions(sweeps):
    return question.failure_regions(of(sweeps))


def sweep_of(failed, **given):
    """A sweep from failed[config][seed], with scores of no interest."""
    return truths.sweep_of(np.where(failed, NAN, 90.0), **given)


def test_health():
    trials = pd.DataFrame(
        {
            "objective": ["b", "b", "b", "a"],
            "status": ["finished", "failed", "stopped", "finished"],
            "wall_time_s": [3600.0, 1800.0, NAN, 7200.0],
            "workers": [2, 2, 2, 1],
            "device": ["cpu", "gpu", "cpu", "cpu"],
            "clsweep_version": "0.1.0",
            "torch_version": ["2.14.0", "2.15.0", None, "2.15.0"],
        }
    )
    before = trials.copy(deep=True)
    table = health(trials)
    pd.testing.assert_frame_equal(trials, before)
    assert list(table.columns) == list(HEALTH_COLUMNS)
    assert list(table["objective"]) == ["b", "a"]
    counts = table[["trials", "finished", "stopped", "failed", "hours"]].to_numpy().tolist()
    assert counts == [[3, 1, 1, 1, 3.0], [1, 1, 0, 0, 2.0]]
    assert table["device"].to_list() == ["cpu, gpu", "cpu"]
    versions = ["clsweep 0.1.0, torch 2.14.0 / 2.15.0", "clsweep 0.1.0, torch 2.15.0"]
    assert table["versions"].to_list() == versions
    assert table["note"].to_list() == [
        (note(Reason.SOME_TIMES_UNKNOWN, unknown=1, trials=3), note(Reason.SEVERAL_DEVICES),
         note(Reason.SEVERAL_VERSIONS, package="torch")),
        (),
    ]  # fmt: skip


@pytest.mark.filterwarnings("error")
def test_health_of_a_bare_table():
    row = health(pd.DataFrame({"objective": ["a"], "status": ["failed"]})).iloc[0]
    assert np.isnan(row["hours"])
    assert row["note"] == (note(Reason.TIMES_UNKNOWN), note(Reason.VERSIONS_UNKNOWN))
    assert health(pd.DataFrame(columns=["objective", "status"])).empty


@pytest.mark.parametrize("workers", [[8, None], [8, pd.NA]])
def test_an_unknown_number_of_workers_is_not_one(workers):
    """Of an hour each; once the second counted as one worker's."""
    trials = pd.DataFrame({"objective": "a", "status": "finished", "wall_time_s": [3600.0] * 2})
    trials = trials.assign(workers=workers, config=[0, 1], epochs=9, epochs_trained=9)
    row = health(trials).iloc[0]
    assert row["hours"] == 8.0
    assert row["note"][0] == note(Reason.SOME_TIMES_UNKNOWN, unknown=1, trials=2)
    seconds = pareto._seconds(trials)(SimpleNamespace(objective="a", configs=[0, 1]))
    np.testing.assert_array_equal(seconds["seconds"], [8 * 3600.0, np.nan])
    (row,) = saved(of(trials=trials.assign(status=["finished", "stopped"]))).to_dict("records")
    assert np.isnan(row["hours"])
    bare = health(trials.assign(workers=None)).iloc[0]
    assert (bare["hours"], bare["note"][0]) == (2.0, note(Reason.WORKERS_UNKNOWN))


def test_rates_and_tests_are_scipys():
    rng = np.random.default_rng(0)
    tau, batch = (x.ravel() for x in np.meshgrid(np.arange(4.0), np.arange(5.0), indexing="ij"))
    failed = rng.random((20, 3)) < np.where(tau == 0, 0.8, 0.1)[:, None]
    table = failure_regions([sweep_of(failed, tau=tau, batch_size=batch)])
    assert list(table.columns) == list(REGION_FORMULAS)
    assert table["region"].to_list() == [f"tau={i}" for i in range(4)] + [
        f"batch_size={i}" for i in range(5)
    ]
    expected = []
    for value, values, count in [(x, tau, 4) for x in range(4)] + [(x, batch, 5) for x in range(5)]:
        here, hit = values == value, failed.any(axis=1)
        row = table.iloc[len(expected)]
        assert (row["trials"], row["failed"]) == (failed[here].size, failed[here].sum())
        assert row["configs"] == 20 // count
        square = [[(hit & at).sum(), (~hit & at).sum()] for at in (here, ~here)]
        expected.append(stats.fisher_exact(square, alternative="greater").pvalue)
        assert row["rate"] == failed[here].mean()
    assert table["p_holm"].to_numpy() == pytest.approx(holm(np.array(expected)))


@pytest.mark.filterwarnings("error")
def test_edge_cases():
    table = failure_regions([sweep_of(np.ones((4, 2)), tau=np.arange(4.0))])
    assert (table["rate"] == 1).all()
    assert not table["resolved"].any()
    assert failure_regions([sweep_of(np.ones((1, 2)), tau=[1.0])]).empty  # nothing is swept
    table = failure_regions([sweep_of([[1], [0], [0]], weighting=["a", None, "b"])])
    assert len(table) == 3
