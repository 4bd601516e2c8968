"""ANOVA of a grid: against loops, planted shares, their intervals, and pure noise."""

import numpy as np
import pytest
from scipy import optimize, stats

from clsweep.analysis.anova import (
    CellNoise,
    Effect,
    anova,
    cell_noise,
    effects_of,
    grid_of,
)
from clsweep.analysis.noise import copies
from clsweep.analysis.reasons import Reason, note
from clsweep.analysis.sensitivity import sensitivity
from tests.analysis.truths import grid, least_squares, sweep

SHAPE = (6, 5)


def loops(means):
    """Variances of the effects of a three-way table of means, as sums over the cells."""
    cells, (num_a, num_b, _) = list(np.ndindex(means.shape)), means.shape

    def level(a=None, b=None):
        swept = [means[at] for at in cells if a in (None, at[0]) and b in (None, at[1])]
        return sum(swept) / len(swept)

    a = [level(i) - level() for i in range(num_a)]
    b = [level(b=j) - level() for j in range(num_b)]
    ab = [level(i, j) - level() - a[i] - b[j] for i in range(num_a) for j in range(num_b)]
    every = [means[at] - level() for at in cells]
    return [sum(v * v for v in each) / len(each) for each in (a, b, ab, every)]


def test_effects_against_loops():
    means = np.random.default_rng(0).normal(size=(4, 3, 2))
    effects = effects_of(means, CellNoise(1.0, 1.0, 1.0, 1, means.size))
    a, b, ab, total = loops(means)
    assert effects[(0,)] == Effect(pytest.approx(a), 3)
    assert effects[(1,)] == Effect(pytest.approx(b), 2)
    assert effects[(0, 1)] == Effect(pytest.approx(ab), 6)
    assert sum(effect.variance for effect in effects.values()) == pytest.approx(total)
    assert sum(effect.freedom for effect in effects.values()) == means.size - 1


def planted(rng, *, num_seeds=3, noise=0.5):
    """a + a b / 2 over a 6 x 5 grid of [-1, 1]^2."""
    a, b = np.linspace(-1, 1, 6)[:, None], np.linspace(-1, 1, 5)[None, :]
    level = a + 0.5 * a * b
    shares = np.mean(a**2), 0.0, np.mean((0.5 * a * b) ** 2), noise**2
    truth = dict(zip(("a", "b", "a x b", "seed noise"), shares, strict=True))
    total = sum(shares)
    scores = level[..., None] + noise * rng.normal(size=(*SHAPE, num_seeds))
    return scores.reshape(-1, num_seeds), {name: share / total for name, share in truth.items()}


def test_a_planted_grid():
    scores, truth = planted(np.random.default_rng(1), num_seeds=5, noise=0.3)
    table = sensitivity([sweep(scores, grid(*SHAPE))]).set_index("term")
    assert table["first"].sum() == pytest.approx(1)
    assert list(table.index) == ["a", "b", "a x b", "seed noise"]
    assert list(table["order"]) == [1, 1, 2, 0]
    assert list(table["resolved"]) == [True, False, True, False]
    for term, share in truth.items():
        assert table.loc[term, "first"] == pytest.approx(share, abs=0.05)
        assert table.loc[term, "first_low"] <= share <= table.loc[term, "first_high"]
    assert table.loc["b", "total"] == pytest.approx(truth["a x b"], abs=0.04)
    assert table.loc["a", "total"] == pytest.approx(truth["a"] + truth["a x b"], abs=0.05)
    assert set(table["method"]) == {"anova"}


def test_one_seed_resolves_nothing():
    scores, _ = planted(np.random.default_rng(1), num_seeds=1)
    table = sensitivity([sweep(scores, grid(*SHAPE))])
    means = scores.reshape(SHAPE)
    assert table["first"].sum() == pytest.approx(1)
    assert table["first"].iloc[0] == pytest.approx(means.mean(axis=1).var() / means.var())
    assert table[["first_low", "first_high", "total_low", "null"]].isna().all(axis=None)
    assert not table["resolved"].any()
    assert all(notes == (note(Reason.SHARES_WITH_NOISE),) for notes in table["note"])


