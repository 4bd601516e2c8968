"""Trials tables as (configurations x seeds) tables of scores."""

import numpy as np
import pandas as pd
import pytest

from clsweep.analysis.compare import compare
from clsweep.analysis.contrast import Contrast, contrast_table
from clsweep.analysis.read_sweeps import read_sweeps
from clsweep.analysis.reasons import Reason, note
from clsweep.analysis.region_winners import region_winners
from clsweep.analysis.robustness import robustness
from clsweep.analysis.sweep import counted_alike
from tests.analysis.truths import trials_by


def trials_of(rows, **columns):
    frame = pd.DataFrame(rows, columns=["objective", "config", "seed", "tau", "acc"])
    return frame.assign(**{"status": "finished", "sampler": "grid", **columns})


ROWS = [
    ("dcl", 7, 1, 0.1, 80.0),
    ("dcl", 3, 0, 0.5, 90.0),
    ("dcl", 7, 0, 0.1, 82.0),
    ("byol", 3, 5, 0.2, 70.0),
]


def test_scores_stand_where_config_and_seed_say():
    trials = trials_of(ROWS)
    before = trials.copy(deep=True)
    dcl, byol = read_sweeps(trials, metric="acc", params=["tau"])
    pd.testing.assert_frame_equal(trials, before)
    assert (dcl.objective, list(dcl.configs), list(dcl.seeds)) == ("dcl", [3, 7], [0, 1])
    np.testing.assert_array_equal(dcl.scores, [[90, np.nan], [82, 80]])
    np.testing.assert_array_equal(dcl.means, [90, 81])
    assert (dcl.num_failed, dcl.num_trials, dcl.has_repeats, dcl.is_grid) == (0, 3, True, True)
    assert (dcl.label(1), dcl.params) == ("tau=0.1", ("tau",))
    assert (byol.label(0), byol.params) == ("", ())
    low = read_sweeps(trials, metric="acc", params=["tau"], mode="min")[0]
    np.testing.assert_array_equal(low.scores, -dcl.scores)


def test_hyperparameters_by_objective():
    trials = trials_of(ROWS, size=[1, 2, 1, 3])
    params = {"dcl": ["size"], "gone": ["nowhere"]}
    with pytest.raises(ValueError, match="no column 'nowhere'"):
        read_sweeps(trials, metric="acc", params=params)
    dcl, byol = read_sweeps(trials, metric="acc", params={"dcl": ["size"]})
    assert (dcl.params, byol.params) == (("size",), ())
    assert dcl.label(0) == "size=2"


FAILED = [*ROWS, ("dcl", 3, 1, 0.5, 95.0), ("gone", 0, 0, 0.1, 1.0)]  # the last two


def read_failed(**options):
    status = ["finished"] * 4 + ["failed"] * 2
    return read_sweeps(trials_of(FAILED, status=status), metric="acc", params=["tau"], **options)


def test_a_failed_trial_counts_as_the_worst_score_of_what_is_compared():
    dcl, byol, gone = read_failed()
    np.testing.assert_array_equal(dcl.scores, [[90, 80], [82, 80]])  # its own worst, not byol's 70
    np.testing.assert_array_equal(dcl.failed, [[False, True], [False, False]])
    assert (dcl.failed_level, byol.failed_level) == (80, 70)
    counted = note(Reason.TRIALS_FAILED_AS_WORST, failed=1, trials=4, level=80.0)
    assert dcl.missing == (counted,)
    assert byol.missing == ()
    beside, same = counted_alike(dcl, byol)
    np.testing.assert_array_equal(beside.scores, [[90, 70], [82, 80]])
    assert beside.missing[0].figures[-1] == ("level", 70.0)
    assert same is byol
    # Without any score there is nothing to say, and no level either.
    assert np.isnan(gone.scores).all()
    assert gone.missing == ()
    assert gone.nothing == note(Reason.ALL_FAILED, trials=1)
    assert counted_alike(dcl, gone)[0].failed_level == 80
    low, other, _ = read_failed(mode="min")
    np.testing.assert_array_equal(low.scores, [[-90, -90], [-82, -80]])
    assert low.missing[0].figures[-1] == ("level", 90.0)
    assert counted_alike(low, other)[0].failed_level == -90


@pytest.mark.parametrize("stranger", [False, True])
def test_a_stranger_does_not_move_what_two_others_differ_by(stranger):
    """The failed trial of a counts as 74, the worst of a and b: a - b is the mean of 1, 2, 1, 0, 2
    and 74 - 78. At the stranger's 10 it would be -31 / 3.
    """
    scores = {"a": [[80, 82], [84, 86], [76, 99]], "b": [[79, 80], [83, 86], [74, 78]]}
    scores |= {"c": [[10, 11], [12, 10], [11, 10]]} if stranger else {}
    rows = [
        (name, config, seed, 0.1 * (config + 1), float(score))
        for name, table in scores.items()
        for config, row in enumerate(table)
        for seed, score in enumerate(row)
    ]
    status = ["failed" if row[-1] == 99 else "finished" for row in rows]
    sweeps = read_sweeps(trials_of(rows, status=status), metric="acc", params=["tau"])
    pairs = compare(sweeps).set_index(["a", "b"])
    assert pairs.loc[("a", "b"), "estimate"] == pytest.approx(1 / 3)
    named = Contrast(name="lead", of=("a", "b"), metric="acc")
    lead = contrast_table([named], {"acc": sweeps})["estimate"][0]
    assert lead == pytest.approx(1 / 3)
    at = compare(sweeps, "a", "b", by="tau").set_index("region")["estimate"]
    np.testing.assert_allclose(at, [1.5, 0.5, -1.0])
    won = region_winners(sweeps, by="tau").set_index("region")
    np.testing.assert_allclose(won["lead"], [1.5, 0.5, 1.0])  # b leads at the last
    # By itself an objective counts it as its own worst, 76: 81, 85 and 76.
    assert robustness(sweeps)["mean"][0] == pytest.approx((81 + 85 + 76) / 3)


