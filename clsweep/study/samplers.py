"""Optuna's samplers with every argument that decides what they draw.

Optuna changes its defaults from version to version: version 5 made `multivariate` and
`constant_liar` true. The values here are those that version 5.0 takes by itself.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import optuna

# By `search.method`. What is missing is no choice: seeds, warnings, and arguments that Optuna is
# about to remove with their values fixed.
SAMPLER_OPTIONS: Mapping[str, Mapping[str, int | bool | str]] = {
    "random": {},
    "qmc": {"qmc_type": "sobol", "scramble": True},
    "tpe": {
        "n_startup_trials": 10,
        "n_ei_candidates": 24,
        "multivariate": True,
        "group": False,
        "constant_liar": True,
    },
    "gp": {"n_startup_trials": 10, "deterministic_objective": False},
}


def build_sampler(method: str, seed: int) -> optuna.samplers.BaseSampler:
    """Optuna's sampler of a `search.method` that is not enumerated; what it draws independently of
    the others is random, from the same seed.
    """
    from optuna import samplers

    independent = samplers.RandomSampler(seed=seed)
    if method == "random":
        return independent
    classes = {"qmc": samplers.QMCSampler, "tpe": samplers.TPESampler, "gp": samplers.GPSampler}
    beside = {} if method == "tpe" else {"independent_sampler": independent}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # some are marked experimental
        return classes[method](**SAMPLER_OPTIONS[method], **beside, seed=seed)


def sampler_options(method: str) -> str | None:
    """The arguments as the results record them, a JSON object; None where Optuna draws nothing."""
    options = SAMPLER_OPTIONS.get(method)
    return None if options is None else json.dumps(options)