def test_values_that_failed_leave_a_complete_grid_and_holes_go_to_the_surrogate():
    scores, _ = planted(np.random.default_rng(2), noise=0.1)
    lost, holes, missing_seed = scores.copy(), scores.copy(), scores.copy()
    lost[:5], holes[[3, 17]], missing_seed[4, 1] = np.nan, np.nan, np.nan  # of a = 0 all
    table = sensitivity([sweep(lost, grid(*SHAPE))])
    assert set(table["method"]) == {"anova"}
    assert note(Reason.LEFT_OUT, lost=5, configs=30) in table["note"].iloc[0]
    table = sensitivity([sweep(holes, grid(*SHAPE))])
    assert set(table["method"]) == {"sobol"}
    assert table.set_index("term").loc["a", "resolved"]
    assert sensitivity([sweep(missing_seed, grid(*SHAPE))])["first"].sum() == pytest.approx(1)


def test_one_cell_apart_is_named_with_an_interval_that_allows_for_all_looks():
    """Against a loop; the shares of what is not resolved stand too."""
    rng = np.random.default_rng(3)
    cells = 57 + 0.7 * rng.normal(size=(4, 3, 3))
    cells[1, 2] -= 4.0
    swept = sweep(cells.reshape(12, 3), grid(4, 3), mode="min")
    row = sensitivity([swept]).set_index("term").loc["a x b"]
    means, left = cells.mean(axis=2), {}
    for i, j in np.ndindex(4, 3):
        left[i, j] = means[i, j] - means[i].mean() - means[:, j].mean() + means.mean()
    (i, j) = max(left, key=lambda at: abs(left[at]))
    noise = least_squares(cells.reshape(12, 3))[2]
    half = stats.t.isf(0.025 / 12, 22) * np.sqrt(noise / 3 * (3 * 2) / 12)
    assert row["cell"] == f"a={i}, b={j}" == "a=1, b=2"
    expected = [left[i, j], left[i, j] - half, left[i, j] + half]
    assert row[["effect", "effect_low", "effect_high"]].tolist() == pytest.approx(expected)
    assert row["effect_high"] < 0
    assert row["opposite"] == ""
    swept = sweep(
        cells[:, 1:].reshape(8, 3), grid(4, 2)
    )  # of two values one is the other's opposite
    two = sensitivity([swept]).set_index("term").loc["a x b"]
    assert {two["cell"], f"a=1, {two['opposite']}"} == {"a=1, b=0", "a=1, b=1"}
    noise_alone = sensitivity([sweep(rng.normal(size=(12, 3)), grid(4, 3))])
    assert not noise_alone["resolved"].any()
    assert noise_alone["first"].sum() == pytest.approx(1)
    assert noise_alone["reason"].eq("").all()


def noise_of(kind, rng):
    """(6, 5, 3) scores without any effect."""
    scores = rng.normal(size=(*SHAPE, 3))
    if kind == "inert here and there":  # the second parameter, in deterministic training
        scores[:3] = scores[:3, :1]
    else:
        scores[0, 0] *= 5.0
    return scores


def resolved(scores):
    groups = copies(scores.reshape(-1, scores.shape[-1]))
    rows, notes = anova(scores, "ab", groups=groups)
    return {row["term"]: row["resolved"] for row in rows}, {each.reason for each in notes}


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "most"), [("inert here and there", 0.075), ("uneven", 0.12)])
def test_noise_that_is_shared_or_uneven_is_not_resolved(kind, most):
    """Without regard to it: 0.4 for an inert parameter, 0.15 for uneven noise."""
    rng = np.random.default_rng(8)
    assert np.mean([any(resolved(noise_of(kind, rng))[0].values()) for _ in range(200)]) <= most


def test_the_ends_of_a_share_in_all_lie_beyond_those_of_the_share_alone():
    rng = np.random.default_rng(3)
    for _ in range(12):
        table = sensitivity([sweep(rng.normal(size=(6, 4)), grid(3, 2))])
        main = table[table["order"] == 1]
        for end in ("", "_low", "_high"):
            assert (main[f"total{end}"] >= main[f"first{end}"]).all()


