"""Sobol indices over the swept space, of functions drawn from the surrogate's posterior.

    S_p  = Var( E[f | x_p] ) / Var(f)             first order: what parameter p explains alone
    ST_p = E( Var[f | all but x_p] ) / Var(f)     total: p with all its interactions
    S_pq = Var( E[f | x_p, x_q] ) / Var(f) - S_p - S_q

x is uniform over the unit cube of the space: on each parameter's axis, over its values where it has
a few, over its categories. A drawn function is f = sum_b w_b prod_p k_p(x_p, z_bp), so every one of
these is a sum of products of one-dimensional integrals, taken by quadrature: the spread over draws
is the surrogate's uncertainty (that of its hyperparameters and of the ends of the space included),
with no sampling error of points in it. With phi_p = k_p(x_p, .), z_p = E phi_p and Q_p = E phi_p
phi_p^T:

    Var(f)        = w^T (prod_p Q_p) w - (w^T prod_p z_p)^2
    ST_p Var(f)   = w^T ((Q_p - z_p z_p^T) prod_{j != p} Q_j) w
    S_p Var(f)    = E ( (phi_p - z_p)^T (w prod_{j != p} z_j) )^2           and so on for pairs
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations, count
from math import isqrt

import numpy as np

from clsweep.analysis.array_types import Array
from clsweep.analysis.surrogate import Space, Surrogate, fit, refits

_NUM_DRAWS = 240
NUM_REFITS = 12
# with so many configurations the hyperparameters are all but known
LARGE, NUM_REFITS_LARGE = 256, 4
NUM_EXTRA = 160  # points beside the configurations through which the prior is drawn
# Places and shares of Gauss-Legendre quadrature on a continuous axis.
NODES = np.polynomial.legendre.leggauss(32)
NUM_INERT = 12  # refits with inert columns
INERT_COLUMNS = 2
INERT_SIZE = 128
INERT_DRAWS = 32
# Of their fits: at 1e-5 it takes twice the steps, and the largest ST is a tenth lower.
INERT_TOLERANCE = 1e-3
Index = tuple[tuple[int, ...], Array, float, Array | None]


class Integrals:
    """The one-dimensional integrals of the kernel with its centres (b, q), per parameter."""

    def __init__(
        self, surrogate: Surrogate, space: Space, centres: Array, rng: np.random.Generator
    ) -> None:
        # The ends of the space are known to be beyond the values tried, by an exponential spacing.
        ends = [
            (-margin * rng.exponential(), 1.0 + margin * rng.exponential())
            for margin in space.margins
        ]
        places, shares = NODES
        nodes = [
            (low + (high - low) * (places[:, None] + 1.0) / 2.0, shares / 2.0)
            if levels is None
            else (levels, np.full(len(levels), 1.0 / len(levels)))
            for levels, (low, high) in zip(space.levels, ends, strict=True)
        ]
        self.variance = surrogate.variance
        self.weights = [weight for _, weight in nodes]
        self.values = [
            surrogate.factor_of(param, at, centres[:, space.owner == param])
            for param, (at, _) in enumerate(nodes)
        ]
        weighted = list(zip(self.weights, self.values, strict=True))
        self.means = [weight @ value for weight, value in weighted]
        self.squares = [value.T @ (weight[:, None] * value) for weight, value in weighted]
        self.form = self.squares[0].copy()  # E f^2 = w^T form w
        for square in self.squares[1:]:
            self.form *= square
        self.form *= self.variance**2

    def without(self, *params: int) -> Array:
        """(b,) product of the means of all the other parameters."""
        out = np.full(len(self.means[0]), self.variance)
        for other, mean in enumerate(self.means):
            if other not in params:
                out *= mean
        return out

    def total_variance(self, drawn: Array) -> Array:
        """Var(f) of draws (b, P)."""
        return _quadratic(self.form, drawn) - np.square(self.without() @ drawn)

    def total_effect(self, param: int, drawn: Array) -> Array:
        """ST_p Var(f)."""
        mean, rest = self.means[param], self.form / self.squares[param]
        rest *= mean
        rest *= mean[:, None]
        return _quadratic(np.subtract(self.form, rest, out=rest), drawn)

    def main_effect(self, param: int, drawn: Array) -> Array:
        """S_p Var(f)."""
        effect = (self.values[param] - self.means[param]) @ (self.without(param)[:, None] * drawn)
        return self.weights[param] @ np.square(effect)

    def pair_effect(self, p: int, q: int, drawn: Array) -> Array:
        """S_pq Var(f)."""
        weighted = (self.without(p, q)[:, None] * drawn).T
        left, right = self.values[p] - self.means[p], self.values[q] - self.means[q]
        effects = (left * weighted[:, None]) @ right.T  # (P, nodes of p, nodes of q)
        return np.asarray(np.square(effects) @ self.weights[q] @ self.weights[p])


def draws(surrogate: Surrogate, space: Space, rng: np.random.Generator) -> list[Index]:
    """Indices of NUM_DRAWS functions of the posterior, in groups of other hyperparameters and
    ends: of each parameter, then of the pair with the largest interaction.

    Of each its parameters, draws (P,) of `first`, the share that these are off their mean by (95 %
    quantile), and draws of `total`, none of a pair. A share is a square, never drawn as 0: the
    effect may be none where it is not seen beyond that share.
    """
    num, extra = len(space.names), _extra(space, rng)
    pairs = list(combinations(range(num), 2))
    terms: list[tuple[int, ...]] = []
    parts = []
    num_refits = NUM_REFITS if len(surrogate.inputs) <= LARGE else NUM_REFITS_LARGE
    for refit in refits(surrogate, num_refits, rng):
        centres, drawn = refit.paths(extra, _NUM_DRAWS // num_refits, rng)
        integrals = Integrals(refit, space, centres, rng)
        average = drawn.mean(axis=1, keepdims=True)  # about the posterior mean
        if not terms:
            sizes = [integrals.pair_effect(p, q, average)[0] for p, q in pairs]
            largest = [pairs[int(np.argmax(sizes))]] if pairs else []
            terms = [*((param,) for param in range(num)), *largest]
        effects = [
            integrals.pair_effect(*term, weights)
            if len(term) == 2
            else integrals.main_effect(term[0], weights)
            for weights in (drawn, drawn - average)
            for term in terms
        ]
        effects += [integrals.total_effect(param, drawn) for param in range(num)]
        parts.append(np.stack(effects) / integrals.total_variance(drawn))
    first, off, total = np.split(np.concatenate(parts, axis=1), [len(terms), 2 * len(terms)])
    errors = np.quantile(off, 0.95, axis=1).tolist()
    totals = [*total, *[None] * (len(terms) - num)]
    return list(zip(terms, first, errors, totals, strict=True))


def main_effects(
    surrogate: Surrogate, space: Space, places: Sequence[Array], rng: np.random.Generator
) -> list[Array]:
    """E[f | x_p] of functions of the posterior, in the units of the scores: of each parameter
    (points, P) at its `places` (points, width).
    """
    extra, parts = _extra(space, rng), []
    for refit in refits(surrogate, NUM_REFITS, rng):
        centres, drawn = refit.paths(extra, _NUM_DRAWS // NUM_REFITS, rng)
        integrals = Integrals(refit, space, centres, rng)
        parts.append([
            refit.factor_of(param, at, centres[:, space.owner == param])
            @ (integrals.without(param)[:, None] * drawn)
            for param, at in enumerate(places)
        ])  # fmt: skip
    each = zip(*parts, strict=True)
    return [surrogate.centre + surrogate.scale * np.concatenate(part, axis=1) for part in each]


def inert_totals(
    space: Space, inputs: Array, means: Array, noise: Array, theta: Array, rng: np.random.Generator
) -> dict[bool, Array]:
    """ST that an inert parameter gets here: {is it a category: values}, over refits with inert ones
    added.

    An inert parameter is a copy of a swept one whose values are dealt to the configurations anew.
    Every refit starts from the hyperparameters `theta` and moves all of them, on at most INERT_SIZE
    configurations.
    """
    inputs, means, noise = inputs[:INERT_SIZE], means[:INERT_SIZE], noise[:INERT_SIZE]
    num_params = len(space.names)
    out: dict[bool, list[float]] = {kind: [] for kind in set(space.is_category)}
    rounds = NUM_INERT * (2 if len(out) == 2 else 1)
    for copied in np.resize(rng.permutation(num_params), (rounds, INERT_COLUMNS)):
        added = [rng.permutation(inputs[:, space.owner == param]) for param in copied]
        owner = np.repeat(
            num_params + np.arange(INERT_COLUMNS), [column.shape[1] for column in added]
        )
        wider = Space(
            (*space.names, *("inert",) * INERT_COLUMNS),
            (*space.is_category, *(space.is_category[param] for param in copied)),
            (*space.levels, *(space.levels[param] for param in copied)),
            np.concatenate([space.owner, owner]),
            np.concatenate([space.margins, space.margins[copied]]),
        )
        lengths, weights = np.split(theta[:-2], 2)
        more = np.zeros(INERT_COLUMNS)
        start = np.concatenate([lengths, more, weights, more - 1.0, theta[-2:]])
        columns = np.concatenate([inputs, *added], axis=1)
        surrogate = fit(columns, wider.owner, means, noise, start=start, tolerance=INERT_TOLERANCE)
        centres, drawn = surrogate.paths(_extra(wider, rng)[: NUM_EXTRA // 2], INERT_DRAWS, rng)
        integrals = Integrals(surrogate, wider, centres, rng)
        variance = integrals.total_variance(drawn)
        for place, param in enumerate(copied):
            total = integrals.total_effect(num_params + place, drawn) / variance
            out[space.is_category[param]].append(float(total.mean()))
    return {kind: np.array(values) for kind, values in out.items()}


def _extra(space: Space, rng: np.random.Generator) -> Array:
    """Points all over the space, (NUM_EXTRA, q): a Halton sequence, shifted at random."""
    num_params = len(space.names)
    return space.place((halton(NUM_EXTRA, num_params) + rng.random(num_params)) % 1.0)


def halton(num: int, num_dims: int) -> Array:
    """(num, num_dims) points of the Halton sequence, from 0 on: the digits of a point's number in
    each prime base, mirrored at the point (Halton 1960). `scipy.stats.qmc` takes 0.3 s to import.
    """
    primes = (n for n in count(2) if all(n % k for k in range(2, isqrt(n) + 1)))
    out = np.zeros((num_dims, num))
    for row, base in zip(out, primes, strict=False):
        rest, place = np.arange(num), 1.0
        while rest.any():
            place /= base
            rest, digits = np.divmod(rest, base)
            row += digits * place
    return out.T


def _quadratic(form: Array, drawn: Array) -> Array:
    """w^T form w of every column of `drawn`."""
    return np.asarray(np.einsum("bk,bk->k", drawn, form @ drawn))
