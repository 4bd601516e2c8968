"""Robustness table: against hand-computed values, a slow loop, and planted truths."""

import math
import statistics

import numpy as np
import pandas as pd
import pytest

from clsweep.analysis.marginals import marginal_levels
from clsweep.analysis.read_sweeps import read_sweeps
from clsweep.analysis.reasons import Reason, note
from clsweep.analysis.robustness import ROBUSTNESS_COLUMNS, robustness, shrunk_to_spread
from clsweep.analysis.tolerance_curve import TOLERANCE_COLUMNS, tolerance_curve
from tests.analysis.draws import drawing
from tests.analysis.test_spread_intervals import slow_tail
from tests.analysis.truths import least_squares, trials_by, trials_of

TAUS = [0.07, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0]
SIMCLR = [83.6, 87.5, 89.5, 89.2, 88.7, 89.1, 88.5, 87.6, 86.8, 85.9, 85.3]  # DCL paper, Table 18
DCL = [88.3, 89.4, 90.8, 89.9, 89.6, 90.3, 89.6, 89.0, 88.5, 88.0, 87.7]


def table(scores, *, tau=None, batch_size=None, **options):
    """Trials of scores[config][seed]; None = a failed trial; settings: one value per config."""
    num = len(scores)
    tau = np.arange(num) / 10 if tau is None else tau
    batch_size = [256] * num if batch_size is None else batch_size
    return trials_of(scores, tau=np.asarray(tau), batch_size=np.asarray(batch_size), **options)


def sweeps_of(trials, **reading):
    return read_sweeps(trials, **{"metric": "acc", "params": ["tau", "batch_size"]} | reading)


def measure(trials, *, num=300, by=None, within=1.0, **reading):
    with drawing(num):
        return robustness(sweeps_of(trials, **reading), by=by, within=within)


def one(trials, **options):
    return measure(trials, **options).iloc[0]


def test_table_18_of_the_dcl_paper():
    simclr = table([[x] for x in SIMCLR], objective="simclr", tau=TAUS)
    trials = pd.concat([simclr, table([[x] for x in DCL], tau=TAUS)])
    before = trials.copy(deep=True)
    out = measure(trials)
    pd.testing.assert_frame_equal(trials, before)
    assert list(out.columns) == list(ROBUSTNESS_COLUMNS)
    assert list(out["objective"]) == ["simclr", "dcl"]  # first appearance, not the alphabet
    simclr, dcl = out.iloc[0], out.iloc[1]
    assert round(simclr["sd"], 2) == 1.87  # the paper prints 1.44
    assert round(dcl["sd"], 2) == 0.98
    without = measure(trials[trials["tau"] != 0.07])
    assert round(without["sd"].iloc[0], 2) == 1.45  # what it printed may have left 0.07 out
    assert (dcl["best_at"], dcl["worst_at"]) == ("tau=0.2", "tau=1")
    names = ["best", "worst", "range", "worst_10", "share_within"]
    known = [90.8, 87.7, 3.1, 87.7, 3 / 11]  # 90.8, 89.9, 90.3
    assert dcl[names].to_list() == pytest.approx(known)
    assert {note(Reason.ONE_SEED), note(Reason.NOT_CORRECTED)} < set(dcl["note"])
    ends = [f"{name}_low" for name in ("sd", "sd_star", "share", "worst_10")]
    assert dcl[["sd_star", "sd_high", *ends]].isna().all()
    # The only swept one: nothing to average.
    assert list(measure(trials, by="tau")["sd"]) == list(out["sd"])


