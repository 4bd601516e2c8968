"""Recommended configurations: neighbours against a loop, a planted cliff, and what the notes
say.
"""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from clsweep.analysis.best_setting import tuned_difference
from clsweep.analysis.compare import compare
from clsweep.analysis.noise import noise_of
from clsweep.analysis.read_sweeps import read_sweeps
from clsweep.analysis.reasons import Reason, note
from clsweep.analysis.recommend import RECOMMEND_COLUMNS, config_levels, neighbourhoods, recommend
from clsweep.analysis.robustness import robustness
from clsweep.results.standings import Standings
from tests.analysis.truths import least_squares, sweep_of, trials_of

NAN = float("nan")


def grid(shape):
    return np.array(list(itertools.product(*map(range, shape))), dtype=float)


def pair(sweep, **options):
    table = recommend([sweep], **options)
    assert list(table.columns) == list(RECOMMEND_COLUMNS)
    assert list(table["kind"]) == ["best", "robust"]
    return table.iloc[0], table.iloc[1]


def test_best_and_its_interval():
    rng = np.random.default_rng(0)
    scores = 90 + rng.normal(size=(7, 3))
    scores[2, 1] = NAN
    best, _ = pair(sweep_of(scores, tau=np.arange(7.0)))
    means, effects, variance, freedom, _ = least_squares(scores)
    top = int(means.argmax())
    noise = noise_of(scores, by_seed=True)  # of the mean square of the seeds
    assert noise.blocks.effects == pytest.approx(effects)
    of_seeds = stats.t.ppf(0.975, 2) ** 2 * noise.blocks.of_mean
    rest = 1 - 1 / noise.blocks.rows
    half = np.sqrt(of_seeds + stats.t.ppf(0.975, freedom) ** 2 * variance * rest / 3)
    assert (best["config"], best["num_seeds"]) == (top, 3)
    ends = [means[top] - half, means[top] + half]
    assert best[["score", "low", "high"]].to_list() == pytest.approx([means[top], *ends])
    assert note(Reason.PICKED) in best["note"]
    of_one, _ = pair(sweep_of([[94.0, 95.0, 93.0]], tau=[0.1]))
    assert note(Reason.PICKED) not in of_one["note"]


@pytest.mark.parametrize("mode", ["max", "min"])
def test_the_best_is_that_of_the_ranking_ties_included(mode):
    """Means that are equal but for the order of their sums, and the configuration planned first
    not in the first row.
    """
    scores = {2: (0.1, 0.2, 0.3), 0: (0.3, 0.2, 0.1), 1: (0.2, 0.3, 0.1), 3: (0.3, 0.1, 0.2)}
    trials = trials_of([*scores.values()], tau=[*scores])
    trials = trials.assign(config=trials["tau"], trial_id=trials.index.astype(str))
    rows = trials.to_dict("records")
    (ranking,) = Standings(rows, rows, metric="acc", mode=mode).rankings()
    (sweep,) = read_sweeps(trials, metric="acc", params=["tau"], mode=mode)
    best, _ = pair(sweep)
    assert best["config"] == ranking.configs[0].config == 0


def test_neighbours_on_a_grid_against_a_loop():
    places = grid((4, 3, 2))
    level = np.random.default_rng(1).permutation(len(places)).astype(float)
    order = np.random.default_rng(2).permutation(len(places))  # the order of the rows says nothing
    names = np.array(["x", "y"])[places[order, 2].astype(int)]
    axes = {"tau": 2.0 ** places[order, 0], "batch_size": places[order, 1], "weighting": names}
    around = neighbourhoods(sweep_of(level[order, None], **axes))
    for row, at in enumerate(places[order]):
        apart = np.abs(places - at).sum(axis=1)
        near = np.flatnonzero((apart <= 1) & (places[:, 2] == at[2]))
        assert around.counts[row] == len(near) - 1
        assert around.worst[row] == min(level[near])


