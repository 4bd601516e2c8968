"""The tolerance curve, against the share within each delta."""

import numpy as np
import pandas as pd
import pytest

from clsweep.analysis.reading import read_sweeps
from clsweep.analysis.reasons import Reason, note
from clsweep.analysis.robustness.table import TOLERANCE_COLUMNS, robustness, tolerance_curve
from tests.analysis.draws import drawing
from tests.analysis.truths import trials_of


def sweeps_of(*objectives, sampler="grid", **options):
    frames = [
        trials_of(scores, objective=f"o{i}", sampler=sampler, tau=1 + np.arange(len(scores)))
        for i, scores in enumerate(objectives)
    ]
    return read_sweeps(pd.concat(frames), metric="acc", params=["tau"], **options)


def test_by_hand():
    curve = tolerance_curve(sweeps_of([[90.0], [89.0], [84.0], [70.0]]))
    assert list(curve.columns) == list(TOLERANCE_COLUMNS)
    assert len(curve) == 51
    share = curve.set_index(curve["delta"].round(6))["share"]
    found = share[[0.0, 0.8, 1.0, 5.8, 6.0, 10.0]]
    assert found.to_list() == [0.25, 0.25, 0.5, 0.5, 0.75, 0.75]
    assert curve[["low", "high"]].isna().all(axis=None)
    assert note(Reason.ONE_SEED) in curve["note"][0]


@pytest.mark.parametrize(("failed_as", "shift"), [("worst", 6.0), ("left out", 0.0)])
def test_is_share_within_at_every_delta_and_its_area(failed_as, shift):
    values = 80 + 4 * np.random.default_rng(0).normal(size=(30, 3)) + shift * np.arange(-1, 2)
    values[4] = np.nan
    for sampler in ("grid", "random"):
        sweeps = sweeps_of(values, sampler=sampler, failed_as=failed_as)
        with drawing(300):
            curve = tolerance_curve(sweeps)
        for row in curve.iloc[[0, 10, 33, 50]].itertuples():
            with drawing(300):
                whole = robustness(sweeps, within=row.delta).iloc[0]
            assert row.share == pytest.approx(whole["share_within"])
            assert row.low <= row.share <= row.high
            assert row.low >= (1 / 30 if sampler == "grid" else 0)  # the best is near itself
            if sampler == "grid":
                ends = whole["share_low"], whole["share_high"]
                assert (row.low, row.high) == pytest.approx(ends)
        beyond = 10 - curve["delta"].iloc[-1]  # where all are within
        area = (np.trapezoid(curve["share"], curve["delta"]) + beyond) / 10
        with drawing(50):
            whole = robustness(sweeps).iloc[0]
        assert area == pytest.approx(whole["tolerance_area"], abs=0.01)
        assert (curve["share"].diff().dropna() >= 0).all()
        assert sweeps[0].missing[0] in curve["note"][0]
        lost = note(Reason.LEFT_OUT, lost=1, configs=30)
        assert (lost in curve["note"][0]) == (failed_as == "left out")


def test_deltas_fit_the_data_and_are_shared():
    near, far = [[90.0], [89.7]], [[90.0], [50.0]]
    assert tolerance_curve(sweeps_of(near))["delta"].max() == 0.5
    both = tolerance_curve(sweeps_of(near, far)).groupby("objective")["delta"].max()
    assert both.tolist() == [10.0, 10.0]
    assert tolerance_curve(sweeps_of(far), within=4.0)["share"].iloc[-1] == 1.0
    assert tolerance_curve(sweeps_of([[90.0], [90.0]]))["delta"].max() == 10.0
    with pytest.raises(ValueError, match="within"):
        tolerance_curve(sweeps_of(near), within=0)
