"""The shift of a best value, on planted tables."""

import itertools

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import clsweep
from clsweep.analysis.optimum import Curves, curves_of, shift_of
from clsweep.analysis.read_sweeps import read_sweeps
from clsweep.errors import RequestError
from tests.tiers import in_tiers

LRS, BATCHES = [2.0**power for power in range(-5, 1)], [64, 128, 256, 512]
# Points below the best, by how far log2 lr lies above the best one.
SHAPES = {
    "parabola": lambda u: -(u**2),
    "cliff": lambda u: -0.3 * u**2 if u < 0 else -min(20.0, 8.0 * u**2),
    "corner": lambda u: u if u < 0 else -6.0 * u,
    "tent": lambda u: -3.0 * abs(u),
    "peak": lambda u: 8.0 * np.exp(-((u / 0.8) ** 2)) - 8.0,
    "skewed": lambda u: -2.0 * (np.exp(u) - 1.0 - u),
}
SCALES = {"lr": "log", "batch_size": "log"}


def table(
    seed,
    slope,
    *,
    best=-2.5,
    depth=1.0,
    num_seeds=3,
    missing=0.0,
    num=0,
    noise=0.5,
    shape="parabola",
):
    """Scores that are best at log2 lr = best + slope (log2 batch_size - 7.5), with what each seed
    gives to all; of a grid, or of `num` points of the same space.
    """  # fmt: skip
    rng = np.random.default_rng(seed)
    points = list(itertools.product(LRS, BATCHES))
    if num:
        points = list(
            zip(2.0 ** rng.uniform(-5, 0, num), 2.0 ** rng.uniform(6, 9, num), strict=True)
        )
    shared, rows = rng.normal(0, 1, num_seeds), []
    for config, (lr, batch_size) in enumerate(points):
        y = np.log2(batch_size) - 7.5
        level = 80 + depth * SHAPES[shape](np.log2(lr) - best - slope * y) + 2 * y
        for number in range(num_seeds):
            if rng.random() >= missing:
                score = level + shared[number] + rng.normal(0, noise)
                rows.append(
                    {"objective": "dcl", "config": config, "seed": number, "status": "finished",
                     "sampler": "random" if num else "grid", "knn_top1": score, "lr": lr,
                     "batch_size": batch_size}
                )  # fmt: skip
    return pd.DataFrame(rows)


def curves(trials):
    params = ["lr", "batch_size"]
    sweeps = read_sweeps(trials, metric="knn_top1", params=params, scales=SCALES)
    return curves_of(sweeps[0], *params)


def answers(trials):
    return clsweep.analyse(trials, metric="knn_top1", params=["lr", "batch_size"], scales=SCALES)


def covered(tables, slope, **options):
    """How often the interval of the shift holds the truth, and how often those of best values."""
    shifts, levels = [], []
    for seed in range(tables):
        fitted = curves(table(seed, slope, **options))
        shift, (low, high) = shift_of(fitted), fitted.intervals
        truth = options.get("best", -2.5) + slope * (fitted.at - 7.5)
        shifts.append(shift.low <= slope <= shift.high)
        levels += ((low <= truth) & (truth <= high)).tolist()
    return np.mean(shifts), np.mean(levels)


PLANTED = {
    "linear": {"slope": 1.0},
    "still": {"slope": 0.0, "num_seeds": 5, "noise": 1.0},
    "gaps": {"slope": 0.5, "missing": 0.15},
    "edge": {"slope": 0.5, "best": -0.5},  # beyond the end of the range at half of the levels
    "sample": {"slope": 0.5, "num": 60, "num_seeds": 1},
    **{shape: {"slope": 0.5, "shape": shape, "best": -2.3} for shape in SHAPES},
    "cliff with gaps": {"slope": 0.5, "shape": "cliff", "missing": 0.15},
}


@pytest.mark.parametrize("kind", in_tiers(PLANTED, full=["gaps", "cliff"]))
def test_intervals_hold_the_planted_shift(kind):
    shifts, levels = covered(200, **PLANTED[kind])
    lowest = 0.95 - 3 * (0.95 * 0.05 / 200) ** 0.5  # three standard errors
    assert shifts >= lowest, shifts
    assert levels >= lowest, levels


def test_a_planted_law_is_named():
    row = answers(table(0, 1.0)).optimum(of="lr", by="batch_size").iloc[0]
    assert row["resolved"]
    assert row["law"] == "linear"
    assert row["low"] < 1.0 < row["high"]
    assert row["high"] - row["low"] < 0.3
    root = answers(table(1, 0.5)).optimum(of="lr", by="batch_size").iloc[0]
    assert root["law"] == "square root"


