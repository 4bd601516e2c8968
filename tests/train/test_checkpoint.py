"""Checkpoints: which count, when they are saved, and what a trial tells that is stopped or that
goes on from one.

That every objective goes on bit for bit is a contract of its own, in
`tests/contracts/test_resuming.py`.
"""

from __future__ import annotations

import hashlib
import io
import random
import zipfile
from collections.abc import Callable
from dataclasses import replace
from importlib import metadata
from typing import Any

import pytest
import torch

from clsweep.train import attempt as attempts
from clsweep.train import loop, mutual_information
from clsweep.train import state as states
from clsweep.train.attempt import identity_of, pack, unpack, unpack_unverified, verified
from clsweep.train.loop import train_trial
from tests.conftest import Pretend
from tests.contracts.attempts import (
    Killed,
    MemoryStore,
    Row,
    assert_same,
    attempt,
    chain,
    unmeasured,
)
from tests.contracts.combinations import CASES, combinations, few_images, small_config

pytestmark = pytest.mark.usefixtures("one_thread")

CONFIG = {**CASES["moco-dcl-dimcl-core"], "epochs": 3, "trial_id": "moco-0-0", "sampler": "grid"}
CRITIC = small_config(
    combinations("gaussian_mi")["mi_critic-eqco-none-two"],
    dataset="gaussian_mi", epochs=3, critic_hidden=8, critic_dim=4, estimate_batches=5,
)  # fmt: skip


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "load_splits", few_images)
    monkeypatch.setattr(mutual_information, "STEPS_PER_EPOCH", 5)


def left_by(config: Row, *, kill_at: int) -> MemoryStore:
    """What an attempt leaves that is killed as it reports an epoch."""
    store = MemoryStore()
    attempt(config, store, kill_at=kill_at)
    return store


# From which epoch on.


@pytest.mark.parametrize("epoch", [1, 2, 3])
def test_killed_at_any_epoch_a_critic_ends_undisturbed(epoch: int) -> None:
    store = left_by(CRITIC, kill_at=epoch)
    assert len(store.saved) == min(epoch, 2), (
        "none after the last epoch: nothing is left to go on with"
    )
    last = attempt(CRITIC, store)
    assert_same(last, attempt(CRITIC))
    assert (last.result["status"], last.result["epochs_trained"], last.result["num_resumes"]) == (
        "finished",
        3,
        1,
    )


@pytest.mark.parametrize(
    "config", [{**CONFIG, "tsne_points": 20}, CRITIC], ids=["encoder", "critic"]
)
def test_from_a_checkpoint_of_the_end_nothing_is_trained_again(config: Row) -> None:
    store = MemoryStore()
    attempt(config, store, kill_at=3, keep_end=True)
    assert len(store.saved) == 3
    last = attempt(config, store, keep_end=True)
    assert len(store.saved) == 3
    assert_same(last, attempt(config))
    assert last.result["num_resumes"] == 1
    assert (config is CRITIC) or len(last.result["points"]) == 20


@pytest.mark.parametrize("config", [CONFIG, CRITIC], ids=["encoder", "critic"])
@pytest.mark.parametrize("epoch", [1, 2])
def test_killed_while_it_saves_a_trial_goes_on_from_the_checkpoint_before(
    config: Row, epoch: int
) -> None:
    store = MemoryStore()

    def kill(_: bytes) -> None:
        if len(store.saved) == epoch - 1:
            raise Killed

    store.on_save = kill
    assert [row["epoch"] for row in attempt(config, store).rows] == list(range(1, epoch))
    store.on_save = None
    last = attempt(config, store)
    assert last.result["num_resumes"] == (1 if epoch > 1 else 0)
    assert_same(last, attempt(config))


def test_resumed_again_and_again() -> None:
    """Killed before it has trained anything further, as often as you like."""
    store = left_by(CONFIG, kill_at=1)
    for _ in range(3):
        assert [row["epoch"] for row in attempt(CONFIG, store, kill_at=1).rows] == [1]
    assert len(store.saved) == 1
    assert_same(attempt(CONFIG, store), attempt(CONFIG))


def test_the_rows_before_are_reported_again_as_they_were() -> None:
    first, last = chain(CONFIG, kills=[2])
    assert last.rows[:2] == first.rows, "times included"
    assert [row["epoch"] for row in last.rows] == [1, 2, 3]
    total_s = sum(row["time_s"] for row in last.rows)
    assert last.result["images_per_s"] == pytest.approx(last.result["num_images"] / total_s)


