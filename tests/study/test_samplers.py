"""What the samplers draw is what Optuna 5.0 draws by itself."""

from __future__ import annotations

import itertools
import warnings
from typing import Any

import optuna
import pytest
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from threadpoolctl import threadpool_limits

from clsweep.study.design import build_sampler, points_of

CLASSES = {
    "random": optuna.samplers.RandomSampler,
    "qmc": optuna.samplers.QMCSampler,
    "tpe": optuna.samplers.TPESampler,
    "gp": optuna.samplers.GPSampler,
}
BUILT = ("random", "tpe", "gp")  # in a live search
SPACE: dict[str, BaseDistribution] = {
    "tau": FloatDistribution(0.05, 1.0, log=True),
    "lr": FloatDistribution(0.01, 1.0),
    "rule": CategoricalDistribution(("none", "sqrt")),
}


def drawn(sampler: optuna.samplers.BaseSampler, num_trials: int) -> list[dict[str, Any]]:
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(sampler=sampler)
    for _ in range(num_trials):
        trial = study.ask(SPACE)
        if trial.number % 5 != 4:  # some run still
            study.tell(trial, (trial.params["tau"] - 0.3) ** 2 + trial.params["lr"])
    return [trial.params for trial in study.trials]


@pytest.fixture(scope="module")
def imported():
    """What the samplers import at their first point, torch above all: seconds. Several threads
    would only wait for each other at matrices of this size.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        drawn(optuna.samplers.GPSampler(seed=0), 11)
    with threadpool_limits(1):
        yield


@pytest.mark.skipif(not optuna.__version__.startswith("5."), reason="the defaults of version 5")
@pytest.mark.usefixtures("imported")
@pytest.mark.parametrize("method", BUILT)
def test_the_points_are_those_of_the_defaults(method):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = drawn(CLASSES[method](seed=7), 13)
    assert drawn(build_sampler(method, 7), 13) == expected


@pytest.mark.usefixtures("imported")
@pytest.mark.parametrize("method", ["random", "qmc"])
def test_what_is_drawn_beforehand_is_what_optuna_draws(method):
    space: dict[str, BaseDistribution] = {
        "tau": FloatDistribution(0.05, 1.0, log=True),
        "choice": IntDistribution(0, 2),
        "only": IntDistribution(0, 0),
        "lr": FloatDistribution(0.01, 1.0),
        "hidden": IntDistribution(8, 512, log=True),
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        sampler = CLASSES[method](seed=7, **({"scramble": True} if method == "qmc" else {}))
    study, expected = optuna.create_study(sampler=sampler), []
    for _ in range(60):
        trial = study.ask(space)
        expected.append(trial.params)
        study.tell(trial, 0.0)
    # the first trial only tells Optuna's QMC its space
    own = list(itertools.islice(points_of(space, method, 7), 60))
    assert own[: -1 if method == "qmc" else None] == expected[1 if method == "qmc" else 0 :]
