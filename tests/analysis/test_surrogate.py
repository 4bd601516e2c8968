"""The Gaussian process and the integrals over it: against slow formulas and random points."""

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from clsweep.analysis.sobol import Integrals, halton
from clsweep.analysis.surrogate import Space, cross_validate, fit, read_space
from tests.analysis.truths import ishigami, planted

RNG = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def small_matrices():
    with threadpool_limits(1):
        yield


def space_of(num=40):
    """Two numbers and a category."""
    u = RNG.random((num, 2))
    loss = np.resize(["a", "b", "c"], num)
    swept = planted(lambda u: u[:, 0] + 2 * (loss == "b"), u, rng=RNG, loss=loss)
    return (swept, *read_space(swept))


def test_the_space_is_a_unit_cube_on_each_axis():
    size, tau = np.resize([32, 64, 512], 30), 10 ** RNG.uniform(-3, 0, 30)
    swept = planted(lambda u: u[:, 0], RNG.random((30, 1)), rng=RNG, size=size, tau=tau)
    space, inputs = read_space(swept)
    assert space.names == ("x0", "size", "tau")
    np.testing.assert_allclose(np.unique(inputs[:, 1]), [0, 0.25, 1])  # log2 32, 64, 512
    np.testing.assert_allclose(space.levels[1][:, 0], [0, 0.25, 1])
    assert space.levels[2] is None
    assert inputs.min() == 0
    assert inputs.max() == 1
    placed = space.place(RNG.random((3000, 3)))
    assert np.allclose([np.isclose(placed[:, 1], x).mean() for x in (0, 0.25, 1)], 1 / 3, atol=0.05)
    space, inputs = space_of()[1:]
    assert inputs.shape == (40, 5)
    assert list(space.owner) == [0, 1, 2, 2, 2]


def test_declared_ends_are_those_of_the_cube():
    u = 0.1 + 0.8 * RNG.random((30, 2))
    tau = 10 ** (2 * u[:, 1] - 2)
    bounds = {"x0": (1.0, 2.0), "tau": (0.01, 1.0)}
    swept = planted(lambda u: u[:, 0], u[:, :1], rng=RNG, tau=tau, bounds=bounds)
    space, inputs = read_space(swept)
    np.testing.assert_allclose(inputs, u)
    assert list(space.margins) == [0, 0]
    space, inputs = read_space(planted(lambda u: u[:, 0], u, rng=RNG))
    assert (inputs.min(), inputs.max()) == (0, 1)
    np.testing.assert_allclose(space.margins, 1 / 29)


def test_paths_have_the_mean_and_variance_of_the_posterior():
    swept, space, inputs = space_of(30)
    fitted = fit(inputs, space.owner, swept.means, np.full(30, 0.01))
    at = space.place(RNG.random((25, 3)))
    centres, weights = fitted.paths(at, 4000, np.random.default_rng(1))
    drawn = fitted.kernel(at, centres) @ weights
    cross = fitted.kernel(at, inputs)
    covariance = fitted.kernel(inputs, inputs) + np.diag(fitted.noise + np.exp(fitted.theta[-1]))
    variance = fitted.variance - np.einsum("ij,ji->i", cross, np.linalg.solve(covariance, cross.T))
    mean = (fitted.predict(at) - fitted.centre) / fitted.scale
    assert np.all(np.abs(drawn.mean(axis=1) - mean) < 5 * np.sqrt(variance / 4000) + 1e-3)
    np.testing.assert_allclose(drawn.var(axis=1), variance, rtol=0.2, atol=1e-4)


def test_integrals_against_random_points():
    """S, ST and S_pq of drawn functions, by Saltelli's and Jansen's estimators over random
    points.
    """
    swept, space, inputs = space_of()
    space = Space(space.names, space.is_category, space.levels, space.owner, np.zeros(3))
    levels = swept.means + RNG.normal(size=40)
    fitted = fit(inputs, space.owner, levels, np.full(40, 0.01))
    centres, weights = fitted.paths(space.place(RNG.random((20, 3))), 2, RNG)
    integrals = Integrals(fitted, space, centres, RNG)
    a, b = RNG.random((2, 40_000, 3))

    def values(points):
        return fitted.kernel(space.place(points), centres) @ weights

    def mixed(first, second, *params):
        return np.where(np.isin(np.arange(3), params), second, first)

    at_a, at_b = values(a), values(b)
    centre = 0.5 * (at_a + at_b).mean(axis=0)
    variance = integrals.total_variance(weights)
    np.testing.assert_allclose(np.var([at_a, at_b], axis=(0, 1)), variance, rtol=0.03)
    firsts, totals, expected = [], [], []
    for p in range(3):
        swapped = values(mixed(a, b, p))
        firsts.append(((at_b - centre) * (swapped - centre)).mean(axis=0))
        expected += [0.5 * np.square(at_a - swapped).mean(axis=0), firsts[p]]
        totals += [integrals.total_effect(p, weights), integrals.main_effect(p, weights)]
    np.testing.assert_allclose(totals / variance, expected / variance, atol=0.03)
    closed = ((at_b - centre) * (values(mixed(a, b, 0, 2)) - centre)).mean(axis=0)
    pair, expected = integrals.pair_effect(0, 2, weights), closed - firsts[0] - firsts[2]
    np.testing.assert_allclose(pair / variance, expected / variance, atol=0.04)


def test_cross_validated_r2_is_what_new_points_give():
    u = RNG.random((128, 3))
    swept = planted(ishigami, u, noise=0.3, rng=RNG)
    space, inputs = read_space(swept)
    noise = np.full(128, 0.045)
    fitted = fit(inputs, space.owner, swept.means, noise)
    r2 = cross_validate(fitted, inputs, swept.means, noise, RNG)
    new = RNG.random((2000, 3))
    low, high = u.min(axis=0), u.max(axis=0)
    missed = ishigami(new) - fitted.predict((new - low) / (high - low))
    assert r2 == pytest.approx(1 - np.mean(missed**2) / 13.84, abs=0.12)
    assert r2 > 0.7


def test_a_number_without_a_place_on_its_axis():
    lam = np.r_[np.nan, np.arange(19.0)]
    swept = planted(lambda u: u[:, 0], RNG.random((20, 1)), rng=RNG, lam=lam)
    with pytest.raises(ValueError, match="some configurations have no place on the axis of lam"):
        read_space(swept)


def test_halton_points_are_those_of_scipy():
    from scipy.stats import qmc

    for num, num_dims in ((160, 8), (7, 1), (300, 40)):
        expected = qmc.Halton(num_dims, scramble=False).random(num)
        np.testing.assert_array_equal(halton(num, num_dims), expected)
