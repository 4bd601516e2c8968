"""Progress that a trial reports within an epoch, and a loss that is no longer finite."""

import math
from types import SimpleNamespace

import pytest
import torch

from clsweep.train import progress_reporter
from clsweep.train.finite import DivergedError
from clsweep.train.progress_reporter import CHECK_EVERY_STEPS, ProgressReporter

CONFIG = {"epochs": 4, "batch_size": 8, "tau": 0.1}


@pytest.fixture
def clock(monkeypatch):
    """Time that passes only where it is told to."""
    clock = SimpleNamespace(now_s=1000.0)
    monkeypatch.setattr(progress_reporter, "monotonic", lambda: clock.now_s)
    return clock


def test_what_is_told_and_when(clock):
    states = []
    reporter = ProgressReporter(CONFIG, states.append)
    reporter.begin_epoch(2, 30)
    for step in range(1, 21):
        clock.now_s += 0.25
        reporter.step(step, torch.tensor(3.0 * step))
    assert [state["step"] for state in states] == [0, 8, 16], "the first one before any step"
    assert states[2] == {
        "epoch": 2, "epochs": 4, "step": 16, "steps": 30, "loss": 3.0, "images_per_s": 8 * 8 / 2.0
    }  # fmt: skip


def test_the_pace_is_that_of_all_steps_without_the_scores(clock):
    states = []
    reporter = ProgressReporter(CONFIG, states.append)
    for epoch in (1, 2, 3):  # each shorter than what lies between two reports
        reporter.begin_epoch(epoch, 5)
        for step in range(1, 6):
            clock.now_s += 0.1 * epoch
            reporter.step(step, torch.tensor(3.0 * step))
        with reporter.scoring():
            clock.now_s += 1.5
    paces = [state["images_per_s"] for state in states if "images_per_s" in state]
    assert paces
    # 5 steps of 0.1 s, 5 of 0.2 s, then some of 0.3 s
    possible = [8 * (10 + n) / (1.5 + 0.3 * n) for n in range(1, 6)]
    possible += [8 * (5 + n) / (0.5 + 0.2 * n) for n in range(1, 6)]
    assert all(any(abs(pace - each) < 1e-6 for each in possible) for pace in paces)


def test_scores_are_said_where_they_may_take_long(clock):
    states = []
    reporter = ProgressReporter(CONFIG, states.append)
    for epoch, seconds in ((1, 0.1), (2, 3.0), (3, 0.1), (4, 0.1)):
        reporter.begin_epoch(epoch, 30)
        with reporter.scoring():
            clock.now_s += seconds
    is_scoring = [(state["epoch"], "scoring" in state) for state in states]
    assert is_scoring == [
        (1, False),
        (1, True), (1, False),  # nothing is known of them yet
        (2, False),  # as long as the first, which were short
        (3, True), (3, False),
        (4, True),  # and what follows the last epoch
    ]  # fmt: skip


def test_a_loss_that_is_not_finite_is_seen_within_so_many_steps():
    """Before, nothing is read of the device."""
    reporter = ProgressReporter(CONFIG)
    reporter.begin_epoch(3, 1000)
    for step in range(1, CHECK_EVERY_STEPS):
        reporter.step(step, torch.tensor(math.inf))
    with pytest.raises(DivergedError, match=r"in epoch 3, by step 50 of 1000; a smaller lr"):
        reporter.step(CHECK_EVERY_STEPS, torch.tensor(math.inf))
