"""Best of k: against all subsets, planted truths and the coverage of its intervals; the cost of
tuning.
"""

import itertools

import numpy as np
import pytest
from scipy import stats

from clsweep.analysis.reasons import Reason, note
from clsweep.analysis.robustness import robustness
from clsweep.analysis.score_table import best_level
from clsweep.analysis.sweep import FAILED_AS
from clsweep.analysis.tuning import (
    BEST_OF_K_COLUMNS,
    COST_COLUMNS,
    cost_of_tuning,
    expected_best_of_k,
)
from clsweep.sweeps.notes import note_text
from tests.analysis import truths

NAN = float("nan")


def sweep_of(scores, **given):
    return truths.sweep_of(scores, **{"tau": np.arange(len(scores)) / 10, **given})


def by_enumeration(scores, k):
    """Every subset of k, pick by the mean of the other seeds, score at the one left out; ties
    share.
    """
    scores = np.asarray(scores, dtype=float)
    total, weight = 0.0, 0.0
    for s in range(scores.shape[1]):
        others = np.delete(scores, s, axis=1)
        for subset in itertools.combinations(range(len(scores)), k):
            seen = [i for i in subset if not np.isnan(others[i]).all()]
            looks = {i: np.nanmean(others[i]) for i in seen}
            top = [i for i in seen if looks[i] == max(looks.values())]
            for i in top:
                if not np.isnan(scores[i, s]):
                    total, weight = total + scores[i, s] / len(top), weight + 1 / len(top)
    return total / weight


def test_all_subsets_of_eight():
    scores = 90 + np.random.default_rng(0).normal(size=(8, 3))
    ties = np.random.default_rng(1).integers(0, 3, (8, 3)).astype(float)  # broken at random
    for each in (scores, ties):
        table = expected_best_of_k([sweep_of(each)])
        expected = [by_enumeration(each, k) for k in range(1, 9)]
        best = cost_of_tuning([sweep_of(each)]).iloc[0]["best_level"]
        assert table["expected"].to_numpy() == pytest.approx(rising(expected, best))
        assert (table["low"] < table["expected"]).all()
        assert (table["expected"] < table["high"]).all()
    assert list(table.columns) == list(BEST_OF_K_COLUMNS)
    assert list(table["k"]) == list(range(1, 9))


def rising(curve, best):
    """Isotonic regression by its min-max formula, between the first value and the best level."""
    num = len(curve)
    levels = [
        max(min(np.mean(curve[i : j + 1]) for j in range(k, num)) for i in range(k + 1))
        for k in range(num)
    ]
    return np.clip(levels, curve[0], max(best, curve[0]))


@pytest.mark.parametrize("failed_as", FAILED_AS)
def test_failures_are_tries_that_bring_nothing_or_what_they_count_as(failed_as):
    scores = 90 + np.random.default_rng(2).normal(size=(7, 3))
    scores[[1, 5]] = NAN
    sweep = sweep_of(scores, failed_as=failed_as, chance=10.0)
    table = expected_best_of_k([sweep])
    level = {"worst": np.nanmin(scores), "chance": 10.0, "left out": NAN}[failed_as]
    filled = np.where(np.isnan(scores), level, scores)
    expected = [by_enumeration(filled, k) for k in range(1, 8)]
    assert table["expected"].to_numpy() == pytest.approx(rising(expected, expected[-1]))
    notes = {
        "worst": "6 of 21 trials failed and count as the worst score seen "
        f"({np.nanmin(scores):.1f})",
        "chance": "6 of 21 trials failed and count as chance (10)",
        "left out": "6 of 21 trials failed and are left out; 2 of 7 configurations have no score "
        "and are tries that bring nothing",
    }
    assert note_text(*table["note"].iloc[0]) == notes[failed_as]
    cost = cost_of_tuning([sweep], defaults={"dcl": {"tau": 0.0}}).iloc[0]
    means = np.nanmean(filled[np.isfinite(filled).any(axis=1)], axis=1)
    assert cost["best_level"] == pytest.approx(np.clip(expected[-1], means.mean(), means.max()))
    assert cost["note"] == sweep.missing
    # One or two tries may be the two that failed, which are no better than the worst seen.
    assert table["low"].isna().tolist() == [failed_as == "worst"] * 2 + [False] * 5
    assert table["high"].notna().all()


def test_one_seed_is_the_plain_estimator():
    scores = [[3.0], [1.0], [2.0], [NAN]]
    table = expected_best_of_k([sweep_of(scores)])
    # The failed one brings nothing.
    assert table["expected"].to_numpy() == pytest.approx([2.0, 14 / 6, 11 / 4, 3.0])
    assert all(note(Reason.PICKED) in notes for notes in table["note"])
    assert table[["low", "high"]].isna().all().all()


def test_of_a_sample_the_mean_of_the_configurations_is_as_sure_as_they_say():
    scores = 90 + np.random.default_rng(6).normal(size=(64, 3))
    table = expected_best_of_k([sweep_of(scores, sampler="random")]).set_index("k")
    of_settings = 1.96 * scores.mean(axis=1).std(ddof=1) / 8  # of k = 1
    of_seeds = stats.t.ppf(0.975, 2) * stats.sem(scores.mean(axis=0))
    half = np.hypot(of_settings, of_seeds)
    assert table["high"][1] - table["expected"][1] == pytest.approx(half, rel=0.1)
    is_open = [k > 32 for k in table.index]
    assert table["low"].isna().tolist() == is_open
    assert (table["reason"] == Reason.ONE_DECIDES).tolist() == is_open


