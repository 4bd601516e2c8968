"""Checkpoints: which count, when they are saved, and what a trial tells that is stopped or that
goes on from one, or whose epoch is under way.

That every objective goes on bit for bit is a contract of its own, in
`tests/contracts/test_resuming.py`.
"""

from __future__ import annotations

import hashlib
import io
import math
import random
import zipfile
from dataclasses import replace
from importlib import metadata
from typing import Any

import pytest
import torch

from clsweep.data.found import DataPlace
from clsweep.train import attempt as attempts
from clsweep.train import loop, mutual_information
from clsweep.train.attempt import (
    CHECK_STEPS,
    Pulse,
    identity_of,
    pack,
    unpack,
    unpack_unverified,
    verified,
)
from clsweep.train.loop import train_trial
from clsweep.train.scores import DivergedError
from tests.contracts.attempts import MemoryStore, Row, assert_same, attempt, unmeasured
from tests.contracts.combinations import CASES, CRITIC, few_images

pytestmark = pytest.mark.usefixtures("one_thread")

CONFIG = {**CASES["moco-dcl-dimcl-core"], "epochs": 3, "trial_id": "moco-0-0", "sampler": "grid"}


@pytest.fixture(autouse=True)
def few(monkeypatch):
    monkeypatch.setattr(loop, "load_splits", few_images)
    monkeypatch.setattr(mutual_information, "STEPS_PER_EPOCH", 5)


def left_by(config: Row, *, kill_at: int) -> MemoryStore:
    """What an attempt leaves that is killed as it reports an epoch."""
    store = MemoryStore()
    attempt(config, store, kill_at=kill_at)
    return store


# From which epoch on.


def test_an_untrained_encoder_has_nothing_to_save():
    config, store = {**CONFIG, "epochs": 0}, MemoryStore(b"whatever")
    assert_same(attempt(config, store), attempt(config))
    assert store.saved == []


# Which checkpoint counts.


def damaged(payload: bytes, how: int) -> bytes:
    """Cut short at, or with one bit flipped in, a random place."""
    draw = random.Random(how)
    if how % 2:
        return payload[: draw.randrange(len(payload))]
    place = draw.randrange(len(payload))
    return payload[:place] + bytes([payload[place] ^ 1 << draw.randrange(8)]) + payload[place + 1 :]


