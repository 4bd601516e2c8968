"""Steps of every objective on a GPU: on one device, without a wait, with a CPU's numbers."""

from __future__ import annotations

from collections import Counter
from functools import cache

import pytest
import torch

from tests.contracts.combinations import CASES, PAIRS, REPRESENTATIVES, VARIANTS, in_tiers
from tests.pretended.steps import take_steps

pytestmark = pytest.mark.usefixtures("one_thread")

# What the host waits for in an epoch of steps, and why. A step has nothing of its own here.
WAITS = {
    ("tolist", "train/loop.py:train_epoch"): 1,  # the mean losses, after the last step
}
TIERS = in_tiers(CASES, fast=REPRESENTATIVES, full=(*REPRESENTATIVES, *PAIRS, *VARIANTS))


@pytest.fixture(scope="module")
def steps_of(device):
    """The steps of a case on the device, taken once for all tests."""
    return cache(lambda name: device.call(take_steps, CASES[name], "cuda:0", 3))


@pytest.mark.parametrize("name", TIERS)
def test_the_numbers_are_a_cpus(name, steps_of):
    actual, expected = steps_of(name), take_steps(CASES[name], "cpu", 3)
    assert actual.row == pytest.approx(expected.row, rel=1e-4)
    torch.testing.assert_close(actual.weights, expected.weights, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("name", TIERS)
def test_a_step_waits_for_nothing(name, steps_of):
    log = steps_of(name).log
    assert log.launches
    assert log.waits == Counter(WAITS)
    assert log.pageable == Counter()


@pytest.mark.parametrize("name", TIERS)
def test_nothing_is_drawn_on_the_device_nor_computed_in_float64(name, steps_of):
    log = steps_of(name).log
    assert log.draws == log.doubles == Counter()


@pytest.mark.parametrize("name", TIERS)
def test_two_steps_ask_for_the_same_of_the_device(name, steps_of):
    """What a CUDA graph has captured is run again as it was: same operations, shapes and numbers
    that the host gives. The first step is another one: it makes the views and the momenta.
    """
    _, second, third = steps_of(name).calls
    assert second == third
