"""Temperature and weight decay of each step against their formulas, and what steps do with them."""

import math

import numpy as np
import pytest
import torch

from clsweep.catalog import COMPONENT, DIAGNOSTICS, implementation
from clsweep.train import diagnostics, loop
from clsweep.train.images import batches
from clsweep.train.loop import accumulate_gradient
from clsweep.train.optim import build_optimizer
from clsweep.train.schedules import Schedules, begin_step
from clsweep.train.state import new_state
from tests.contracts.combinations import (
    BATCH,
    CASES,
    VARIANTS,
    few_images,
    small_config,
    some_digits,
)

pytestmark = pytest.mark.usefixtures("one_thread")

CPU = torch.device("cpu")
PER_EPOCH, EPOCHS = 7, 12
PARTS = {"framework": "simclr", "loss": "dcl", "regularizer": "none", "views": "two"}


def values(name, **changes):
    schedules = Schedules(small_config(PARTS, epochs=EPOCHS, **changes), PER_EPOCH)
    return [schedules.at(step).get(name) for step in range(EPOCHS * PER_EPOCH)]


@pytest.mark.parametrize("warmup", [0, 3])
def test_the_weight_decay_is_dinos_cosine(warmup):
    """Of all steps, the warm-up's too, as the authors' cosine over an array of them."""
    more = {"weight_decay": 0.04, "weight_decay_end": 0.4, "warmup_epochs": warmup}
    actual = values("weight_decay", weight_decay_schedule="cosine", **more)
    steps = np.arange(EPOCHS * PER_EPOCH)
    expected = 0.4 + 0.5 * (0.04 - 0.4) * (1 + np.cos(np.pi * steps / len(steps)))
    np.testing.assert_allclose(actual, expected, rtol=1e-10)
    assert set(values("weight_decay", **more | {"weight_decay_end": 0.4})) == {None}


def test_the_temperature_swings_as_kukleva_has_it():
    """tau_t = (tau+ - tau-) (1 + cos(2 pi t / T)) / 2 + tau-, t in epochs, T of them a period."""
    actual = values("tau", tau_schedule="cosine", tau=1.0, tau_end=0.1, tau_period=5)
    expected = [
        (1.0 - 0.1) * (1 + math.cos(2 * math.pi * (step / PER_EPOCH) / 5)) / 2 + 0.1
        for step in range(EPOCHS * PER_EPOCH)
    ]
    assert actual == pytest.approx(expected, rel=1e-10)
    assert actual[5 * PER_EPOCH] == pytest.approx(1.0)


def test_without_a_period_the_temperature_goes_from_one_end_to_the_other():
    actual = values("tau", tau_schedule="cosine", tau=0.5, tau_end=0.1)
    expected = np.linspace(0, math.pi, EPOCHS * PER_EPOCH, endpoint=False)
    np.testing.assert_allclose(actual, 0.3 + 0.2 * np.cos(expected), rtol=1e-10)


WITH_TAU = [row.name for row in COMPONENT["loss"].values() if "tau" in row.owns]


@pytest.mark.parametrize("chunk", [BATCH, BATCH // 2])
@pytest.mark.parametrize(
    "name", [n for n, case in CASES.items() if "tau" in case and n.endswith("none-two")]
)
def test_every_loss_that_owns_tau_takes_that_of_the_step(name, chunk):
    """Loss and gradient are those of a trial with that temperature throughout."""
    config = CASES[name] | {"tau_schedule": "cosine", "chunk_size": chunk}
    plain = CASES[name] | {"tau": 0.37, "chunk_size": chunk}
    results = []
    for each, tau in ((config, 0.37), (plain, None), (config, None)):
        state = new_state(each, CPU)
        if tau:
            begin_step(state, {"lr": 0.1, "tau": 0.5})
            begin_step(state, {"lr": 0.1, "tau": tau})
        batch = next(batches(some_digits(BATCH), each, 0, state.view_generator))
        _, losses = accumulate_gradient(state, state.objective.train(), batch)
        gradient = [p.grad for p in state.objective.parameters() if p.grad is not None]
        results.append([losses.total.detach(), *gradient])
    torch.testing.assert_close(results[0], results[1], rtol=0, atol=0)
    assert abs(results[2][0] - results[0][0]) > 1e-6
    assert set(WITH_TAU) == {case["loss"] for case in CASES.values() if "tau" in case}


def test_the_coupling_of_a_step_is_at_its_temperature(monkeypatch):
    """And an epoch's row has that of its last step; the trial's row has the setting."""
    taus, rows = [], []

    def noted(_objective, _prepared, config):
        taus.append(config["tau"])

    row = next(r for r in DIAGNOSTICS if r.impl.endswith(":q_b"))
    monkeypatch.setattr(loop, "load_splits", few_images)
    monkeypatch.setattr(
        diagnostics,
        "implementation",
        lambda r: noted if r.impl == row.impl else implementation(r),
    )
    config = VARIANTS["simclr-eqco-none-two-tau_schedule=cosine"]
    result = loop.train_trial(config, rows.append)
    per_epoch = len(taus) // config["epochs"]
    schedules = Schedules(config, per_epoch)
    assert taus == [schedules.at(step)["tau"] for step in range(len(taus))]
    assert [row["tau"] for row in rows] == [taus[per_epoch - 1], taus[-1]]
    assert len(set(taus)) == 4
    assert not {"tau", "weight_decay"} & {*result}


@pytest.mark.parametrize(
    ("name", "key"), [("sgd", "weight_decay"), ("adamw", "weight_decay"), ("lars", "lars_decay")]
)
def test_the_decay_of_a_step_is_that_of_its_groups_and_those_without_stay(name, key):
    config = small_config(PARTS, optimizer=name, weight_decay_schedule="cosine", weight_decay=0.04)
    state = new_state(config, CPU)
    before = {g[key] for g in state.optimizer.param_groups}
    begin_step(state, {"lr": 0.1, "weight_decay": 0.3})
    assert (before, {g[key] for g in state.optimizer.param_groups}) == ({0.0, 0.04}, {0.0, 0.3})
    restored = build_optimizer(state.objective, config)
    restored.load_state_dict(state.optimizer.state_dict())
    begin_step(state, {"lr": 0.1, "weight_decay": 0.2})
    assert {g[key] for g in state.optimizer.param_groups} == {0.0, 0.2}