def test_cost_and_tunability():
    level = np.array([80.0, 82, 84, 86, 88, 89.5, 90, 88])
    scores = level[:, None] + 0.05 * np.random.default_rng(8).standard_normal((8, 3))
    table = cost_of_tuning([sweep_of(scores)], defaults={"dcl": {"tau": 0.2}}, within=2.0)
    assert list(table.columns) == list(COST_COLUMNS)
    row = table.iloc[0]
    curve = [np.mean([max(c) for c in itertools.combinations(level, k)]) for k in range(1, 9)]
    assert row["k_within"] == 1 + next(i for i, value in enumerate(curve) if value >= 88)
    assert row["k_low"] <= row["k_within"] <= row["k_high"]
    assert row["best_level"] == pytest.approx(90, abs=0.1)
    assert row["default_at"] == "tau=0.2"
    assert row["tunability_low"] < 6 < row["tunability_high"]
    assert row["tunability_high"] - row["tunability_low"] < 0.5
    assert (row["reason"], row["note"]) == ("", ())
    with pytest.raises(ValueError, match=r"^within: expected >= 0"):
        cost_of_tuning([sweep_of(scores)], within=-1.0)


def test_lookup_of_the_default():
    scores = 90 + np.random.default_rng(9).normal(size=(4, 2))
    names = np.array(["a", "b", "a", "b"])

    def look(defaults, sampler="grid", taus=(0.05, 0.05, 0.2, 0.2)):
        sweep = sweep_of(scores, sampler=sampler, tau=np.array(taus), weighting=names)
        return cost_of_tuning([sweep], defaults=defaults and {"dcl": defaults}).iloc[0]

    assert look({"tau": 0.1 + 0.1, "weighting": "b"})["default_at"] == "tau=0.2, weighting=b"
    near = look({"tau": 0.25, "weighting": "a"})
    assert near["default_at"] == "tau=0.2, weighting=a"
    assert near["note"] == (note(Reason.DEFAULT_NEAREST, at="tau=0.25, weighting=a"),)
    far = look({"tau": 0.3, "weighting": "a"})
    assert far["note"] == (note(Reason.DEFAULT_NOT_TRIED, at="tau=0.3, weighting=a"),)
    assert np.isnan(far["tunability"])
    assert np.isnan(look({"tau": 0.2, "weighting": "c"})["tunability"])
    unknown = Reason.DEFAULT_UNKNOWN
    assert look({"tau": 0.2})["note"] == (note(unknown, params=("weighting",)),)
    assert look(None)["note"] == (note(unknown, params=("tau", "weighting")),)
    drawn = look({"tau": 0.21, "weighting": "a"}, "random", (0.05, 0.1, 0.206, 0.3))
    assert drawn["default_at"] == "tau=0.206, weighting=a"
    drawn = look({"tau": 0.25, "weighting": "a"}, "random", (0.05, 0.1, 0.2, 0.3))
    assert np.isnan(drawn["tunability"])


def test_a_shift_of_the_seeds_does_not_hide_what_tuning_gains():
    """As wide as a paired t-interval, and not as the shift."""
    rng = np.random.default_rng(5)
    scores = 90 + np.arange(5.0)[:, None] + 0.1 * rng.normal(size=(5, 5))
    plain, shifted = (
        cost_of_tuning([sweep_of(table)], defaults={"dcl": {"tau": 0.0}}).iloc[0]
        for table in (scores, scores + 5 * rng.normal(size=5))
    )
    widths = [row["tunability_high"] - row["tunability_low"] for row in (plain, shifted)]
    assert plain["tunability"] == pytest.approx(shifted["tunability"])
    assert widths[1] == pytest.approx(widths[0], rel=0.5)


@pytest.mark.parametrize("share", [0.0, 0.2])
def test_the_curve_rises_from_the_mean_to_the_best_level(share):
    rng = np.random.default_rng(5)
    for _ in range(4):
        scores = 80 + rng.normal(size=(9, 3))
        scores[:, 1:][rng.random((9, 2)) < share] = NAN
        sweep = sweep_of(scores)
        curve = expected_best_of_k([sweep])["expected"].to_numpy()
        row = robustness([sweep]).iloc[0]
        assert (np.diff(curve) >= 0).all()
        assert [curve[0], curve[-1]] == pytest.approx([row["mean"], row["best_level"]])


@pytest.mark.parametrize("sampler", ["grid", "random"])
def test_the_best_of_one_has_the_interval_of_the_mean(sampler):
    sweep = sweep_of(80 + np.random.default_rng(5).normal(size=(9, 3)), sampler=sampler)
    first, row = expected_best_of_k([sweep]).iloc[0], robustness([sweep]).iloc[0]
    ends = pytest.approx([row["mean_low"], row["mean_high"]])
    assert [first["low"], first["high"]] == ends


def test_the_best_level_of_settings_that_look_alike_does_not_hang_on_their_order():
    """Scores of few images are often equal: two are best by either seed."""
    scores = np.array([[80.0, 70.0], [80.0, 72.0], [60.0, 72.0], [50.0, 60.0]])
    # Left out: seed 0, of those that are best by seed 1; seed 1, of those that are best by seed 0.
    level = np.mean([np.mean([80.0, 60.0]), np.mean([70.0, 72.0])])
    for order in itertools.permutations(range(4)):
        assert best_level(scores[list(order)], clipped=False) == pytest.approx(level)