def test_no_generator_but_the_trials_own_is_used_or_moved() -> None:
    expected, store = attempt(CONFIG), MemoryStore()
    for number, epoch in enumerate((1, 2, None)):
        torch.manual_seed(number), random.seed(number)
        before = torch.get_rng_state()
        last = attempt(CONFIG, store, kill_at=epoch)
        assert torch.equal(torch.get_rng_state(), before)
    assert_same(last, expected)


def test_the_scale_of_the_loss_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """That of fp16, here on a CPU: it doubles every third step, and an epoch has two."""

    def scaler(_: states.Precision) -> torch.amp.GradScaler:
        return torch.amp.GradScaler("cpu", init_scale=16.0, growth_interval=3)

    monkeypatch.setattr(states.Precision, "scaler", scaler)
    undisturbed, resumed = MemoryStore(), left_by(CONFIG, kill_at=1)
    attempt(CONFIG, undisturbed)
    attempt(CONFIG, resumed)
    scales = [unpack(store.saved[1])["state"]["scaler"] for store in (undisturbed, resumed)]
    assert scales[0] == scales[1]
    assert (scales[0]["scale"], scales[0]["_growth_tracker"]) == (32.0, 1)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")
@pytest.mark.parametrize("name", ["fp32", "bf16", "fp16"])
@pytest.mark.parametrize("begun_on", ["cpu", "cuda"])
def test_a_gpu_goes_on(name: str, begun_on: str) -> None:
    """Also from where a CPU has left a trial, up to rounding."""
    if (name, begun_on) == ("fp16", "cpu"):
        pytest.skip("fp16 needs a GPU")
    config, store = {**CONFIG, "precision": name}, MemoryStore()
    attempt(config, store, kill_at=2, device=begun_on)
    expected, last = attempt(config, device="cuda"), attempt(config, store, device="cuda")
    assert last.result["num_resumes"] == 1
    losses = [row["train_loss"] for row in last.rows]
    assert losses == pytest.approx([row["train_loss"] for row in expected.rows], rel=0.02)


def test_an_untrained_encoder_has_nothing_to_save() -> None:
    config, store = {**CONFIG, "epochs": 0}, MemoryStore(b"whatever")
    assert_same(attempt(config, store), attempt(config))
    assert store.saved == []


def test_without_a_store_nothing_is_asked_of_anyone() -> None:
    assert_same(attempt(CONFIG, MemoryStore()), attempt(CONFIG, None))


# Which checkpoint counts.


def damaged(payload: bytes, how: int) -> bytes:
    """Cut short at, or with one bit flipped in, a random place."""
    draw = random.Random(how)
    if how % 2:
        return payload[: draw.randrange(len(payload))]
    place = draw.randrange(len(payload))
    return payload[:place] + bytes([payload[place] ^ 1 << draw.randrange(8)]) + payload[place + 1 :]


