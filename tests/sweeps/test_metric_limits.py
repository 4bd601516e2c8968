"""Limits of metrics that the catalog does not know, by their names and scores."""

import numpy as np
import pytest

import clsweep
from clsweep.sweeps.metric_limits import limits_by_name
from tests.analysis.truths import sweep, trials_of

AT = {"tau": [0.1, 0.2]}


@pytest.mark.parametrize(
    ("name", "mode", "scores", "end"),
    [
        ("acc", "max", [[71.2, 80], [12, 99.9]], 100),
        ("val/Acc@1", "max", [[0.712, 0.8], [0.12, 1]], 1),
        ("testAccuracy", "max", [[1, 2], [3, 4]], 100),
        ("top-1", "max", [[0, 100], [50, 2]], 100),
        ("eval.f1", "max", [[0.5, 0.6], [0.7, 0.8]], 1),
        ("acc %", "max", [[0.1, 0.9], [0.5, 0.8]], 100),  # less than one in a hundred
        ("accuracy", "max", [[0, 1], [1, 1]], 100),  # may be either
        ("top1_err", "min", [[20, 30], [40, 50]], 100),
        ("error_rate", "min", [[0.2, 0.3], [0.1, 0.2]], 1),
        ("acc", "min", [[71, 80], [12, 99]], None),
        ("top1_err", "max", [[71, 80], [12, 99]], None),
        ("acc", "max", [[71, 80], [12, 100.5]], None),
        ("acc", "max", [[-0.1, 0.2], [0.3, 0.4]], None),
        ("error", "min", [[0.1, 0.2], [0.3, 0.4]], None),  # a squared one may be any
        ("accuracy_gain", "max", [[1, 2], [3, 4]], None),
        ("acc_loss", "min", [[1, 2], [3, 4]], None),
        ("account", "max", [[1, 2], [3, 4]], None),
        ("speedup", "max", [[1, 2], [3, 4]], None),
    ],
)  # fmt: skip
def test_a_name_and_its_scores_say_the_limits(name, mode, scores, end):
    limits, note = limits_by_name(name, mode, [sweep(scores, AT, mode=mode)])
    assert limits == (None if end is None else (0.0, end))
    assert bool(note) == (end is not None)
    assert (f"end at 0 and {end}" in note) == (end is not None)


def test_intervals_of_an_accuracy_end_at_its_limits():
    rng = np.random.default_rng(3)
    scores = np.minimum(99.5 + rng.normal(0, 0.4, (4, 3)), 100)
    for factor, end in ((1, 100.0), (0.01, 1.0)):
        frame = trials_of(factor * scores, tau=[0.1, 0.2, 0.4, 0.8])
        found = clsweep.analyse(frame, metric="acc", mode="max", params=["tau"])
        assert any(note.endswith(f"end at 0 and {end:g}") for note in found.data.notes)
        table = found.marginals()
        assert table["high"].max() == end
        renamed = frame.rename(columns={"acc": "speed"})
        free = clsweep.analyse(renamed, metric="speed", mode="max", params=["tau"])
        assert free.marginals()["high"].max() > end
