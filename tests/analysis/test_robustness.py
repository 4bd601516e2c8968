"""Robustness table: against hand-computed values, a slow loop, and planted truths."""

import math

import numpy as np
import pandas as pd
import pytest

from clsweep.analysis import resample
from clsweep.analysis.robustness import COLUMNS, robustness

TAUS = [0.07, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0]
SIMCLR = [83.6, 87.5, 89.5, 89.2, 88.7, 89.1, 88.5, 87.6, 86.8, 85.9, 85.3]  # DCL paper, Table 18
DCL = [88.3, 89.4, 90.8, 89.9, 89.6, 90.3, 89.6, 89.0, 88.5, 88.0, 87.7]


def table(scores, *, objective="dcl", sampler="grid", tau=None, **columns):
    """Trials of one objective from scores[config][seed]; None = a failed trial; columns: one value per config."""
    rows = []
    for config, seeds in enumerate(scores):
        settings = {name: values[config] for name, values in columns.items()}
        for seed, score in enumerate(seeds):
            rows.append(
                {
                    "objective": objective,
                    "config": config,
                    "seed": seed,
                    "sampler": sampler,
                    "status": "failed" if score is None else "finished",
                    "acc": score,
                    "tau": config / 10 if tau is None else tau[config],
                    "batch_size": 256,
                    **settings,
                }
            )
    return pd.DataFrame(rows).astype({"acc": float})


def measure(trials, **options):
    return robustness(trials, **{"metric": "acc", "params": ["tau", "batch_size"], "num_resamples": 300, **options})


def one(trials, **options):
    return measure(trials, **options).iloc[0]


def test_table_18_of_the_dcl_paper():
    simclr = table([[x] for x in SIMCLR], objective="simclr", tau=TAUS)
    trials = pd.concat([simclr, table([[x] for x in DCL], tau=TAUS)])
    before = trials.copy(deep=True)
    out = measure(trials)
    pd.testing.assert_frame_equal(trials, before)
    assert list(out.columns) == list(COLUMNS)
    assert list(out["objective"]) == ["simclr", "dcl"]  # first appearance, not the alphabet
    simclr, dcl = out.iloc[0], out.iloc[1]
    assert round(simclr["sd"], 2) == 1.87  # the paper prints 1.44
    assert round(dcl["sd"], 2) == 0.98
    assert (dcl["best"], dcl["best_at"], dcl["worst"], dcl["worst_at"]) == (90.8, "tau=0.2", 87.7, "tau=1")
    assert dcl["range"] == pytest.approx(3.1)
    assert dcl["worst_10"] == 87.7
    assert dcl["share_within"] == pytest.approx(3 / 11)  # 90.8, 89.9, 90.3
    assert "one seed: no interval, SD not corrected for seed noise" in dcl["note"]
    assert dcl[["sd_star", "sd_low", "sd_high", "sd_star_low", "share_low", "worst_10_low"]].isna().all()
    assert list(measure(trials, by="tau")["sd"]) == list(out["sd"])  # the only swept one: nothing to average


def slow(scores):
    """The formulas as loops over ragged lists."""
    n = len(scores)
    means = [sum(row) / len(row) for row in scores]
    mean = sum(means) / n
    sd = math.sqrt(sum((m - mean) ** 2 for m in means) / (n - 1))
    squares = sum((x - m) ** 2 for m, row in zip(means, scores, strict=True) for x in row)
    noise = squares / sum(len(row) - 1 for row in scores)
    harmonic = n / sum(1 / len(row) for row in scores)
    return mean, sd, math.sqrt(max(0.0, sd**2 - noise / harmonic))


def slow_best(scores):
    levels = []
    for s in range(len(scores[0])):
        rest = [sum(row[:s] + row[s + 1 :]) for row in scores]
        levels.append(scores[rest.index(max(rest))][s])
    means = [sum(row) / len(row) for row in scores]
    return min(max(means), max(sum(levels) / len(levels), sum(means) / len(means)))


