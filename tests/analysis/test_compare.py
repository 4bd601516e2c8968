"""Comparisons of objectives and who wins where: against loops, scipy, hand-made tables and planted
truths.
"""

import itertools
import math
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from clsweep.analysis import evidence
from clsweep.analysis.compare import compare, doubt, robust_to_failures
from clsweep.analysis.holm import holm
from clsweep.analysis.pairing import pair
from clsweep.analysis.read_sweeps import read_sweeps
from clsweep.analysis.reasons import Reason, note
from clsweep.analysis.region_winners import WINNER_COLUMNS, region_winners
from tests.analysis.draws import drawing
from tests.analysis.truths import trials_by, trials_of

SIMCLR = [83.6, 87.5, 89.5, 89.2, 88.7, 89.1, 88.5, 87.6, 86.8, 85.9, 85.3]  # DCL paper, Table 18
DCL = [88.3, 89.4, 90.8, 89.9, 89.6, 90.3, 89.6, 89.0, 88.5, 88.0, 87.7]


def sweep(name, scores, *, sampler="grid", seeds=None, **settings):
    """One objective from scores (n, S), NaN = no trial, and the columns of its settings."""
    trials = trials_of(scores, objective=name, sampler=sampler, seeds=seeds, **settings)
    return read_sweeps(trials, metric="acc", params=list(settings), failed_as="left out")[0]


def both(tables, **settings):
    """Objectives a and b, on a grid of tau unless told otherwise."""
    named = zip("ab", tables, strict=True)
    return [sweep(name, x, **({"tau": range(len(x))} | settings)) for name, x in named]


def one(a, b, *, num=500, seed=0, **options):
    with drawing(num, seed):
        return compare([a, b], "a", "b", **options).iloc[0]


def test_the_other_parameters_of_one_side_are_averaged_over():
    tau, sigma = [0.1, 0.1, 0.2, 0.2], [1.0, 2.0, 1.0, 2.0]
    a = sweep("a", [[1, 2], [3, 4], [5, 6], [7, 8]], tau=tau, sigma=sigma)
    b = sweep("b", [[5, 5], [0, 0]], tau=[0.1 + 0.1, 0.30000000000000004 - 0.2])
    pairing = pair(a, b)
    assert pairing.a.scores.tolist() == [[2, 3], [6, 7]]
    assert pairing.b.scores.tolist() == [[0, 0], [5, 5]]
    assert pairing.notes == (note(Reason.AVERAGED, params=("sigma",)).of("a"),)
    # A missing seed does not let the other configuration stand for the average.
    a = sweep("a", [[1, 2], [3, np.nan], [5, 6], [7, 8]], tau=tau, sigma=sigma)
    assert pair(a, b).a.scores[0].tolist() == pytest.approx([2.0, (1.5 + 3) / 2 + 0.5])


def test_missing_cells_are_left_out_and_seeds_of_one_side_paired_in_order():
    a = sweep("a", [[1, 2, np.nan], [4, 5, 6], [1, 2, 3]], tau=[1, 2, 3])
    b = sweep("b", [[0, 0, 0], [np.nan] * 3, [0, 1, 0]], tau=[1, 2, 3], seeds=[0, 1, 7])
    row = one(a, b)
    assert (row["num_pairs"], row["num_seeds"]) == (5, 3)
    assert row["estimate"] == pytest.approx((1.5 + 5 / 3) / 2)
    assert note(Reason.PAIRS_LEFT_OUT, lost=4, pairs=9) in row["note"]
    assert note(Reason.SEEDS_IN_ORDER, a=(2,), b=(7,)) in row["note"]
    b = sweep("b", b.scores[:, :2], tau=[1, 2, 3])
    row = one(a, b)
    assert row["num_pairs"] == 4
    assert note(Reason.SEEDS_LEFT_OUT, seeds=(2,)).of("a") in row["note"]
    row = one(a, sweep("b", np.zeros((3, 2)), tau=[1, 2, 3], seeds=[8, 9]))
    assert note(Reason.SEEDS_BY_ORDER) in row["note"]


