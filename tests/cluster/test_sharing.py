"""Which part of a cluster each of several studies gets, and what is handed out to Tune."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence

import pytest

from clsweep.cluster import sharing
from clsweep.cluster.driver_actor import Claim
from clsweep.cluster.searcher import Dispatch
from clsweep.cluster.sharing import Share, fair_part


def by_filling(claims: Sequence[float], *, drops: int = 100_000) -> list[float]:
    """Max-min fairness as it is defined: everybody who still wants gets the next drop."""
    got = [0.0] * len(claims)
    left = float(drops)
    while left > 0.5:
        open_ = [i for i, claim in enumerate(claims) if got[i] < claim * drops - 0.5]
        if not open_:
            break
        each = max(1.0, left // len(open_))
        for i in open_:
            drop = min(each, claims[i] * drops - got[i], left)
            got[i] += drop
            left -= drop
    return [amount / drops for amount in got]


@pytest.mark.parametrize("seed", range(20))
def test_parts_are_max_min_fair(seed: int) -> None:
    draw = random.Random(seed)
    claims = [draw.choice([0.0, 1.0, round(draw.random(), 2)]) for _ in range(draw.randint(1, 6))]
    parts = [fair_part(claim, claims[:i] + claims[i + 1 :]) for i, claim in enumerate(claims)]
    assert parts == pytest.approx(by_filling(claims), abs=2e-3)
    assert sum(parts) <= 1 + 1e-9


def test_alone_a_study_may_have_everything() -> None:
    share = Share(None, 8, 8)
    share.begin_turn(3)
    share.update(["a", "b", "c"])
    assert (share.limit, share.yields) == (8, False)


class Shared(Share):
    """A share beside other runs, which say what a test lets them say."""

    others: Sequence[Claim] = ()
    said = Claim()

    def __init__(self, capacity: int, most: int | None = None):
        super().__init__("desk", capacity, most or capacity)

    def _others(self, mine: Claim) -> list[Claim]:
        self.said = mine
        return list(self.others)


@pytest.mark.parametrize("capacity", range(1, 17))
@pytest.mark.parametrize("num_studies", range(2, 10))
def test_every_study_gets_a_place_in_the_end(
    capacity: int, num_studies: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever came first holds all it may; then the last one waits too long."""
    monkeypatch.setattr(sharing, "ask", lambda *_: True)
    share = Shared(capacity)
    share.begin_turn(100)
    share.others = [Claim()] * (num_studies - 1)
    share.update(["a"])
    held = min(capacity, share.limit * (num_studies - 1))
    share.others = [Claim()] * (num_studies - 2) + [Claim(1.0, 2 * sharing.PATIENCE_S)]
    share.update(["a"])
    assert share.yields == (num_studies > capacity)
    if not share.yields:
        assert min(held, share.limit * (num_studies - 1)) < capacity


def test_a_claim_is_what_the_user_lets_run_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sharing, "ask", lambda *_: True)
    share = Shared(8, most=1)
    share.begin_turn(100)
    assert share.said == Claim(1 / 8, pytest.approx(0, abs=1))
    share.num_open = 0
    share.update([])
    assert share.said.part == 0


def test_trials_that_wait_for_their_processes_do_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    now, begun = [0.0], [False]
    monkeypatch.setattr(sharing.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(sharing, "ask", lambda *_: begun[0])
    share = Shared(2)
    share.begin_turn(5)
    now[0] = 100.0
    share.update(["a"])
    assert share.said.waiting_s == 100
    begun[0] = True
    share.update(["a"])
    assert share.said.waiting_s == 0


class Plan:
    """A plan of named trials that notes how they ended."""

    awaits = False

    def __init__(self, *names: str):
        self._left = [{"trial_id": name} for name in names]
        self.ended: dict[str, object] = {}

    def next_row(self) -> dict[str, str] | None:
        return self._left.pop(0) if self._left else None

    def tell(self, row: dict[str, str], outcome: dict[str, object]) -> None:
        assert row["trial_id"] not in self.ended
        self.ended[row["trial_id"]] = outcome.get("status", "lost")


def dispatch(plan: Plan, *, limit: int = 2, max_restarts: int = 1) -> tuple[Dispatch, Share]:
    share = Share(None, limit, limit)
    return Dispatch(plan, {}, share, Counter(), max_restarts=max_restarts, metric="knn_top1"), share  # type: ignore[arg-type]


def end(to: Dispatch, tune_id: str) -> None:
    to.on_trial_result(tune_id, {"outcome/status": "finished", "outcome/knn_top1": 1.0})
    to.on_trial_complete(tune_id, {})


def test_a_lost_trial_goes_on_and_is_given_up_in_the_end() -> None:
    plan = Plan("a", "b")
    to, _ = dispatch(plan)
    a, b = to.suggest("1"), to.suggest("2")
    assert to.suggest("3") is None  # as many as may run
    to.on_trial_complete("1", error=True)
    assert to.suggest("3") == a
    end(to, "2")
    assert to.suggest("4") is None  # the one that runs may be lost
    to.on_trial_complete("3", error=True)
    assert plan.ended == {"b": "finished", "a": "lost"}
    assert to.suggest("5") == "FINISHED"
    assert b == {"row": {"trial_id": "b"}, "context": {}}


def test_a_process_that_dies_after_its_trial_has_ended_loses_nothing() -> None:
    plan = Plan("a")
    to, _ = dispatch(plan)
    to.suggest("1")
    to.on_trial_result("1", {"epoch/epoch": 1})
    to.on_trial_result("1", {"outcome/status": "finished", "outcome/knn_top1": 1.0})
    to.on_trial_complete("1", error=True)
    assert plan.ended == {"a": "finished"}
    assert to.suggest("2") == "FINISHED"


def test_a_smaller_share_and_a_turn_that_ends() -> None:
    plan = Plan("a", "b", "c", "d")
    to, share = dispatch(plan)
    to.suggest("1")
    to.suggest("2")
    share.limit = 1
    end(to, "1")
    assert to.suggest("3") is None
    end(to, "2")
    assert to.suggest("3") == {"row": {"trial_id": "c"}, "context": {}}
    share.yields = True
    end(to, "3")
    assert to.suggest("4") == "FINISHED"
    assert set(plan.ended) == {"a", "b", "c"}
