"""Statistics of a table against slow loops, and the machinery of its bootstrap."""

import math
import statistics

import numpy as np
import pytest
from scipy import stats

from clsweep.analysis.bootstrap import num_resamples, resampled
from clsweep.analysis.score_table import best_level, drop_nan_columns, row_means, tail_level
from clsweep.analysis.spread import interquartile_mean, nearness, spread_statistics
from clsweep.analysis.spread_intervals import spread_intervals
from tests.analysis.draws import drawing


def with_gaps(rng, rows=9, seeds=4):
    values = rng.normal(80, 2, (rows, seeds))
    values[rng.random(values.shape) < 0.3] = np.nan
    values[np.isnan(values).all(axis=1), 0] = 80.0
    return values


def slow_tail(values, num):
    """Cross-fitted level of the `num` lowest rows, loop by loop, unclipped: every row leaves out
    scores of its own, one a fold, in turn; rows compete by the shrunken mean of the others.
    """
    rows = [[x for x in cells if np.isfinite(x)] for cells in values]
    means = [statistics.fmean(cells) for cells in rows]
    mean, sizes = statistics.fmean(means), [len(cells) for cells in rows]
    squares = sum((x - m) ** 2 for m, cells in zip(means, rows, strict=True) for x in cells)
    noise = squares / (sum(sizes) - len(sizes))
    true = statistics.variance(means) - noise * statistics.fmean(1 / size for size in sizes)
    true = max(true, 1e-6 * noise)

    def shrunk(level, size):
        weight = true / (true + noise / size)
        return mean + weight * (level - mean)

    levels = []
    for fold in range(math.lcm(*sizes)):
        looks, scores = [], []
        for cells in rows:
            at = fold % len(cells)
            rest = cells[:at] + cells[at + 1 :]
            looks.append(shrunk(statistics.fmean(rest or cells), len(rest or cells)))
            scores.append(cells[at] if rest else looks[-1])
        chosen = sorted(range(len(rows)), key=looks.__getitem__)[:num]
        levels.append(statistics.fmean(scores[row] for row in chosen))
    return statistics.fmean(levels)


@pytest.mark.parametrize("num", [1, 3])
@pytest.mark.parametrize("gaps", [False, True])
def test_tail_level_against_loops(num, gaps):
    rng = np.random.default_rng(1)
    for _ in range(20):
        values = drop_nan_columns(with_gaps(rng)) if gaps else rng.normal(80, 2, (9, 4))
        expected = slow_tail(values, num)
        assert tail_level(values, num, clipped=False) == pytest.approx(expected)
        means = np.sort([np.nanmean(row) for row in values])
        clipped = min(max(expected, means[:num].mean()), means.mean())
        assert tail_level(values, num) == pytest.approx(clipped)
        assert best_level(values, clipped=False) == pytest.approx(-slow_tail(-values, 1))


def test_packed():
    rng = np.random.default_rng(2)
    values = with_gaps(rng, rows=40, seeds=5)
    table = drop_nan_columns(values)
    counts = np.isfinite(values).sum(axis=1)
    assert table.shape == (40, counts.max())
    for row, count in enumerate(counts):
        assert np.isfinite(table[row]).tolist() == [k < count for k in range(counts.max())]
        np.testing.assert_array_equal(np.sort(table[row, :count]), np.sort(values[row])[:count])
    # The order of a row's scores says nothing of their size.
    full = table[counts > 2, :3]
    assert {tuple(cells.argsort()) for cells in full} >= {(0, 1, 2), (2, 1, 0)}
    # Nor do the seeds' names, which only order the columns.
    np.testing.assert_array_equal(drop_nan_columns(values[:, [3, 0, 4, 2, 1]]), table)
    shifted = [np.roll(cells, k) for k, cells in enumerate(values)]  # each row has seeds of its own
    np.testing.assert_array_equal(drop_nan_columns(np.array(shifted)), table)
    complete = rng.normal(size=(3, 4))
    assert drop_nan_columns(complete) is complete


def test_leading_axes_are_kept_and_a_gap_in_one_table_leaves_the_others_alone():
    tables = np.random.default_rng(0).normal(80, 1, (5, 8, 3))
    tables[2, 4, 1] = np.nan
    tables[2] = drop_nan_columns(tables[2])
    together = spread_statistics(tables, within=1.0)
    for index, table in enumerate(tables):
        alone = spread_statistics(table, within=1.0)
        for name, value in alone.items():
            assert together[name][index] == pytest.approx(float(value)), name


