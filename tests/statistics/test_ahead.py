"""Statistics that other processes compute before a report asks for them."""

import pandas as pd
import pytest

import clsweep
from clsweep.catalog.plugins import activate, read_plugins
from clsweep.processes import worker_processes
from clsweep.report.sections import build_report
from clsweep.statistics.computed import Statistics, prefetch
from clsweep.statistics.picks import picks
from clsweep.statistics.recommend import recommend
from clsweep.statistics.robustness import robustness
from clsweep.statistics.sensitivity import sensitivity
from tests.planted import planted

GRID = {"tau": [0.05, 0.2, 1.0], "batch_size": [32, 64]}


@pytest.fixture
def trials(monkeypatch):
    """Two objectives, and the clearest of tables of what they depend on."""
    monkeypatch.setattr("clsweep.statistics.computed.FEWEST_TRIALS", 36)
    curves = {"dcl": lambda at: 90 - 4 * at["tau"], "simclr": lambda at: 90 - 20 * at["tau"]}
    frames = [
        planted(curve, objective=name, grid=GRID, seed=i)
        for i, (name, curve) in enumerate(curves.items())
    ]
    return pd.concat(frames, ignore_index=True)


@pytest.mark.slow
def test_a_report_has_the_same_tables_and_asks_for_all_that_it_expects(trials, monkeypatch):
    alone = build_report(clsweep.analyse(trials))
    expected = []
    expect = Statistics.expect

    def noted(self, table, options, answer):
        expected.append(table.__name__)
        expect(self, table, options, answer)

    monkeypatch.setattr(Statistics, "expect", noted)
    findings = clsweep.analyse(trials)
    with worker_processes(2):
        beside = build_report(findings)
    assert set(expected) >= {"robustness", "compare", "winners", "sensitivity", "tuning_cost"}
    assert not findings._expected
    assert [table.name for table in beside.tables] == [table.name for table in alone.tables]
    for one, other in zip(alone.tables, beside.tables, strict=True):
        pd.testing.assert_frame_equal(one.frame, other.frame, check_exact=True)
    assert beside.verdicts == alone.verdicts


def test_scores_of_a_plug_in_are_known_there_too(trials, tmp_path):
    (tmp_path / "own.py").write_text(
        "from clsweep.catalog.rows import Metric\n"
        "def stretch(features_ND): ...\n"
        "ROWS = [Metric(name='stretch', mode='max', unit='', impl='stretch', doc='-',\n"
        "               takes=('features_ND',))]\n"
    )
    activate(read_plugins(["own.py"], tmp_path))
    try:
        table = trials.assign(stretch=trials["knn_top1"])
        alone = clsweep.analyse(table, metric="knn_top1").picks()
        asked = clsweep.analyse(table, metric="knn_top1")
        with worker_processes(1):
            prefetch(asked, [(picks, {})])
            assert asked._expected
            beside = asked.picks()
    finally:
        activate([])
    assert set(beside["score"]) == {"stretch"}
    pd.testing.assert_frame_equal(alone, beside, check_exact=True)


def test_a_report_that_was_interrupted_leaves_the_statistics_as_they_were(trials):
    findings = clsweep.analyse(trials)
    with worker_processes(1):  # and left before they can have answered
        prefetch(findings, [(table, {}) for table in (robustness, sensitivity, recommend)])
    again = clsweep.analyse(trials)
    for name in ("robustness", "sensitivity", "recommend"):
        pd.testing.assert_frame_equal(getattr(findings, name)(), getattr(again, name)())
