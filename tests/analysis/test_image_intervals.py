"""What scored images leave open, against loops over the two-way table of seeds and images."""

import itertools
import pickle
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy import special

from clsweep.analysis.evidence import Evidence
from clsweep.analysis.image_intervals import (
    TrialHits,
    stack_effects,
    variance_of_difference,
    variances_of,
    widened,
)
from clsweep.analysis.read_sweeps import read_sweeps
from clsweep.analysis.score_table import best_level, drop_nan_columns
from clsweep.errors import RequestError

NUM = 150


def planted(configs=3, seeds=4, num=NUM, digest="0f", seed=0):
    """(n, S, M) outcomes of images with difficulties, and their trials."""
    rng = np.random.default_rng(seed)
    ease, own = rng.normal(0, 1, num), rng.normal(0, 1, (configs, 1, num))
    shift, drawn = rng.normal(0, 0.2, (configs, seeds, 1)), rng.normal(0, 1, (configs, seeds, num))
    hits = 1 + ease + own + shift + drawn > 0
    config, each = np.indices((configs, seeds)).reshape(2, -1)
    answers = {"objective": "a", "images": digest, "num_images": num}
    place = {"config": config, "seed": each, "lr": 10.0**config}
    bits = [np.packbits(row).tobytes() for row in hits.reshape(-1, num)]
    scores = 100 * hits.mean(axis=2).ravel()
    return hits, pd.DataFrame({**place, "score": scores, "bits": bits}).assign(**answers)


def images_of(trials, configs=(0, 1, 2), sign=1.0, counts=4, measured=4):
    each = np.ones(len(configs), int)
    return TrialHits(lambda: trials).of(
        "a", sign, np.array(configs), counts * each, measured * each
    )


def by_loops(hits, weights):
    """Variance of sum_i w_i m_i over new images, percent squared, of (n, S, M) outcomes: that of
    each image's own sum over the seeds, less what their chance adds to it.
    """
    configs, seeds, num = hits.shape
    cells = list(itertools.product(range(configs), range(seeds)))
    sums = [sum(weights[i] * hits[i, s, m] / seeds for i, s in cells) for m in range(num)]
    total = np.var(sums, ddof=1) / num
    for i in range(configs):
        square = 0.0
        for s, m in itertools.product(range(seeds), range(num)):
            at_seed, at_image, mean = hits[i, s].mean(), hits[i, :, m].mean(), hits[i].mean()
            square += (hits[i, s, m] - at_seed - at_image + mean) ** 2
        within = square / (seeds - 1) / (num - 1)
        total -= weights[i] ** 2 * within / seeds / num
    total += sum(w**2 for w in weights) / (2 * num) ** 2  # half an image a pair
    return 100**2 * total


def test_variances_over_new_images_are_those_of_the_two_way_table():
    """Of sums, each mean alone, differences to one, of two tables, and means over groups."""
    hits, trials = planted()
    images, one, unit = images_of(trials), np.ones(1), np.eye(3)
    sums = [(1, 0, 0), (0, 0, 1), (1, -1, 0), (1 / 3, 1 / 3, 1 / 3), (0.5, 0.5, -1)]
    actual = [images.variance(np.array(weights, float)) for weights in sums]
    actual += [*images.of_each, *images.against(1)]
    actual += [variance_of_difference(images.rows([0]), images.rows([2]), one, one)[0]]
    actual += [images.averaged(np.array([0, 0, 1]), 2).variance(row) for row in np.eye(2)]
    sums += [*unit, *(unit - unit[1]), (1, 0, -1), (0.5, 0.5, 0), (0, 0, 1)]
    expected = [by_loops(hits, weights) if any(weights) else 0.0 for weights in sums]
    assert actual == pytest.approx(expected, rel=1e-5)
    t_of_149 = special.stdtrit(NUM - 1, 0.975)
    half = t_of_149 * images.of_each**0.5
    assert images.half_width(images.of_each) == pytest.approx(half, rel=1e-5)
    assert TrialHits(lambda: trials).half_width("a", 1) == pytest.approx(half[1], rel=1e-5)
    assert widened(1.0, 7.0, 4.0) == (-1.0, 9.0)  # half widths add up as their squares do