def test_an_inert_parameter_does_not_hide_the_other():
    rng = np.random.default_rng(9)
    scores = np.repeat(np.arange(6.0)[:, None, None] + 0.5 * rng.normal(size=(6, 1, 3)), 5, axis=1)
    table = sensitivity([sweep(scores.reshape(-1, 3), grid(*SHAPE))]).set_index("term")
    assert list(table["resolved"]) == [True, False, False, False]
    assert table.loc["b", ["first", "first_high", "total_high"]].tolist() == [0, 0, 0]
    assert note(Reason.COPIES, copies=24, configs=30) in table["note"].iloc[0]
    alone, _ = anova(scores[:, 0], "a")
    for column in ("first", "first_low", "first_high", "null"):
        assert table.loc["a", column] == pytest.approx(alone[0][column])


def test_a_shift_of_all_scores_is_no_noise_of_their_differences():
    rng = np.random.default_rng(10)
    level = np.linspace(0, 1, 6)[:, None, None]
    plain = level + 0.5 * rng.normal(size=(*SHAPE, 3))
    shifted = plain + np.array([0.0, 3.0, -4.0])
    terms = {"a": True, "b": False, "a x b": False, "seed noise": False}
    assert resolved(shifted) == resolved(plain) == (terms, set())
    rows, _ = anova(shifted, "ab")
    assert rows[-1]["first"] > 0.9  # of one trial's variance


def test_seeds_are_blocks():
    """F of randomised blocks by hand."""
    cells = np.linspace(0, 1.5, 6)[:, None] + np.random.default_rng(12).normal(size=(6, 3))
    cells += [0.8, 0.0, -0.8]
    left = cells - cells.mean(axis=1, keepdims=True) - cells.mean(axis=0) + cells.mean()
    error = np.square(left).sum() / 10
    blocked = stats.f.sf(18 * cells.mean(axis=1).var() / 5 / error, 5, 10)
    alone = stats.f_oneway(*cells).pvalue
    assert blocked < 0.05 < alone
    assert resolved(cells)[0]["a"]
    noise = cell_noise(cells, np.arange(6), np.zeros(6, dtype=bool), 1.0)
    assert noise.p_value(effects_of(cells.mean(axis=1), noise)[0,]) == pytest.approx(blocked)


def test_copies_are_told_from_scores_of_few_digits():
    rng = np.random.default_rng(12)
    scores = np.repeat(rng.normal(size=(6, 3)), 5, axis=0)
    expected = np.repeat(np.arange(6), 5) * 5
    np.testing.assert_array_equal(copies(scores), expected)
    scores[7, 1] = np.nan
    np.testing.assert_array_equal(copies(scores), expected)
    for apart in (np.round(rng.normal(size=(200, 2)), 1), np.full((30, 3), 10.0)):
        np.testing.assert_array_equal(copies(apart), np.arange(len(apart)))


def test_an_effect_that_would_pass_alone_says_so():
    """By F of randomised blocks by hand, of tables whose noise looks even."""
    kinds = set()
    for seed in range(60):
        cells = 0.3 * np.arange(4)[:, None, None] + np.random.default_rng(seed).normal(
            size=(4, 3, 3)
        )
        seeds = cells.mean(axis=(0, 1)) - cells.mean()
        left = cells - cells.mean(axis=2, keepdims=True) - seeds
        error = np.square(left).sum() / (11 * 2)
        a, b, ab, _ = loops(cells.mean(axis=2, keepdims=True))
        tests = zip((a, b, ab), (3, 2, 6), strict=True)
        p = [stats.f.sf(36 * each / freedom / error, freedom, 22) for each, freedom in tests]
        rows, notes = anova(cells, "ab")
        told = {each.about for each in notes if each.reason == Reason.RESOLVED_ALONE}
        if len(told) < len(notes):
            continue
        passes = {row["term"] for row in rows if row["resolved"]}
        alone = {term for term, own in zip(("a", "b", "a x b"), p, strict=True) if own < 0.05}
        assert told == alone - passes
        kinds.add((bool(told), bool(passes)))
    assert {(True, False), (False, True), (False, False)} <= kinds