def test_unpaired_designs_say_so():
    rng = np.random.default_rng(4)
    a = sweep("a", rng.normal(3, 1, (40, 2)), sampler="random", tau=rng.random(40))
    b = sweep("b", rng.normal(0, 1, (30, 2)), sampler="random", tau=rng.random(30))
    row = one(a, b)
    assert note(Reason.UNPAIRED_FEW_MATCH, a=40, b=30) in row["note"]
    assert (row["num_pairs"], row["winner"]) == (0, "a")
    means = a.means, b.means
    assert row["superiority"] == pytest.approx(stats.mannwhitneyu(*means).statistic / 1200)
    welch = stats.ttest_ind(*means, equal_var=False).confidence_interval()
    by_seed = stats.ttest_rel(a.scores.mean(axis=0), b.scores.mean(axis=0)).confidence_interval()
    half = np.hypot(np.ptp(welch), np.ptp(by_seed)) / 2
    assert row["high"] - row["estimate"] == row["estimate"] - row["low"] == pytest.approx(half)
    a, b = sweep("a", a.scores[:5] - 3, tau=range(5)), sweep("b", b.scores[:4], sigma=range(4))
    row = one(a, b)
    assert note(Reason.UNPAIRED_NONE_SHARED, a=5, b=4) in row["note"]
    assert row["low"] < 0 < row["high"]


def test_one_setting_pairs_the_seeds():
    """The test is that of t, as of tuned ones: where nothing is swept both are one."""
    a, b = [5.0, 5.1, 5.2, 5.1], [1.0, 4.2, 3.1, 4.3]
    row = one(sweep("a", [a]), sweep("b", [b]))
    p = stats.ttest_rel(a, b).pvalue
    assert (row["num_pairs"], row["winner"]) == (4, "")
    assert row["p"] == pytest.approx(p)
    tuned = one(sweep("a", [a]), sweep("b", [b]), stat="tuned")
    names = ["estimate", "low", "high", "p", "num_pairs", "needs_seeds"]
    assert np.isfinite(row["needs_seeds"])
    assert row[names].tolist() == tuned[names].tolist()
    assert one(sweep("a", [a]), sweep("b", [[1.0, 1.2, 1.1, 1.3]]))["winner"] == "a"


@pytest.mark.parametrize(("num_seeds", "sd"), [(4, 1.5), (6, 1.0), (10, 4.0)])
def test_the_seeds_that_are_asked_for_have_the_power_of_scipys_noncentral_t(num_seeds, sd):
    """Of a paired t test, within a seed."""
    seen = evidence.Evidence(1.0, se=sd / math.sqrt(num_seeds), freedom=num_seeds - 1.0)
    needed = seen.repeats_needed(num_seeds)[0]

    def power(num):
        return stats.nct.sf(stats.t.ppf(0.975, num - 1), num - 1, math.sqrt(num) / sd)

    assert power(needed - 1) < 0.8 < power(needed + 1)


def test_one_seed_of_a_grid_has_no_interval_and_no_verdict():
    a, b = both(np.array(each)[:, None] for each in (SIMCLR, DCL))
    row = one(a, b)
    assert row[["low", "high", "p", "detectable", "needs_seeds"]].isna().all()
    assert (row["winner"], row["superiority"]) == ("", 0.0)
    assert row["note"] == (note(Reason.ONE_SEED),)
    row = one(a, b, stat="std")
    assert row["note"] == (note(Reason.ONE_SEED_NO_SPREAD, stat="std"),)
    assert row["winner"] == ""


def test_table_18_with_seeds_resolves_mean_and_spread():
    rng = np.random.default_rng(5)
    noisy = (np.array(each)[:, None] + rng.normal(0, 0.2, (11, 3)) for each in (SIMCLR, DCL))
    a, b = both(noisy)
    row = one(a, b, stat="std")
    assert one(a, b)["winner"] == row["winner"] == "b"
    assert row["estimate"] == pytest.approx(1.87 / 0.98, abs=0.15)
    assert row["estimate"] == pytest.approx(row["value_a"] / row["value_b"])
    assert row["low"] < 1.87 / 0.98 < row["high"]