@pytest.fixture(scope="module")
def saved():
    """The checkpoint of the second epoch."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "load_splits", few_images)
        return left_by(CONFIG, kill_at=2).saved[-1]


def test_a_damaged_checkpoint_is_noticed_wherever_it_is_damaged(saved):
    identity = identity_of(CONFIG)
    assert verified(saved, identity) == saved
    for broken in (b"", saved[:1], saved[:31], saved[:32], saved[:-1], saved + b"\0"):
        assert verified(broken, identity) is None
    for how in range(100):
        assert verified(damaged(saved, how), identity) is None


def test_from_a_checkpoint_that_does_not_count_a_trial_begins_again(saved):
    for config, payload in ((CONFIG, damaged(saved, 0)), (CONFIG | {"seed": 1}, saved)):
        last = attempt(config, MemoryStore(payload))
        assert last.result["num_resumes"] == 0
        assert_same(last, attempt(config))


def test_which_checkpoint_counts(saved, monkeypatch):
    """The numbers do not know what study, objective and sampler they belong to, nor torch's build;
    but every other value, and the versions.
    """

    def counts(**changes: Any) -> bool:
        return verified(saved, identity_of(CONFIG | changes)) is not None

    assert counts(trial_id="other-1-0", study="o", objective="o", config=1, sampler="qmc")
    numbers = {"seed": 1, "lr": 0.2, "epochs": 4, "knn_k": 4, "eval_every": 2, "precision": "bf16"}
    for name, value in numbers.items():
        assert not counts(**{name: value}), name
    build = metadata.version("torch").partition("+")[0] + "+another"
    for module, name, value, expected in (
        (attempts, "FORMAT", 0, False),
        (attempts, "VERSION", "0.0", False),
        (torch, "__version__", "1.0.0", False),
        (torch, "__version__", build, True),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(module, name, value)
            assert counts() == expected, name


def test_a_compressed_checkpoint_is_not_unpacked():
    """64 MB of zeros in some 64 kB."""
    plain, packed = io.BytesIO(), io.BytesIO()
    torch.save({"state": {"weight": torch.zeros(16_000_000)}}, plain)
    with (
        zipfile.ZipFile(plain) as source,
        zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as target,
    ):
        for name in source.namelist():
            target.writestr(name, source.read(name))
    body = packed.getvalue()
    assert len(body) < 100_000
    with pytest.raises(ValueError, match="it is compressed"):
        unpack_unverified(hashlib.sha256(body).digest() + body)


def test_nothing_but_tensors_and_plain_values_is_read():
    """Whoever can write to the folder cannot have code run by it."""
    payload = pack({"state": random.Random(0)}, b"")
    assert verified(payload, b"") == payload
    with pytest.raises(Exception, match=r"[Ww]eights"):
        unpack(payload)


# When.


class Clock:
    """Time that passes only where it is told to, and by so much an epoch."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.epoch_s, self.train_epoch = 1000.0, 0.0, loop.train_epoch
        monkeypatch.setattr(attempts, "monotonic", lambda: self.now)
        monkeypatch.setattr(loop, "train_epoch", self.slow_epoch)

    def slow_epoch(self, *args: Any) -> Row:
        row = self.train_epoch(*args)
        self.now += self.epoch_s
        return row

    def passes(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock(monkeypatch):
    return Clock(monkeypatch)


@pytest.fixture
def saves(clock):
    """After which epochs a trial saves, whose epochs and checkpoints take so many seconds."""

    def run(*, epochs: int, every_s: float, epoch_s: float, save_s: float = 0.0) -> list[int]:
        clock.epoch_s = epoch_s
        store = MemoryStore(on_save=lambda _: clock.passes(save_s))
        config = {**CASES["simclr-dcl-none-two"], "epochs": epochs, "eval_every": epochs}
        attempt(config, store, every_s=every_s)
        return [unpack(payload)["state"]["epoch"] for payload in store.saved]

    return run


def test_at_most_one_in_so_many_seconds_and_for_a_small_share_of_the_time(saves):
    """A save of 10 s: 200 s of training between two. Who asks for one after every epoch has them
    nevertheless.
    """
    assert saves(epochs=7, every_s=60, epoch_s=20) == saves(epochs=7, every_s=60, epoch_s=25)
    assert saves(epochs=7, every_s=60, epoch_s=25) == [3, 6]
    assert saves(epochs=3, every_s=60, epoch_s=60) == [1, 2]
    assert saves(epochs=2, every_s=60, epoch_s=10) == []
    assert saves(epochs=14, every_s=60, epoch_s=20, save_s=10) == [3, 13]
    assert saves(epochs=3, every_s=0, epoch_s=20, save_s=10) == [1, 2]


def test_the_time_of_earlier_attempts_is_known_up_to_their_checkpoint(clock):
    clock.epoch_s, store = 7, MemoryStore()
    assert attempt(CONFIG).result["earlier_s"] == 0
    attempt(CONFIG, store, kill_at=1)
    clock.passes(1e6)  # nobody was at work
    attempt(CONFIG, store, kill_at=2)
    assert attempt(CONFIG, store).result["earlier_s"] == 14


# Stopping.


@pytest.mark.parametrize("config", [CONFIG, CRITIC], ids=["encoder", "critic"])
def test_told_to_stop_a_trial_ends_with_that_epoch(config):
    """At its last one it is finished."""
    undisturbed, stopped = attempt(config), attempt(config, stop_at=2)
    assert unmeasured(stopped.rows) == unmeasured(undisturbed.rows[:2])
    result = stopped.result
    assert (result["status"], result["epochs_trained"]) == ("stopped", 2)
    assert result["num_images"] * 3 == undisturbed.result["num_images"] * 2
    names = set(stopped.rows[-1]) - {"epoch", "lr", "time_s", "images_per_s"}
    assert all(result[name] == stopped.rows[-1][name] for name in names)
    assert not {"linear_top1", "mi_estimate"} & {*result}
    assert_same(attempt(config, stop_at=3), undisturbed)


def test_only_false_stops():
    for answer in (None, True, 0, ""):
        result = train_trial(CRITIC, lambda _, answer=answer: answer)
        assert result["status"] == "finished"


# The test split.


@pytest.mark.parametrize("epochs", [0, 2])
def test_the_test_split_is_scored_with_the_same_yardstick(monkeypatch, epochs):
    """As a validation split it has the same scores; and it changes nothing else."""
    config = {**CASES["simclr-dcl-none-two"], "epochs": epochs}
    plain, scored = attempt(config), attempt(config, test=True)
    tests = {name: value for name, value in scored.result.items() if name.startswith("test_")}
    scored.result = {name: value for name, value in scored.result.items() if name not in tests}
    hits = scored.result["hits"]
    scored.result["hits"] = [row for row in hits if row["split"] == "validation"]
    assert_same(scored, plain)

    test = few_images(config, DataPlace()).test
    monkeypatch.setattr(loop, "load_splits", lambda *args: replace(few_images(*args), val=test))
    result = attempt(config).result
    assert [row for row in hits if row["split"] == "test"] == [
        {**row, "split": "test"} for row in result["hits"]
    ]
    metrics = [name.removeprefix("test_") for name in tests]
    assert {"knn_top1", "knn_top5", "linear_top1", "linear_top5"} <= {*metrics}
    assert tests == {f"test_{name}": result[name] for name in metrics}
    assert tests != {f"test_{name}": plain.result[name] for name in metrics}


# What is told while an epoch runs.

TOLD = {"epochs": 4, "batch_size": 8, "tau": 0.1}


def test_what_is_told_and_when(clock):
    heard = []
    pulse = Pulse(TOLD, heard.append)
    pulse.begin_epoch(2, 30)
    for step in range(1, 21):
        clock.passes(0.25)
        pulse.step(step, torch.tensor(3.0 * step))
    assert [state["step"] for state in heard] == [0, 8, 16], "the first one before any step"
    assert heard[2] == {
        "epoch": 2, "epochs": 4, "step": 16, "steps": 30, "loss": 3.0, "images_per_s": 8 * 8 / 2.0
    }  # fmt: skip


def test_the_pace_is_that_of_all_steps_without_the_scores(clock):
    heard = []
    pulse = Pulse(TOLD, heard.append)
    for epoch in (1, 2, 3):  # each shorter than what lies between two reports
        pulse.begin_epoch(epoch, 5)
        for step in range(1, 6):
            clock.passes(0.1 * epoch)
            pulse.step(step, torch.tensor(3.0 * step))
        with pulse.scoring():
            clock.passes(1.5)
    told = [state["images_per_s"] for state in heard if "images_per_s" in state]
    assert told
    # 5 steps of 0.1 s, 5 of 0.2 s, then some of 0.3 s
    possible = [8 * (10 + n) / (1.5 + 0.3 * n) for n in range(1, 6)]
    possible += [8 * (5 + n) / (0.5 + 0.2 * n) for n in range(1, 6)]
    assert all(any(abs(pace - each) < 1e-6 for each in possible) for pace in told)


def test_scores_are_said_where_they_may_take_long(clock):
    heard = []
    pulse = Pulse(TOLD, heard.append)
    for epoch, seconds in ((1, 0.1), (2, 3.0), (3, 0.1), (4, 0.1)):
        pulse.begin_epoch(epoch, 30)
        with pulse.scoring():
            clock.passes(seconds)
    said = [(state["epoch"], "scoring" in state) for state in heard]
    assert said == [
        (1, False),
        (1, True), (1, False),  # nothing is known of them yet
        (2, False),  # as long as the first, which were short
        (3, True), (3, False),
        (4, True),  # and what follows the last epoch
    ]  # fmt: skip


def test_a_loss_that_is_not_finite_is_seen_within_so_many_steps():
    """Before, nothing is read of the device."""
    pulse = Pulse(TOLD)
    pulse.begin_epoch(3, 1000)
    for step in range(1, CHECK_STEPS):
        pulse.step(step, torch.tensor(math.inf))
    with pytest.raises(DivergedError, match=r"in epoch 3, by step 50 of 1000; a smaller lr"):
        pulse.step(CHECK_STEPS, torch.tensor(math.inf))
