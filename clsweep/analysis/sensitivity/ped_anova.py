"""PED-ANOVA: which hyperparameters decide whether a configuration reaches the best tenth.

Shape legend: n = configurations, d = parameters, G = grid points on one parameter's axis, B =
permutations.

    d_p = sum_g local_p(g) (top_p(g) / local_p(g) - 1)^2        importance_p = d_p / sum_p d_p

the Pearson divergence between the density of parameter p among the best tenth and among all
configurations (Watanabe et al. 2023, with the kernel estimator of Optuna's
PedAnovaImportanceEvaluator). The importances sum to one by construction: of pure noise, 3
parameters and 100 configurations, the largest averages 0.6. So they mean nothing without what they
reach when the best tenth is a random one.
"""

import numpy as np
from numpy.typing import NDArray
from scipy import special

from clsweep.analysis.sensitivity.surrogate import Space
from clsweep.analysis.sweep import Array

TOP = 0.1
NUM_STEPS = 50
NUM_PERMUTATIONS = 200
MIN_TOP = 3


def ped_anova(
    space: Space, inputs: Array, means: Array, *, confidence: float, rng: np.random.Generator
) -> tuple[Array, Array]:
    """(d,) importances for reaching the best tenth, and (d,) the level that chance reaches,
    `confidence` quantile.

    inputs: (n, q) of `Space`; means: (n,), larger is better. NaN for one parameter, and for fewer
    than 3 in the tenth.
    """
    num, num_params = len(means), len(space.names)
    size = int(np.ceil(TOP * num))
    if num_params < 2 or size < MIN_TOP:
        return np.full(num_params, np.nan), np.full(num_params, np.nan)
    cutoff = np.partition(means, num - size)[num - size]
    best = np.flatnonzero(means >= cutoff)
    chosen = [
        best,
        *(
            rng.choice(num, len(best), replace=False, shuffle=False)
            for _ in range(NUM_PERMUTATIONS)
        ),
    ]
    divergences = np.stack(
        [_divergences(space, inputs, param, chosen) for param in range(num_params)]
    )
    total = divergences.sum(axis=0)
    importances = divergences / np.where(total > 0, total, np.nan)
    return importances[:, 0], np.quantile(importances[:, 1:], confidence, axis=1)


def _divergences(space: Space, inputs: Array, param: int, chosen: list[NDArray[np.intp]]) -> Array:
    """(len(chosen),) divergence of one parameter for every choice of configurations."""
    columns = inputs[:, space.owner == param]
    if space.is_category[param]:
        codes, size = columns.argmax(axis=1), columns.shape[1]
        density = _category_density
    else:
        codes, size = (
            np.clip(np.ceil(columns[:, 0] * (NUM_STEPS - 1) - 0.5).astype(int), 0, NUM_STEPS - 1),
            NUM_STEPS,
        )
        density = _number_density
    counts = np.stack([np.bincount(codes[rows], minlength=size) for rows in chosen])
    local = density(np.bincount(codes, minlength=size)[None])
    return np.asarray((local * np.square(density(counts) / local - 1.0)).sum(axis=1))


def _category_density(counts: NDArray[np.intp]) -> Array:
    """(B, G): the counts, each observation and the uniform prior smoothed by one prior
    observation.
    """
    size, present = counts.shape[1], (counts > 0).sum(axis=1, keepdims=True)
    prior = 1.0 / (present + 1.0)
    kernels = counts / (1.0 + size * prior) + prior / (1.0 + size * prior) * counts.sum(
        axis=1, keepdims=True
    )
    return np.asarray((kernels + 1.0 / size) / (counts.sum(axis=1, keepdims=True) + 1.0)) + 1e-12


def _number_density(counts: NDArray[np.intp]) -> Array:
    """(B, G): normal kernels on the grid points, cut off at its ends, and one as wide as the grid
    for the prior.

    Bandwidth 1.059 min(sd, IQR / 1.34) k^-0.2 (Scott 1992), in grid steps, at least 0.5 / 1.64.
    """
    grid, total = np.arange(counts.shape[1]), counts.sum(axis=1)
    mean = counts @ grid / total
    spread = np.sqrt(
        (counts * np.square(grid - mean[:, None])).sum(axis=1) / np.maximum(1, total - 1)
    )
    running = counts.cumsum(axis=1)
    low = (running >= np.maximum(total // 4, 1)[:, None]).argmax(axis=1)
    high = (running > (total * 3 // 4)[:, None]).argmax(axis=1)
    width = np.maximum(1.059 * np.minimum((high - low) / 1.34, spread) * total**-0.2, 0.5 / 1.64)
    kernels = _kernels(grid.astype(float), width[:, None, None], len(grid))
    prior = _kernels(np.array([(len(grid) - 1) / 2.0]), np.array(float(len(grid))), len(grid))
    density = (np.einsum("bm,bmg->bg", counts.astype(float), kernels) + prior) / (
        total[:, None] + 1.0
    )
    return np.asarray(density + 1e-12)


def _kernels(centres: Array, width: Array, size: int) -> Array:
    """(..., centres, G) mass that a normal at each centre, cut off to the grid, puts on every grid
    point.
    """
    edges = special.ndtr((np.arange(size + 1) - 0.5 - centres[:, None]) / width)
    return np.asarray(np.diff(edges, axis=-1) / (edges[..., -1:] - edges[..., :1]))