def test_against_loops():
    scores = (np.random.default_rng(3).normal(0, 1, (12, 3)) + np.linspace(80, 84, 12)[:, None]).tolist()
    row = one(table(scores))
    assert (row["mean"], row["sd"], row["sd_star"]) == pytest.approx(slow(scores))
    level = slow_best(scores)
    assert float(resample.best_level(np.array(scores))) == pytest.approx(level)
    assert row["share_within"] == sum(sum(r) / 3 >= level - 1 for r in scores) / 12
    assert row["worst_10"] == pytest.approx(-slow_best([[-x for x in r] for r in scores]))  # 12 // 10 = 1


def test_unequal_seeds_use_pooled_variance_and_harmonic_mean():
    row = one(table([[80.0, 81.0, 82.0], [84.0, 86.0, None], [90.0, None, None]]))
    assert (row["mean"], row["sd"], row["sd_star"]) == pytest.approx(slow([[80, 81, 82], [84, 86], [90]]))
    assert row["num_failed"] == 3
    assert "3 of 9 trials failed" in row["note"]
    assert row["sd_star_low"] <= row["sd_star"] <= row["sd_star_high"]


def test_failed_configurations_count_at_chance_or_are_left_out():
    trials = table([[90.0, 90.2], [89.8, 90.0], [None, None], [80.0, 80.2]])
    row = one(trials)
    assert (row["num_configs"], row["num_seeds"], row["num_failed"]) == (4, 2, 2)
    assert row["share_within"] == 0.5  # of four, not of three
    assert row["worst_10"] == pytest.approx(80.1)
    assert "1 of 4 configurations failed on every seed: not within, left out of worst_10" in row["note"]
    known = one(trials, chance=10.0)
    assert known["worst_10"] == 10.0
    assert known["share_within"] == 0.5
    assert known["sd"] == row["sd"]
    leftover = trials.assign(acc=trials["acc"].fillna(99.0))  # a failed trial's last value is no score
    pd.testing.assert_series_equal(one(leftover), row)
    assert one(trials.replace({"acc": {80.0: np.inf}}))["num_failed"] == 3


def test_all_failed_one_finished_and_one_configuration():
    row = one(table([[None], [None]]))
    assert "no finished trial" in row["note"]
    assert math.isnan(row["best"])
    row = one(table([[90.0, 91.0], [None, None]]))
    assert math.isnan(row["sd"])
    assert row["share_within"] == 0.5
    row = one(table([[90.0, 91.0]]))
    assert row["mean"] == row["best"] == 90.5
    assert row[["sd", "sd_star", "range", "worst", "share_within", "worst_10"]].isna().all()
    assert row["note"] == "one configuration: no spread to measure"


@pytest.mark.parametrize("sampler", ["tpe", "gp"])
def test_adaptive_samples_are_not_measured(sampler):
    row = one(table([[80.0, 81.0], [85.0, 86.0]], sampler=sampler))
    assert row["note"] == f"robustness not measured: {sampler} samples favour good configurations"
    assert (row["num_configs"], row["best"], row["best_at"]) == (2, 85.5, "tau=0.1")
    assert row[["mean", "sd", "sd_star", "range", "worst", "share_within", "worst_10"]].isna().all()


def test_mode_min_mirrors():
    scores = np.random.default_rng(0).normal(50, 2, (8, 3))
    high, low = one(table(scores), chance=0.0), one(table(100 - scores), mode="min", chance=100.0)
    for name in ("sd", "sd_low", "sd_high", "sd_star", "sd_star_high", "range", "share_within", "share_high"):
        assert low[name] == pytest.approx(high[name]), name
    for name, mirrored in {
        "mean": "mean",
        "best": "best",
        "worst": "worst",
        "worst_10": "worst_10",
        "worst_10_low": "worst_10_high",
        "worst_10_high": "worst_10_low",
    }.items():
        assert low[name] == pytest.approx(100 - high[mirrored]), name
    assert (low["best_at"], low["worst_at"]) == (high["best_at"], high["worst_at"])


