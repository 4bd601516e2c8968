"""How often the 95 % intervals of the robustness statistics hold the planted truth."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from clsweep.analysis import resample
from clsweep.analysis.robustness.response import respond, slope
from clsweep.analysis.sweep import read_sweeps
from tests.analysis.draws import drawing

NAMES = ("mean", "sd", "sd_star", "regret", "share", "tolerance_area", "iqm", "worst_10")
NOISE = 0.3


def unit(theta):
    return theta / theta.std(ddof=1)


# Every other value of the DCL paper's Table 18.
CURVE = unit(np.array([88.3, 90.8, 89.6, 89.6, 88.5, 87.7]))
ROUGH = unit(np.array([-1.6, -0.5, 0.3, 1.2, 0.9, -0.3]))
PLANE = unit(
    (-2 * (np.linspace(-1, 1, 11)[:, None] - 0.2) ** 2 + 0.8 * np.linspace(-1, 1, 5)).ravel()
)
GRIDS = {"curve": CURVE, "rough": ROUGH, "plane": PLANE, "flat": 0 * ROUGH, "flat plane": 0 * PLANE}
SURFACES = {
    "peak": lambda u: -8 * (u[:, 0] - 0.6) ** 2 + 1.5 * u[:, 1],
    "additive": lambda u: u.sum(axis=1),
    "flat": lambda u: 0 * u[:, 0],
}


def truth_of(space, best, tenth, num_seeds):
    """The statistics of a noise-free space, as loops would have them; `tenth` = its worst part, as
    a share.
    """
    ordered = np.sort(space)
    cut = len(space) / 4
    place = np.arange(1, len(space) + 1)
    weights = np.clip(np.minimum(place, len(space) + 1 - place) - cut, 0, 1)
    deltas = (np.arange(2000) + 0.5) / 200
    ddof = 1 if len(space) < 1000 else 0
    return {
        "mean": space.mean(),
        "sd": np.sqrt(space.var(ddof=ddof) + NOISE**2 / num_seeds),
        "sd_star": space.std(ddof=ddof),
        "regret": best - space.mean(),
        "share": 1 - np.searchsorted(ordered, best - 1 - 1e-12) / len(space),
        "tolerance_area": 1 - np.searchsorted(ordered, best - deltas).mean() / len(space),
        "iqm": ordered @ weights / weights.sum(),
        "worst_10": ordered[: max(1, int(len(space) * tenth))].mean(),
    }


def cover(draw, repeats, *, population):
    """Share of repeats in which each interval holds the truth, and in which that of sd_star holds
    0.
    """
    rng, hits = np.random.default_rng(11), dict.fromkeys((*NAMES, "zero"), 0)
    for repeat in range(repeats):
        theta, num_seeds, truth = draw(rng)
        values = theta[:, None] + rng.normal(0, NOISE, (len(theta), num_seeds))
        with drawing(400, repeat):
            bootstrap = resample.Bootstrap(population=population)
            bounds = resample.intervals(values, bootstrap, within=1.0)
        for name in NAMES:
            low, high = bounds[name]
            hits[name] += low - 1e-9 <= truth[name] <= high + 1e-9
        hits["zero"] += bounds["sd_star"][0] == 0
    found = {name: float(count / repeats) for name, count in hits.items()}
    print({name: round(100 * value, 1) for name, value in found.items()})
    return found


def check(found, *, flat, least):
    assert all(found[name] >= least for name in NAMES), found
    for name in ("mean", "iqm"):
        assert found[name] <= 0.99
    if flat:
        assert found["zero"] >= 0.95 - (0.95 - least) / 2
    else:
        assert found["zero"] < 0.05
        for name in ("sd", "sd_star", "regret", "tolerance_area"):
            assert found[name] <= 0.995


def grid_coverage(name, num_seeds, repeats):
    theta = GRIDS[name]
    truth = truth_of(theta, theta.max(), 0.1, num_seeds)
    return cover(lambda _: (theta, num_seeds, truth), repeats, population=False)


def random_coverage(name, num, repeats):
    surface = SURFACES[name]
    space = surface(np.random.default_rng(5).random((100_000, 2)))
    scale = space.std() or 1.0
    space = np.sort(space / scale)

    def draw(rng):
        theta = surface(rng.random((num, 2))) / scale
        return theta, 3, truth_of(space, theta.max(), (num // 10) / num, 3)

    return cover(draw, repeats, population=True)


@pytest.mark.parametrize(("name", "num_seeds"), [("curve", 3), ("rough", 2), ("flat", 3)])
def test_a_grid(name, num_seeds):
    check(grid_coverage(name, num_seeds, 200), flat="flat" in name, least=0.90)


@pytest.mark.slow
@pytest.mark.parametrize("num_seeds", [2, 3])
@pytest.mark.parametrize("name", list(GRIDS))
def test_every_grid(name, num_seeds):
    check(grid_coverage(name, num_seeds, 200), flat="flat" in name, least=0.90)


@pytest.mark.slow
@pytest.mark.parametrize("num", [64, 128])
@pytest.mark.parametrize("name", list(SURFACES))
def test_every_random_sample(name, num):
    check(random_coverage(name, num, 200), flat=name == "flat", least=0.90)


def slope_hits(make, repeats, true):
    rng, hits = np.random.default_rng(2), 0
    for _ in range(repeats):
        values, positions, sampler = make(rng)
        rows = [
            (config, seed, positions[config], score)
            for config, scores in enumerate(values)
            for seed, score in enumerate(scores)
        ]
        trials = pd.DataFrame(rows, columns=["config", "seed", "batch_size", "acc"])
        trials = trials.assign(objective="dcl", sampler=sampler, status="finished")
        (sweep,) = read_sweeps(trials, metric="acc", params=["batch_size"])
        line = slope(sweep, respond(sweep, "batch_size"))
        hits += line.low <= true <= line.high
    print(f"slope {100 * hits / repeats:.1f}")
    return hits / repeats


@pytest.mark.slow
def test_slope_on_a_grid_and_in_a_sample():
    sizes = 2.0 ** np.arange(5, 11)
    true = stats.linregress(np.log2(sizes), ROUGH).slope
    hit = slope_hits(
        lambda rng: (ROUGH[:, None] + rng.normal(0, NOISE, (6, 3)), sizes, "grid"), 200, true
    )
    assert 0.91 <= hit <= 0.985

    def sample(rng):
        x = rng.random(32) * 5
        return (x - 0.3 * x**2)[:, None] + rng.normal(0, NOISE, (32, 2)), 2.0**x, "random"

    fine = np.linspace(0, 5, 10_001)
    # Of the curve's best line over the whole space.
    true = stats.linregress(fine, fine - 0.3 * fine**2).slope
    assert 0.91 <= slope_hits(sample, 200, true) <= 0.985