@pytest.fixture(scope="module")
def saved() -> bytes:
    """The checkpoint of the second epoch."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "load_splits", few_images)
        return left_by(CONFIG, kill_at=2).saved[-1]


def test_a_damaged_checkpoint_is_noticed_wherever_it_is_damaged(saved: bytes) -> None:
    identity = identity_of(CONFIG)
    assert verified(saved, identity) == saved
    for broken in (b"", saved[:1], saved[:31], saved[:32], saved[:-1], saved + b"\0"):
        assert verified(broken, identity) is None
    for how in range(200):
        assert verified(damaged(saved, how), identity) is None


@pytest.mark.parametrize("how", range(4))
def test_from_a_damaged_checkpoint_a_trial_begins_again(saved: bytes, how: int) -> None:
    last = attempt(CONFIG, MemoryStore(damaged(saved, how)))
    assert last.result["num_resumes"] == 0
    assert_same(last, attempt(CONFIG))


@pytest.mark.parametrize(
    "changes",
    [
        {"seed": 1},
        {"lr": 0.2},
        {"epochs": 4},
        {"knn_k": 4},
        {"eval_every": 2},
        {"precision": "bf16"},
    ],
    ids=str,
)
def test_a_checkpoint_of_another_configuration_counts_as_none(saved: bytes, changes: Row) -> None:
    config = CONFIG | changes
    last = attempt(config, MemoryStore(saved))
    assert last.result["num_resumes"] == 0
    assert_same(last, attempt(config))


def test_a_trial_of_another_name_is_the_same_trial(saved: bytes) -> None:
    """The numbers do not know what study, objective and sampler they belong to."""
    config = CONFIG | {
        "trial_id": "other-1-0",
        "study": "other",
        "objective": "other",
        "config": 1,
        "sampler": "qmc",
    }
    assert attempt(config, MemoryStore(saved)).result["num_resumes"] == 1


@pytest.mark.parametrize("begins_with_amx", [False, True])
def test_a_checkpoint_counts_on_another_cpu(pretend_amx: Pretend, begins_with_amx: bool) -> None:
    pretend_amx(begins_with_amx)
    store = left_by(CONFIG, kill_at=2)
    pretend_amx(not begins_with_amx)
    last = attempt(CONFIG, store)
    assert (last.result["precision"], last.result["num_resumes"]) == ("fp32", 1)
    assert_same(last, attempt(CONFIG))


@pytest.mark.parametrize(
    ("module", "name", "value"),
    [
        (attempts, "FORMAT", 0),
        (attempts, "VERSION", "0.0"),
        (torch, "__version__", "1.0.0"),
    ],
)
def test_other_versions_begin_again(
    saved: bytes, monkeypatch: pytest.MonkeyPatch, module: Any, name: str, value: Any
) -> None:
    monkeypatch.setattr(module, name, value)
    assert attempt(CONFIG, MemoryStore(saved)).result["num_resumes"] == 0


def test_the_build_of_torch_does_not_matter(saved: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        torch, "__version__", metadata.version("torch").partition("+")[0] + "+another"
    )
    assert attempt(CONFIG, MemoryStore(saved)).result["num_resumes"] == 1


def test_a_compressed_checkpoint_is_not_unpacked() -> None:
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


def test_nothing_but_tensors_and_plain_values_is_read() -> None:
    """Whoever can write to the folder cannot have code run by it."""
    payload = pack({"state": random.Random(0)}, b"")
    assert verified(payload, b"") == payload
    with pytest.raises(Exception, match=r"[Ww]eights"):
        unpack(payload)


# When.


class Clock:
    """Time that passes only where it is told to."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def saves(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[int]]:
    """After which epochs a trial saves, whose epochs and checkpoints take so many seconds."""
    clock = Clock()
    monkeypatch.setattr(attempts, "monotonic", clock)

    def run(*, epochs: int, every_s: float, epoch_s: float, save_s: float = 0.0) -> list[int]:
        train_epoch = loop.train_epoch

        def slow_epoch(*args: Any) -> Row:
            row = train_epoch(*args)
            clock.now += epoch_s
            return row

        def slow_save(_: bytes) -> None:
            clock.now += save_s

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(loop, "train_epoch", slow_epoch)
            store = MemoryStore(on_save=slow_save)
            config = {**CASES["simclr-dcl-none-two"], "epochs": epochs, "eval_every": epochs}
            attempt(config, store, every_s=every_s)
        return [unpack(payload)["state"]["epoch"] for payload in store.saved]

    return run


def test_at_most_one_in_so_many_seconds(saves: Callable[..., list[int]]) -> None:
    assert saves(epochs=8, every_s=60, epoch_s=20) == [3, 6]
    assert saves(epochs=8, every_s=60, epoch_s=25) == [3, 6]
    assert saves(epochs=4, every_s=60, epoch_s=60) == [1, 2, 3]
    assert saves(epochs=4, every_s=60, epoch_s=10) == []
    assert saves(epochs=4, every_s=0, epoch_s=0) == [1, 2, 3]


def test_saving_takes_its_small_share_of_the_time(saves: Callable[..., list[int]]) -> None:
    """10 s each: 200 s of training between two. Who asks for one after every epoch has them
    nevertheless.
    """
    assert saves(epochs=50, every_s=60, epoch_s=20, save_s=10) == [3, 13, 23, 33, 43]
    assert saves(epochs=4, every_s=0, epoch_s=20, save_s=10) == [1, 2, 3]