@pytest.mark.parametrize("depth", [0.0, 1.0])  # flat; and curved, but best at one lr
def test_no_shift_is_seen_where_there_is_none(depth):
    frames = [
        answers(table(seed, 0.0, depth=depth)).optimum(of="lr", by="batch_size")
        for seed in range(30)
    ]
    whole = pd.concat(frames)
    assert whole["resolved"].sum() <= 4  # of 30 at 5 %, one in 600 has more
    reasons = whole.loc[~whole["resolved"].astype(bool), "reason"]
    assert set(reasons) <= {"best_not_bounded", "one_best"}
    assert (depth == 0) == (reasons == "best_not_bounded").any()


def test_a_best_value_beyond_the_range_has_one_end():
    of = answers(table(0, 1.0, best=-0.5))
    levels = of.optima(of="lr", by="batch_size").set_index("level")
    assert levels.loc["512", "is_high_end"]
    assert levels.loc["512", "best"] == 1.0
    assert not levels.loc["64", "is_high_end"]
    assert levels.loc["64", "low"] < 0.25
    row = of.optimum(of="lr", by="batch_size").iloc[0]
    assert row["resolved"]
    assert row["low"] > 0
    alone = answers(table(0, 0.0, best=3.0)).optimum(of="lr", by="batch_size").iloc[0]
    assert not alone["resolved"]


def test_what_has_no_curve_says_so():
    two = table(0, 1.0).query("lr < 0.1")
    assert len(answers(two).optimum(of="lr")) == 0
    one_seed = answers(table(0, 1.0).query("lr > 0.2 and seed == 0")).optimum(of="lr")
    assert set(one_seed["reason"]) == {"one_seed"}
    named = table(0, 1.0).assign(encoder=lambda frame: "net" + frame["batch_size"].astype(str))
    of = clsweep.analyse(named.drop(columns="batch_size"), metric="knn_top1",
                         params=["lr", "encoder"], scales={"lr": "log"})  # fmt: skip
    differs = of.optimum(of="lr", by="encoder").iloc[0]
    assert differs["resolved"]
    assert np.isnan(differs["shift"])
    with pytest.raises(RequestError, match="of: expected numbers, which have an order"):
        of.optimum(of="encoder")
    with pytest.raises(RequestError, match="by: no objective sweeps 'objective'"):
        of.optimum(by="objective")
    with pytest.raises(RequestError, match="of: no objective sweeps 'rl'"):
        of.optimum(of="rl")
    with pytest.raises(RequestError, match="by: expected another hyperparameter than of, given"):
        of.optimum(of="lr", by="lr")


def test_where_no_cubic_fits_a_best_value_lies_between_neighbours():
    trials = table(3, 0.5, shape="cliff")
    scores = trials.pivot_table("knn_top1", ["batch_size", "lr"], "seed")
    left = scores.sub(scores.mean(axis=1), axis=0)
    left = left - left.mean()
    freedom = (len(scores) - 1) * (scores.shape[1] - 1)
    error = np.sqrt(left.pow(2).to_numpy().sum() / freedom * 2 / scores.shape[1])
    ends = np.log2(LRS)
    fitted = curves(trials)
    assert not fitted.fits
    for k, size in enumerate(BATCHES):
        means = scores.mean(axis=1)[size].to_numpy()
        best = np.flatnonzero(means.max() - means <= stats.t.ppf(0.975, freedom) * error)
        low = ends[best[0] - 1] if best[0] else -np.inf
        high = ends[best[-1] + 1] if best[-1] + 1 < len(ends) else np.inf
        assert fitted.intervals[:, k] == pytest.approx([low, high], abs=0.02)
    row = answers(trials).optimum(of="lr", by="batch_size").iloc[0]
    assert "no parabola or cubic fits the scores: the best lr lies between" in row["note"]
    assert curves(table(3, 0.5)).fits


def test_failed_trials_are_left_out_and_noted():
    trials = table(0, 0.5)
    lost = (trials["lr"] == 1.0) & (trials["batch_size"] == 64)
    trials = trials.assign(status=np.where(lost, "failed", "finished"))
    trials.loc[lost, "knn_top1"] = np.nan
    row = answers(trials).optimum(of="lr", by="batch_size").iloc[0]
    assert "3 of 72 trials failed and are left out" in row["note"]
    assert row["low"] < 0.5 < row["high"]
    assert isinstance(curves(trials), Curves)
