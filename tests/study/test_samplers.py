"""Optuna's samplers leave nothing to Optuna's defaults, and draw what version 5.0 draws by
itself.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Iterator
from typing import Any

import optuna
import pytest
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution
from threadpoolctl import threadpool_limits

from clsweep.study.design import SAMPLER_OPTIONS, build_sampler, storage

CLASSES = {
    "random": optuna.samplers.RandomSampler,
    "qmc": optuna.samplers.QMCSampler,
    "tpe": optuna.samplers.TPESampler,
    "gp": optuna.samplers.GPSampler,
}
SPACE: dict[str, BaseDistribution] = {
    "tau": FloatDistribution(0.05, 1.0, log=True),
    "lr": FloatDistribution(0.01, 1.0),
    "rule": CategoricalDistribution(("none", "sqrt")),
}
# What decides no draw, or may not be given any more: version 4.3 to 5.0 deprecated it at the value
# that it always had here.
NO_CHOICE = {
    "seed", "warn_independent_sampling", "warn_asynchronous_seeding", "consider_prior",
    "prior_weight", "consider_magic_clip", "consider_endpoints", "gamma", "weights",
    "constraints_func",
}  # fmt: skip


@pytest.mark.parametrize("method", CLASSES)
def test_every_argument_that_decides_a_draw_is_given(
    monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    given: dict[str, Any] = {}
    parameters = inspect.signature(CLASSES[method]).parameters

    class Noted:
        def __init__(self, **arguments: Any) -> None:
            given.update(arguments)

    monkeypatch.setattr(optuna.samplers, CLASSES[method].__name__, Noted)
    build_sampler(method, 3)
    assert given["seed"] == 3
    assert set(parameters) - NO_CHOICE == set(given) - {"seed"}
    assert {name: given[name] for name in SAMPLER_OPTIONS[method]} == SAMPLER_OPTIONS[method]


def drawn(sampler: optuna.samplers.BaseSampler, num_trials: int) -> list[dict[str, Any]]:
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(sampler=sampler)
    for _ in range(num_trials):
        trial = study.ask(SPACE)
        if trial.number % 5 != 4:  # some run still
            study.tell(trial, (trial.params["tau"] - 0.3) ** 2 + trial.params["lr"])
    return [trial.params for trial in study.trials]


@pytest.fixture(scope="module")
def imported() -> Iterator[None]:
    """What the samplers import at their first point, torch above all: seconds. Several threads
    would only wait for each other at matrices of this size.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        drawn(optuna.samplers.GPSampler(seed=0), 14)
    with threadpool_limits(1):
        yield


@pytest.mark.skipif(not optuna.__version__.startswith("5."), reason="the defaults of version 5")
@pytest.mark.usefixtures("imported")
@pytest.mark.parametrize("method", CLASSES)
def test_the_points_are_those_of_the_defaults(method: str) -> None:
    """QMC alone has an argument of its own: unscrambled points would begin in a corner."""
    arguments = {"qmc": {"scramble": True}}.get(method, {})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = drawn(CLASSES[method](seed=7, **arguments), 16)
    assert drawn(build_sampler(method, 7), 16) == expected


@pytest.mark.usefixtures("imported")
@pytest.mark.parametrize("method", ["random", "qmc"])
def test_no_point_looks_through_all_the_others(
    monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    """The time of many points would grow with their square."""
    looked, real = [], optuna.storages.InMemoryStorage.get_all_trials

    def look(self: Any, *arguments: Any, **options: Any) -> Any:
        looked.append(1)
        return real(self, *arguments, **options)

    monkeypatch.setattr(optuna.storages.InMemoryStorage, "get_all_trials", look)
    study = optuna.create_study(storage=storage(), sampler=build_sampler(method, 7))
    points = []
    for _ in range(100):
        trial = study.ask(SPACE)
        points.append(trial.params)
        if trial.number == 0:
            study.tell(trial, 0.0)
    assert len(looked) < 10
    assert points == drawn(build_sampler(method, 7), 100)