def test_neighbours_of_a_sample_against_a_loop():
    rng = np.random.default_rng(3)
    tau, width = 10.0 ** rng.uniform(-2, 0, 40), rng.uniform(0, 5, 40)
    level = rng.permutation(40).astype(float)
    options = {"sampler": "random", "scales": {"width": "linear"}}
    around = neighbourhoods(sweep_of(level[:, None], tau=tau, width=width, **options))
    axes = np.stack([np.log(tau), width], axis=1)
    unit = (axes - axes.min(axis=0)) / np.ptp(axes, axis=0)
    for row in range(40):
        distance = np.sqrt(np.mean((unit - unit[row]) ** 2, axis=1))
        near = [i for i in np.argsort(distance)[:5] if distance[i] <= 0.2]
        assert around.counts[row] == len(near) - 1
        assert around.worst[row] == min(level[near])


def test_without_noise_the_levels_stay():
    level = np.array([90.0, 95, 60, 91, 92, 91.5, 91])
    around = neighbourhoods(sweep_of(np.repeat(level[:, None], 3, axis=1), tau=np.arange(7.0)))
    assert around.worst == pytest.approx([90, 60, 60, 60, 91, 91, 91])


@pytest.mark.parametrize("mode", ["max", "min"])
def test_the_robust_pick_avoids_the_cliff_next_to_the_best(mode):
    rng = np.random.default_rng(4)
    places = grid((7, 7))
    level = 92 - 0.2 * ((places - 2) ** 2).sum(axis=1)
    level[places[:, 0] == 6] = 50
    level[places[:, 0] == 5] = 94  # the best, beside the cliff
    true_worst = [min(level[np.abs(places - at).sum(axis=1) <= 1]) for at in places]
    sign = 1 if mode == "max" else -1
    lost = []
    for _ in range(30):
        scores = sign * (level[:, None] + 0.4 * rng.standard_normal((49, 3)))
        best, robust = pair(sweep_of(scores, mode=mode, tau=places[:, 0], batch_size=places[:, 1]))
        assert level[best["config"]] == 94
        assert sign * best["neighbourhood_worst"] < 55
        assert sign * robust["neighbourhood_worst"] > 90
        lost.append(max(true_worst) - true_worst[robust["config"]])
    assert np.mean(lost) < 0.3
    assert max(lost) < 1.5


@pytest.mark.slow
def test_noise_does_not_favour_corners():
    rng = np.random.default_rng(6)
    places = grid((5, 5))
    corners, levels = 0, []
    for _ in range(200):
        scores = 90 + 0.5 * rng.standard_normal((25, 3))
        _, robust = pair(sweep_of(scores, tau=places[:, 0], batch_size=places[:, 1]))
        corners += robust["num_neighbours"] == 2
        levels.append(robust["neighbourhood_worst"])
    assert corners / 200 < 0.45  # four corners of 25; lowest plain means pick one in more than half
    assert np.mean(levels) == pytest.approx(90, abs=0.25)


def test_failed_neighbours():
    scores = np.array([[90.0, 91], [95, 96], [NAN, NAN], [92, 93], [93, 94], [92, 93], [90, 91]])
    sweep = sweep_of(scores, tau=np.arange(7.0))
    best, robust = pair(sweep)
    assert best["config"] == 1
    assert np.isnan(best["neighbourhood_worst"])
    assert note(Reason.NEIGHBOUR_FAILED) in best["note"]
    assert robust["config"] == 4
    at = {"tau": np.arange(7.0)}
    best, robust = pair(sweep_of(scores, failed_as="chance", chance=10.0, **at))
    assert (best["config"], best["neighbourhood_worst"], robust["config"]) == (1, 10, 4)
    best, robust = pair(sweep_of(scores, failed_as="worst", **at))
    assert (best["config"], best["neighbourhood_worst"]) == (1, 90)
    # What failed is measured nowhere: it is no pick itself, and its level is not shrunk.
    assert robust["config"] == 4
    chance = {"failed_as": "chance", "chance": -10.0}
    mirror, _ = pair(sweep_of(-scores, mode="min", **chance, **at))
    assert mirror["neighbourhood_worst"] == -10


