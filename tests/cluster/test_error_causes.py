"""A lost process or machine, or a trial that went wrong: told apart by what Ray and torch say of
it.
"""

import sys

import pytest
from ray.exceptions import ActorDiedError, NodeDiedError, OutOfMemoryError

from clsweep.cluster.error_causes import describe, is_lost
from clsweep.cluster.trial import placed
from clsweep.train import memory

CUT_OFF = [
    "[../gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:3921",
    "[../gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting 1800000ms for recv operation "
    "to complete",
    "[../gloo/transport/tcp/pair.cc:137] Application timeout caused pair closure",
    "[c10d] recvValue failed: Connection was likely closed. Did the remote server shutdown or "
    "crash?",
    "NCCL communicator was aborted on rank 0.",
    "NCCL error: unhandled system error (run with NCCL_DEBUG=INFO for details)",
]


class GroupError(Exception):
    """As Ray Train reports the failures of several workers."""

    def __init__(self, *failures):
        super().__init__("workers failed")
        self.worker_failures = dict(enumerate(failures))


@pytest.mark.parametrize("message", CUT_OFF)
def test_what_a_worker_says_when_another_is_gone_is_no_failure_of_the_trial(message):
    cut_off = RuntimeError(message)
    assert is_lost(GroupError(cut_off, ActorDiedError()))
    assert is_lost(GroupError(cut_off)), "noticed before the death is"
    assert describe(GroupError(cut_off, ActorDiedError()))["error_class"] == "ActorDiedError"


def test_beside_a_death_any_words_of_torch_are_its_echo():
    assert is_lost(GroupError(RuntimeError("something new that torch says"), ActorDiedError()))
    assert is_lost(GroupError(ConnectionResetError(104, "reset"), NodeDiedError("gone")))


@pytest.mark.parametrize(
    "error",
    [
        memory.OutOfMemoryError("out of memory"),
        ArithmeticError("the loss is nan in epoch 3"),
        ValueError("batch size"),
    ],
)
def test_a_trial_s_own_error_stays_its_own(error):
    group = GroupError(RuntimeError(CUT_OFF[0]), error, ActorDiedError())
    assert not is_lost(group)
    assert describe(group)["error_class"] == type(error).__name__
    assert not is_lost(error)


def test_errors_that_only_sound_alike_are_the_trial_s_own():
    assert not is_lost(RuntimeError("shapes do not match"))
    assert not is_lost(ConnectionRefusedError(111, "a download"))
    assert not is_lost(RuntimeError("the request timed out"))


def test_what_ray_stops_is_lost():
    assert is_lost(OutOfMemoryError("node"))
    assert is_lost(ActorDiedError())


class Speechless(Exception):
    def __str__(self):
        raise RuntimeError("no text")


def test_a_trial_that_exits_has_failed():
    """Ray would take it for the end of its process, or say words of its own."""
    with pytest.raises(RuntimeError, match="SystemExit: 3"), placed({}):
        sys.exit(3)


def test_the_text_of_an_error_is_cut_where_it_is_written():
    def raised(error):
        try:
            raise error
        except Exception as caught:
            return describe(caught)

    long = raised(
        type("E" * 99_999, (ValueError,), {})("the head\udcff\x1b" + "é" * 10**6 + "the end")
    )
    assert all(len(text.encode()) < 8_300 for text in long.values())
    assert long["error_message"].startswith("the head\\udcff\x1bé")
    assert long["error_message"].endswith(" bytes cut ... ")
    assert long["error_traceback"].startswith("Traceback ")
    assert long["error_traceback"].endswith("the end\n")
    assert raised(ValueError("short\nand whole"))["error_message"] == "short\nand whole"
    assert raised(Speechless())["error_message"] == "Speechless"
    assert not is_lost(Speechless())