def test_no_spread_at_all_is_not_resolved_and_one_flat_side_is_more_robust():
    rng = np.random.default_rng(6)
    flat = both(rng.normal(0, 0.3, (2, 6, 3)))
    row = one(*flat, stat="std")
    assert (row["low"], row["high"], row["winner"]) == (0.0, math.inf, "")
    curved = sweep("b", 4 * np.arange(6.0)[:, None] + rng.normal(0, 0.3, (6, 3)), tau=range(6))
    row = one(flat[0], curved, stat="std")
    assert (row["low"], row["winner"]) == (0.0, "a")


def test_by_pools_the_noise_of_a_grid_and_corrects_for_the_regions():
    rng = np.random.default_rng(7)
    a = rng.normal(0, 0.3, (6, 3)) + np.array([0, 0, 0, 0, 3, 3])[:, None]
    out = compare(both([a, rng.normal(0, 0.3, (6, 3))]), by="tau")
    assert list(out["region"]) == [f"tau={k}" for k in range(6)]
    assert list(out["winner"]) == [""] * 4 + ["a", "a"]
    assert list(out["resolved"]) == [False] * 4 + [True] * 2
    assert out["p_holm"].to_numpy() == pytest.approx(holm(out["p"].to_numpy()))
    u = rng.random(60)
    noise = rng.normal(0, 0.1, (2, 60, 2))
    out = compare(both([3 * u[:, None] + noise[0], noise[1]], sampler="qmc", tau=u), by="tau")
    assert len(out) == 6
    assert out["region"][0].startswith(f"tau={u.min():.4g}..")
    assert (out["winner"] == "a").all()


def test_a_row_and_a_region_say_why_an_interval_without_zero_resolves_nothing():
    """Alone, and not as one of six; where neither test nor interval sees a lead there is no why."""
    rng = np.random.default_rng(4)
    lead = np.array([0.0, 0.25, 0.1, 0.5, 3.0, 3.0])[:, None]
    noise = rng.normal(0, 0.3, (2, 6, 3))
    sweeps = both([noise[0] + lead, noise[1]])
    out = compare(sweeps, by="tau")
    alone = note(Reason.RESOLVED_ALONE, tests=6)
    only_alone = (out["low"] > 0) & (out["p"] <= 0.05) & (out["p_holm"] > 0.05)
    assert only_alone.sum() == 1
    assert [alone in notes for notes in out["note"]] == only_alone.tolist()
    out = region_winners(sweeps, by="tau")
    is_open = ~out["resolved"]
    alone = is_open & (out["low"] > 0)
    assert 0 < alone.sum() < is_open.sum() < 6
    assert (out["reason"][alone] == Reason.RESOLVED_ALONE).all()
    assert (out["reason"][~alone] == "").all()


@pytest.mark.parametrize(
    ("p", "by_interval", "reason"),
    [(5e-4, True, "RESOLVED_ALONE"), (5e-4, False, "RESOLVED_BY_TEST"), (0.2, False, ""),
     (0.2, True, "RESOLVED_BY_INTERVAL")],
)  # fmt: skip
def test_no_small_p_stands_beside_not_resolved_without_a_cause(p, by_interval, reason):
    why = doubt(p, by_interval=by_interval, tests=3)
    assert (why.reason if why else "") == (Reason[reason] if reason else "")


def test_of_unpaired_samples_a_seed_s_shift_of_one_side_counts_and_one_of_both_does_not():
    rng = np.random.default_rng(9)
    shift, scores = np.array([0.0, 3.0, 1.0]), rng.normal(0, 0.2, (2, 30, 3))

    def effect(of_a, of_b):
        a = sweep("a", scores[0] + of_a, sampler="random", tau=range(30))
        return one(a, sweep("b", scores[1] + of_b, sampler="random", lam=range(30)))

    none, one_side, both = effect(0.0, 0.0), effect(shift, 0.0), effect(shift, shift)
    assert one_side["high"] - one_side["low"] > 5 * (none["high"] - none["low"])
    assert tuple(both[["low", "high"]]) == pytest.approx(tuple(none[["low", "high"]]))


