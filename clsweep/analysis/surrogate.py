"""A Gaussian process through the configuration means of one objective: what a sampled sweep says of
its whole space.

Shape legend: n = configurations, d = swept parameters, q = input columns (a category has one per
value), P = paths.

    y_i  = f(z_i) + e_i,   f ~ GP(0, v prod_p k_p),   Var(e_i) = s_w^2 / S_i + nugget
    k_p  = 1 - w_p + w_p m(a),   a = sqrt(5) |z_p - z'_p| / l_p
    m(a) = (1 + a + a^2 / 3) exp(-a)     (Matern-5/2)

on standardised means y and inputs z in the unit cube, each on its parameter's axis; a category is
one-hot. s_w^2 is known from the repeats. The constant 1 - w_p makes the product a sum over all sets
of parameters, each set with the variance prod w_p over it (an ANOVA kernel: Durrande et al. 2013):
with small weights f is nearly additive and a parameter of weight 0 is inert. A plain product lets
whatever bends in two parameters interact in them too, which credits every parameter with
interactions where there are no configurations. Being a product still, integrals over the space are
sums of products of one-dimensional ones (see `sobol`).

The hyperparameters (l, w, v and the nugget, what no smooth f explains) have wide priors, `PRIORS`.
They are fitted at their posterior mode, and `refits` draws them from their posterior around it
(Rasmussen and Williams 2006, 5.4.1).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy import linalg, special
from scipy.spatial import distance

from clsweep.analysis.array_types import Array
from clsweep.analysis.nested import parents_of
from clsweep.analysis.sweep import Sweep

MAX_FIT = 160  # configurations that the hyperparameters are fitted to; the cost is cubic
MAX_CONDITION = 384  # configurations that the process is conditioned on
MAX_HELD_OUT = 1000
NUM_FOLDS = 5
JITTER = 1e-8
STARTS = ((0.5, 0.3, 2.0, 0.01), (1.0, 0.1, 10.0, 0.3))  # length scales, weights, variance, nugget
# A number that takes at most so many values, each twice on average, is drawn from them.
_MAX_LEVELS = 16
# Normal priors, mean and standard deviation: of log l, logit w, log v and the log of the nugget.
PRIORS = ((np.log(0.7), 1.0), (-1.0, 2.0), (np.log(3.0), 1.5), (np.log(0.01), 2.5))


@dataclass(frozen=True)
class Space:
    """The swept space as a unit cube: per parameter its values there, or None where it is
    continuous.

    levels[p]: (L, width) input columns of each of the L values of parameter p; owner: (q,)
    parameter of every column. margins[p]: how far, on average, the space goes on beyond 0 and 1.
    Those are the ends that were declared, then 0, or the smallest and the largest value that were
    tried: 1 / (n - 1) of a random sample of a continuous parameter, 1 / 2n of an evenly spaced one.
    """

    names: tuple[str, ...]
    is_category: tuple[bool, ...]
    levels: tuple[Array | None, ...]
    owner: NDArray[np.intp]
    margins: Array

    def place(self, unit: Array) -> Array:
        """Points of the unit cube (m, d) as inputs (m, q); a parameter with values takes each of
        them equally often.
        """
        columns = [
            unit[:, [p]]
            if levels is None
            else levels[np.minimum((unit[:, p] * len(levels)).astype(int), len(levels) - 1)]
            for p, levels in enumerate(self.levels)
        ]
        return np.concatenate(columns, axis=1)


def off_axis(sweep: Sweep) -> tuple[str, ...]:
    """The numeric parameters on whose axes some configuration with a score has no place, and those
    that are nested in others.
    """
    nested = parents_of(sweep)
    return tuple(
        name
        for name in _varied(sweep)
        if name in nested
        or (
            sweep.scales[name] != "category"
            and not np.isfinite(sweep.axis(name)[sweep.alive]).all()
        )
    )


def _varied(sweep: Sweep) -> list[str]:
    tried = ((name, sweep.settings.loc[sweep.alive, name]) for name in sweep.params)
    # Most columns of a sample show it in two rows.
    return [n for n, x in tried if any(part.nunique(dropna=False) > 1 for part in (x[:2], x))]


def ends_of(sweep: Sweep, name: str) -> tuple[float, float]:
    """Where the space of a numeric parameter ends on its axis: as declared, or as tried."""
    axis = sweep.axis(name)[sweep.alive]
    ends = sweep.bounds.get(name)
    if ends is None:
        return float(axis.min()), float(axis.max())
    low, high = np.log2(ends) if sweep.scales[name] == "log" else ends
    return float(low), float(high)


def read_space(sweep: Sweep) -> tuple[Space, Array]:
    """The space of a sweep, and the inputs (n, q) of its configurations that have a score.

    Parameters of which only one value has a score are left out. Raises ValueError where a number is
    missing or has no place on its axis.
    """
    if names_off := off_axis(sweep):
        raise ValueError(f"some configurations have no place on the axis of {names_off[0]}")
    names = _varied(sweep)
    columns: list[Array] = []
    levels: list[Array | None] = []
    for name in names:
        if sweep.scales[name] == "category":
            values = sweep.settings.loc[sweep.alive, name]
            codes, uniques = values.astype(str).factorize(sort=True)
            levels.append(np.eye(len(uniques)))
            columns.append(np.eye(len(uniques))[codes])
            continue
        axis = sweep.axis(name)[sweep.alive]
        low, high = ends_of(sweep, name)
        unit = (axis - low) / (high - low)
        distinct = np.unique(unit)
        is_listed = len(distinct) <= min(_MAX_LEVELS, len(unit) / 2)
        levels.append(distinct[:, None] if is_listed else None)
        columns.append(unit[:, None])
    owner = np.repeat(np.arange(len(names)), [column.shape[1] for column in columns])
    is_category = tuple(sweep.scales[name] == "category" for name in names)
    num = len(columns[0])
    margin = 1.0 / (num - 1) if sweep.samplers == ("random",) else 0.5 / num
    is_open = [x is None and n not in sweep.bounds for n, x in zip(names, levels, strict=True)]
    margins = np.where(is_open, margin, 0.0)
    space = Space(tuple(names), is_category, tuple(levels), owner, margins)
    return space, np.concatenate(columns, axis=1)


@dataclass(frozen=True)
class Surrogate:
    """The process conditioned on n means. `theta`: logs of d lengths, logits of d weights, logs of
    v and the nugget.
    """

    theta: Array
    owner: NDArray[np.intp]
    inputs: Array
    targets: Array
    noise: Array
    centre: float
    scale: float

    def predict(self, inputs: Array) -> Array:
        """Posterior mean at (m, q), in the units of the scores."""
        factor = self._factor(self.covariance(self.inputs))
        weights = linalg.cho_solve((factor, True), self.targets)
        return np.asarray(self.centre + self.scale * (self.kernel(inputs, self.inputs) @ weights))

    def paths(self, extra: Array, num: int, rng: np.random.Generator) -> tuple[Array, Array]:
        """Functions of the posterior, f(z) = kernel(z, centres) @ weights: centres (n + m, q),
        weights (n + m, P).

        A draw of the prior is taken at the configurations and at m extra points of the space, and
        interpolated; the update that lets it pass the noisy data makes it one of the posterior
        (Matheron's rule, Wilson et al. 2020). In standardised units.
        """
        centres, size = np.concatenate([self.inputs, extra]), len(self.inputs)
        covariance = self.covariance(centres)
        of_data = self._factor(covariance[:size, :size].copy())
        covariance[np.diag_indices(len(centres))] += JITTER * self.variance
        factor = linalg.cholesky(covariance, lower=True, overwrite_a=True, check_finite=False)
        drawn = rng.normal(size=(len(centres), num))
        weights = linalg.solve_triangular(factor, drawn, lower=True, trans=1, check_finite=False)
        noise = np.sqrt(self.noise + np.exp(self.theta[-1]))[:, None] * rng.normal(size=(size, num))
        missing = self.targets[:, None] - factor[:size] @ drawn - noise
        weights[:size] += linalg.cho_solve((of_data, True), missing)
        return centres, weights

    def _factor(self, covariance: Array) -> Array:
        """Lower Cholesky factor of the covariance of the means, (n, n) of f without their noise."""
        noise = self.noise + np.exp(self.theta[-1]) + JITTER
        covariance[np.diag_indices(len(covariance))] += noise
        return linalg.cholesky(covariance, lower=True, overwrite_a=True, check_finite=False)

    def kernel(self, left: Array, right: Array) -> Array:
        """Prior covariance (m, n) of f at (m, q) and (n, q)."""
        out = np.full((len(left), len(right)), self.variance)
        for param, mine in enumerate(self._columns):
            out *= self.factor_of(param, left[:, mine], right[:, mine])
        return out

    def covariance(self, inputs: Array) -> Array:
        """The same among (n, q), each pair once."""
        out = np.full(len(inputs) * (len(inputs) - 1) // 2, self.variance)
        for param, mine in enumerate(self._columns):
            out *= self._factor_at(param, distance.pdist(inputs[:, mine]))
        covariance: Array = distance.squareform(out, checks=False)
        np.fill_diagonal(covariance, self.variance)
        return covariance

    def factor_of(self, param: int, left: Array, right: Array) -> Array:
        """k_p (m, n) of one parameter's columns (m, width) and (n, width)."""
        return self._factor_at(param, distance.cdist(left, right))

    def _factor_at(self, param: int, distances: Array) -> Array:
        """k_p at these distances, which it overwrites."""
        lengths, weights = np.split(self.theta[:-2], 2)
        weight = special.expit(weights[param])
        distances *= np.sqrt(5.0) * np.exp(-lengths[param])
        decay = np.exp(-distances)
        out = 1.0 + distances
        distances *= distances
        distances /= 3.0
        out += distances
        out *= weight
        out *= decay
        out += 1.0 - weight
        return np.asarray(out)

    @property
    def _columns(self) -> list[NDArray[np.bool_]]:
        """The input columns (q,) bool of each parameter."""
        return [self.owner == param for param in range((len(self.theta) - 2) // 2)]

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
    tolerance: float = 1e-5,
) -> Surrogate:
    """Fit the hyperparameters and condition on (n, q) inputs with their means (n,) and noise
    variances (n,).

    The configurations are taken as they come: the first MAX_FIT for the hyperparameters, the first
    MAX_CONDITION to condition on, so shuffle them before. start: theta to start from, two starts by
    default. tolerance: of the loss, by its size or by 1.
    """
    inputs, means, noise = inputs[:MAX_CONDITION], means[:MAX_CONDITION], noise[:MAX_CONDITION]
    centre, scale = float(means.mean()), float(means.std())
    targets, noise = (means - centre) / scale, noise / scale**2
    posterior = _Posterior(inputs[:MAX_FIT], owner, targets[:MAX_FIT], noise[:MAX_FIT])
    num_params, bests = len(posterior.gaps), []
    starts = [
        np.repeat([np.log(a), special.logit(w), np.log(v), np.log(g)], [num_params] * 2 + [1, 1])
        for a, w, v, g in STARTS
    ]
    mean, width = posterior.mean, posterior.width
    from scipy import optimize  # takes 0.15 s of every command that has statistics

    for begin in starts if start is None else [start]:
        optimum = optimize.minimize(
            posterior.loss,
            begin,
            jac=True,
            method="L-BFGS-B",
            bounds=np.stack([mean - 4.0 * width, mean + 4.0 * width], axis=1),
            options={"maxiter": 60, "ftol": tolerance},
        )
        bests.append((float(optimum.fun), np.asarray(optimum.x)))
    theta = min(bests, key=lambda best: best[0])[1]
    return Surrogate(theta, owner, inputs, targets, noise, centre, scale)


def refits(fitted: Surrogate, num: int, rng: np.random.Generator) -> list[Surrogate]:
    """`num` surrogates whose hyperparameters are drawn from the Laplace approximation of their
    posterior.
    """
    data = (array[:MAX_FIT] for array in (fitted.targets, fitted.noise))
    posterior = _Posterior(fitted.inputs[:MAX_FIT], fitted.owner, *data)
    step, size = 0.05, len(fitted.theta)
    hessian = np.empty((size, size))
    for row, unit in zip(hessian, np.eye(size), strict=True):
        down, up = (posterior.loss(fitted.theta + sign * step * unit)[1] for sign in (-1, 1))
        row[:] = (up - down) / (2.0 * step)
    # In units of the prior: a direction that the data say nothing of has curvature 1.
    width = posterior.width
    curvature, directions = np.linalg.eigh(width[:, None] * (hessian + hessian.T) / 2.0 * width)
    drawn = (
        rng.normal(size=(num, size)) / np.sqrt(np.maximum(curvature, 1.0)) @ directions.T * width
    )
    return [replace(fitted, theta=fitted.theta + move) for move in drawn]


def cross_validate(
    fitted: Surrogate, inputs: Array, means: Array, noise: Array, rng: np.random.Generator
) -> float:
    """R2 = 1 - sum (m_i - prediction)^2 / sum (m_i - mean of the others)^2 over configurations that
    were left out.

    The ones that `fitted`, made of these same arrays, has not taken. Where it has taken all:
    NUM_FOLDS folds, with the hyperparameters refitted without each, from the fitted ones. At most
    1; below 0 where it is worse than the mean.
    """
    num, taken = len(means), len(fitted.targets)
    if num > taken + NUM_FOLDS:
        rest = slice(taken, taken + MAX_HELD_OUT)
        missed = means[rest] - fitted.predict(inputs[rest])
        around = means[rest] - means[:taken].mean()
        return 1.0 - float(missed @ missed) / float(around @ around)
    folds = rng.permutation(num) % NUM_FOLDS
    missed, around = np.empty(num), np.empty(num)
    for fold in range(NUM_FOLDS):
        left, used = folds == fold, folds != fold
        surrogate = fit(inputs[used], fitted.owner, means[used], noise[used], start=fitted.theta)
        missed[left] = means[left] - surrogate.predict(inputs[left])
        around[left] = means[left] - means[used].mean()
    return 1.0 - float(missed @ missed) / float(around @ around)


class _Posterior:
    """The posterior density of theta, given (n, q) inputs, n targets and their noise.

    gaps: (d, n (n - 1) / 2) sqrt(5) |z_p - z'_p| of every pair of configurations; mean, width: of
    the priors. The other arrays are written anew by each `loss`: to get new memory from the system
    would take most of its time.
    """

    def __init__(
        self, inputs: Array, owner: NDArray[np.intp], targets: Array, noise: Array
    ) -> None:
        columns = [inputs[:, owner == param] for param in range(int(owner.max()) + 1)]
        self.gaps = np.sqrt(5.0) * np.stack([distance.pdist(column) for column in columns])
        self.mean, self.width = np.repeat(PRIORS, [len(columns), len(columns), 1, 1], axis=0).T
        self._targets, self._noise = targets, noise
        self._factors, self._slopes = np.empty((2, *self.gaps.shape))
        self._scaled, self._decay, self._kernel = np.empty((3, self.gaps.shape[1]))

    def loss(self, theta: Array) -> tuple[float, Array]:
        """-log p(y | theta) p(theta) without its constant, and its gradient."""
        off, num_params = (theta - self.mean) / self.width, len(self.gaps)
        prior = 0.5 * float(off @ off)
        weight, (variance, nugget) = special.expit(theta[num_params:-2]), np.exp(theta[-2:])
        kernel, targets = self._factorise(np.exp(-theta[:num_params]), weight), self._targets
        kernel *= variance
        covariance = distance.squareform(kernel, checks=False)
        np.fill_diagonal(covariance, variance + self._noise + nugget + JITTER)
        # Transposed, it is in LAPACK's order; of factor and inverse the lower half is used.
        factor, failed = linalg.lapack.dpotrf(covariance.T, lower=1, clean=0, overwrite_a=1)
        if failed:
            return 1e25 + prior, off / self.width
        solved, _ = linalg.lapack.dpotrs(factor, targets, lower=1)
        value = 0.5 * float(targets @ solved) + float(np.log(factor.diagonal()).sum())
        inverted, _ = linalg.lapack.dpotri(factor, lower=1, overwrite_c=1)
        slope = inverted.T - np.outer(solved, solved)  # twice d loss / d covariance
        trace = 0.5 * float(slope.trace())
        by_kernel = distance.squareform(slope, checks=False) * kernel
        by_factor, total = np.divide(by_kernel, self._factors, out=self._factors), by_kernel.sum()
        gradient = np.empty(len(theta))
        gradient[:num_params] = np.einsum("pk,pk->p", by_factor, self._slopes)
        gradient[num_params:-2] = (1.0 - weight) * (total - by_factor.sum(axis=1))
        gradient[-2] = total + variance * trace
        gradient[-1] = nugget * trace
        return value + prior, gradient + off / self.width

    def _factorise(self, inverse_lengths: Array, weights: Array) -> Array:
        """prod_p k_p of every pair; beside it each k_p and its slope -dk_p / d log l_p."""
        product, scaled, decay = self._kernel, self._scaled, self._decay
        product[:] = 1.0
        rows = zip(self.gaps, self._factors, self._slopes, inverse_lengths, weights, strict=True)
        for gap, factor, slope, inverse_length, weight in rows:
            np.multiply(gap, -inverse_length, out=scaled)
            np.exp(scaled, out=decay)
            decay *= weight
            np.subtract(1.0, scaled, out=slope)
            scaled *= scaled
            scaled *= 1.0 / 3.0
            np.add(slope, scaled, out=factor)
            factor *= decay
            factor += 1.0 - weight
            product *= factor
            slope *= scaled
            slope *= decay  # -m' a = a^2 (1 + a) exp(-a) / 3
        return product
