"""Optuna's samplers with every argument that decides what they draw.

Optuna changes its defaults from version to version: version 5 made `multivariate` and
`constant_liar` true. The values here are those that version 5.0 takes by itself.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

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
    classes: dict[str, Any] = {
        "qmc": _one_sequence(),
        "tpe": samplers.TPESampler,
        "gp": samplers.GPSampler,
    }
    beside = {} if method == "tpe" else {"independent_sampler": independent}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # some are marked experimental
        return classes[method](**SAMPLER_OPTIONS[method], **beside, seed=seed)


def _one_sequence() -> type[optuna.samplers.QMCSampler]:
    """Optuna's sampler, in time that grows with the number of points, not with its square: it looks
    for the space among all trials, makes its sequence anew and skips to the point, for every
    point. This one remembers both. The points are the same.
    """
    import optuna

    class OneSequence(optuna.samplers.QMCSampler):
        _space: Mapping[str, Any] = {}

        def infer_relative_search_space(self, study: Any, trial: Any) -> dict[str, Any]:
            self._space = self._space or super().infer_relative_search_space(study, trial)
            return dict(self._space)

        def _sample_qmc(self, study: Any, search_space: dict[str, Any]) -> Any:
            if not hasattr(self, "_sequence"):
                from scipy.stats import qmc

                self._sequence = qmc.Sobol(len(search_space), seed=self._seed, scramble=True)
            return self._sequence.random(1)

    return OneSequence


def storage() -> optuna.storages.InMemoryStorage:
    """A storage of trials that are asked for and never queued: Optuna's looks for queued ones among
    all trials, each time that one is asked for.
    """
    from optuna.storages import InMemoryStorage
    from optuna.trial import TrialState

    class NoneWaiting(InMemoryStorage):
        def get_all_trials(
            self, study_id: int, deepcopy: bool = True, states: Any = None
        ) -> list[optuna.trial.FrozenTrial]:
            if states is not None and tuple(states) == (TrialState.WAITING,):
                return []
            return super().get_all_trials(study_id, deepcopy, states)

    return NoneWaiting()


def sampler_options(method: str) -> str | None:
    """The arguments as the results record them, a JSON object; None where Optuna draws nothing."""
    options = SAMPLER_OPTIONS.get(method)
    return None if options is None else json.dumps(options)