def test_not_measured_and_user_mistakes():
    a = sweep("a", [[1.0, 2.0], [3.0, 4.0]], tau=[1, 2])
    row = one(a, sweep("b", [[1.0, 2.0], [3.0, 4.0]], tau=[1, 2], sampler="tpe"))
    assert row["reason"] == Reason.ADAPTIVE_SAMPLER
    assert row["note"] == (note(Reason.ADAPTIVE_SAMPLER, samplers=("tpe",)).of("b"),)
    b = sweep("b", [[1.0, 2.0], [3.0, 4.0]], sigma=[1, 2])
    assert one(a, b, by="tau")["note"] == (note(Reason.NOT_SWEPT, param="tau").of("b"),)
    for args, options, message in [
        (("a", "bb"), {}, "no objective 'bb'.*Objectives: a, b"),
        (("a", "a"), {}, "expected another"),
        (("a", "b"), {"by": "taus"}, "no objective sweeps 'taus'. Did you mean 'tau'"),
        (("a", "b"), {"stat": "sd"}, "stat: expected one of mean, std, within, tuned, got 'sd'"),
        (("a", "b"), {"within": -1}, "within"),
    ]:
        with pytest.raises(ValueError, match=message):
            compare([a, b], *args, **options)


def test_without_names_it_is_every_pair_with_holm():
    rng = np.random.default_rng(9)
    sweeps = [sweep(name, rng.normal(0, 1, (6, 3)), tau=range(6)) for name in "cab"]
    out = compare(sweeps)
    assert list(zip(out["a"], out["b"], strict=True)) == [("c", "a"), ("c", "b"), ("a", "b")]
    corrected = np.minimum(1, 3 * holm(out["p"].to_numpy()))  # for three questions of each
    assert out["p_holm"].to_numpy() == pytest.approx(corrected)
    alone = compare(sweeps[1:], "a", "b").iloc[0]
    columns = ["estimate", "low", "high", "p"]
    assert list(alone[columns]) == list(out.iloc[2][columns])


@pytest.mark.parametrize("stat", ["mean", "std", "within", "tuned"])
def test_either_order_of_two_says_the_same(stat):
    rng = np.random.default_rng(5)
    axes = {"grid": {"tau": range(12)}, "random": {"tau": rng.random(12)}}
    for sampler, shift in (("grid", 0.0), ("grid", 2.0), ("random", 2.0)):
        levels = shift * rng.normal(size=3) + rng.normal(0, 1, (2, 12, 3))
        sides = both(levels, sampler=sampler, **axes[sampler])
        sides.append(sweep("c", rng.normal(0, 2, (9, 3)), sigma=range(9)))  # unpaired
        answers = [(pair, None) for pair in itertools.combinations("abc", 2)]
        for (a, b), by in [*answers, ("ab", "tau")][: 4 if stat == "mean" else 3]:
            with drawing(200):
                there, back = (compare(sides, *ab, stat=stat, by=by) for ab in ((a, b), (b, a)))
                won = region_winners(sides[:2], by=by) if by else None
            for name, other in (("estimate", "estimate"), ("low", "high"), ("high", "low")):
                with np.errstate(divide="ignore"):
                    turned = 1 / back[other] if stat == "std" else -back[other]
                assert there[name].tolist() == pytest.approx(turned.tolist(), nan_ok=True)
            assert there["p"].tolist() == back["p"].tolist()
            assert there["winner"].tolist() == back["winner"].tolist()
            if by:  # and of the two that which leads
                led = there["low"].where(there["estimate"] > 0, back["low"])
                assert won["low"].tolist() == pytest.approx(led.tolist())


def field(rng, levels):
    """One sweep of tau per name: its level at each of the values."""
    num, tables = 3, {name: np.array(level, float)[:, None] for name, level in levels.items()}
    return [
        sweep(name, level + rng.normal(0, 0.3, (len(level), num)), tau=range(len(level)))
        for name, level in tables.items()
    ]