def test_the_time_of_earlier_attempts_is_known_up_to_their_checkpoint(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock, store = Clock(), MemoryStore()
    monkeypatch.setattr(attempts, "monotonic", clock)
    train_epoch = loop.train_epoch

    def slow_epoch(*args: Any) -> Row:
        clock.now += 7
        return train_epoch(*args)

    monkeypatch.setattr(loop, "train_epoch", slow_epoch)
    assert attempt(CONFIG).result["earlier_s"] == 0
    attempt(CONFIG, store, kill_at=1)
    clock.now += 1e6  # nobody was at work
    attempt(CONFIG, store, kill_at=2)
    assert attempt(CONFIG, store).result["earlier_s"] == 14


# Stopping.


@pytest.mark.parametrize("config", [CONFIG, CRITIC], ids=["encoder", "critic"])
@pytest.mark.parametrize("epoch", [1, 2])
def test_told_to_stop_a_trial_ends_with_that_epoch(config: Row, epoch: int) -> None:
    undisturbed, stopped = attempt(config), attempt(config, stop_at=epoch)
    assert unmeasured(stopped.rows) == unmeasured(undisturbed.rows[:epoch])
    result = stopped.result
    assert (result["status"], result["epochs_trained"]) == ("stopped", epoch)
    assert result["num_images"] * 3 == undisturbed.result["num_images"] * epoch
    names = set(stopped.rows[-1]) - {"epoch", "lr", "time_s", "images_per_s"}
    assert {name: result[name] for name in names} == {
        name: stopped.rows[-1][name] for name in names
    }
    assert "linear_top1" not in result
    assert "mi_estimate" not in result


def test_a_stopped_trials_encoder_and_histograms_are_those_of_that_epoch() -> None:
    config = {**CASES["simclr-dcl-none-two"], "epochs": 3, "tsne_points": 12}
    state = unpack(left_by(config, kill_at=2).saved[-1])["state"]["objective"]
    result = attempt(config, stop_at=2).result
    assert {bar["epoch"] for bar in result["histograms"]} == {1, 2}
    assert result["points"] == []
    assert all(torch.equal(x, state[f"encoder.{name}"]) for name, x in result["encoder"].items())


def test_stopped_at_an_epoch_without_scores() -> None:
    result = attempt({**CONFIG, "eval_every": 3}, stop_at=1).result
    assert (result["status"], result["epochs_trained"]) == ("stopped", 1)
    assert "knn_top1" not in result


def test_only_false_stops() -> None:
    for answer in (None, True, 0, ""):
        assert train_trial(CONFIG, lambda _, answer=answer: answer)["status"] == "finished"


def test_an_earlier_epoch_that_would_be_judged_otherwise_by_now_stops_nothing() -> None:
    """As where a configuration is stopped at an epoch from which this seed of it has long gone
    on.
    """
    store = left_by({**CONFIG, "epochs": 4}, kill_at=2)
    again = attempt({**CONFIG, "epochs": 4}, store, stop_at=1)
    assert_same(again, attempt({**CONFIG, "epochs": 4}))


def test_told_to_stop_at_its_last_epoch_a_trial_is_finished() -> None:
    assert_same(attempt(CONFIG, stop_at=3), attempt(CONFIG))


@pytest.mark.parametrize("config", [CONFIG, CRITIC], ids=["encoder", "critic"])
def test_killed_after_it_was_told_to_stop_a_trial_stops_there_again(config: Row) -> None:
    """The checkpoint of that epoch is there and the trial's own row is not: nothing further is
    trained.
    """
    store = left_by(config, kill_at=2)
    again = attempt(config, store, stop_at=2)
    assert len(store.saved) == 2
    assert_same(again, attempt(config, stop_at=2))


# The test split.


@pytest.mark.parametrize("epochs", [0, 2])
def test_the_test_split_is_scored_with_the_same_yardstick(
    monkeypatch: pytest.MonkeyPatch, epochs: int
) -> None:
    """As a validation split it has the same scores; and it changes nothing else."""
    config = {**CASES["simclr-dcl-none-two"], "epochs": epochs}
    plain, scored = attempt(config), attempt(config, test=True)
    tests = {name: value for name, value in scored.result.items() if name.startswith("test_")}
    scored.result = {name: value for name, value in scored.result.items() if name not in tests}
    assert_same(scored, plain)

    def swapped(*args: Any) -> Any:
        splits = few_images(*args)
        return replace(splits, val=splits.test)

    monkeypatch.setattr(loop, "load_splits", swapped)
    result = attempt(config).result
    metrics = [name.removeprefix("test_") for name in tests]
    assert {"knn_top1", "knn_top5", "linear_top1", "linear_top5"} <= {*metrics}
    assert tests == {f"test_{name}": result[name] for name in metrics}
    assert tests != {f"test_{name}": plain.result[name] for name in metrics}


def test_a_trial_that_is_scored_on_the_test_split_scores_it_once() -> None:
    config = {**CONFIG, "val_fraction": None}
    plain, asked = attempt(config).result, attempt(config, test=True).result
    assert {name for name in asked if name.startswith("test_")} == set()
    assert asked["knn_top1"] == plain["knn_top1"]


def test_the_test_scores_of_a_resumed_and_of_a_stopped_trial() -> None:
    assert_same(chain(CONFIG, kills=[1], test=True)[-1], attempt(CONFIG, test=True))
    stopped = attempt(CONFIG, stop_at=1, test=True).result
    tests = {name.removeprefix("test_") for name in stopped if name.startswith("test_")}
    without_labels = {"alignment", "uniformity", "rankme", "alpha_req"}
    assert tests == {"knn_top1", "knn_top5"} | without_labels


def test_pairs_of_vectors_have_no_test_split() -> None:
    assert not any(name.startswith("test_") for name in attempt(CRITIC, test=True).result)
