"""A trial that is killed and started again ends as if nothing had happened, bit for bit: whatever
its objective, after any epoch, cut at any step of one, and while it saves.

Here nothing but the checkpoint's bytes survives, in one process. `test_kills.py` kills processes;
`tests/pretended/test_trials.py` has the same contract on a GPU.
"""

from __future__ import annotations

import copy
from itertools import pairwise
from typing import Any

import pytest
import torch
import torch.distributed as dist

from clsweep.catalog import OBJECTIVE_PARTS
from clsweep.train import checkpoints as attempts
from clsweep.train import images, loop, mutual_information, progress_reporter, state
from clsweep.train.checkpoints import unpack_checkpoint
from clsweep.train.collectives import of_first, rank
from clsweep.train.images import batches
from clsweep.train.save_request import SaveRequest
from tests.contracts.attempts import Attempt, Killed, MemoryStore, Row, assert_same, attempt, chain
from tests.contracts.combinations import (
    BATCH,
    CASES,
    CRITIC,
    PAIRS,
    REPRESENTATIVES,
    VARIANTS,
    Config,
    few_images,
    small_config,
    some_digits,
)
from tests.tiers import in_tiers

pytestmark = pytest.mark.usefixtures("one_thread")

CPU = torch.device("cpu")
MESSAGES = [b"\x00\xff", b"", None, True, False]
EPOCHS = 3


def changed(name: str, **changes: Any) -> Config:
    parts = {part: CASES[name][part] for part in OBJECTIVE_PARTS}
    return small_config(parts, **{"epochs": EPOCHS} | changes)