def test_the_seeds_that_are_asked_for_pass_the_first_step_of_holm():
    """Against a plain search over the noncentral F of a grid with three effects; the range is of
    the effects of which the F seen is the 90 % and the 10 % quantile.
    """
    rng = np.random.default_rng(15)
    scores = 0.35 * np.arange(4)[:, None, None] + rng.normal(size=(4, 3, 3))
    (row, *_), notes = anova(scores, "ab")
    assert not row["resolved"]
    assert not notes
    residual, freedom = least_squares(scores.reshape(12, 3))[2:4]
    f = 12 * scores.mean(axis=(1, 2)).var() / 3 / (residual / 3)

    def seeds(effect):
        for num in range(4, 999):
            own = 3, 11 * (num - 1)
            if stats.ncf.sf(stats.f.isf(0.05 / 3, *own), *own, effect * num / 3) >= 0.8:
                return num

    def end(share):
        return optimize.brentq(lambda nc: stats.ncf.cdf(f, 3, freedom, nc) - share, 1e-9, 99)

    needs = [row[name] for name in ("needs_seeds", "needs_high", "needs_low")]
    assert needs == [seeds(effect) for effect in (3 * (f - 1), end(0.9), end(0.1))]
    (row, _), _ = anova(np.tile([-1.0, 1.0], (6, 1)), "a")
    assert [row[name] for name in ("needs_seeds", "needs_high")] == [np.inf] * 2


@pytest.mark.parametrize("between", [0.0, 0.1, 1.0])
def test_means_nearer_than_noise_makes_them_are_no_proof_of_no_effect(between):
    """All have the interval of F = 1, by the noncentral chi-square, as noise is all but known."""
    rng = np.random.default_rng(4)
    noise = rng.normal(size=(8, 300))
    noise -= noise.mean(axis=1, keepdims=True)
    mean = rng.normal(size=(8, 1))
    mean *= np.sqrt(between * least_squares(noise)[2] / 300 / mean.var(ddof=1))  # F
    row = sensitivity([sweep(noise + mean, grid(8))]).iloc[0]
    far = optimize.brentq(lambda nc: stats.ncx2.cdf(7, 7, nc) - 0.025, 1e-9, 99) / (8 * 300)
    assert row[["first", "first_low"]].tolist() == pytest.approx([0, 0], abs=1e-12)
    assert row["first_high"] == pytest.approx(far / (far + 1), rel=0.15)


def test_no_noise_at_all():
    scores = np.repeat(np.arange(6.0)[:, None], 2, axis=1)
    row = sensitivity([sweep(scores, grid(6))]).iloc[0]
    assert row["resolved"]
    assert row["first"] == pytest.approx(1)


def test_cells_that_failed_on_every_seed_say_nothing_of_the_noise():
    """F of a parameter, by hand: squares and degrees of freedom are those of the measured cells."""
    rng = np.random.default_rng(0)
    scores = 80 + rng.normal(size=(8, 3))
    scores[:2] = np.nan
    swept = sweep(scores, grid(8), failed_as="worst")
    table = sensitivity([swept])
    means = np.where(np.isnan(scores), np.nanmin(scores), scores).mean(axis=1)
    noise = scores[2:].var(axis=1, ddof=1).mean()  # of a measured trial
    residual = least_squares(scores[2:])[2]  # on 5 * 2
    form = (np.eye(8) - 1 / 8) @ np.diag([0.0] * 2 + [1.0] * 6)
    trace, square = np.trace(form), np.trace(form @ form)
    p = stats.f.sf(8 * means.var() / (residual / 3) / trace, trace**2 / square, 10)
    assert bool(table["resolved"].any()) == (p < 0.05)
    cells, order = grid_of(swept)
    silent = swept.silent[order]
    made = cell_noise(cells.reshape(8, -1), np.arange(8), silent, means.var())
    effect = effects_of(means[order], made)[0,]
    assert not made.notes  # even
    assert made.p_value(effect) == pytest.approx(p)
    assert made.variance == pytest.approx(noise * 6 / 8)