def test_notes():
    rng = np.random.default_rng(7)
    places = grid((4, 4))
    scores = 80 + 3 * places.sum(axis=1)[:, None] + 0.1 * rng.standard_normal((16, 2))
    axes = {"tau": places[:, 0], "batch_size": places[:, 1]}
    best, robust = pair(sweep_of(scores, **axes))
    edge = note(Reason.AT_EDGE, params=("tau", "batch_size"))
    assert edge in best["note"]
    assert robust["note"] == (note(Reason.SAME_AS_BEST), edge)
    every = np.repeat(scores, 2, axis=1)
    every[:, 1] = NAN  # each configuration lost a seed
    best, _ = pair(sweep_of(every, **axes))
    assert note(Reason.SEEDS_FAILED, failed=1, seeds=4) in best["note"]
    best, robust = pair(sweep_of(scores[:, :1], **axes))
    assert np.isnan(best["low"])
    assert {note(Reason.ONE_SEED), note(Reason.PICKED)} <= {*robust["note"]}
    best, _ = pair(sweep_of(scores[:1, :1]))  # one alone is no choice
    assert best["note"] == (note(Reason.ONE_SEED),)


def test_settings_whose_noise_clearly_differs_have_each_their_own():
    """Ten seeds: the quiet best setting has the t-interval of its own scores, and a lead there is
    seen; of even noise, or few seeds, all is as it was. No one's noise is known from equal scores.
    """
    rng = np.random.default_rng(2)
    levels, noise = 90 - np.arange(8.0)[:, None], rng.standard_normal((8, 10))
    quiet = levels + np.geomspace(0.3, 6, 8)[:, None] * noise
    level = config_levels(sweep_of(quiet, tau=np.arange(8.0)))
    low, high = stats.t.interval(0.95, 9, quiet[0].mean(), stats.sem(quiet[0]))
    assert (level["low"][0], level["high"][0]) == pytest.approx((low, high))
    others = [
        sweep_of(quiet + lead + np.where(lead, 0.1, 0) * rng.standard_normal((8, 10)),
                 objective=name, tau=np.arange(8.0))
        for name, lead in (("a", 0.0), ("b", -1.5))
    ]  # fmt: skip
    assert compare(others, stat="tuned")["winner"].tolist() == ["a"]
    for scores in (levels + noise, quiet[:, :4]):
        assert not noise_of(scores).is_uneven
    quiet[3] = 80.0
    assert noise_of(quiet).is_uneven
    level = config_levels(sweep_of(quiet, tau=np.arange(8.0)))
    assert level["high"][3] - level["low"][3] > 2


@pytest.mark.parametrize("sampler", ["grid", "random"])
def test_no_optimum_lies_beyond_the_last_value_that_there_is(sampler):
    at = np.array([0.0, 0.5, 0.96, 1.0] if sampler == "grid" else [0.02, 0.5, 0.96, 0.99])
    levels = [[1.0, 1.1], [2.0, 2.1], [3.0, 3.1], [4.0, 4.1]]
    sweep = sweep_of(levels, sampler=sampler, momentum_end=at)
    sweep = replace(sweep, bounds={} if sampler == "grid" else {"momentum_end": (0.0, 1.0)})

    def is_told(tried, **possible):
        reasons = [each.reason for each in pair(replace(tried, possible=possible))[0]["note"]]
        return Reason.AT_EDGE in reasons

    assert is_told(sweep)
    assert not is_told(sweep, momentum_end=(0.0, 1.0))
    assert is_told(sweep, momentum_end=(0.0, 2.0))
    lowest = replace(sweep, scores=-sweep.scores)
    assert not is_told(lowest, momentum_end=(0.0, 2.0))
    assert is_told(lowest, momentum_end=(-1.0, 1.0))
    if sampler == "random":  # the least value tried is not the end of the range that is searched
        assert not is_told(replace(lowest, bounds={"momentum_end": (-0.5, 1.0)}))


