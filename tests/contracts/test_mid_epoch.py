"""A trial that is cut at any step of an epoch ends as if nothing had happened, bit for bit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from clsweep.train import attempt as attempts
from clsweep.train import loop, mutual_information, pulse
from clsweep.train.attempt import unpack
from clsweep.train.collectives import rank
from clsweep.train.images import batches
from clsweep.train.notice import Notice
from tests.contracts.attempts import Attempt, Killed, MemoryStore, Row, assert_same, attempt
from tests.contracts.combinations import CASES, few_images, small_config
from tests.contracts.combinations import combinations as combined

pytestmark = pytest.mark.usefixtures("one_thread")

EPOCHS = 2
SMALL = 4  # images a batch: an epoch has several steps
MULTI_CROP = next(n for n in CASES if n.startswith("swav") and n.endswith("multicrop"))
NAMES = (
    "moco-dcl-dimcl-core",  # a queue, and momentum
    "nnclr-infonce-barlow-two",  # a support set
    "byol-cosine-dimcl-all_pairs-num_views=3",  # momentum and a predictor
    "simclr-dcl-none-two",
    MULTI_CROP,
)


def several_steps(name: str, **changes: Any) -> Row:
    parts = {p: CASES[name][p] for p in ("framework", "loss", "regularizer", "views")}
    return small_config(parts, epochs=EPOCHS, batch_size=SMALL, chunk_size=SMALL, **changes)


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "load_splits", few_images)
    monkeypatch.setattr(pulse, "TELL_S", 0.0)


def cut(config: Row, store: MemoryStore | None, at: tuple[int, int]) -> Attempt:
    """An attempt that is asked for a checkpoint at a step of an epoch, and killed with it."""

    def kill() -> None:
        raise Killed

    notice = Notice(kill)

    def tell(state: Row) -> None:
        if (state["epoch"], state["step"]) == at:
            notice.give()

    return attempt(config, store, every_s=1e9, tell=tell, notice=notice)


def num_steps(config: Row) -> int:
    seen = []
    attempt(config | {"epochs": 1}, tell=lambda state: seen.append(state["steps"]))
    return int(seen[-1])


@pytest.mark.parametrize("name", NAMES)
def test_cut_at_steps_a_trial_ends_undisturbed(name: str) -> None:
    config, store = several_steps(name), MemoryStore()
    last = num_steps(config)
    assert last > 3
    places = [(1, 1), (1, last - 1), (2, 2), (2, last)]
    for number, at in enumerate(places, start=1):
        assert len(cut(config, store, at).rows) == at[0] - 1
        assert len(store.saved) == number
    final = attempt(config, store, every_s=1e9)
    assert final.result["num_resumes"] == len(places)
    assert_same(final, attempt(config))


def test_a_critic_that_is_cut_ends_undisturbed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mutual_information, "STEPS_PER_EPOCH", 5)
    config = small_config(
        combined("gaussian_mi")["mi_critic-eqco-none-two"],
        dataset="gaussian_mi", epochs=2, critic_hidden=8, critic_dim=4, estimate_batches=5,
    )  # fmt: skip
    store = MemoryStore()
    for at in ((1, 3), (2, 1), (2, 5)):
        cut(config, store, at)
    final = attempt(config, store)
    assert final.result["num_resumes"] == 3
    assert_same(final, attempt(config))


@pytest.mark.parametrize("changes", [{"chunk_size": SMALL // 2}, {"precision": "bf16"}], ids=str)
def test_cut_with_chunks_or_in_bf16(changes: Row) -> None:
    config, store = several_steps("moco-dcl-dimcl-core") | changes, MemoryStore()
    cut(config, store, (1, 2))
    assert_same(attempt(config, store), attempt(config))


@pytest.mark.parametrize("first", [0, 1, 3, 5, 6, 10])
def test_batches_from_any_on_are_those_of_the_whole_epoch(
    monkeypatch: pytest.MonkeyPatch, first: int
) -> None:
    """Across blocks of draws, within groups of views, and none at the end."""
    import torch

    from clsweep.train import images
    from tests.contracts.combinations import some_digits

    monkeypatch.setattr(images, "DRAWN_AT_ONCE", 3 * SMALL)
    monkeypatch.setitem(images.MADE_AT_ONCE, "cpu", 2 * SMALL)
    config, split = several_steps("simclr-dcl-none-two"), some_digits(10 * SMALL)
    generators = [torch.Generator().manual_seed(3) for _ in range(2)]
    whole = [chunk for b in batches(split, config, 1, generators[0]) for chunk in b.chunks[0]()]
    rest = [
        chunk for b in batches(split, config, 1, generators[1], first) for chunk in b.chunks[0]()
    ]
    assert len(rest) == 2 * (10 - first)
    assert all(map(torch.equal, rest, whole[2 * first :]))
    assert torch.equal(generators[0].get_state(), generators[1].get_state())


def test_by_the_clock_checkpoints_come_within_an_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(attempts, "monotonic", lambda: now[0])

    seen = set()

    def tick(state: Row) -> None:
        step = state["epoch"], state["step"]
        if "loss" in state and step not in seen:  # it speaks before the first one, too
            seen.add(step)
            now[0] += 30

    config, store = several_steps("simclr-dcl-none-two"), MemoryStore()
    last = num_steps(config)
    attempt(config, store, every_s=60, tell=tick)
    places = [unpack(payload)["state"] for payload in store.saved]
    steps = [
        state["epoch"] * last + (state["under_way"]["step"] if state["under_way"] else 0)
        for state in places
    ]
    assert steps == [*range(2, 2 * last + 1, 2)]
    store = MemoryStore()
    attempt(config, store, every_s=0, tell=tick)
    assert [unpack(payload)["state"]["under_way"] for payload in store.saved] == [None]


def test_within_an_epoch_a_trial_is_not_stopped_by_an_earlier_one() -> None:
    """It was told to go on, and did: what its epochs would be told by now counts no more."""
    config, store = several_steps("simclr-dcl-none-two"), MemoryStore()
    cut(config, store, (2, 1))
    assert_same(attempt(config, store, stop_at=1), attempt(config))


def test_asked_while_it_scores_a_trial_saves_the_whole_epoch() -> None:
    config, store, notice = several_steps("simclr-dcl-none-two"), MemoryStore(), Notice()
    heard: list[tuple[int, int]] = []
    last = num_steps(config)

    def tell(state: Row) -> None:
        heard.append((state["epoch"], state["step"]))
        if heard[-2:] == [(1, last)] * 2:  # the second time after the scores
            notice.give()

    attempt(config, store, every_s=1e9, tell=tell, notice=notice)
    [payload] = store.saved
    state = unpack(payload)["state"]
    assert (state["epoch"], state["under_way"]) == (1, None)


# Two workers.

TOGETHER = NAMES[:2]


def work() -> Row:
    loop.load_splits = few_images
    pulse.TELL_S = 0.0
    found: Row = {}
    for name in TOGETHER:
        config = several_steps(name)
        store = MemoryStore() if rank() == 0 else None
        saved: list[bytes] = []
        found[name] = {"undisturbed": attempt(config)}
        for at in ((1, 2),):
            # Nobody may be missing where the workers meet: the checkpoint is kept, and they go on.
            notice = Notice()

            def tell(state: Row, at: Any = at, notice: Notice = notice) -> None:
                if (state["epoch"], state["step"]) == at:
                    notice.give()

            attempt(config, store, every_s=1e9, tell=tell, notice=notice)
            if store is not None:
                saved.append(store.saved[-1])
                store.payload = saved[-1]
        found[name]["last"] = attempt(config, store, every_s=1e9)
        found[name]["saved"] = len(saved)
    return found


@pytest.mark.slow
def test_two_workers_cut_within_epochs_end_undisturbed(
    run_workers: Callable[..., list[Any]],
) -> None:
    first, second = run_workers(__file__, "work", 2)
    for name in TOGETHER:
        assert first[name]["saved"] == 1
        for worker in (first, second):
            assert worker[name]["last"].result["num_resumes"] == 1
            assert_same(worker[name]["last"], worker[name]["undisturbed"])