def test_interquartile_mean():
    rng = np.random.default_rng(0)
    for num in (4, 8, 20, 64):
        x = rng.normal(size=num)
        assert interquartile_mean(x) == pytest.approx(stats.trim_mean(x, 0.25))
    assert interquartile_mean(np.array([1.0])) == 1.0
    assert interquartile_mean(np.array([1.0, 5.0])) == 3.0
    # 1.25 values are cut on each side of five: the outer ones whole, a quarter of their neighbours.
    of_five = interquartile_mean(np.array([9.0, 0.0, 3.0, 1.0, 100.0]))
    assert of_five == pytest.approx((0.75 * 1 + 3 + 0.75 * 9) / 2.5)


def test_nearness_by_hand():
    values_of = nearness(np.array([90.0, 89.0, 84.0, 70.0]), np.array(90.0), within=1.0)
    known = {"regret": (0 + 1 + 6 + 20) / 4, "share": 0.5, "tolerance_area": (1 + 0.9 + 0.4) / 4}
    assert {name: values_of[name] for name in known} == pytest.approx(known)
    # The noise above the best makes up for that below it only where the area has no limit.
    open_ended = nearness(np.array([91.0, 89.0]), np.array(90.0), within=1.0, most=np.inf)
    assert open_ended["tolerance_area"] == pytest.approx(1.0)
    for scale in (1e-9, 1.0, 1e9):  # exactly `within` away is within, on any scale
        means = scale * np.array([0.9, 0.6, 0.3])
        values_of = nearness(means, means[0], within=scale * 0.3)
        assert values_of["share"] == pytest.approx(2 / 3)
    at_once = nearness(np.array([90.0, 89.0]), np.array(90.0), within=0.0)
    assert at_once["tolerance_area"] == 0.5


def intervals(values, num, *, population=False):
    with drawing(num):
        return spread_intervals(values, population=population, within=1.0)


def test_large_tables_take_fewer_resamples():
    for shape, expected in [((6, 3), 2000), ((166, 3), 2000), ((1000, 3), 333), ((100_000, 3), 24)]:
        assert num_resamples(np.zeros(shape)) == expected


@pytest.mark.parametrize("population", [False, True])
def test_the_two_kinds_of_interval_agree(population):
    rng = np.random.default_rng(0)
    values = 4 * rng.random((400, 1)) + rng.normal(0, 0.5, (400, 3))
    many = intervals(values, 800, population=population)  # percentiles
    few = intervals(values, 190, population=population)  # a standard error
    for name in ("mean", "sd", "sd_star", "regret", "share", "tolerance_area", "iqm", "worst_10"):
        wide, narrow = np.ptp(many[name]), np.ptp(few[name])
        assert narrow == pytest.approx(wide, rel=0.3), name
        assert np.mean(few[name]) == pytest.approx(np.mean(many[name]), abs=0.35 * wide), name


def test_resamples_keep_the_pattern_of_missing_seeds():
    values = with_gaps(np.random.default_rng(0))
    values = values[row_means(values).argsort()]  # the order that rows are drawn in

    def seen(drawn, tried):
        assert (np.isfinite(tried) == np.isfinite(values)).all()
        means = row_means(tried).mean(axis=1)
        return {"gaps": np.isnan(drawn).sum(axis=(1, 2)), "mean": means}

    for population in (False, True):
        with drawing(500):
            values_of = resampled(values, seen, population=population)
        assert values_of["mean"].mean() == pytest.approx(row_means(values).mean(), abs=0.1)
        assert (len(set(values_of["gaps"])) > 1) == population


def test_failed_configurations_of_a_sample_failed_by_chance():
    values = 80 + np.random.default_rng(0).normal(0, 1, (80, 3))
    values[60:] = 10  # they failed, and count as a guess
    grid = intervals(values, 300)
    sample = intervals(values, 300, population=True)
    assert np.ptp(grid["regret"]) < 3
    # A quarter failed, of 80: 70 points times the standard error of a share, twice each side.
    assert np.ptp(sample["regret"]) == pytest.approx(70 * 3.92 * np.sqrt(0.25 * 0.75 / 80), rel=0.3)