def test_a_difference_of_the_same_images_knows_that_some_are_hard_for_all():
    weights, (same, other) = np.ones(1), (images_of(planted(1, seed=s)[1], (0,)) for s in range(2))
    moved, freedom = variance_of_difference(same, same, weights, weights)
    assert moved == pytest.approx(0.5 * (100 / NUM) ** 2)  # half an image
    assert freedom == NUM - 1
    others = replace(other, digest="0e", num=90)
    moved, freedom = variance_of_difference(same, others, weights, weights)
    assert moved == pytest.approx(same.variance(weights) + others.variance(weights))
    assert freedom == 89
    assert variance_of_difference(None, same, weights, weights) == (0.0, np.inf)


def test_a_statistic_without_a_formula_varies_as_it_does_where_one_is():
    hits, trials = planted()
    images, scores = images_of(trials), 100 * hits.mean(axis=2)

    def mean(tables):
        return {"mean": tables.mean(axis=(1, 2))}

    def lead(tables):
        a, b = tables
        return {"lead": a.mean(axis=(1, 2)) - b.mean(axis=(1, 2))}

    actual = images.variance_of(mean, scores)["mean"]
    assert actual == pytest.approx(by_loops(hits, np.full(3, 1 / 3)), rel=0.1)
    sides = [(images.rows([0]), scores[:1]), (images.rows([1]), scores[1:2])]
    actual = variances_of(lead, sides)["lead"]
    assert actual == pytest.approx(by_loops(hits, (1, -1, 0)), rel=0.15)


def test_of_more_images_than_draws_a_variance_is_near():
    hits, trials = planted(num=1200)
    actual = images_of(trials).variance(np.array([1.0, -1.0, 0.0]))
    assert actual == pytest.approx(by_loops(hits, (1, -1, 0)), rel=0.25)


def test_of_one_seed_nothing_is_taken_off():
    """Chance of the one encoder cannot be told from what the setting does with an image."""
    hits, trials = planted(seeds=1)
    alone = images_of(trials, counts=1, measured=1).of_each
    expected = 100**2 * hits[:, 0].var(axis=1, ddof=1) / NUM + (50 / NUM) ** 2
    assert alone == pytest.approx(expected, rel=1e-5)


def test_rows_are_found_whatever_their_order_and_lower_is_better_turns_them():
    _, trials = planted(digest="../x")  # which is the name of nothing
    plain = images_of(trials)
    turned = images_of(trials.sample(frac=1, random_state=0), (2, 0, 1), sign=-1.0)
    assert np.allclose(turned.draws, -plain.draws[[2, 0, 1]], atol=1e-5)
    assert np.allclose(turned.own, plain.own[[2, 0, 1]])


def test_what_a_failed_trial_counts_as_hangs_on_no_image():
    _, trials = planted()
    whole, half = images_of(trials), images_of(trials, counts=8)
    assert half.of_each == pytest.approx(whole.of_each / 4)
    none = images_of(trials, (0, 7), measured=np.array([4, 0]))
    assert none.of_each == pytest.approx([whole.of_each[0], 0.0])


@pytest.mark.parametrize(
    "change",
    [
        lambda trials: trials.iloc[1:],
        lambda trials: trials.iloc[:0],
        lambda trials: trials.assign(images=["0e", *trials["images"][1:]]),
        lambda trials: trials.assign(score=trials["score"] + 1e-3),
        lambda trials: trials.assign(objective="b"),
    ],
    ids=["a trial without", "none", "other images", "another score", "another objective"],
)
def test_without_hits_of_all_trials_nobody_knows(change):
    assert images_of(change(planted()[1])) is None


def test_bits_of_another_number_of_images_are_refused():
    trials = planted()[1].assign(bits=b"\x00")
    with pytest.raises(RequestError, match="expected 150 images"):
        images_of(trials)