def test_planted_winners():
    rng = np.random.default_rng(0)
    other = sweep("fixed", rng.normal(0, 1, (2, 3)), sigma=[1, 2])
    adaptive = sweep("searched", rng.normal(9, 1, (6, 3)), tau=range(6), sampler="tpe")
    levels = {"a": [3, 3, 3, 0, 0, 0], "b": [0, 0, 0, 3, 3, 0], "c": [-1] * 6}
    out = region_winners([*field(rng, levels), other, adaptive], by="tau")
    assert list(out.columns) == list(WINNER_COLUMNS)
    assert list(out["region"]) == [f"tau={k}" for k in range(6)]
    assert list(out["value_low"]) == list(out["value_high"]) == list(range(6))
    assert list(out["winner"]) == ["a", "a", "a", "b", "b", ""]
    assert list(out["resolved"]) == [True] * 5 + [False]
    assert list(out["runner_up"][:3]) == ["b"] * 3
    assert ((out["low"] < out["lead"]) & (out["lead"] < out["high"]))[:5].all()
    assert note(Reason.NOT_SWEPT, param="tau").of("fixed") in out["note"][0]
    assert adaptive.not_measured.of("searched") in out["note"][0]


def test_nobody_to_beat_and_nobody_at_all():
    rng = np.random.default_rng(1)
    out = region_winners(field(rng, {"a": [1, 2, 3]}), by="tau")
    assert (out["winner"] == "").all()
    assert (out["reason"] == Reason.NOBODY_ELSE).all()
    tpe = sweep("a", rng.normal(0, 1, (3, 3)), tau=range(3), sampler="tpe")
    assert list(region_winners([tpe], by="tau")["reason"]) == [Reason.NOBODY_COMPETES]
    with pytest.raises(ValueError, match=r"no objective sweeps 'taus'. Did you mean 'tau'"):
        region_winners([tpe], by="taus")


def test_pairs_of_other_yardsticks_take_nothing_from_those_of_one():
    """Holm's correction is for the pairs that are compared."""
    rng = np.random.default_rng(0)
    tables = {name: rng.normal(90 + 0.4 * place, 0.3, (4, 5)) for place, name in enumerate("abcd")}
    sweeps = read_sweeps(trials_by(tables, tau=[1, 2, 3, 4]), metric="acc", params=["tau"])
    alone = compare(sweeps[:2]).iloc[0]
    yardsticks = {"a": "x", "b": "x", "c": "y", "d": "z"}
    beside = compare(sweeps, yardsticks=yardsticks).set_index(["a", "b"])
    assert beside.loc[("a", "b"), "p_holm"] == alone["p_holm"]
    assert beside["p_holm"].notna().sum() == 1


@pytest.mark.parametrize(
    ("pair", "ends"),
    [(("a", "b"), (-2.0, 4.0)), (("b", "a"), (-3.0, 5.0)), (("a", "c"), (-1.0, 4.0))],
)
def test_a_regions_interval_is_joined_with_one_of_the_same_pair(pair, ends):
    """Left out, failed trials may make another one the best or the runner-up."""

    def table(sweeps):
        names = ("a", "b") if sweeps[0].num_failed else pair
        low, high = (-1.0, 4.0) if sweeps[0].num_failed else (-2.0, 3.0)
        if not sweeps[0].num_failed and pair == ("b", "a"):
            low, high = -5.0, 3.0
        row = {"region": "r", "objective": names[0], "runner_up": names[1], "winner": ""}
        return pd.DataFrame([row | {"low": low, "high": high, "note": (), "reason": ""}])

    measured = SimpleNamespace(objective="a", num_failed=0, failed_level=np.nan)
    sweep = SimpleNamespace(objective="a", num_failed=1, failed_level=0.0, measured=measured)
    [row] = robust_to_failures([sweep], table, ("region",)).to_dict("records")
    assert (row["low"], row["high"]) == ends
