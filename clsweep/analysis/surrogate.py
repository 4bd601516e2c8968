"""A Gaussian process through the configuration means of one objective: what a sampled sweep says of its whole space.

Shape legend: n = configurations, d = swept parameters, q = input columns (a category has one per value), P = paths.

    y_i = f(z_i) + e_i,   f ~ GP(0, v prod_p k_p),   Var(e_i) = s_w^2 / S_i + nugget
    k_p = (1 + a + a^2 / 3) exp(-a),   a = sqrt(5) |z_p - z'_p| / l_p      (Matern-5/2 in each parameter)

on standardised means y and inputs z in the unit cube, each on its parameter's axis; a category is one-hot, with one
length scale for all of its values. s_w^2 is known from the repeats; l, v and the nugget (what no smooth f explains)
maximise the marginal likelihood (Rasmussen and Williams 2006, 5.4.1). The kernel is a product, so that integrals over
the space are sums of products of one-dimensional ones (see `sobol`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy import linalg, optimize
from scipy.spatial import distance

from clsweep.analysis.sweep import Sweep

Array = NDArray[np.float64]

MAX_FIT = 192  # configurations that the hyperparameters are fitted to; the cost is cubic
MAX_CONDITION = 512  # configurations that the process is conditioned on
MAX_HELD_OUT = 4000
NUM_FOLDS = 5
JITTER = 1e-8
MAX_SPREAD = 1.0
STARTS = ((0.5, 0.01), (2.0, 0.3))  # length scales, nugget
MAX_LEVELS = 16  # a number that takes at most so many values, each twice on average, is drawn from them
LENGTHS, VARIANCES, NUGGETS = (0.05, 50.0), (0.05, 100.0), (1e-6, 2.0)


@dataclass(frozen=True)
class Space:
    """The swept space as a unit cube: per parameter its values there, or None where it is continuous.

    levels[p]: (L, width) input columns of each of the L values of parameter p; owner: (q,) parameter of every column.
    margins[p]: how far, on average, the space goes on beyond the smallest and the largest value that were tried, which
    are 0 and 1: 1 / (n - 1) of a random sample of a continuous parameter, 1 / 2n of an evenly spaced one, else 0.
    """

    names: tuple[str, ...]
    is_category: tuple[bool, ...]
    levels: tuple[Array | None, ...]
    owner: NDArray[np.intp]
    margins: Array

    def place(self, unit: Array) -> Array:
        """Points of the unit cube (m, d) as inputs (m, q); a parameter with values takes each of them equally often."""
        columns = [
            unit[:, [p]]
            if levels is None
            else levels[np.minimum((unit[:, p] * len(levels)).astype(int), len(levels) - 1)]
            for p, levels in enumerate(self.levels)
        ]
        return np.concatenate(columns, axis=1)


def read_space(sweep: Sweep) -> tuple[Space, Array]:
    """The space of a sweep, and the inputs (n, q) of its configurations that have a score.

    Parameters of which only one value has a score are left out. Raises ValueError where a number is missing or has no
    place on its axis.
    """
    names: list[str] = []
    columns: list[Array] = []
    levels: list[Array | None] = []
    for name in sweep.params:
        values = sweep.settings.loc[sweep.alive, name]
        if values.nunique(dropna=False) < 2:
            continue
        names.append(name)
        if sweep.scales[name] == "category":
            codes, uniques = values.factorize(use_na_sentinel=False)
            levels.append(np.eye(len(uniques)))
            columns.append(np.eye(len(uniques))[codes])
            continue
        axis = sweep.axis(name)[sweep.alive]
        if not np.isfinite(axis).all():
            raise ValueError(f"some configurations have no place on the axis of {name}")
        unit = (axis - axis.min()) / np.ptp(axis)
        distinct = np.unique(unit)
        levels.append(distinct[:, None] if len(distinct) <= min(MAX_LEVELS, len(unit) / 2) else None)
        columns.append(unit[:, None])
    owner = np.repeat(np.arange(len(names)), [column.shape[1] for column in columns])
    is_category = tuple(sweep.scales[name] == "category" for name in names)
    num = len(columns[0])
    margin = 1.0 / (num - 1) if sweep.samplers == ("random",) else 0.5 / num
    margins = np.array([margin if values is None else 0.0 for values in levels])
    return Space(tuple(names), is_category, tuple(levels), owner, margins), np.concatenate(columns, axis=1)


@dataclass(frozen=True)
class Surrogate:
    """The process conditioned on n means. `theta` = logs of (d length scales, variance v, nugget)."""

    theta: Array
    owner: NDArray[np.intp]
    inputs: Array
    targets: Array
    noise: Array
    factor: Array
    centre: float
    scale: float

    def predict(self, inputs: Array) -> Array:
        """Posterior mean at (m, q), in the units of the scores."""
        weights = linalg.cho_solve((self.factor, True), self.targets)
        return np.asarray(self.centre + self.scale * (self.kernel(inputs, self.inputs) @ weights))

    def paths(self, extra: Array, num: int, rng: np.random.Generator) -> tuple[Array, Array]:
        """Functions of the posterior, f(z) = kernel(z, centres) @ weights: centres (n + m, q), weights (n + m, P).

        A draw of the prior is taken at the configurations and at m extra points of the space, and interpolated; the
        update that lets it pass the noisy data makes it one of the posterior (Matheron's rule, Wilson et al. 2020).
        In standardised units.
        """
        centres = np.concatenate([self.inputs, extra])
        covariance = self.kernel(centres, centres)
        covariance[np.diag_indices(len(centres))] += JITTER * self.variance
        factor = linalg.cholesky(covariance, lower=True, overwrite_a=True, check_finite=False)
        drawn = rng.normal(size=(len(centres), num))
        weights = linalg.solve_triangular(factor, drawn, lower=True, trans=1, check_finite=False)
        noise = np.sqrt(self.noise + np.exp(self.theta[-1]))[:, None] * rng.normal(size=(len(self.inputs), num))
        missing = self.targets[:, None] - factor[: len(self.inputs)] @ drawn - noise
        weights[: len(self.inputs)] += linalg.cho_solve((self.factor, True), missing)
        return centres, weights

    def kernel(self, left: Array, right: Array) -> Array:
        """Prior covariance (m, n) of f at (m, q) and (n, q)."""
        out = np.full((len(left), len(right)), self.variance)
        for param in range(len(self.theta) - 2):
            out *= self.factor_of(param, left[:, self.owner == param], right[:, self.owner == param])
        return out

    def factor_of(self, param: int, left: Array, right: Array) -> Array:
        """k_p (m, n) of one parameter's columns (m, width) and (n, width)."""
        a = np.sqrt(5.0) * np.exp(-self.theta[param]) * distance.cdist(left, right)
        return np.asarray((1.0 + a + a * a / 3.0) * np.exp(-a))

    @property
    def variance(self) -> float:
        return float(np.exp(self.theta[-2]))


def fit(
    inputs: Array,
    owner: NDArray[np.intp],
    means: Array,
    noise: Array,
    *,
    start: Array | None = None,
) -> Surrogate:
    """Fit the hyperparameters and condition on (n, q) inputs with their means (n,) and noise variances (n,).

    The configurations are taken as they come: the first MAX_FIT for the hyperparameters, the first MAX_CONDITION to
    condition on, so shuffle them before. start: logs to start from, two starts by default.
    """
    inputs, means, noise = inputs[:MAX_CONDITION], means[:MAX_CONDITION], noise[:MAX_CONDITION]
    centre, scale = float(means.mean()), float(means.std())
    targets, noise = (means - centre) / scale, noise / scale**2
    theta = _maximise(inputs[:MAX_FIT], owner, targets[:MAX_FIT], noise[:MAX_FIT], start)
    empty = Surrogate(theta, owner, inputs, targets, noise, np.empty((0, 0)), centre, scale)
    return _conditioned(empty, theta)


def refits(fitted: Surrogate, num: int, rng: np.random.Generator) -> list[Surrogate]:
    """`num` surrogates whose hyperparameters are drawn from the Laplace approximation around the fitted ones.

    The curvature of the likelihood is held at 1 / MAX_SPREAD^2 or more: a length scale that the data say nothing of,
    beyond that it is long, moves by a factor of e^MAX_SPREAD at most or so.
    """
    columns = fitted.inputs[:MAX_FIT]
    gaps = _gaps(columns, fitted.owner)
    data = fitted.targets[:MAX_FIT], fitted.noise[:MAX_FIT]
    step, size = 0.05, len(fitted.theta)
    slopes = [
        [_negative_likelihood(fitted.theta + sign * step * unit, gaps, *data)[1] for sign in (-1, 1)]
        for unit in np.eye(size)
    ]
    hessian = np.array([(up - down) / (2.0 * step) for down, up in slopes])
    curvature, directions = np.linalg.eigh((hessian + hessian.T) / 2.0)
    widths = 1.0 / np.sqrt(np.maximum(curvature, 1.0 / MAX_SPREAD**2))
    drawn = fitted.theta + (rng.normal(size=(num, size)) * widths) @ directions.T
    low, high = np.log(_bounds(size - 2)).T
    return [_conditioned(fitted, theta) for theta in np.clip(drawn, low, high)]


def _conditioned(surrogate: Surrogate, theta: Array) -> Surrogate:
    """The same data under other hyperparameters."""
    out = replace(surrogate, theta=theta)
    covariance = out.kernel(out.inputs, out.inputs)
    covariance[np.diag_indices(len(covariance))] += out.noise + np.exp(theta[-1]) + JITTER
    return replace(out, factor=linalg.cholesky(covariance, lower=True, overwrite_a=True, check_finite=False))


def cross_validate(
    inputs: Array, owner: NDArray[np.intp], means: Array, noise: Array, *, start: Array, rng: np.random.Generator
) -> float:
    """R2 = 1 - sum (m_i - prediction)^2 / sum (m_i - mean of the others)^2 over configurations that were left out.

    Hyperparameters are refitted without them, from `start`. More configurations than the process takes: the ones it
    does not see are the left out. At most 1; below 0 where the surrogate is worse than the mean.
    """
    num = len(means)
    if num > MAX_CONDITION + NUM_FOLDS:
        folds = np.where(np.arange(num) < MAX_CONDITION, 1, 0)
        tested = [0]
    else:
        folds = rng.permutation(num) % NUM_FOLDS
        tested = list(range(NUM_FOLDS))
    missed = around = 0.0
    for fold in tested:
        left, kept = np.flatnonzero(folds == fold)[:MAX_HELD_OUT], folds != fold
        surrogate = fit(inputs[kept], owner, means[kept], noise[kept], start=start)
        missed += float(np.square(means[left] - surrogate.predict(inputs[left])).sum())
        around += float(np.square(means[left] - means[kept].mean()).sum())
    return 1.0 - missed / around


def _maximise(inputs: Array, owner: NDArray[np.intp], targets: Array, noise: Array, start: Array | None) -> Array:
    """Logs of the hyperparameters with the largest marginal likelihood that L-BFGS-B finds from the starts."""
    gaps = _gaps(inputs, owner)
    num_params = len(gaps)
    starts = [np.log([*[x] * num_params, 1.0, nugget]) for x, nugget in STARTS] if start is None else [start]
    found = [
        optimize.minimize(
            _negative_likelihood,
            first,
            args=(gaps, targets, noise),
            jac=True,
            method="L-BFGS-B",
            bounds=np.log(_bounds(num_params)),
            options={"maxiter": 60, "ftol": 1e-6},
        )
        for first in starts
    ]
    return np.asarray(min(found, key=lambda result: float(result.fun)).x)


def _gaps(inputs: Array, owner: NDArray[np.intp]) -> Array:
    """(d, n, n) sqrt(5) |z_p - z'_p| between all configurations."""
    columns = [inputs[:, owner == param] for param in range(int(owner.max()) + 1)]
    return np.sqrt(5.0) * np.stack([distance.cdist(column, column) for column in columns])


def _bounds(num_params: int) -> list[tuple[float, float]]:
    return [*[LENGTHS] * num_params, VARIANCES, NUGGETS]


def _negative_likelihood(theta: Array, gaps: Array, targets: Array, noise: Array) -> tuple[float, Array]:
    """-log p(y) without its constant, and its gradient in the logs; gaps: (d, n, n) sqrt(5) |z_p - z'_p|."""
    variance, nugget = np.exp(theta[-2:])
    scaled = gaps * np.exp(-theta[:-2])[:, None, None]
    bodies = 1.0 + scaled + scaled * scaled / 3.0
    kernel = np.prod(bodies, axis=0) * np.exp(-scaled.sum(axis=0))
    covariance = variance * kernel
    covariance[np.diag_indices(len(targets))] += noise + nugget + JITTER
    factor, failed = linalg.lapack.dpotrf(covariance, lower=1, clean=1)
    if failed:
        return 1e25, np.zeros(len(theta))
    weights = linalg.cho_solve((factor, True), targets, check_finite=False)
    inverted, _ = linalg.lapack.dpotri(factor, lower=1)
    inverted += np.tril(inverted, -1).T
    slope = 0.5 * (inverted - np.outer(weights, weights))  # d loss / d covariance
    by_kernel = slope * kernel * variance
    gradient = np.empty(len(theta))
    for param, (a, body) in enumerate(zip(scaled, bodies, strict=True)):  # d log k_p / d log l_p
        gradient[param] = np.vdot(by_kernel, a * a * (1.0 + a) / (3.0 * body))
    gradient[-2] = by_kernel.sum()
    gradient[-1] = nugget * np.trace(slope)
    return 0.5 * float(targets @ weights) + float(np.log(np.diag(factor)).sum()), gradient