def test_tables_one_below_the_other_may_have_images_of_their_own():
    (_, trials), (_, others) = planted(), planted(num=90, digest="0e")
    images, apart_from = images_of(trials), images_of(others)
    assert stack_effects([images, None]) is None
    same, both = stack_effects([images, images]), stack_effects([images, apart_from])
    assert (same.digest, same.num, both.num, len(both.draws)) == ("0f", NUM, 90, 6)
    lead = np.array([1.0, 0, 0, -1.0, 0, 0])
    alone = images.of_each[0] + apart_from.of_each[0]
    assert both.variance(lead) == pytest.approx(alone, rel=0.15)
    assert same.variance(lead) < alone / 10


def test_hits_go_to_another_process_without_their_folder():
    trials = planted()[1]
    sent = pickle.loads(pickle.dumps(TrialHits(lambda: trials)))
    assert sent.half_width("a", 0) == TrialHits(lambda: trials).half_width("a", 0) > 0
    assert sent.half_width("a", 9) == sent.half_width("b", 0) == 0.0


def test_a_sweep_reads_its_hits_once_and_only_when_asked():
    _, trials = planted()
    calls = []

    def read():
        calls.append(1)
        return trials

    table = trials.assign(status="finished", sampler="grid")
    (without,) = read_sweeps(table, metric="score", params=["lr"])
    assert without.images is None
    sweep = replace(without, hits=TrialHits(read))
    assert not calls
    assert sweep.measured.images.num == sweep.images.num == NUM
    assert len(calls) == 1


def evidence(estimate, se=0.4, freedom=16.0):
    half = special.stdtrit(freedom, 0.975) * se
    return Evidence(estimate, estimate - half, estimate + half, 0.0, 0.0, se, freedom)


@pytest.mark.parametrize("estimate", [-1.5, -0.9, 0.9, 0.95, 1.0, 2.0])
def test_an_interval_for_new_images_holds_0_where_its_p_is_above_5_percent(estimate):
    actual = evidence(estimate).over_images(0.01, 286.0)
    half = np.hypot(*(special.stdtrit(f, 0.975) * se for se, f in ((0.4, 16.0), (0.1, 286.0))))
    assert (actual.low, actual.high) == pytest.approx((estimate - half, estimate + half))
    assert (actual.low <= 0 <= actual.high) == (actual.p > 0.05)
    edge = evidence(half).over_images(0.01, 286.0)
    assert edge.p == pytest.approx(0.05)


def test_images_decide_what_few_seeds_would_find_without_them():
    assert evidence(1.0).over_images(1.0, 286.0).images_deciding(5) == 287
    assert evidence(1.0).over_images(0.01, 286.0).images_deciding(5) == 0  # more seeds help
    assert evidence(0.01).over_images(1.0, 286.0).images_deciding(5) == 0  # nothing is seen
    assert evidence(1.0).images_deciding(5) == 0


@pytest.mark.parametrize("gaps", [0.0, 0.15])
def test_the_best_of_equal_settings_is_not_too_good_nor_too_bad(gaps):
    """The images that pick do not score, and the noise of seeds picks neither. Of 60 tables of 16
    equal settings, 3 seeds and 300 images; by all images the best is 1.5 points too good.
    """
    rng, num, actual = np.random.default_rng(3), 300, []
    for _ in range(60):
        rows, scores = [], np.full((16, 3), np.nan)
        hard = rng.normal(0, 1, num)
        for config in range(16):
            own = hard + 1.8 + rng.normal(0, 1, num)  # 85 %
            for seed in range(3):
                hits = own + rng.normal(size=num) > 0
                if rng.random() < gaps and seed:
                    continue
                scores[config, seed] = 100 * hits.mean()
                bits = np.packbits(hits).tobytes()
                rows.append((config, scores[config, seed], "0f", num, bits))
        table = pd.DataFrame(rows, columns=["config", "score", "images", "num_images", "bits"])
        table["objective"] = "a"
        images = TrialHits(lambda known=table: known).known["a"][1]
        values, truth = drop_nan_columns(scores), 100 * special.ndtr(1.8 / 3**0.5)
        free = (best_level(values, parts, clipped=False) for parts in (None, images.parts))
        actual.append([float(level) - truth for level in free])
    seeds, both = np.mean(actual, axis=0)
    assert seeds > 0.8
    assert abs(both) < 0.45  # of a standard error of 0.25