def test_by_averages_a_grid_over_the_other_parameters():
    trials = table(
        [[80.0, 81.0], [84.0, 87.0], [90.0, 91.0], [92.0, 95.0]],
        tau=[0.1, 0.1, 0.5, 0.5],
        batch_size=[64, 256, 64, 256],
    )
    row = one(trials, by="tau")
    assert (row["mean"], row["sd"], row["sd_star"]) == pytest.approx(slow([[82.0, 84.0], [91.0, 93.0]]))
    assert (row["best"], row["best_at"], row["worst_at"]) == (92.0, "tau=0.5", "tau=0.1")
    assert row["num_configs"] == 4
    # A missing seed does not let the other batch size stand for the average.
    trials.loc[(trials["config"] == 0) & (trials["seed"] == 1), ["acc", "status"]] = [np.nan, "failed"]
    assert one(trials, by="tau")["worst"] == pytest.approx((80.0 + 85.5) / 2)


def test_by_bins_a_continuous_design():
    u = np.random.default_rng(1).random((40, 2))
    scores = 80 + 10 * u[:, :1] + u[:, 1:] + np.zeros((40, 1))
    row = one(table(scores, sampler="qmc", tau=u[:, 0], batch_size=u[:, 1]), by="tau")
    assert "tau cut by rank into 6 bins of equal count" in row["note"]
    order = np.argsort(u[:, 0])
    assert row["best"] == pytest.approx(scores[order[-6:], 0].mean())  # 40 into 6 bins: 7 7 6 7 7 6
    assert row["best_at"].startswith("tau=0.")
    assert row["sd_low"] < row["sd"] < row["sd_high"]  # one seed, but the configurations of a bin are repeats


def test_by_that_an_objective_or_nobody_sweeps():
    other = table([[80.0, 81.0], [82.0, 83.0]], objective="byol", tau=[np.nan] * 2, batch_size=[64, 128])
    out = measure(pd.concat([table([[80.0, 81.0], [82.0, 83.0]]), other]), by="tau")
    assert "does not sweep tau" in out["note"][1]
    assert math.isnan(out["sd"][1])
    assert out["sd"][0] == pytest.approx(math.sqrt(2))
    with pytest.raises(ValueError, match=r"no objective sweeps 'taus'. Did you mean 'tau'\? Swept: tau, batch_size"):
        measure(pd.concat([table([[80.0], [82.0]]), other]), by="taus")


def test_user_mistakes():
    good = table([[80.0, 81.0], [82.0, 83.0]])
    for trials, options, message in [
        (good.iloc[:0], {}, "no rows"),
        (good, {"metric": "ac"}, "no column 'ac'. Did you mean 'acc'"),
        (good.drop(columns="sampler"), {}, "no column 'sampler'"),
        (pd.concat([good, good.iloc[:1]]), {}, "objective 'dcl', config 0, seed 0 appears more than once"),
        (good.assign(tau=[1, 2, 3, 3]), {}, "objective 'dcl', config 0 has several values of tau"),
        (good.assign(sampler="sobol"), {}, "got 'sobol'"),
        (good.assign(status="running"), {}, "got 'running'"),
        (good.assign(seed=[0, 1, 0, None]), {}, "missing values in seed"),
        (good.assign(acc="a"), {}, "expected to be numbers"),
        (good, {"mode": "best"}, "mode"),
        (good, {"within": -1}, "within"),
        (good, {"confidence": 95}, "confidence"),
        (good, {"num_resamples": 0}, "num_resamples"),
    ]:
        with pytest.raises(ValueError, match=message):
            measure(trials, **options)
    assert "mixed" in one(good.assign(sampler=["grid", "grid", "qmc", "qmc"]))["note"]


