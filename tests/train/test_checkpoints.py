"""Checkpoints: which count, and when they are saved.

That every objective goes on bit for bit is a contract of its own, in
`tests/contracts/test_resuming.py`.
"""

from __future__ import annotations

import hashlib
import io
import random
import zipfile
from importlib import metadata
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from clsweep.train import checkpoints, loop
from clsweep.train.checkpoints import (
    identity_of,
    pack_checkpoint,
    unpack_checkpoint,
    unpack_unverified,
    verified,
)
from tests.contracts.attempts import MemoryStore, Row, assert_same, attempt
from tests.contracts.combinations import CASES, few_images

pytestmark = pytest.mark.usefixtures("one_thread", "few")

CONFIG = {**CASES["moco-dcl-dimcl-core"], "epochs": 3, "trial_id": "moco-0-0", "sampler": "grid"}


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
        (checkpoints, "_FORMAT", 0, False),
        (checkpoints, "VERSION", "0.0", False),
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
    payload = pack_checkpoint({"state": random.Random(0)}, b"")
    assert verified(payload, b"") == payload
    with pytest.raises(Exception, match=r"[Ww]eights"):
        unpack_checkpoint(payload)


# When.


@pytest.fixture
def clock(monkeypatch):
    """Time that passes only where it is told to, and by so much an epoch."""
    clock, train_epoch = SimpleNamespace(now=1000.0, epoch_s=0.0), loop.train_epoch

    def pass_s(seconds: float) -> None:
        clock.now += seconds

    def slow_epoch(*args: Any) -> Row:
        row = train_epoch(*args)
        pass_s(clock.epoch_s)
        return row

    clock.pass_s = pass_s
    monkeypatch.setattr(checkpoints, "monotonic", lambda: clock.now)
    monkeypatch.setattr(loop, "train_epoch", slow_epoch)
    return clock


@pytest.fixture
def saves(clock):
    """After which epochs a trial saves, whose epochs and checkpoints take so many seconds."""

    def run(*, epochs: int, every_s: float, epoch_s: float, save_s: float = 0.0) -> list[int]:
        clock.epoch_s = epoch_s
        store = MemoryStore(on_save=lambda _: clock.pass_s(save_s))
        config = {**CASES["simclr-dcl-none-two"], "epochs": epochs, "eval_every": epochs}
        attempt(config, store, every_s=every_s)
        return [unpack_checkpoint(payload)["state"]["epoch"] for payload in store.saved]

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
    clock.pass_s(1e6)  # nobody was at work
    attempt(CONFIG, store, kill_at=2)
    assert attempt(CONFIG, store).result["earlier_s"] == 14