def test_a_mean_of_the_seeds_that_did_not_fail_is_not_the_best():
    scores = np.repeat([[90.0], [91], [99], [91]], 5, axis=1)
    scores[2, 1:], scores[3, 4] = NAN, 90
    best, robust = pair(sweep_of(scores, tau=np.arange(4.0)))
    assert (best["config"], best["num_seeds"]) == (1, 5)
    assert robust["config"] != 2
    best, _ = pair(sweep_of(-scores, mode="min", sampler="random", tau=np.arange(4.0)))
    assert (best["config"], best["score"]) == (1, -91)


@pytest.mark.parametrize("mode", ["max", "min"])
def test_a_higher_mean_of_fewer_seeds_is_named(mode):
    """And where no configuration has finished on all seeds, that none has."""
    best, _ = pair(sweep_of([[90, NAN], [NAN, 80], [70, NAN]], tau=[1, 2, 3]))
    assert (best["config"], best["num_seeds"]) == (0, 1)
    assert note(Reason.NO_WHOLE_CONFIG, seeds=2) in best["note"]

    def best_of(levels, unfinished):
        scores = np.repeat(np.array(levels, float)[:, None], 3, axis=1)
        scores[1, 2] = NAN
        trials = trials_of(scores * (1 if mode == "max" else -1), tau=range(3))
        trials = trials if unfinished == "failed" else trials.drop(5)
        sweeps = read_sweeps(trials, metric="acc", params=["tau"], mode=mode)
        compared = tuple(each.of("") for each in tuned_difference(*sweeps, *sweeps)[2])
        reasons = {"elsewhere": robustness(sweeps)["note"][0], "compared": compared}
        return dict(pair(sweeps[0])[0]) | reasons

    best = best_of([70.0, 80.0, 75.0], "to run")
    assert (best["config"], best["num_seeds"]) == (2, 3)
    for notes in (best["note"], best["elsewhere"], best["compared"]):
        assert note(Reason.HIGHER_ON_FEWER, at="tau=1", seeds=2, most=3) in notes
    for levels, unfinished in (([70, 80, 75], "failed"), ([70, 75, 75], "to run")):
        best = best_of(levels, unfinished)
        reasons = {each.reason for each in (*best["note"], *best["elsewhere"], *best["compared"])}
        assert Reason.HIGHER_ON_FEWER not in reasons


@pytest.mark.parametrize("sign", [1, -1])
def test_the_lead_of_what_fresh_seeds_prefer_is_that_of_a_paired_t_test(sign):
    """Setting 0 is the study's first; of two others that ran again each has half of the 5 %."""
    shown = {0: [84.0, 83.0, 85.0], 1: [88.0, 86.5, 88.5], 2: [80.0, 81.0, 82.0]}

    def best(fresh):
        again = {config: dict(enumerate(sign * np.array(row), 10)) for config, row in fresh.items()}
        tried = sweep_of(sign * np.array([[90.0, 91.0], [80.0, 82.0], [70.0, 71.0]]), tau=range(3))
        return pair(replace(tried, sign=sign, scores=sign * tried.scores, fresh=again))[0]

    row, apart = best(shown), np.subtract(shown[1], shown[0])
    test = stats.ttest_rel(shown[1], shown[0]).confidence_interval(0.975)
    assert row["over_first"] == pytest.approx(apart.mean())  # larger is better in both modes
    assert (row["over_first_low"], row["over_first_high"]) == pytest.approx((test.low, test.high))
    quiet = best(shown | {1: [85.0, 84.0, 86.0]})
    assert quiet["over_first"] == 1.0
    assert np.isnan(quiet["over_first_low"])  # no noise seen, and so no certainty
    assert np.isnan(best(shown | {1: [60.0, 60.0, 60.0]})["over_first"])  # the first stays
