"""How a trial hears that it is to save now, without a Ray."""

import threading
from functools import partial

from clsweep.cluster import run_heartbeat
from clsweep.cluster.heartbeat import TrialHeartbeat
from clsweep.cluster.mailbox import (
    checkpoint_all,
    checkpoint_request,
    read_states,
    request_checkpoints,
    write_state,
)
from clsweep.cluster.run_heartbeat import RunHeartbeat

STATE = {"epoch": 1, "epochs": 3, "step": 4, "steps": 9, "loss": 2.0, "images_per_s": 10.0}


def heartbeat_of(scratch, *, speaks=True):
    relay = None if speaks else partial(request_checkpoints, str(scratch))
    return TrialHeartbeat(partial(write_state, str(scratch), "a"), relay)


def test_a_demand_gives_notice_once_and_its_answer_is_told(tmp_path):
    heartbeat = heartbeat_of(tmp_path)
    heartbeat.tell(STATE)
    assert not heartbeat.notice.is_given
    request_checkpoints(str(tmp_path), "one")
    heartbeat.tell(STATE)
    assert heartbeat.notice.is_given
    heartbeat.notice.answer()
    heartbeat.tell(STATE)
    assert not heartbeat.notice.is_given
    assert read_states(str(tmp_path), ["a"]) == {"a": STATE}


def test_a_worker_that_saves_nothing_asks_the_one_that_does(tmp_path):
    first, second = (heartbeat_of(tmp_path, speaks=speaks) for speaks in (True, False))
    second.notice.give()
    first.tell(STATE)
    assert first.notice.is_given


def test_a_run_leaves_once_those_that_have_spoken_have_saved(tmp_path):
    scratch = str(tmp_path)
    heartbeat = heartbeat_of(tmp_path)
    heartbeat.tell(STATE)
    write_state(scratch, "of another time", STATE)
    leaving = threading.Thread(target=checkpoint_all, args=(scratch, ["a", "silent"], 30.0))
    leaving.start()
    while not heartbeat.notice.is_given:
        heartbeat.tell(STATE)
    assert leaving.is_alive()
    heartbeat.notice.answer()
    leaving.join(5)
    assert not leaving.is_alive()


def test_a_machine_that_is_about_to_go_is_a_demand_once(tmp_path, monkeypatch):
    from ray._private import state

    draining = {}
    monkeypatch.setattr(state.state, "get_draining_nodes", lambda: draining)

    class Folder:
        scratch = str(tmp_path)

    made = RunHeartbeat(*(Folder(), None, None, None), is_alone=False)
    demands = []
    monkeypatch.setattr(
        run_heartbeat, "request_checkpoints", lambda _, demand: demands.append(demand)
    )
    for nodes in ({}, {"n1": 0}, {"n1": 0}, {"n1": 0, "n2": 5}, {}, {"n3": 0}):
        draining.clear()
        draining.update(nodes)
        made._look_for_preemption()
    assert demands == ["draining n1", "draining n1 n2", "draining n3"]
    assert checkpoint_request(str(tmp_path)) == ""