def test_a_failed_trial_counts_as_chance_or_is_left_out():
    for sign, mode in ((1, "max"), (-1, "min")):
        dcl = read_failed(failed_as="chance", chance=10.0, mode=mode)[0]
        np.testing.assert_array_equal(dcl.scores, sign * np.array([[90, 10], [82, 80]]))
        counted = note(Reason.TRIALS_FAILED_AS_CHANCE, failed=1, trials=4, level=10.0)
        assert dcl.missing == (counted,)
    out = read_failed(failed_as="left out")[0]
    for sweep in (out, dcl.measured, read_failed(mode="min")[0].measured):
        np.testing.assert_array_equal(sweep.sign * sweep.scores, [[90, np.nan], [82, 80]])
        assert sweep.missing == (note(Reason.TRIALS_FAILED, failed=1, trials=4),)
        assert np.isnan(sweep.failed_level)
    with pytest.raises(ValueError, match=r"expected one of worst, .*Did you mean 'worst'"):
        read_failed(failed_as="wrost")
    with pytest.raises(ValueError, match="the chance level is not known"):
        read_failed(failed_as="chance")


def test_what_is_no_score():
    status = ["finished", "failed", "stopped", "finished"]
    tried = (0, 0, np.inf), (1, 0, 99.0), (2, 0, 85.0), (2, 1, 86.0)
    rows = [("dcl", config, seed, 0.1 * config, score) for config, seed, score in tried]
    (sweep,) = read_sweeps(trials_of(rows, status=status), metric="acc", params=["tau"])
    # Nor what the other trials of a stopped one's configuration reached.
    assert np.isnan(sweep.scores).all()
    np.testing.assert_array_equal(sweep.failed, [[True, False], [True, False], [False, False]])
    assert sweep.num_stopped == 1
    assert sweep.not_measured == note(Reason.TRIALS_STOPPED, stopped=1, trials=4)


COLUMNS = {"width": [64, 160, 256], "opt": ["sgd", "lars", "sgd"], "shift": [0, 1, 20]}


def read_columns(*, of=("tau", *COLUMNS), **options):
    trials = trials_of([("dcl", k, 0, 0.01 * 10**k, 80.0) for k in range(3)], **COLUMNS, fixed=1)
    return read_sweeps(trials, metric="acc", params=of, **options)[0]


def test_scales():
    sweep, on_log = read_columns(), read_columns(scales={"width": "log"})
    kinds = {"tau": "log", "width": "linear", "opt": "category", "shift": "linear"}
    assert sweep.scales == kinds
    np.testing.assert_allclose(sweep.axis("tau"), np.log2([0.01, 0.1, 1.0]))
    np.testing.assert_array_equal(sweep.axis("width"), COLUMNS["width"])
    np.testing.assert_array_equal(on_log.axis("width"), np.log2(COLUMNS["width"]))


def test_bounds_are_kept_where_they_enclose_what_was_seen():
    # Log2 0 has no place, opt is a category, a shift of 0 is outside.
    given = {"tau": (0.0, 1.0), "width": (64, 512), "opt": (0, 1), "shift": (1, 20)}
    given |= {"fixed": (0, 2), "other": (0, 1)}
    swept = read_columns(of=("tau", *COLUMNS, "fixed"), bounds=given)
    assert swept.bounds == {"width": (64, 512)}
    assert read_columns().bounds == {}


def test_a_difference_of_shares_ends_at_one():
    """All of a's 4,000 settings are near its best. How many of b's are hangs on one noisy best."""
    rng = np.random.default_rng(7)
    noise = np.where(np.arange(4000) == 0, 0.4, 0.1)[:, None]
    level = np.where(np.arange(4000) == 0, 91.2, 90.0)[:, None] - 0.03
    tables = {"a": 90 + 0.001 * rng.normal(size=(4000, 2))}
    tables["b"] = level + noise * rng.normal(size=(4000, 2))
    sweeps = read_sweeps(trials_by(tables), metric="acc", params=["tau"])
    there, back = (compare(sweeps, *names, stat="within").iloc[0] for names in ("ab", "ba"))
    assert (there["high"], back["low"]) == (1.0, -1.0)  # the normal interval would end beyond
    assert there["low"] < there["estimate"] < 1.0
