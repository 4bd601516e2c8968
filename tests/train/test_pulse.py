"""A trial's pulse: what is told while an epoch runs; a loss that is not finite is seen early."""

import math

import pytest
import torch

from clsweep.train import attempt as module
from clsweep.train.attempt import CHECK_STEPS, Pulse
from clsweep.train.loop import train_epoch
from clsweep.train.scores import DivergedError
from clsweep.train.state import new_state
from tests.contracts.combinations import small_config, some_digits

CONFIG = {"epochs": 4, "batch_size": 8, "tau": 0.1}


@pytest.fixture
def clock(monkeypatch):
    """A clock that a test sets."""
    now = [100.0]
    monkeypatch.setattr(module, "monotonic", lambda: now[0])
    return now


def test_what_is_told_and_when(clock):
    heard = []
    pulse = Pulse(CONFIG, heard.append)
    pulse.begin_epoch(2, 30)
    for step in range(1, 21):
        clock[0] += 0.25
        pulse.step(step, torch.tensor(3.0 * step))
    assert [state["step"] for state in heard] == [0, 8, 16], "the first one before any step"
    assert heard[2] == {
        "epoch": 2, "epochs": 4, "step": 16, "steps": 30, "loss": 3.0, "images_per_s": 8 * 8 / 2.0
    }  # fmt: skip


def test_the_pace_is_that_of_all_steps_without_the_scores(clock):
    heard = []
    pulse = Pulse(CONFIG, heard.append)
    for epoch in (1, 2, 3):  # each shorter than what lies between two reports
        pulse.begin_epoch(epoch, 5)
        for step in range(1, 6):
            clock[0] += 0.1 * epoch
            pulse.step(step, torch.tensor(3.0 * step))
        with pulse.scoring():
            clock[0] += 1.5
    told = [state["images_per_s"] for state in heard if "images_per_s" in state]
    assert told
    # 5 steps of 0.1 s, 5 of 0.2 s, then some of 0.3 s
    possible = [8 * (10 + n) / (1.5 + 0.3 * n) for n in range(1, 6)]
    possible += [8 * (5 + n) / (0.5 + 0.2 * n) for n in range(1, 6)]
    assert all(any(abs(pace - each) < 1e-6 for each in possible) for pace in told)


def test_scores_are_said_where_they_may_take_long(clock):
    heard = []
    pulse = Pulse(CONFIG, heard.append)
    for epoch, seconds in ((1, 0.1), (2, 3.0), (3, 0.1), (4, 0.1)):
        pulse.begin_epoch(epoch, 30)
        with pulse.scoring():
            clock[0] += seconds
    said = [(state["epoch"], "scoring" in state) for state in heard]
    assert said == [
        (1, False),
        (1, True), (1, False),  # nothing is known of them yet
        (2, False),  # as long as the first, which were short
        (3, True), (3, False),
        (4, True),  # and what follows the last epoch
    ]  # fmt: skip


def test_nothing_is_read_of_the_device_between_checks():
    class Unread:
        def item(self):
            raise AssertionError("read")

    pulse = Pulse(CONFIG)
    pulse.begin_epoch(1, 1000)
    for step in range(1, CHECK_STEPS):
        pulse.step(step, Unread())
    with pytest.raises(AssertionError, match="read"):
        pulse.step(CHECK_STEPS, Unread())


def test_a_loss_that_is_not_finite_is_seen_within_so_many_steps():
    pulse = Pulse(CONFIG)
    pulse.begin_epoch(3, 1000)
    for step in range(1, CHECK_STEPS):
        pulse.step(step, torch.tensor(math.inf))
    with pytest.raises(DivergedError, match=r"in epoch 3, by step 50 of 1000; a smaller lr"):
        pulse.step(CHECK_STEPS, torch.tensor(math.inf))


def test_telling_changes_no_number(monkeypatch):
    monkeypatch.setattr(module, "TELL_S", 0.0)
    parts = {"framework": "simclr", "loss": "infonce", "regularizer": "none", "views": "two"}
    config, heard = small_config(parts), []
    rows = []
    for pulse in (None, Pulse(config, heard.append)):
        state = new_state(config, torch.device("cpu"))
        rows.append(train_epoch(state, state.objective, some_digits(20), config, pulse=pulse))
    assert rows[0] == rows[1]
    assert [state["step"] for state in heard] == [*range(heard[-1]["steps"] + 1)]
    assert heard[-1]["loss"] == pytest.approx(rows[0]["train_loss"])
