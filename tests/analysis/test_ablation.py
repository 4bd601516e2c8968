"""The path from the default to the best setting: planted truths, and a loop as referee."""

import itertools

import numpy as np
import pandas as pd
import pytest

from clsweep.analysis.ablation import ABLATION_COLUMNS, ALL, ablation
from clsweep.analysis.read_sweeps import read_sweeps
from tests.analysis.draws import drawing
from tests.analysis.truths import trials_of
from tests.tiers import in_tiers

NOISE = 0.3
NAMES = ("x", "y", "z")


def grid_of(*sizes):
    return pd.DataFrame(itertools.product(*map(range, sizes)), columns=NAMES[: len(sizes)])


def sweep_of(settings, scores, sampler="grid", **read):
    """Scores (n, S) at the settings, NaN = no trial, as a sweep of objective a."""
    trials = trials_of(scores, objective="a", sampler=sampler, **settings).dropna(subset="acc")
    return read_sweeps(trials, metric="acc", params=list(settings), **read)[0]


def path_of(settings, levels, start):
    """(parameter, row before, row after) of a greedy path by these levels, in a loop."""
    row_of = {tuple(row): number for number, row in enumerate(settings.to_numpy())}
    here, target = list(settings.iloc[start]), settings.iloc[int(np.argmax(levels))]
    steps, at = [], start
    while left := [p for p, name in enumerate(settings) if here[p] != target[name]]:
        tried = {p: row_of[(*here[:p], target.iloc[p], *here[p + 1 :])] for p in left}
        best = max(left, key=lambda p: levels[tried[p]])
        steps.append((settings.columns[best], at, tried[best]))
        here[best], at = target.iloc[best], tried[best]
    return steps


def gains_of(settings, looks, scores, start):
    """Gain by each hyperparameter on the path of the looks, and of all."""
    gains = dict.fromkeys([*settings, ALL], 0.0)
    for name, before, after in path_of(settings, looks, start):
        gains[name] += scores[after] - scores[before]
        gains[ALL] += scores[after] - scores[before]
    return gains


def default_at(settings, row):
    return {"a": settings.iloc[row].to_dict()}


@pytest.mark.parametrize(("sizes", "start"), [((3, 2, 2), 0), ((3, 2, 2), 1), ((4,), 1)])
def test_the_path_of_the_other_seeds_is_measured_on_each(sizes, start):
    rng = np.random.default_rng(4)
    settings = grid_of(*sizes)
    scores = rng.normal(size=(len(settings), 1)) + 0.5 * rng.normal(size=(len(settings), 4))
    frame = ablation([sweep_of(settings, scores)], defaults=default_at(settings, start))
    folds = [
        gains_of(settings, np.delete(scores, s, axis=1).mean(axis=1), scores[:, s], start)
        for s in range(4)
    ]
    steps = path_of(settings, scores.mean(axis=1), start)
    assert set(frame["method"]) == {"grid"}
    assert list(frame) == list(ABLATION_COLUMNS)
    assert frame["param"].tolist() == [*(name for name, _, _ in steps), ALL]
    for row in frame.to_dict("records"):
        assert row["gain"] == pytest.approx(np.mean([gains[row["param"]] for gains in folds]))
    for row, (name, before, after) in zip(frame.to_dict("records"), steps, strict=False):
        ends = row["before"], row["after"]
        assert ends == (str(settings[name][before]), str(settings[name][after]))


def test_it_begins_at_the_first_setting_where_no_default_is_known():
    settings = grid_of(3, 2)
    scores = settings["x"].to_numpy()[:, None] + 0.1 * np.random.default_rng(0).normal(size=(6, 3))
    row = ablation([sweep_of(settings, scores)]).iloc[0]
    assert (row["before"], row["after"]) == ("0", "2")
    assert dict(row["note"][0].figures) == {"at": "x=0, y=0"}


def test_one_seed_has_no_interval_and_equal_scores_no_path():
    settings = grid_of(3, 2)
    scores = np.arange(6.0)[:, None]
    row = ablation([sweep_of(settings, scores)], defaults=default_at(settings, 0)).iloc[-1]
    assert row["gain"] == 5
    assert np.isnan(row["low"])
    assert ablation([sweep_of(settings, 0 * scores)])["reason"].tolist() == ["equal_scores"]


def smooth(settings):
    x, y, z = (settings[name].to_numpy(dtype=float) for name in NAMES)
    return -8 * (x - 0.6) ** 2 - 4 * (y - 0.7) ** 2 + 2 * x * z


def sampled(rng, seeds, shared=0.0, num=64):
    settings = pd.DataFrame(rng.random((num, 3)), columns=list(NAMES))
    noise = np.sqrt(1 - shared) * rng.normal(size=(num, seeds))
    noise += np.sqrt(shared) * rng.normal(size=seeds)
    return settings, smooth(settings)[:, None] + NOISE * noise