def test_against_loops():
    noise = np.random.default_rng(3).normal(0, 1, (12, 3))
    scores = (noise + np.linspace(80, 84, 12)[:, None]).tolist()
    row, means = one(table(scores)), [sum(r) / 3 for r in scores]
    sd, unseen = statistics.stdev(means), least_squares(np.array(scores))[2] / 3
    known = sum(means) / 12, sd, math.sqrt(sd**2 - unseen)
    assert (row["mean"], row["sd"], row["sd_star"]) == pytest.approx(known)
    level = -slow_tail(-np.array(scores), 1)
    assert row["share_within"] == sum(mean >= level - 1 for mean in means) / 12
    # 12 // 10 = 1.
    assert row["worst_10"] == pytest.approx(slow_tail(np.array(scores), 1))
    assert row["regret"] == pytest.approx(sum(level - m for m in means) / 12)
    near = sum(min(1, max(0, 1 - (level - m) / 10)) for m in means)
    assert row["tolerance_area"] == pytest.approx(near / 12)
    for name in ("mean", "regret", "tolerance_area", "iqm", "worst_10"):
        assert row[f"{name}_low"] <= row[name] <= row[f"{name}_high"], name


def test_settings_that_failed_at_every_seed_have_no_part_in_what_a_seed_gives_to_all():
    """They count at one level, so the spread is that of the means but for the others' noise."""
    noise = 0.1 * np.random.default_rng(0).normal(size=(6, 3))
    scores = np.array([0, 0, 8, 10, 12, 11])[:, None] + np.array([76.0, 65.0, 69.0]) + noise
    cells = np.where(np.arange(6)[:, None] < 2, np.nan, scores)
    row = one(table([[None if np.isnan(x) else x for x in cell] for cell in cells]))
    measured = cells[2:]
    means = np.append([measured.min()] * 2, measured.mean(axis=1))
    assert row["sd"] == pytest.approx(means.std(ddof=1))
    assert row["sd_star"] == pytest.approx(row["sd"], abs=0.02)


@pytest.mark.parametrize("draw", [2, 9, 13, 14])
def test_what_is_lost_counts_from_the_level_that_is_named_and_points_lie_in_their_intervals(draw):
    noise = np.random.default_rng(draw).normal(0, 1.5, (5, 3))
    row = one(table((80 + np.array([-8, 0, 8]) + noise).tolist()))
    assert row["regret"] == pytest.approx(row["best_level"] - row["mean"], abs=1e-9)
    for name in ("sd", "sd_star", "share", "worst_10", "tolerance_area"):
        point = row["share_within" if name == "share" else name]
        assert row[f"{name}_low"] <= point <= row[f"{name}_high"], name


@pytest.mark.parametrize("by", [None, "tau"])
def test_intervals_hold_with_the_failures_and_without_them(by):
    """They are the union of the two: whatever failed trials count as, what is told of the
    objective does not hang on it.
    """
    rng = np.random.default_rng(0)
    level = 80 + np.arange(6.0)[:, None] + np.array([0.0, 1.0])
    scores = (level.ravel()[:, None] + rng.normal(0, 0.5, (12, 3))).tolist()
    scores[3][1] = scores[7][0] = None
    at = {"tau": np.repeat(np.arange(6) / 10, 2), "batch_size": np.tile([64, 128], 6)}
    trials = table(scores, **at)
    worst = trials["acc"].min()
    filled = one(trials.fillna({"acc": worst}).assign(status="finished"), by=by)
    without = one(trials, by=by, failed_as="left out")
    row = one(trials, by=by)
    names = ("mean", "sd", "sd_star", "regret", "share", "tolerance_area", "iqm", "worst_10")
    for name in names:
        ends = [each[f"{name}{end}"] for each in (filled, without) for end in ("_low", "_high")]
        assert row[f"{name}_low"] == pytest.approx(min(ends)), name
        assert row[f"{name}_high"] == pytest.approx(max(ends)), name
    assert row["mean"] == pytest.approx(filled["mean"])
    at_chance = one(trials, by=by, failed_as="chance", chance=10.0)
    assert at_chance["mean"] < row["mean"] < without["mean"] < at_chance["mean_high"]


