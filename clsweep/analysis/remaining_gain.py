"""The gain that a search may still hold: by how much its space is expected to be better than the
best configuration so far.

    g = E[max_z f(z) - f(z*)],   z* = the configuration with the largest E[f]

over functions of the posterior of a Gaussian process through the means, and over that of its
hyperparameters (see `surrogate`): the expected simple regret. It is large while little is known,
unlike the expected improvement of one more configuration alone (Jones, Schonlau and Welch 1998),
which falls first where the process takes the space for flat. To stop a search once its regret is
below the noise of a score: Makarova et al. 2022; with draws of the posterior: Wilson 2024.

Shape legend: n = configurations, q = input columns.
"""

from __future__ import annotations

import numpy as np

from clsweep.analysis.array_types import Array
from clsweep.analysis.surrogate import Space, fit, refits

NUM_PLACES = 256  # all over the space
NUM_NEAR = 64  # about the best one
NUM_REFITS, NUM_PATHS = 12, 16
_STEP = 0.08  # of the unit cube, on average, from the best one to a place about it


def remaining_gain(
    inputs: Array, space: Space, means: Array, noise: float, rng: np.random.Generator
) -> float:
    """Expected gain, in the units of the scores; 0 where all means are the same.

    Args:
        inputs: (n, q) the configurations' places in the unit cube.
        space: what these are places in.
        means: (n,) their scores, of which more is better.
        noise: variance of such a mean.
    """
    if np.ptp(means) == 0.0:
        return 0.0
    surrogate = fit(inputs, space.owner, means, np.full(len(means), noise))
    places = space.place(rng.random((NUM_PLACES, len(space.names))))
    steps = rng.normal(scale=_STEP, size=(NUM_NEAR, inputs.shape[1]))
    is_continuous = np.array([levels is None for levels in space.levels])[space.owner]
    near = np.clip(inputs[np.argmax(means)] + steps * is_continuous, 0.0, 1.0)
    extra, drawn = np.concatenate([places, near]), []
    for refit in refits(surrogate, NUM_REFITS, rng):
        centres, weights = refit.paths(extra, NUM_PATHS, rng)
        drawn.append(refit.kernel(centres, centres) @ weights)
    values = surrogate.scale * np.concatenate(drawn, axis=1)
    best = np.argmax(values[: len(surrogate.inputs)].mean(axis=1))
    return float((values.max(axis=0) - values[best]).mean())