def test_deterministic_and_independent_of_the_other_objectives():
    rng = np.random.default_rng(0)
    a, b = table(rng.normal(80, 1, (6, 3))), table(rng.normal(80, 1, (6, 3)), objective="b", sampler="qmc")
    both = measure(pd.concat([a, b]))
    pd.testing.assert_frame_equal(both, measure(pd.concat([a, b])))
    pd.testing.assert_series_equal(both.iloc[0], one(a))
    assert one(a, seed=1)["sd_low"] != both["sd_low"][0]


def test_flat_response_reads_near_zero_once_corrected():
    tables = np.random.default_rng(0).normal(80, 0.5, (2000, 6, 3))
    out = resample.statistics(tables, within=1.0)
    assert out["sd"].mean() == pytest.approx(0.27, abs=0.01)
    assert np.median(out["sd_star"]) < 0.1
    assert out["worst_10"].mean() == pytest.approx(80, abs=0.2)  # the plain minimum reads 79.63


def test_share_within_is_not_halved_by_picking_the_best_on_its_own_noise():
    truth = np.where(np.arange(64) < 32, 90.0, 87.0)
    tables = truth[:, None] + np.random.default_rng(0).normal(0, 0.5, (300, 64, 3))
    crossed = resample.statistics(tables, within=1.0)["share"].mean()
    plain = (tables.mean(-1) >= tables.mean(-1).max(-1, keepdims=True) - 1).mean()
    assert crossed == pytest.approx(0.50, abs=0.03)
    assert plain < crossed
    assert resample.statistics(tables[..., :1], within=1.0)["share"].mean() < 0.3  # one seed


@pytest.mark.parametrize("name", ["sd", "sd_star", "share", "worst_10"])
@pytest.mark.parametrize("num_seeds", [2, 3])
def test_coverage_on_a_grid(name, num_seeds):
    truth, noise = np.array(DCL)[::2], 0.3
    spread = truth.std(ddof=1)
    expected = {
        "sd": math.sqrt(spread**2 + noise**2 / num_seeds),
        "sd_star": spread,
        "worst_10": 87.7,
        "share": float((truth >= truth.max() - 1).mean()),
    }
    rng = np.random.default_rng(7)
    hits = 0
    for repeat in range(200):
        low, high = resample.intervals(
            truth[:, None] + rng.normal(0, noise, (6, num_seeds)),
            within=1.0,
            num_lost=0,
            chance=None,
            confidence=0.95,
            num_resamples=300,
            population=False,
            seed=repeat,
        )[name]
        hits += low - 1e-9 <= expected[name] <= high + 1e-9
    assert hits >= 180  # nominal 190


def test_coverage_of_sd_over_a_random_sample():
    rng = np.random.default_rng(7)
    hits = 0
    for repeat in range(150):
        theta = 4 * rng.random(48)
        bounds = resample.intervals(
            theta[:, None] + rng.normal(0, 0.5, (48, 3)),
            within=1.0,
            num_lost=0,
            chance=None,
            confidence=0.95,
            num_resamples=300,
            population=True,
            seed=repeat,
        )
        hits += bounds["sd_star"][0] <= 4 / math.sqrt(12) <= bounds["sd_star"][1]
    assert 132 <= hits <= 149


def test_an_unfinished_grid_is_a_sample_of_the_space_and_says_so():
    trials = table([[90.0, 91.0], [85.0, 86.0], [88.0, 87.5]])
    finished, unfinished = one(trials, planned={"dcl": 3}), one(trials, planned={"dcl": 11})
    assert finished["note"] == ""
    assert "3 of 11 planned configurations so far" in unfinished["note"]
    assert unfinished["sd"] == finished["sd"]
    assert unfinished["sd_high"] - unfinished["sd_low"] > finished["sd_high"] - finished["sd_low"]