# What else keeps something from step to step, or counts epochs.
CHANGES: dict[str, Config] = {
    "lars": {"optimizer": "lars"},
    "adamw": {"optimizer": "adamw"},
    "chunked": {"chunk_size": BATCH // 2},
    "bf16": {"precision": "bf16"},
    "warm-up": {"warmup_epochs": 2},
    "augmented": {"augmentation": "gaussian_noise, mixup"},
    "every-second": {"eval_every": 2, "tsne_points": 12},
}
FIRST, SECOND = "moco-dcl-dimcl-core", "byol-cosine-dimcl-all_pairs-num_views=3"
TOGETHER = (FIRST, SECOND, "nnclr-infonce-barlow-two")
CHANGED, CHANGED_TOO = (
    {f"{name}-{what}": changed(name, **changes) for what, changes in CHANGES.items()}
    for name in (FIRST, SECOND)
)
FREEZING = {
    f"{framework}-frozen": changed(f"{framework}-soft_cross_entropy-none-two", **more)
    for framework, more in (
        ("swav", {"freeze_epochs": 2, "optimizer": "sgd", "swav_queue_start": 1}),
        ("dino", {"freeze_epochs": 2, "optimizer": "adamw"}),
    )
}
SCHEDULES = {"weight_decay_schedule": "cosine", "tau_schedule": "cosine", "tau_period": 2}
SCHEDULED = {
    f"{FIRST}-scheduled": changed(FIRST, lr_schedule="wsd", lr_decay_share=0.5, **SCHEDULES)
}
RUNS = {
    **CASES,
    FIRST: changed(FIRST),
    **CHANGED,
    **CHANGED_TOO,
    **FREEZING,
    **SCHEDULED,
    "critic": CRITIC,
}
FAST = (*REPRESENTATIVES, *CHANGED, *FREEZING, *SCHEDULED, "critic")


@pytest.fixture(autouse=True)
def few(monkeypatch):
    monkeypatch.setattr(loop, "load_splits", few_images)
    monkeypatch.setattr(mutual_information, "STEPS_PER_EPOCH", 5)


@pytest.mark.parametrize("name", in_tiers(RUNS, fast=FAST, full=(*PAIRS, *VARIANTS, *CHANGED_TOO)))
def test_killed_after_every_epoch_a_trial_ends_undisturbed(name):
    """Each attempt reports the rows of the one before again, times included, before it trains."""
    expected, kills = attempt(RUNS[name]), range(1, RUNS[name]["epochs"])
    attempts = chain(RUNS[name], kills=[*kills])
    for before, after in pairwise(attempts):
        assert after.rows[: len(before.rows)] == before.rows
        assert len(after.rows) > len(before.rows)
    assert (attempts[-1].result["num_resumes"], expected.result["num_resumes"]) == (len(kills), 0)
    assert_same(attempts[-1], expected)


def test_the_comparison_could_fail():
    expected, other = (
        attempt({**RUNS["simclr-align_uniform-none-two"], "seed": seed}) for seed in (0, 1)
    )
    for actual in (
        other,
        Attempt(expected.rows, expected.result | {"encoder": other.result["encoder"]}),
        Attempt(expected.rows, expected.result | {"knn_top1": other.result["knn_top1"] + 1}),
    ):
        with pytest.raises(AssertionError):
            assert_same(actual, expected)


@pytest.mark.parametrize("name", [FIRST, "critic"])
def test_from_a_checkpoint_of_the_end_nothing_is_trained_again(name):
    config, store = RUNS[name] | ({"tsne_points": 20} if name == FIRST else {}), MemoryStore()
    attempt(config, store, kill_at=3, keep_end=True)
    assert len(store.saved) == 3
    last = attempt(config, store, keep_end=True)
    assert len(store.saved) == 3
    assert_same(last, attempt(config))
    assert last.result["num_resumes"] == 1
    assert len(last.result.get("points", ())) == config.get("tsne_points", 0)


@pytest.mark.parametrize("name", [FIRST, "critic"])
def test_killed_after_it_was_to_stop_a_trial_stops_there_again(name):
    """The checkpoint of that epoch is there and the trial's own row is not: nothing further is
    trained.
    """
    store = MemoryStore()
    attempt(RUNS[name], store, kill_at=2)
    again = attempt(RUNS[name], store, stop_at=2)
    assert len(store.saved) == 2
    assert_same(again, attempt(RUNS[name], stop_at=2))


@pytest.mark.parametrize("epoch", [1, 2])
def test_killed_while_it_saves_a_trial_goes_on_from_the_checkpoint_before(epoch):
    store = MemoryStore()

    def kill(_: bytes) -> None:
        if len(store.saved) == epoch - 1:
            raise Killed

    store.on_save = kill
    assert [row["epoch"] for row in attempt(RUNS[FIRST], store).rows] == list(range(1, epoch))
    store.on_save = None
    last = attempt(RUNS[FIRST], store)
    assert last.result["num_resumes"] == (1 if epoch > 1 else 0)
    assert_same(last, attempt(RUNS[FIRST]))


def test_the_scale_of_the_loss_goes_on(monkeypatch):
    """That of fp16, here on a CPU: it doubles every third step, and an epoch has two."""
    scaler = torch.amp.GradScaler("cpu", init_scale=16.0, growth_interval=3)
    monkeypatch.setattr(state.Precision, "scaler", lambda _: copy.deepcopy(scaler))
    undisturbed, resumed = MemoryStore(), MemoryStore()
    attempt(RUNS[FIRST], undisturbed)
    for kill_at in (1, None):
        attempt(RUNS[FIRST], resumed, kill_at=kill_at)
    scales = [
        unpack_checkpoint(store.saved[1])["state"]["scaler"] for store in (undisturbed, resumed)
    ]
    assert scales[0] == scales[1]
    assert (scales[0]["scale"], scales[0]["_growth_tracker"]) == (32.0, 1)


# Within an epoch.

FEW, LAST = 8, 5  # images a batch, and so many steps an epoch
PLAIN = "simclr-dcl-none-two"


def several_steps(name: str, **changes: Any) -> Config:
    return changed(name, **{"epochs": 2, "batch_size": FEW, "chunk_size": FEW} | changes)


CUT = {
    **{name: several_steps(name) for name in (*TOGETHER, PLAIN)},
    "multi-crop": several_steps(
        next(n for n in CASES if n.startswith("swav") and n.endswith("multicrop"))
    ),
    "chunked": several_steps(FIRST, chunk_size=FEW // 2),
    "bf16": several_steps(FIRST, precision="bf16"),
    "critic": CRITIC | {"epochs": 2},
}


@pytest.fixture
def told_often(monkeypatch):
    monkeypatch.setattr(progress_reporter, "REPORT_EVERY_S", 0.0)


def saving(
    config: Config, store: MemoryStore, at: tuple[int, int], notice: SaveRequest | None = None
) -> Attempt:
    """An attempt that is asked for a checkpoint at a step of an epoch."""
    notice = notice or SaveRequest()

    def tell(state: Row) -> None:
        if (state["epoch"], state["step"]) == at:
            notice.give()

    return attempt(config, store, every_s=1e9, tell=tell, notice=notice)


def cut(config: Config, store: MemoryStore, at: tuple[int, int]) -> Attempt:
    """It is killed with it."""

    def kill() -> None:
        raise Killed

    return saving(config, store, at, SaveRequest(kill))


@pytest.mark.usefixtures("told_often")
@pytest.mark.parametrize("name", CUT)
def test_cut_at_steps_a_trial_ends_undisturbed(name):
    config, store = CUT[name], MemoryStore()
    places = [(1, 1), (1, LAST - 1), (2, 2), (2, LAST)]
    for number, at in enumerate(places, start=1):
        assert len(cut(config, store, at).rows) == at[0] - 1
        assert len(store.saved) == number
    final = attempt(config, store, every_s=1e9)
    assert final.result["num_resumes"] == len(places)
    assert_same(final, attempt(config))


@pytest.mark.parametrize("together", [2, 6])
@pytest.mark.parametrize("first", [1, 5, 6, 10])
def test_batches_from_any_on_are_those_of_the_whole_epoch(monkeypatch, first, together):
    """Across blocks of draws, within groups of views, and none at the end."""
    monkeypatch.setattr(images, "DRAWN_AT_ONCE", 3 * FEW)
    monkeypatch.setattr(images, "MADE_AT_ONCE", together * FEW)
    config, split = CUT[PLAIN], some_digits(10 * FEW)
    generators = [torch.Generator().manual_seed(3) for _ in range(2)]
    whole, rest = (
        [chunk for b in batches(split, config, 1, g, start) for chunk in b.chunks[0]()]
        for g, start in zip(generators, (0, first), strict=True)
    )
    assert len(rest) == 2 * (10 - first)
    assert all(map(torch.equal, rest, whole[2 * first :]))
    assert torch.equal(generators[0].get_state(), generators[1].get_state())


@pytest.mark.usefixtures("told_often")
def test_by_the_clock_checkpoints_come_within_an_epoch(monkeypatch):
    now, seen = [0.0], set()

    def clock() -> float:
        now[0] += 1e-3  # a look at it takes time
        return now[0]

    monkeypatch.setattr(attempts, "monotonic", clock)

    def tick(state: Row) -> None:
        step = state["epoch"], state["step"]
        if "loss" in state and step not in seen:  # it speaks before the first one, too
            seen.add(step)
            now[0] += 30

    def saved(every_s: float) -> list[Row]:
        store = MemoryStore()
        attempt(CUT[PLAIN], store, every_s=every_s, tell=tick)
        return [unpack_checkpoint(payload)["state"] for payload in store.saved]

    steps = [
        state["epoch"] * LAST + (state["under_way"]["step"] if state["under_way"] else 0)
        for state in saved(60)
    ]
    assert steps == [*range(2, 2 * LAST + 1, 2)]
    assert [state["under_way"] for state in saved(0)] == [None]


@pytest.mark.usefixtures("told_often")
def test_within_an_epoch_a_trial_is_not_stopped_by_an_earlier_one():
    """It was told to go on, and did: what its epochs would be told by now counts no more."""
    store = MemoryStore()
    cut(CUT[PLAIN], store, (2, 1))
    assert_same(attempt(CUT[PLAIN], store, stop_at=1), attempt(CUT[PLAIN]))


@pytest.mark.usefixtures("told_often")
def test_asked_while_it_scores_a_trial_saves_the_whole_epoch():
    store, notice, heard = MemoryStore(), SaveRequest(), []

    def tell(state: Row) -> None:
        heard.append((state["epoch"], state["step"]))
        if heard[-2:] == [(1, LAST)] * 2:  # the second time after the scores
            notice.give()

    attempt(CUT[PLAIN], store, every_s=1e9, tell=tell, notice=notice)
    [payload] = store.saved
    state = unpack_checkpoint(payload)["state"]
    assert (state["epoch"], state["under_way"]) == (1, None)


# Two workers.


class ForbiddenStore(MemoryStore):
    def load(self) -> bytes | None:
        raise AssertionError("only the first worker reads")

    def save(self, payload: bytes) -> None:
        raise AssertionError("only the first worker saves")


def work(of_one: bytes) -> Row:
    """What one worker gets. It alone knows what it is given: what counts is the first one's."""
    loop.load_splits = few_images
    progress_reporter.REPORT_EVERY_S = 0.0
    vars(dist.distributed_c10d)["_unpickler"] = None  # what a group hands out is never executed
    is_first = rank() == 0
    attempts_of: Row = {"whole": {}, "cut": {}}
    for name in (FIRST, TOGETHER[2]):
        # Nobody may be missing where the workers meet: the checkpoint is kept, and they go on.
        store = MemoryStore() if is_first else ForbiddenStore()
        attempts_of["whole"][name] = attempt(CUT[name])
        saving(CUT[name], store, (1, 2))
        attempts_of["cut"][name] = attempt(CUT[name], store, every_s=1e9)
    return attempts_of | {
        "undisturbed": attempt(RUNS[FIRST]),
        "stopped": attempt(RUNS[FIRST], stop_at=2 if is_first else 1),
        "from one": attempt(RUNS[FIRST], MemoryStore(of_one) if is_first else None),
        "damaged": attempt(RUNS[FIRST], MemoryStore(of_one[:-1] if is_first else of_one)),
        "messages": [of_first(x if is_first else b"another", CPU) for x in MESSAGES],
    }


@pytest.fixture(scope="module")
def two_workers(run_workers):
    """They go on from what a single worker left after its first epoch, too."""
    store = MemoryStore()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "load_splits", few_images)
        attempt(RUNS[FIRST], store, kill_at=1)
    return run_workers(__file__, "work", 2, store.payload)


@pytest.mark.slow
def test_two_workers_cut_and_resumed_end_undisturbed(two_workers):
    for worker in two_workers:
        for name, last in worker["cut"].items():
            assert last.result["num_resumes"] == 1
            assert_same(last, worker["whole"][name])
            assert_same(last, two_workers[0]["whole"][name])


@pytest.mark.slow
def test_the_first_workers_answer_checkpoint_and_messages_are_everyones(two_workers):
    """Also where it was left by a single worker: any number of workers train as one, up to
    rounding.
    """
    alone = [row["train_loss"] for row in attempt(RUNS[FIRST]).rows]
    for worker in two_workers:
        assert [row["epoch"] for row in worker["stopped"].rows] == [1, 2]
        assert worker["stopped"].result["status"] == "stopped"
        assert worker["from one"].result["num_resumes"] == 1
        losses = [row["train_loss"] for row in worker["from one"].rows]
        assert losses == pytest.approx(alone, rel=1e-3)
        assert worker["damaged"].result["num_resumes"] == 0
        assert_same(worker["damaged"], worker["undisturbed"])
        assert worker["messages"] == MESSAGES
