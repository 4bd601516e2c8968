"""A trial that is killed and started again ends as if nothing had happened, bit for bit, whatever
its objective.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
import torch
import torch.distributed as dist

from clsweep.catalog import OBJECTIVE_PARTS
from clsweep.train import loop
from clsweep.train.collectives import of_first, rank
from tests.contracts.attempts import Attempt, MemoryStore, Row, assert_same, attempt, chain
from tests.contracts.combinations import (
    BATCH,
    CASES,
    PAIRS,
    REPRESENTATIVES,
    VARIANTS,
    Config,
    few_images,
    in_tiers,
    small_config,
)

pytestmark = pytest.mark.usefixtures("one_thread")

CPU = torch.device("cpu")
MESSAGES = [b"\x00\xff", b"", None, True, False]
EPOCHS = 3
# What else keeps something from step to step, or counts epochs.
CHANGES: dict[str, Config] = {
    "lars": {"optimizer": "lars"},
    "adamw": {"optimizer": "adamw"},
    "chunked": {"chunk_size": BATCH // 2},
    "bf16": {"precision": "bf16"},
    "warm-up": {"warmup_epochs": 2},
    "every-second": {"eval_every": 2, "tsne_points": 12},
}
WITH_MEMORY = ("moco-dcl-dimcl-core", "byol-cosine-dimcl-all_pairs-num_views=3")


def _changed(name: str, changes: Config) -> Config:
    parts = {part: CASES[name][part] for part in OBJECTIVE_PARTS}
    return small_config(parts, epochs=EPOCHS, **changes)


CHANGED, CHANGED_TOO = (
    {f"{name}-{what}": _changed(name, changes) for what, changes in CHANGES.items()}
    for name in WITH_MEMORY
)
FREEZING = {
    f"{framework}-frozen-{optimizer}": small_config(
        {part: CASES[f"{framework}-soft_cross_entropy-none-two"][part] for part in OBJECTIVE_PARTS},
        epochs=EPOCHS,
        freeze_epochs=2,
        optimizer=optimizer,
        **more,
    )
    for framework, optimizer, more in (
        ("swav", "sgd", {"swav_queue_start": 1}),
        ("dino", "adamw", {}),
    )
}
RUNS = {
    **{name: {**config, "epochs": EPOCHS} for name, config in CASES.items()},
    **CHANGED,
    **CHANGED_TOO,
    **FREEZING,
}


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "load_splits", few_images)


def assert_each_goes_on(attempts: list[Attempt]) -> None:
    """Each reports the rows of the one before again, times included, before it trains any
    further.
    """
    for before, after in pairwise(attempts):
        known = before.rows[: EPOCHS - 1]  # of the last epoch nothing is saved
        assert after.rows[: len(known)] == known
        assert len(after.rows) > len(known)


@pytest.mark.parametrize(
    "name",
    in_tiers(
        RUNS, fast=(*REPRESENTATIVES, *CHANGED, *FREEZING), full=(*PAIRS, *VARIANTS, *CHANGED_TOO)
    ),
)
def test_killed_after_every_epoch_a_trial_ends_undisturbed(name: str) -> None:
    expected = attempt(RUNS[name])
    attempts = chain(RUNS[name], kills=[1, 2, 3])
    assert_each_goes_on(attempts)
    passed_through = [attempts[-1].result["num_resumes"], expected.result["num_resumes"]]
    assert passed_through == [2, 0], (
        "the last epoch left no checkpoint, so the last two attempts began alike"
    )
    assert_same(attempts[-1], expected)


def test_the_comparison_could_fail() -> None:
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


# Two workers.

TOGETHER = (
    "moco-dcl-dimcl-core",
    "byol-cosine-dimcl-all_pairs-num_views=3",
    "nnclr-infonce-barlow-two",
)
FIRST = TOGETHER[0]


class ForbiddenStore(MemoryStore):
    def load(self) -> bytes | None:
        raise AssertionError("only the first worker reads")

    def save(self, payload: bytes) -> None:
        raise AssertionError("only the first worker saves")


def work(of_one: bytes) -> Row:
    """What one worker gets. It alone knows what it is given: what counts is the first one's."""
    loop.load_splits = few_images
    vars(dist.distributed_c10d)["_unpickler"] = None  # what a group hands out is never executed
    is_first = rank() == 0
    found: Row = {"undisturbed": {}, "chain": {}}
    for name in TOGETHER:
        store = MemoryStore() if is_first else ForbiddenStore()
        found["undisturbed"][name] = attempt(RUNS[name])
        found["chain"][name] = [attempt(RUNS[name], store, kill_at=epoch) for epoch in (1, 2, None)]
    return found | {
        "stopped": attempt(RUNS[FIRST], stop_at=2 if is_first else 1),
        "from one": attempt(RUNS[FIRST], MemoryStore(of_one) if is_first else None),
        "damaged": attempt(RUNS[FIRST], MemoryStore(of_one[:-1] if is_first else of_one)),
        "messages": [of_first(x if is_first else b"another", CPU) for x in MESSAGES],
    }


@pytest.fixture(scope="module")
def of_one() -> bytes:
    """A checkpoint that a single worker left after its first epoch."""
    store = MemoryStore()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "load_splits", few_images)
        attempt(RUNS[FIRST], store, kill_at=1)
    assert store.payload is not None
    return store.payload


@pytest.fixture(scope="module")
def two_workers(of_one: bytes, run_workers: Callable[..., list[Any]]) -> list[Row]:
    found: list[Row] = run_workers(__file__, "work", 2, of_one)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("name", TOGETHER)
def test_two_workers_killed_and_resumed_end_undisturbed(two_workers: list[Row], name: str) -> None:
    assert_each_goes_on(two_workers[0]["chain"][name])  # whose log all go on with
    for worker in two_workers:
        last = worker["chain"][name][-1]
        assert last.result["num_resumes"] == 2
        assert_same(last, worker["undisturbed"][name])
        assert_same(last, two_workers[0]["undisturbed"][name])


@pytest.mark.slow
def test_the_first_workers_answer_stops_all(two_workers: list[Row]) -> None:
    for worker in two_workers:
        assert [row["epoch"] for row in worker["stopped"].rows] == [1, 2]
        assert worker["stopped"].result["status"] == "stopped"


@pytest.mark.slow
def test_the_first_workers_checkpoint_is_everyones(two_workers: list[Row]) -> None:
    """Also where it was left by a single worker: any number of workers train as one, up to
    rounding.
    """
    alone = attempt(RUNS[FIRST])
    for worker in two_workers:
        assert worker["from one"].result["num_resumes"] == 1
        losses = [row["train_loss"] for row in worker["from one"].rows]
        assert losses == pytest.approx([row["train_loss"] for row in alone.rows], rel=1e-3)
        assert worker["damaged"].result["num_resumes"] == 0
        assert_same(worker["damaged"], worker["undisturbed"][FIRST])


@pytest.mark.slow
def test_messages_of_the_first_worker(two_workers: list[Row]) -> None:
    for worker in two_workers:
        assert worker["messages"] == MESSAGES
