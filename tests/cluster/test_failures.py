"""What is handed out to Tune, and what becomes of a trial that is lost."""

import pytest
from ray.core.generated.common_pb2 import ActorDiedErrorContext
from ray.exceptions import ActorDiedError, NodeDiedError, OutOfMemoryError

from clsweep.cluster import failures
from clsweep.cluster.failures import FailurePolicy
from clsweep.cluster.tune_bridge import PlanSearcher
from tests.cluster.test_error_causes import GroupError


class Plan:
    """A plan of named trials that notes how they ended."""

    awaits = False

    def __init__(self, *names):
        self._left = [{"trial_id": name} for name in names]
        self.ended = {}

    def next_row(self):
        return self._left.pop(0) if self._left else None

    def tell(self, row, outcome):
        assert row["trial_id"] not in self.ended
        self.ended[row["trial_id"]] = outcome.get("status", "lost")

    def leave_open(self, row):
        assert row["trial_id"] not in self.ended


def searcher(plan, *, limit=2, max_restarts=1):
    failures = FailurePolicy(max_restarts)
    failures.limit = limit
    return PlanSearcher(plan, {}, failures, scores=["knn_top1", "uniformity"])


def end(to, tune_id):
    to.on_trial_result(tune_id, {"outcome/status": "finished", "outcome/knn_top1": 1.0})
    to.on_trial_complete(tune_id, {})


def death(text):
    return ActorDiedError(ActorDiedErrorContext(actor_id=bytes(16), error_message=text))


def lose(to, tune_id, suggested, error):
    to.on_trial_complete(tune_id, error=True)
    return to.lost(suggested["row"], error)[:2]


def test_a_lost_trial_goes_on_and_is_given_up_in_the_end():
    plan = Plan("a", "b")
    to = searcher(plan)
    a, b = to.suggest("1"), to.suggest("2")
    assert to.suggest("3") is None  # as many as may run
    lose(to, "1", a, ActorDiedError())
    assert to.suggest("3") == a
    end(to, "2")
    assert to.suggest("4") is None  # the one that runs may be lost
    lose(to, "3", a, ActorDiedError())
    assert plan.ended == {"b": "finished", "a": "lost"}
    assert to.suggest("5") == "FINISHED"
    assert b == {"row": {"trial_id": "b"}, "context": {}}


def test_a_process_that_dies_after_its_trial_has_ended_loses_nothing():
    plan = Plan("a")
    to = searcher(plan)
    to.suggest("1")
    to.on_trial_result("1", {"epoch/epoch": 1})
    to.on_trial_result("1", {"outcome/status": "finished", "outcome/knn_top1": 1.0})
    to.on_trial_complete("1", error=True)
    assert plan.ended == {"a": "finished"}
    assert to.suggest("2") == "FINISHED"


OF_MEMORY = OutOfMemoryError("Task was killed due to the node running low on memory.")


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (OF_MEMORY, "out of memory"),
        (GroupError(RuntimeError("Connection closed by peer"), OF_MEMORY), "out of memory"),
        (death("The actor died because its node has died. Node Id: 5f"), "its node is gone"),
        (NodeDiedError("gone"), "its node is gone"),
    ],
)
def test_what_a_machine_does_leaves_a_trial_open(error, reason):
    """No row and no end in the journal, however often; the others run."""
    plan = Plan("a", "b")
    to = searcher(plan, limit=1, max_restarts=0)
    for tune_id in ("1", "2"):
        to.failures._pause_end = 0.0
        decision, why = lose(to, tune_id, to.suggest(tune_id), error)
        assert decision == "open"
        assert why.startswith(reason)
    assert to.failures.open == {"a": reason, "b": reason}
    assert plan.ended == {}
    to.failures._pause_end = 0.0
    assert to.suggest("3") == "FINISHED"


def test_where_memory_is_short_fewer_run_after_a_pause(monkeypatch):
    """That others ran too is no loss of a trial; what was stopped at once is one lack of memory."""
    now = [100.0]
    monkeypatch.setattr(failures.time, "monotonic", lambda: now[0])
    to = searcher(Plan(*"abcdef"), limit=4, max_restarts=0)
    four = {tune_id: to.suggest(tune_id) for tune_id in "1234"}
    decisions = [lose(to, tune_id, four[tune_id], OF_MEMORY) for tune_id in "123"]
    assert {decision for decision, _ in decisions} == {"retry"}
    assert decisions[0][1] == "out of memory with 4 at once; going on with 3"
    assert to.suggest("5") is None
    now[0] += failures.PAUSE_S
    again = [to.suggest(tune_id) for tune_id in "567"]
    assert again == [four["1"], four["2"], None], "three at once, of which one still runs"


def test_where_memory_is_missing_for_one_trial_after_another_the_run_ends():
    """A trial that ends in between says that others may have room."""
    to = searcher(Plan(*"abcdefg"), limit=1, max_restarts=0)
    decisions = []
    for tune_id in "123456":
        to.failures._pause_end = 0.0
        suggested = to.suggest(tune_id)
        if tune_id == "3":
            end(to, tune_id)
        else:
            decisions.append(lose(to, tune_id, suggested, OF_MEMORY)[0])
    assert decisions == ["open"] * 5
    assert to.failures.waits
    assert to.suggest("7") == "FINISHED", "at once, with a trial left"


def test_a_broken_ray_is_no_loss_of_a_trial():
    to = searcher(Plan("a"), max_restarts=0)
    owner = death("The actor is dead because its owner has died. Owner Id: 01")
    for tune_id, gone in (("1", ""), ("2", "raylet")):
        to.failures.is_ray_lost = lambda gone=gone: gone
        error = owner if not gone else ActorDiedError()
        assert lose(to, tune_id, to.suggest(tune_id), error)[0] == "retry"


def test_what_was_ended_for_its_silence_is_not_tried_again():
    plan = Plan("a")
    to = searcher(plan, max_restarts=9)
    a = to.suggest("1")
    to.failures.stall("a", "silent for 10 min at epoch 3/20")
    assert lose(to, "1", a, ActorDiedError()) == ("failed", "silent for 10 min at epoch 3/20")
    assert plan.ended == {"a": "lost"}
