"""Early epochs as judges of the last one: planted truths, loops and scipy as referees."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from clsweep.analysis.fidelity import FIDELITY_COLUMNS, fidelity
from clsweep.analysis.read_sweeps import read_sweeps
from tests.analysis.draws import drawing
from tests.analysis.truths import trials_of
from tests.tiers import in_tiers

NOISE = 0.3
LAST = 10
NUM_OF_TRUTH = 1000  # tables whose mean is the truth


def levels_of(num, spread, kept, rng):
    """(2, n) levels at half of the epochs and at the end; `kept`, the correlation of both."""
    last, other = spread * rng.normal(size=(2, num))
    return np.stack([kept * last + np.sqrt(1 - kept**2) * other, last])


def drawn(levels, num_seeds, shared, rng, size=1):
    """(size, 2, n, S) scores: noise of a trial goes on in it, and a seed shares a part of it."""

    def going_on(*shape):
        early, late = rng.normal(size=(2, size, *shape))
        return np.stack([early, 0.6 * early + 0.8 * late], axis=1)

    own = np.sqrt(1 - shared) * going_on(levels.shape[1], num_seeds)
    own += np.sqrt(shared) * going_on(1, num_seeds)
    return levels[:, :, None] + NOISE * own


def sweep_and_curves(pair):
    """The trials of (2, n, S) scores, half way and at the end, as the analysis takes them."""
    early, last = pair
    trials = trials_of(last, objective="a", x=range(len(last)), early=early).dropna()
    [sweep] = read_sweeps(trials, metric="acc", params=["x"])
    curves = trials.assign(epoch=LAST // 2, part=0.5, score=trials["early"])
    return sweep, pd.concat([curves, trials.assign(epoch=LAST, part=1.0, score=trials["acc"])])


def expected(pair):
    """Regret and rank correlation of (2, n, S) complete scores, in loops."""
    early, last = pair
    losses, links = [], []
    for seed in range(last.shape[1]):
        others = [s for s in range(last.shape[1]) if s != seed]
        by_early, by_last = (x[:, others].mean(axis=1).argmax() for x in (early, last))
        losses.append(last[by_last, seed] - last[by_early, seed])
        links.append(stats.spearmanr(early[:, seed], last[:, seed]).statistic)
    return np.mean(losses), np.mean(links)


def test_it_is_picked_on_other_seeds_than_it_is_scored_on():
    rng = np.random.default_rng(3)
    pair = drawn(levels_of(7, 0.4, 0.3, rng), 4, 0.3, rng)[0].round(1)  # with ties of scores
    pair += 1e-6 * rng.random((1, 7, 1))
    [row] = fidelity(*sweep_and_curves(pair), within=1.0)
    loss, link = expected(pair)
    assert {*row} == {*FIDELITY_COLUMNS}
    assert row["regret"] == pytest.approx(max(0.0, loss))
    assert row["rho"] == pytest.approx(link)
    assert (row["budget"], row["epoch"], row["num_configs"], row["num_trials"]) == (0.5, 5, 7, 28)


def test_ranks_share_ties():
    pair = np.stack([[[1, 1], [1, 2], [3, 3], [4, 5]], [[2, 1], [2, 2], [2, 9], [5, 3]]]).astype(
        float
    )
    [row] = fidelity(*sweep_and_curves(pair), within=1.0)
    assert row["rho"] == pytest.approx(expected(pair)[1])


def few(num_seeds):
    rng = np.random.default_rng(1)
    return drawn(levels_of(6, 1.0, 0.5, rng), num_seeds, 0, rng)[0]


def test_a_smaller_score_is_better_where_it_says_so():
    pair = few(3)
    sweep, curves = sweep_and_curves(pair)
    trials = curves[curves["part"] == 1].assign(acc=lambda frame: -frame["acc"])
    [turned] = read_sweeps(trials, metric="acc", params=["x"], mode="min")
    [row], [other] = (
        fidelity(sweep, curves, within=1.0),
        fidelity(turned, curves.assign(score=-curves["score"]), within=1.0),
    )
    assert {k: other[k] for k in ("rho", "regret", "high")} == pytest.approx(
        {k: row[k] for k in ("rho", "regret", "high")}
    )


def test_trials_that_ended_early_are_left_out_and_counted():
    pair = few(3)
    sweep, curves = sweep_and_curves(pair[:, :5])
    [alone] = fidelity(sweep, curves, within=1.0)
    for status in ("stopped", "failed"):
        whole = sweep_and_curves(pair)[1].query("part == 1")
        trials = whole.assign(status=np.where(whole["config"] == 5, status, "finished"))
        trials.loc[trials["config"] == 5, "acc"] = np.nan
        [short] = read_sweeps(trials, metric="acc", params=["x"], mode="max")
        [row] = fidelity(short, curves, within=1.0)
        assert (row["regret"], row["high"]) == (alone["regret"], alone["high"])
        assert ("rho" in row) == (status == "failed")  # they were stopped for their ranks
        figures = dict(row["note"][-1 if status == "stopped" else 0].figures)
        assert (figures[status], figures["trials"]) == (3, 18)


def test_one_seed_and_two_settings_say_nothing():
    pair = few(2)
    [row] = fidelity(*sweep_and_curves(pair[..., :1]), within=1.0)
    assert (row["reason"], row["enough"]) == ("one_seed", False)
    assert "regret" not in row
    [row] = fidelity(*sweep_and_curves(pair[:, :2]), within=1.0)
    assert row["reason"] == "few_paired"
    sweep, curves = sweep_and_curves(pair)
    [row] = fidelity(sweep, curves[curves["part"] == 1], within=1.0)
    assert row["reason"] == "no_early_score"


def test_enough_is_the_smallest_part_from_which_on_no_loss_is_too_large():
    rng = np.random.default_rng(5)
    levels = levels_of(6, 4.0, 0.0, rng)
    levels[0] = -levels[1]  # the best looks worst
    sweep, curves = sweep_and_curves(drawn(levels, 5, 0, rng)[0])
    last = curves[curves["part"] == 1]
    parts = {0.2: last, 0.4: curves[curves["part"] == 0.5], 0.6: last, 0.8: last}
    frames = [frame.assign(part=part, epoch=10 * part) for part, frame in parts.items()]
    rows = fidelity(sweep, pd.concat([*frames, last]), within=1.0)
    assert [row["enough"] for row in rows] == [False, False, True, True]
    assert [row["regret"] for row in rows][::2] == [0, 0]


CELLS = [  # settings, seeds, spread of levels, correlation, share of a seed, missing trials
    (6, 3, 1.0, 0.8, 0.0, 0.0),
    (6, 5, 1.0, 0.8, 0.0, 0.0),
    (12, 3, 1.0, 0.8, 0.5, 0.0),
    (12, 5, 1.0, 0.8, 0.5, 0.0),
    (12, 3, 1.0, 0.8, 0.5, 0.2),
    (12, 5, 0.3, 0.9, 0.0, 0.2),
    (6, 3, 3.0, 0.9, 0.5, 0.0),
    (6, 3, 0.0, 0.0, 0.0, 0.0),
    (4, 5, 1.0, 0.5, 0.5, 0.1),
    (24, 10, 0.5, 0.9, 0.5, 0.0),
]


def covered(cell, number):
    """Of a planted table, what the intervals hold: the expected loss and rank correlation, and the
    loss of the noise-free choice.
    """
    num, seeds, spread, kept, shared, missing = cell
    rng = np.random.default_rng((7, number, num, seeds))
    levels = levels_of(num, spread, kept, rng)
    truth = expected_of_many(drawn(levels, seeds, shared, rng, NUM_OF_TRUTH))
    pair = drawn(levels, seeds, shared, rng)[0]
    pair[:, rng.random((num, seeds)) < missing] = np.nan
    with drawing(400, number):
        [row] = fidelity(*sweep_and_curves(pair), within=1.0)
    free = levels[1].max() - levels[1][levels[0].argmax()]
    return (
        row["low"] - 1e-9 <= max(0.0, truth[0]) <= row["high"] + 1e-9,
        row["rho_low"] - 1e-9 <= truth[1] <= row["rho_high"] + 1e-9,
        row["low"] - 1e-9 <= free <= row["high"] + 1e-9,
        row["high"] - row["low"],
    )


def expected_of_many(tables):
    """The mean of `expected` over (size, 2, n, S) scores without ties, by sums."""
    num, last = tables.shape[2], tables[:, 1]
    others = tables.sum(axis=3, keepdims=True) - tables
    early, late = np.moveaxis(others.argmax(axis=2), 1, 0)[:, :, None]
    ranks = tables.argsort(axis=2).argsort(axis=2) - (num - 1) / 2
    losses = np.take_along_axis(last, late, 1) - np.take_along_axis(last, early, 1)
    return losses.mean(), ranks.prod(axis=1).sum(axis=1).mean() / ((num**3 - num) / 12)


@pytest.mark.parametrize("cell", in_tiers(CELLS, full=[CELLS[0], CELLS[4]]), ids=str)
def test_intervals_hold_the_planted_truth(cell):
    held = np.mean([covered(cell, number) for number in range(300)], axis=0)
    print(cell, *np.round(100 * held[:3], 1), round(held[3], 2))
    assert held[0] >= 0.93
    assert held[1] >= 0.93
