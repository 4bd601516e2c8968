"""Named differences: against plain tests of scipy, and how often their verdicts are wrong."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from clsweep.analysis.compare import compare
from clsweep.analysis.contrast import Contrast, contrast_table, scored_by
from clsweep.analysis.holm import holm
from clsweep.analysis.image_intervals import TrialHits
from clsweep.analysis.power import smallest_effects
from clsweep.analysis.read_sweeps import read_sweeps
from clsweep.analysis.reasons import Reason, note
from clsweep.statistics.pair_sentences import needed
from tests.analysis.truths import least_squares, trials_by, trials_of

SMALL, LARGE = {"batch": 16}, {"batch": 128}
RISE = stats.t.ppf(0.975, 5) + stats.t.ppf(0.8, 5)  # of what six seeds find, in standard errors
GRID = [(batch, tau) for batch in (16, 128) for tau in (0.1, 0.5)]


def tables(rng, seeds, effect=0.0, noise=(1.0, 1.0), shift=0.0):
    """(4, S) of two objectives on `GRID`; a is better by `effect` at 16."""
    level = np.array([90 + batch / 50 + tau for batch, tau in GRID])
    size, common = np.repeat(noise, 2)[:, None], rng.normal(0, shift, seeds)
    a, b = (level[:, None] + size * rng.normal(size=(4, seeds)) + common for _ in "ab")
    return a + effect * (np.arange(4) < 2)[:, None], b


def planted(rng, seeds, **how):
    """The same as trials."""
    batch, tau = np.transpose(GRID)
    a, b = tables(rng, seeds, **how)
    return trials_by({"a": a, "b": b}, batch=batch, tau=tau)


def contrast(**more):
    return Contrast(name="it", metric="acc", **{"of": ("a", "b"), "at": SMALL} | more)


def answer(trials, *many, **changes):
    sweeps = read_sweeps(trials, metric="acc", params=["batch", "tau"])
    sweeps = [replace(sweep, **changes) for sweep in sweeps]
    return contrast_table(many, {"acc": sweeps}).to_dict("records")


def answers(rng, seeds, reps, *many, **how):
    """The rows of one contrast each after the other, of so many planted tables."""
    empty = read_sweeps(planted(rng, seeds), metric="acc", params=["batch", "tau"])
    for _ in range(reps):
        scores = tables(rng, seeds, **how)
        sweeps = [replace(x, scores=table) for x, table in zip(empty, scores, strict=True)]
        yield contrast_table(many, {"acc": sweeps}).to_dict("records")


def at_seeds(trials, name, **at):
    """(S,) mean over the settings with these values."""
    rows = trials[(trials["objective"] == name) & (trials[list(at)] == pd.Series(at)).all(axis=1)]
    return rows.groupby("seed")["acc"].mean().to_numpy()


@pytest.mark.parametrize("seeds", [2, 3, 6])
def test_between_objectives_it_is_the_t_test_of_the_contrasts_at_each_seed(seeds):
    trials = planted(np.random.default_rng(0), seeds, effect=1.0, shift=3.0)
    apart = at_seeds(trials, "a", batch=16) - at_seeds(trials, "b", batch=16)
    [row] = answer(trials, contrast(margin=4.0, published=5.0))
    test = stats.ttest_1samp(apart, 0.0)
    sizes = (4.0, "less"), (-4.0, "greater"), (5.0, "less")
    one_sided = [stats.ttest_1samp(apart, size, alternative=side).pvalue for size, side in sizes]
    beyond = [min(1.0, 2 * p) for p in (max(one_sided[:2]), one_sided[2])]
    expected = [apart.mean(), *test.confidence_interval(), test.pvalue, *beyond]
    names = "estimate", "low", "high", "p", "p_margin", "p_published"
    assert [row[name] for name in names] == pytest.approx(expected)
    verdicts = [row[name] for name in ("shown", "equivalent", "excluded")]
    assert verdicts == [p <= 0.05 for p in expected[3:]]


def test_within_an_objective_it_is_that_of_randomised_blocks():
    """By dummy variables of the configurations and the seeds."""
    trials = planted(np.random.default_rng(0), 3, effect=1.0, shift=3.0)
    sums = np.array([0.5, 0.5, -0.5, -0.5])
    own = trials[trials["objective"] == "a"].pivot(index="config", columns="seed")["acc"]
    means, _, residual, freedom, inverse = least_squares(own.to_numpy())
    [row] = answer(trials, contrast(of=("a",), minus=LARGE))
    half = stats.t.ppf(0.975, freedom) * np.sqrt(residual * sums @ inverse @ sums)
    ends = [sums @ means - half, sums @ means + half]
    assert [row["low"], row["high"]] == pytest.approx(ends)


def test_a_difference_of_differences_goes_by_the_seeds_that_both_objectives_share():
    trials = planted(np.random.default_rng(0), 3, effect=1.0, shift=3.0)
    apart = at_seeds(trials, "a", batch=16) - at_seeds(trials, "b", batch=16)
    apart -= at_seeds(trials, "a", batch=128) - at_seeds(trials, "b", batch=128)
    [row] = answer(trials, contrast(minus=LARGE))
    ends = stats.ttest_1samp(apart, 0.0).confidence_interval()
    assert [row["low"], row["high"]] == pytest.approx(list(ends))


def test_a_design_finds_and_rules_out_what_its_plan_says():
    """Four of five studies of six seeds: sides of two configurations, noise of 1."""
    finds, rules_out = smallest_effects([2, 2], 6, 1)
    rng = np.random.default_rng(2)
    shown = [row["shown"] for (row,) in answers(rng, 6, 100, contrast(), effect=finds)]
    equal = [row["equivalent"] for (row,) in answers(rng, 6, 100, contrast(margin=rules_out))]
    assert [np.mean(shown), np.mean(equal)] == pytest.approx([0.8, 0.8], abs=0.08)
    assert smallest_effects([2, 2], 6, 5) > (finds, rules_out)  # the price of asking five


def test_p_values_are_corrected_for_all_that_are_asked():
    trials = planted(np.random.default_rng(3), 6, effect=2.0)
    many = [contrast(margin=3.0, published=5.0), contrast(at=LARGE, margin=1.0)]
    many.append(contrast(minus=LARGE, margin=2.5))
    rows = answer(trials, *many)
    alone = [answer(trials, each)[0] for each in many]
    for name, plain in {"p_holm": "p", "p_margin": "p_margin"}.items():
        expected = holm(np.array([row[plain] for row in alone]))
        assert [row[name] for row in rows] == pytest.approx(expected.tolist())
    assert rows[0]["p_published"] == alone[0]["p_published"]  # one alone has a published size
    for row, other in zip(rows, alone, strict=True):
        left = sum(each["p"] >= other["p"] for each in alone)  # at its step; all are shown
        values = stats.t.interval(1 - 0.05 / left, 5, row["estimate"], row["detectable"] / RISE)
        assert [row["low_holm"], row["high_holm"]] == pytest.approx(values)
        ends = other["low_holm"], other["high_holm"]
        assert ends == pytest.approx((other["low"], other["high"]), rel=1e-12)
    many = [contrast(), *[contrast(at=LARGE)] * 40]
    weak = planted(np.random.default_rng(11), 6, effect=1.2)
    assert answer(weak, contrast())[0]["shown"]
    row = answer(weak, *many)[0]
    assert not row["shown"]
    assert note(Reason.RESOLVED_ALONE, tests=41) in row["note"]


def test_the_seeds_that_it_takes_stand_in_the_table_as_in_the_sentence():
    rows = [row for (row,) in answers(np.random.default_rng(1), 3, 60, contrast())]
    needs = [(needed(row), needed(row, "needs_seeds")) for row in rows if not row["shown"]]
    more = ", how many cannot be said yet"
    for text, column in needs:
        assert column == text.removesuffix(more).split(" (")[0].replace(" seeds", "")
    assert any(np.isinf(row["needs_seeds"]) and np.isfinite(row["needs_low"]) for row in rows)


def test_what_cannot_be_told_says_why():
    trials = planted(np.random.default_rng(5), 3)
    # a setting that always fails counts as the worst score, by which a would lose
    failed = trials.assign(acc=trials["acc"] + 50 * (trials["objective"] == "a"))
    failed.loc[:2, "acc"], failed.loc[:2, "status"] = np.nan, "failed"
    for frame, what, changes, reason in (
        (trials, contrast(at={"batch": 64}), {}, Reason.NO_SETTING),
        (trials, contrast(of=("a", "c")), {}, Reason.NO_SCORE),
        (trials[trials["seed"] == 0], contrast(), {}, Reason.ONE_SEED),
        (failed, contrast(of=("a",), minus=LARGE), {}, Reason.FAILURES_DECIDE),
        (trials, contrast(), {"num_planned": 5}, Reason.UNFINISHED),
        (trials.assign(sampler="tpe"), contrast(), {}, Reason.ADAPTIVE_SAMPLER),
    ):
        [row] = answer(frame, what, **changes)
        assert (row["reason"], row["shown"]) == (reason, False)
        # an estimate is never withheld
        if reason in (Reason.ONE_SEED, Reason.FAILURES_DECIDE):
            assert np.isfinite(row["estimate"])


def test_settings_that_both_lack_or_fix_pass_over():
    trials = planted(np.random.default_rng(6), 5)
    own = trials.assign(alpha=np.where(trials["objective"] == "a", trials["tau"], np.nan))
    sweeps = read_sweeps(own, metric="acc", params={"a": ["batch", "alpha"], "b": ["batch", "tau"]})
    [row] = contrast_table([contrast(at={"alpha": 0.5})], {"acc": sweeps}).to_dict("records")
    a, b = (trials.query(which)["acc"] for which in ("objective == 'a' & tau == 0.5",
                                                     "objective == 'b'"))  # fmt: skip
    assert row["estimate"] == pytest.approx(a.mean() - b.mean())


def missed(sweeps_of, reps, **more):
    """How many intervals of no effect do not hold 0."""
    rows = [contrast_table([contrast(**more)], {"acc": sweeps_of()}).iloc[0] for _ in range(reps)]
    return np.mean([not row["low"] <= 0 <= row["high"] for row in rows])


def test_gaps_and_other_seeds_keep_what_a_seed_does_to_all_out_of_it():
    """One of 24 trials missing beside large shifts; objectives with seeds of their own."""
    rng = np.random.default_rng(9)
    empty = read_sweeps(planted(rng, 6), metric="acc", params=["batch", "tau"])

    def gap():
        a, b = tables(rng, 6, noise=(0.3, 0.3), shift=5.0)
        a[0, 0] = np.nan
        return [replace(x, scores=table) for x, table in zip(empty, (a, b), strict=True)]

    def others():
        return [
            replace(x, scores=tables(rng, 6, shift=2.0)[0], seeds=x.seeds + 100 * place)
            for place, x in enumerate(empty)
        ]

    assert missed(gap, 60) <= 0.1  # by the plain means 62 %
    assert missed(others, 60) <= 0.1  # by the noise of the configurations 32 %
    row = contrast_table([contrast()], {"acc": gap()}).iloc[0]
    assert (row["num_seeds"], row["note"]) == (5, ())


@pytest.mark.parametrize("shift", [0.0, 2.0])
def test_a_sample_is_paired_by_its_settings_and_knows_of_shifts(shift):
    rng = np.random.default_rng(10)

    def sample():
        level, x = rng.normal(90, 2, (30, 1)), rng.random(30)
        noise = (rng.normal(0, shift, 3) + rng.normal(0, 0.5, (30, 3)) for _ in "ab")
        scores = {name: level + each for name, each in zip("ab", noise, strict=True)}
        trials = trials_by(scores, sampler="random", x=x)
        return read_sweeps(trials, metric="acc", params=["x"])

    assert missed(sample, 40, at={}) <= 0.12
    row = contrast_table([contrast(at={})], {"acc": sample()}).iloc[0]
    assert (row["high"] - row["low"] < 2.0) == (shift == 0.0)  # unpaired it is more


def test_a_sample_counts_its_configurations_as_noise_and_needs_more_of_them():
    rng, needs = np.random.default_rng(7), []
    at, level = {"x": rng.random(12), "k": ["u", "v"] * 6}, rng.normal(90, 2, 12)
    u, v = level[::2], level[1::2]
    test = stats.ttest_ind(u, v, equal_var=False)
    expected = [test.pvalue, test.confidence_interval().low]
    what = contrast(of=("a",), at={"k": "u"}, minus={"k": "v"})
    for seeds in (1, 3, 50):
        scores = level[:, None] + (seeds > 1) * rng.normal(0, 0.01, (12, seeds))
        trials = trials_of(scores, objective="a", sampler="random", **at)
        sweeps = read_sweeps(trials, metric="acc", params=["x", "k"])
        [row] = contrast_table([what], {"acc": sweeps}).to_dict("records")
        assert [row["p"], row["low"]] == pytest.approx(expected, rel=0.05)
        assert np.isnan(row["needs_seeds"])
        needs.append(row["needs_configs"])
    assert needs == pytest.approx([needs[0]] * 3, rel=0.1)
    reach = stats.norm.ppf([0.975, 0.8]).sum()
    expected = 2 * (reach / row["estimate"]) ** 2 * (u.var(ddof=1) + v.var(ddof=1))
    assert needs[0] == pytest.approx(expected, rel=0.1)


def test_new_images_widen_it_and_other_columns_are_as_they_stand():
    rng, rows, num = np.random.default_rng(8), [], 200
    hard = rng.normal(0, 1, num)
    for name, config, seed in np.ndindex(2, 2, 6):
        hits = hard + 0.5 * (name == 0) + rng.normal(0, 0.3, num) > 0
        needs = {"images": "0f", "num_images": num, "bits": np.packbits(hits).tobytes()}
        place = {"objective": "ab"[name], "config": config, "seed": seed, "batch": 16 * 8**config}
        rows.append({**place, **needs, "acc": 100 * hits.mean(), "q_b": 0.1 * config + seed / 1000})
    trials = pd.DataFrame(rows).assign(status="finished", sampler="grid", score=lambda f: f["acc"])
    sweeps = read_sweeps(trials, metric="acc", params=["batch"], limits=(0.0, 100.0))
    known = [replace(sweep, hits=TrialHits(lambda: trials)) for sweep in sweeps]
    seeds, images = (
        contrast_table([contrast()], {"acc": each}).iloc[0] for each in (sweeps, known)
    )
    assert images["high"] - images["low"] > 1.2 * (seeds["high"] - seeds["low"])
    assert images["estimate"] == seeds["estimate"]
    others = [scored_by(sweep, trials, "q_b") for sweep in known]
    what = Contrast(name="q", of=("a",), metric="q_b", at=LARGE, minus=SMALL)
    row = contrast_table([what], {"q_b": others}).iloc[0]
    assert row["estimate"] == pytest.approx(0.1)


def test_with_failed_trials_an_interval_is_the_union_that_compare_has():
    trials = planted(np.random.default_rng(3), 6)
    trials.loc[:1, "acc"], trials.loc[:1, "status"] = np.nan, "failed"
    asked = contrast(of=("a", "b"), at={})
    sweeps = read_sweeps(trials, metric="acc", params=["batch", "tau"])
    [row] = contrast_table([asked], {"acc": sweeps}).to_dict("records")
    [left_out] = contrast_table([asked], {"acc": [x.measured for x in sweeps]}).to_dict("records")
    expected = compare(sweeps, "a", "b").iloc[0]
    for end in ("low", "high"):
        assert row[end] == pytest.approx(expected[end], abs=0.05)  # a worst score of both
    assert row["low"] < left_out["low"] - 0.1
    assert row["high"] >= left_out["high"]


def test_room_is_that_of_the_contrasts_own_study():
    trials = planted(np.random.default_rng(0), 6)
    own = trials.assign(objective="one/" + trials["objective"])
    other = trials[trials["objective"] == "a"].assign(objective="two/c", acc=10.0)
    asked = replace(contrast(of=("one/a", "one/b"), published=1.0), family="one/")
    alone, beside = (answer(x, asked)[0] for x in (own, pd.concat([own, other])))
    assert alone["room"] == beside["room"]
