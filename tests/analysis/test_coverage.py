"""How often the 95 % intervals of the statistics hold the planted truth: cells of the page that
`make coverage` writes, in fewer sweeps.
"""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from clsweep.analysis.reasons import Reason, note
from clsweep.analysis.robustness import robustness
from tests.coverage import MOST_FALSE, measured
from tests.coverage_cells import COMPLETE, EVEN, FLAT, GAPS, HALF, RACED, SPACES, scored, sweep_of
from tests.tiers import in_tiers

LEAST = 90.0  # of few sweeps
# In 200 sweeps an interval that covers 90 % shows less in one of twenty cases.
SEEN = stats.binom.ppf(0.05, 200, LEAST / 100) / 2
FALSE = stats.binom.ppf(0.99, 200, MOST_FALSE / 100) / 2


def numbers(group, cell, repeats, column="covers"):
    rows = measured(((group, cell), repeats))
    return {row["statistic"]: row[column] for row in rows if row[column] == row[column]}


def check(group, cell, repeats, least=LEAST):
    percents = numbers(group, cell, repeats)
    assert all(percent >= least for percent in percents.values()), percents
    if group == "robustness":
        assert percents["mean"] <= 99.5
        if FLAT in cell:
            assert percents["sd_star"] >= LEAST + (95 - LEAST) / 2  # its interval begins at 0
        else:
            names = ("sd", "sd_star", "regret", "tolerance_area")
            assert max(percents[name] for name in names) <= 99.5, percents
    return percents


@pytest.mark.parametrize("space", ["grid of 6", FLAT])
def test_a_grid(space):
    check("robustness", (space, 3, EVEN, COMPLETE), 100)


PLANS = [
    *[(space, num, COMPLETE) for space in SPACES for num in (2, 3)],
    *[("grid of 11 x 5", num, GAPS[0]) for num in (3, 5)],
    ("grid of 11 x 5", 5, RACED),
]


@pytest.mark.parametrize("plan", in_tiers(PLANS, full=[PLANS[3], PLANS[5], PLANS[6]]), ids=str)
def test_every_space(plan):
    space, num_seeds, gap = plan
    check("robustness", (space, num_seeds, EVEN, gap), 200, SEEN)


@pytest.mark.parametrize("space", in_tiers(SPACES, full=["grid of 11 x 5"]))
def test_spreads_tuning_and_sensitivity(space):
    percents = check("others", (space, 3, EVEN, COMPLETE), 200, SEEN)
    assert len(percents) == 5


@pytest.mark.slow
@pytest.mark.parametrize("noise", [EVEN, HALF])
@pytest.mark.parametrize("num_seeds", in_tiers([2, 3, 5], full=[3]))
@pytest.mark.parametrize(
    ("group", "space"), [("contrast", "grid of 3 x 2"), ("compare", "grid of 6")]
)
def test_equal_sides_have_no_verdict(group, space, num_seeds, noise):
    false = numbers(group, (space, num_seeds, noise, COMPLETE), 200, "false")
    assert max(false.values()) <= FALSE, false


def test_new_images():
    """With the hits intervals hold for them; those of the seeds alone do not."""
    cell = ("6 settings", 5, "own to a setting", "80 images")
    percents = numbers("new images", cell, 30)
    alone = [percents.pop(name) for name in ("level (seeds)", "lead (seeds)")]
    assert len(percents) == 6
    assert min(percents.values()) >= SEEN, percents
    assert max(alone) < SEEN


def test_a_cell_is_the_same_by_itself_and_tells_width_and_verdicts():
    cell = ("grid of 3 x 2", 3, EVEN, COMPLETE)
    rows = measured((("contrast", cell), 4))
    assert rows == measured((("contrast", cell), 4))
    assert [row["statistic"] for row in rows][:2] == ["one cell, within", "all, within"]
    # Differences of two scores vary by 2 of the noise, those of means of 3 by a third of that.
    widths = [row["width"] for row in measured((("contrast", (*cell[:1], 10, *cell[2:])), 60))][:2]
    t = stats.t.ppf(0.975, 9)
    expected = [2 * t * np.sqrt(2 / 10), 2 * t * np.sqrt(2 / 30)]
    assert widths == pytest.approx(expected, rel=0.15)


def test_a_planted_race_drops_who_is_behind_and_its_best_is_that_of_all_seeds():
    at = np.arange(6.0)
    scores, _ = scored(at, 5, EVEN, RACED, np.random.default_rng(1))
    present = np.isfinite(scores)
    assert present[:, :2].all()
    assert present[5].all()
    assert not present[0, 2:].any()
    sweep = sweep_of("a", scores, {"x": at}, "grid", RACED)
    assert (sweep.num_skipped, sweep.raced) == ((~present).sum(), (2, 3, 4))
    for each in (sweep, replace(sweep, num_skipped=0)):  # of the second it skipped none
        assert each.of_space.scores.shape == (6, 2)
        assert each.of_space.cut_short == [note(Reason.RACED_SEEDS, seeds=2)]
    assert sweep.not_measured
    assert not sweep.of_space.not_measured
    row = robustness([sweep]).iloc[0]
    assert row["best"] == pytest.approx(scores[5].mean())
    assert row["mean"] == pytest.approx(scores[:, :2].mean())


def test_the_best_level_of_a_race_is_of_all_seeds_of_the_best():
    """Two lucky seeds went to all, two unlucky ones to the best: by two alone its level was 9 above
    its mean over four. A lead, a spread and a share are of the two that all have.
    """
    at, seed = np.array([0.0, 10.0, 12.0]), np.array([5.0, 4.0, -3.0, -6.0])
    scores = 70 + at[:, None] + seed + 0.01 * np.random.default_rng(0).normal(size=(3, 4))
    scores[0, 2:] = np.nan
    sweep = sweep_of("a", scores, {"x": np.arange(3.0)}, "grid", RACED)
    row = robustness([sweep]).iloc[0]
    assert row["best"] == pytest.approx(82, abs=0.02)
    assert row["best_level"] == pytest.approx(row["best"], abs=0.02)
    assert row["worst"] == pytest.approx(70 + 4.5, abs=0.02)
    assert row["range"] == pytest.approx(12, abs=0.04)
    assert row["sd"] == pytest.approx(np.std(scores[:, :2].mean(axis=1), ddof=1))
