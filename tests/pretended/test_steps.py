"""Steps of every objective on a GPU: on one device, without a wait, with a CPU's numbers."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from functools import cache

import pytest
import torch

from tests.contracts.combinations import (
    CASES,
    REPRESENTATIVES,
    VARIANTS,
    small_config,
)
from tests.pretended.device import BACKWARD
from tests.pretended.steps import take_steps
from tests.tiers import in_tiers

pytestmark = pytest.mark.usefixtures("one_thread")

# What the host waits for in an epoch of steps, and why. A step has nothing of its own here.
WAITS = {
    ("tolist", "train/loop.py:train_epoch"): 1,  # the mean losses, after the last step
}
TIERS = in_tiers(CASES, fast=REPRESENTATIVES, full=(*REPRESENTATIVES, *VARIANTS))


@pytest.fixture(scope="module")
def steps_of(device):
    """The steps of a case on the device, taken once for all tests."""
    return cache(lambda name: device.call(take_steps, CASES[name], "cuda:0", 4))


@pytest.mark.parametrize("name", TIERS)
def test_the_numbers_are_a_cpus(name, steps_of):
    actual, expected = steps_of(name), take_steps(CASES[name], "cpu", 4)
    assert actual.row == pytest.approx(expected.row, rel=1e-4)
    torch.testing.assert_close(actual.weights, expected.weights, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("name", TIERS)
def test_a_step_waits_for_nothing(name, steps_of):
    log = steps_of(name).log
    assert log.launches
    assert log.waits == Counter(WAITS)
    assert log.pageable == Counter()


@pytest.mark.parametrize("name", TIERS)
def test_nothing_is_drawn_on_the_device(name, steps_of):
    assert steps_of(name).log.draws == Counter()


@pytest.mark.parametrize("name", TIERS)
def test_no_step_computes_in_float64_but_a_whitening(name, steps_of):
    """Most GPUs have a sixty-fourth of the speed there, or half of it. The few numbers of a view
    that are drawn in it do not count.
    """
    files = {where.partition(":")[0] for _, where in steps_of(name).log.doubles}
    files = {file for file in files if not file.startswith("data/")}
    whitens = CASES[name]["loss"] == "wmse"
    assert files == ({"objective/distribution.py", BACKWARD} if whitens else set())


# What a CUDA graph has captured is run again as it was. The first steps are others: they make the
# views and the momenta, and fill the queue of swav.


@pytest.mark.parametrize("name", TIERS)
def test_two_steps_ask_for_the_same_of_the_device(name, steps_of):
    """The same operations, shapes and numbers of the host. What follows a schedule, the rate and
    the momentum, is filled in before: a graph reads it from there. Only a temperature that follows
    one is a number of the host, as every loss takes it.
    """
    if "tau_schedule" in name:
        pytest.skip("such a step cannot be replayed")
    third, fourth = (
        list(itertools.dropwhile(lambda call: call.op == "fill_", calls))
        for calls in steps_of(name).calls[2:]
    )
    assert len(third) > 50
    assert third == fourth


HALVES = ["simclr-dclw-abscl-ecpp", "simsiam-cosine-none-two-optimizer=lars-lars_clip=True"]


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
@pytest.mark.parametrize(
    "name", in_tiers((*REPRESENTATIVES, HALVES[1]), fast=HALVES, full=(*REPRESENTATIVES, *HALVES))
)
def test_half_types_give_nearly_the_same_and_wait_for_nothing(name, precision, device):
    config = CASES[name] | {"precision": precision}
    actual = device.call(take_steps, config, "cuda:0", 4, scored=True)
    expected = take_steps(CASES[name], "cpu", 4, scored=True)
    assert actual.row.keys() == expected.row.keys()
    assert all(map(math.isfinite, actual.row.values()))
    if name in HALVES:  # with others the rounding grows from step to step
        assert actual.row == pytest.approx(expected.row, rel=0.05, abs=0.02)
    assert actual.log.waits == Counter(WAITS)
    assert actual.log.draws == Counter()


def test_diagnostics_of_a_step_are_no_second_step(device):
    """The launches that a step of a scored epoch has beside another's."""
    name = "simclr-infonce-none-two"
    plain, scored = (
        device.call(take_steps, CASES[name], "cuda:0", 4, scored=scored).log.launches.total()
        for scored in (False, True)
    )
    assert 0 < (scored - plain) / 4 < 100


@pytest.mark.parametrize("optimizer", ["adam", "adamw", "lars"])
def test_every_optimiser_steps_without_a_wait(optimizer, device):
    parts = {"framework": "simclr", "loss": "dcl", "regularizer": "none", "views": "two"}
    config = small_config(parts, optimizer=optimizer)
    actual, expected = (
        device.call(take_steps, config, "cuda:0", scored=True),
        take_steps(config, "cpu", scored=True),
    )
    assert actual.row == pytest.approx(expected.row, rel=1e-4)
    torch.testing.assert_close(actual.weights, expected.weights, rtol=1e-3, atol=1e-4)
    assert actual.log.waits == Counter(WAITS)