def test_of_a_sample_a_surrogate_measures_from_a_default_that_was_not_tried():
    settings, scores = sampled(np.random.default_rng(2), 2)
    default = {"x": 0.1, "y": 0.2, "z": 0.5}
    sweep = sweep_of(settings, scores, "random", scales=dict.fromkeys(NAMES, "linear"))
    frame = ablation([sweep], defaults={"a": default}).set_index("param")
    assert frame["method"].unique().tolist() == ["surrogate"]
    assert frame.index[0] == "x"
    assert frame.loc["x", "before"] == "0.1"
    total = frame.loc[ALL]
    truth = smooth(settings).max() - smooth(pd.DataFrame([default]))[0]
    assert total["low"] < truth < total["high"]
    few = sweep_of(settings[:9], scores[:9], "random")
    assert ablation([few])["reason"].tolist() == ["few_for_surrogate"]


CELLS = [  # sizes of the grid, seeds, spread, share of a seed, missing trials
    ((3, 2, 2), 3, 1.0, 0.0, 0.0),
    ((3, 2, 2), 5, 1.0, 0.5, 0.0),
    ((4, 3), 3, 1.0, 0.5, 0.0),
    ((4, 3), 5, 1.0, 0.0, 0.1),
    ((4, 3), 3, 0.3, 0.0, 0.1),
    ((5, 4), 3, 3.0, 0.5, 0.2),
    ((3, 3, 3), 5, 0.5, 0.5, 0.0),
]


def drawn(levels, seeds, shared, rng, size=()):
    noise = np.sqrt(1 - shared) * rng.normal(size=(*size, len(levels), seeds))
    return levels[:, None] + NOISE * (noise + np.sqrt(shared) * rng.normal(size=(*size, 1, seeds)))


def covered(cell, number):
    """The shares of the intervals of a planted grid that hold the gains on the noise-free path, and
    on the path that is named.
    """
    sizes, seeds, spread, shared, missing = cell
    rng = np.random.default_rng((11, number, seeds))
    settings = grid_of(*sizes)
    levels = spread * sum(
        rng.normal(size=size)[settings[n]] for n, size in zip(NAMES, sizes, strict=False)
    )
    levels = levels + 0.3 * spread * rng.normal(size=len(settings))
    scores = drawn(levels, seeds, shared, rng)
    lost = rng.random(scores.shape) < missing
    lost[np.arange(len(lost)), rng.integers(seeds, size=len(lost))] = False
    scores[lost] = np.nan
    sweep = sweep_of(settings, scores)
    with drawing(400, number):
        rows = ablation([sweep], defaults=default_at(settings, 0)).to_dict("records")
    free = gains_of(settings, levels, levels, 0)
    named = gains_of(settings, sweep.means, levels, 0)
    held = [
        [row["low"] - 1e-9 <= truth[row["param"]] <= row["high"] + 1e-9 for row in rows]
        for truth in (free, named)
    ]
    total = rows[-1]["high"] - rows[-1]["low"]
    return [np.mean(held[0]), np.mean(held[1]), held[0][-1], total]


@pytest.mark.parametrize("cell", in_tiers(CELLS, full=[CELLS[0], CELLS[3]]), ids=str)
def test_intervals_hold_the_planted_gains(cell):
    held = np.mean([covered(cell, number) for number in range(300)], axis=0)
    print(cell, *np.round(100 * held[:3], 1), round(held[3], 2))
    assert held[:3].min() >= 0.93


@pytest.mark.soak
@pytest.mark.parametrize("seeds", [1, 3])
def test_a_surrogate_holds_the_gains_of_the_path_that_it_names(seeds):
    held = []
    for number in range(100):
        rng = np.random.default_rng((12, number))
        settings, scores = sampled(rng, seeds, 0.5 * (seeds > 1))
        sweep = sweep_of(settings, scores, "random", scales=dict.fromkeys(NAMES, "linear"))
        default = {"x": 0.1, "y": 0.2, "z": 0.5}
        rows = ablation([sweep], defaults={"a": default}).to_dict("records")
        here = pd.DataFrame([default])
        for row in rows[:-1]:
            before = smooth(here)[0]
            here = here.assign(**{row["param"]: float(row["after"])})
            held.append(row["low"] <= smooth(here)[0] - before <= row["high"])
        total = smooth(here)[0] - smooth(pd.DataFrame([default]))[0]
        held.append(rows[-1]["low"] <= total <= rows[-1]["high"])
    print(seeds, round(100 * np.mean(held), 1))
    assert np.mean(held) >= 0.93