def test_intervals_hold_however_bad_the_failed_configurations_are():
    """Where the lowest four levels lie below a crash, what they count as is invented. The same
    levels without a crash stand for them, and 1000 points lower ones.
    """
    names = ("mean", "sd_star", "regret", "share", "tolerance_area", "iqm", "worst_10")
    hits, (a, b) = [], np.indices((6, 5)).reshape(2, -1)
    level = 80 - 5 * (a / 5 - 0.55) ** 2 + 0.4 * b
    for repeat in range(12):
        scores = level[:, None] + np.random.default_rng(repeat).normal(0, 0.3, (30, 3))
        scores[scores <= np.sort(level)[3:5].mean()] = np.nan
        trials = table(scores, tau=a, batch_size=b)
        row = one(trials, num=200)
        assert Reason.WORST_UNKNOWN in {each.reason for each in row["note"]}
        withheld = ["mean_low", "sd_high", "sd_star_high", "regret_high", "worst_10_low"]
        assert row[["worst", "range", *withheld]].isna().all()
        assert row[["mean_high", "sd_star_low", "regret_low", "iqm_low", "iqm_high"]].notna().all()
        deep = np.where(level <= np.sort(level)[3], level - 1000, level)
        for truth in (level, deep):
            best, cut = truth.max(), np.sort(truth)
            weights = np.clip(np.minimum(np.arange(1, 31), np.arange(30, 0, -1)) - 7.5, 0, 1)
            area = np.clip(1 - (best - truth) / 10, 0, None).mean()
            true = (truth.mean(), truth.std(ddof=1), best - truth.mean())
            true += ((truth >= best - 1).mean(), area, cut @ weights / 15, cut[:3].mean())
            for name, value in zip(names, true, strict=True):
                low, high = row[f"{name}_low"], row[f"{name}_high"]
                hits.append(not (value < low - 1e-9 or value > high + 1e-9))
        low = marginal_levels(sweeps_of(trials)).query("param == 'tau'")["low"]
        lost = trials.groupby("config")["acc"].count().eq(0).groupby(np.arange(30) // 5).any()
        assert low.isna().tolist() == lost.tolist()
    assert np.mean(hits) > 0.9
    assert np.mean(hits[-7:]) > 0.5


def test_no_interval_where_there_is_none_without_the_failures():
    row = one(table([[90.0, 91.0], [None, None], [None, None]]))
    assert row[["sd", "mean_high"]].notna().all()
    assert row[["mean_low", "sd_low", "sd_high", "sd_star_low", "sd_star_high"]].isna().all()


def test_by_averages_a_grid_over_the_other_parameters():
    scores = [[80.0, 81.0], [84.0, 87.0], [90.0, 91.0], [92.0, 95.0]]
    trials = table(scores, tau=[0.1, 0.1, 0.5, 0.5], batch_size=[64, 256, 64, 256])
    row = one(trials, by="tau")
    # A seed is worth 2 at every value: no noise of the spread.
    spread = 9 / math.sqrt(2)
    assert (row["mean"], row["sd"], row["sd_star"]) == pytest.approx((87.5, spread, spread))
    assert (row["best"], row["best_at"], row["worst_at"]) == (92.0, "tau=0.5", "tau=0.1")
    assert row["num_configs"] == 4
    # A missing seed does not let the other batch size stand for the average. That seed is better by
    # 3, 1 and 3 elsewhere: by 7 / 3.
    trials.loc[1, ["acc", "status"]] = np.nan, "failed"
    worst = (80.0 + 7 / 6 + 85.5) / 2
    assert one(trials, by="tau", failed_as="left out")["worst"] == pytest.approx(worst)


def test_by_bins_a_continuous_design():
    u = np.random.default_rng(1).random((40, 2))
    scores = 80 + 10 * u[:, :1] + u[:, 1:] + np.zeros((40, 1))
    row = one(table(scores, sampler="qmc", tau=u[:, 0], batch_size=u[:, 1]), by="tau")
    assert note(Reason.BINNED, param="tau", bins=6) in row["note"]
    order = np.argsort(u[:, 0])
    assert row["best"] == pytest.approx(scores[order[-6:], 0].mean())  # 40 into 6 bins: 7 7 6 7 7 6
    assert row["best_at"].startswith("tau=0.")
    # One seed, but the configurations of a bin are repeats.
    assert row["sd_low"] < row["sd"] < row["sd_high"]


GOOD = table([[80.0, 81.0], [82.0, 83.0]])


@pytest.mark.parametrize(
    ("trials", "options", "message"),
    [
        (GOOD.iloc[:0], {}, "no rows"),
        (GOOD, {"metric": "ac"}, "no column 'ac'. Did you mean 'acc'"),
        (GOOD.drop(columns="sampler"), {}, "no column 'sampler'"),
        (pd.concat([GOOD, GOOD.iloc[:1].assign(acc=81.0)]), {}, "config 0, seed 0 appears more th"),
        (GOOD.assign(tau=[1, 2, 3, 3]), {}, "objective 'dcl', config 0 has several values of tau"),
        (GOOD.assign(sampler="sobol"), {}, "got 'sobol'"),
        (GOOD.assign(status="running"), {}, "got 'running'"),
        (GOOD.assign(seed=[0, 1, 0, None]), {}, "missing values in seed"),
        (GOOD.assign(acc="a"), {}, "expected to be numbers"),
        (GOOD, {"mode": "best"}, "mode"),
        (GOOD, {"within": -1}, "within"),
        (GOOD, {"by": "taus"}, r"sweeps 'taus'. Did you mean 'tau'\? Swept: tau"),
    ],
)
def test_user_mistakes(trials, options, message):
    with pytest.raises(ValueError, match=message):
        measure(trials, **options)


def test_an_unfinished_grid_is_a_sample_of_the_space_and_says_so():
    trials = table([[90.0, 91.0], [85.0, 86.0], [88.0, 87.5]])
    finished, unfinished = one(trials, planned={"dcl": 3}), one(trials, planned={"dcl": 11})
    assert Reason.UNFINISHED not in {each.reason for each in finished["note"]}
    assert note(Reason.UNFINISHED, configs=3, planned=11) in unfinished["note"]
    assert unfinished["sd"] == finished["sd"]
    assert unfinished["sd_high"] - unfinished["sd_low"] > finished["sd_high"] - finished["sd_low"]


def test_band_slope_and_area_where_a_value_failed_by_hand():
    trials = table([[90.0], [89.0], [84.0], [70.0], [None]], tau=[4, 8, 2, 1, 16])
    row = one(trials, failed_as="chance", chance=10.0)
    assert row["tolerance_area"] == pytest.approx((1 + 0.9 + 0.4 + 0 + 0) / 5)
    names = ["band_param", "band_low", "band_high", "band_ratio", "band_end"]
    assert row[names].to_list() == ["tau", 4, 8, 2, ""]  # 16 was swept, and failed
    assert row["slope"] == pytest.approx(np.polyfit([2, 3, 1, 0, 4], [90, 89, 84, 70, 10], 1)[0])
    assert np.isnan([row["slope_low"], row["mean_low"], row["regret_low"], row["iqm_high"]]).all()
    assert note(Reason.FAILING_VALUES, values=("tau=16",)) in row["note"]
    assert Reason.WORST_UNKNOWN not in {each.reason for each in row["note"]}
    assert (row["num_configs"], row["num_seeds"], row["num_failed"]) == (5, 1, 1)
    left_out = one(trials, failed_as="left out", within=2.0)
    assert left_out["slope"] == pytest.approx(np.polyfit([2, 3, 1, 0], [90, 89, 84, 70], 1)[0])
    assert (left_out["band_low"], left_out["band_high"]) == (4, 8)
    # Over 20 points.
    assert left_out["tolerance_area"] == pytest.approx((1 + 19 / 20 + 14 / 20 + 0) / 4)


def test_a_category_has_no_band_and_two_hyperparameters_have_none_together():
    cells = [(size, tau) for size in (32, 64, 128, 256) for tau in (0.1, 0.5)]
    scores = [[size / 32 - 4 * tau + noise for noise in (-0.1, 0.1)] for size, tau in cells]
    sizes, taus = zip(*cells, strict=True)
    trials = table(scores, tau=taus, batch_size=sizes)
    assert one(trials)["band_param"] == ""  # two are swept: no band of the whole
    assert math.isnan(one(trials)["slope"])
    row = one(trials.assign(tau=trials["tau"].map({0.1: "low", 0.5: "high"})), by="tau")
    assert (row["band_param"], row["best_at"]) == ("", "tau=low")
    assert math.isnan(row["band_low"])
    assert row["sd"] == pytest.approx(1.6 / math.sqrt(2))


def objectives_of(*objectives, sampler="grid", **options):
    trials = trials_by({f"o{i}": scores for i, scores in enumerate(objectives)}, sampler=sampler)
    return read_sweeps(trials, metric="acc", params=["tau"], **options)


def test_the_tolerance_curve_by_hand():
    curve = tolerance_curve(objectives_of([[90.0], [89.0], [84.0], [70.0]]))
    assert list(curve.columns) == list(TOLERANCE_COLUMNS)
    assert len(curve) == 51
    share = curve.set_index(curve["delta"].round(6))["share"]
    cells = share[[0.0, 0.8, 1.0, 5.8, 6.0, 10.0]]
    assert cells.to_list() == [0.25, 0.25, 0.5, 0.5, 0.75, 0.75]
    assert curve[["low", "high"]].isna().all(axis=None)
    assert note(Reason.ONE_SEED) in curve["note"][0]


@pytest.mark.parametrize(("failed_as", "shift"), [("worst", 6.0), ("left out", 0.0)])
def test_the_tolerance_curve_is_share_within_at_every_delta_and_its_area(failed_as, shift):
    values = 80 + 4 * np.random.default_rng(0).normal(size=(30, 3)) + shift * np.arange(-1, 2)
    values[4] = np.nan
    for sampler in ("grid", "random"):
        sweeps = objectives_of(values, sampler=sampler, failed_as=failed_as)
        with drawing(300):
            curve = tolerance_curve(sweeps)
        for row in curve.iloc[[0, 10, 33, 50]].itertuples():
            with drawing(300):
                whole = robustness(sweeps, within=row.delta).iloc[0]
            assert row.share == pytest.approx(whole["share_within"])
            assert row.low <= row.share <= row.high
            assert row.low >= (1 / 30 if sampler == "grid" else 0)  # the best is near itself
            if sampler == "grid":
                ends = whole["share_low"], whole["share_high"]
                assert (row.low, row.high) == pytest.approx(ends)
        beyond = 10 - curve["delta"].iloc[-1]  # where all are within
        area = (np.trapezoid(curve["share"], curve["delta"]) + beyond) / 10
        with drawing(50):
            whole = robustness(sweeps).iloc[0]
        assert area == pytest.approx(whole["tolerance_area"], abs=0.01)
        assert (curve["share"].diff().dropna() >= 0).all()
        assert sweeps[0].missing[0] in curve["note"][0]
        lost = note(Reason.LEFT_OUT, lost=1, configs=30)
        assert (lost in curve["note"][0]) == (failed_as == "left out")


def test_deltas_fit_the_data_and_are_shared():
    near, far = [[90.0], [89.7]], [[90.0], [50.0]]
    assert tolerance_curve(objectives_of(near))["delta"].max() == 0.5
    both = tolerance_curve(objectives_of(near, far)).groupby("objective")["delta"].max()
    assert both.tolist() == [10.0, 10.0]
    assert tolerance_curve(objectives_of(far), within=4.0)["share"].iloc[-1] == 1.0
    assert tolerance_curve(objectives_of([[90.0], [90.0]]))["delta"].max() == 10.0
    with pytest.raises(ValueError, match="within"):
        tolerance_curve(objectives_of(near), within=0)


@pytest.mark.filterwarnings("error")
def test_a_single_setting_is_spread_by_nothing_and_warns_of_nothing():
    alone = shrunk_to_spread(np.array([[81.0, 83.0]]), 0.5)
    assert alone.tolist() == [[82.0]]
    several = shrunk_to_spread(np.array([[80.0, 82.0], [85.0, 85.0]]), np.sqrt(2.0))
    assert several == pytest.approx(np.array([[82.0], [84.0]]))
