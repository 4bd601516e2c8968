"""One run at a time writes to a results folder: on a disk by a lock, in an object store by a
heartbeat.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pyarrow.fs as pafs
import pytest

from clsweep.errors import BusyError
from clsweep.results import hold as lock
from clsweep.results.folder import ResultsFolder

HOLD = """
import sys
from clsweep.results.folder import ResultsFolder
with ResultsFolder(sys.argv[1]).lock():
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture(params=["disk", "s3"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(tmp_path / "out") if request.param == "disk" else str(request.getfixturevalue("s3"))


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock, "CLAIM_PAUSE_S", 0.2)
    monkeypatch.setattr(lock, "RENEW_S", 0.2)


def holder(place: str) -> subprocess.Popen[str]:
    """Another process that has the folder."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, place],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def write_heartbeat(place: str, **state: Any) -> None:
    fs, base = pafs.FileSystem.from_uri(place)
    with fs.open_output_stream(f"{base}/heartbeat.json") as stream:
        stream.write(json.dumps(state).encode())


def test_a_second_run_is_refused_until_the_first_has_ended(place: str) -> None:
    first, second = ResultsFolder(place), ResultsFolder(place)
    command = f"clsweep status {shlex.quote(place)}"
    with first.lock():
        assert second.is_running()
        with (
            pytest.raises(BusyError, match="another clsweep run is writing here") as refused,
            second.lock(),
        ):
            pass
        assert str(refused.value).endswith(command)
        first.beat({"state": "ended", "running": [], "time": 0})  # it may still compact
        assert second.is_running()
    assert not second.is_running()
    with second.lock():
        pass


def test_the_lock_of_a_killed_process_is_free_at_once_on_its_machine(place: str) -> None:
    process = holder(place)
    assert ResultsFolder(place).is_running()
    with pytest.raises(BusyError), ResultsFolder(place).lock():
        pass
    process.kill()
    process.wait()
    with ResultsFolder(place).lock():
        pass


def test_the_lock_is_free_after_an_error(place: str) -> None:
    with pytest.raises(RuntimeError), ResultsFolder(place).lock():
        raise RuntimeError
    with ResultsFolder(place).lock():
        pass


def test_of_two_that_take_it_at_once_one_has_it(place: str) -> None:
    start, ended, outcomes = threading.Barrier(4), threading.Event(), []

    def take() -> None:
        start.wait()
        try:
            with ResultsFolder(place).lock():
                outcomes.append("held")
                ended.wait(60)
        except BusyError:
            outcomes.append("refused")

    threads = [threading.Thread(target=take) for _ in range(4)]
    for thread in threads:
        thread.start()
    while len(outcomes) < 4 and any(thread.is_alive() for thread in threads):
        threads[0].join(0.01)
    ended.set()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["held", "refused", "refused", "refused"]


def test_a_fresh_heartbeat_of_another_machine_refuses_by_name(
    s3: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = {
        "owner": "x",
        "host": "node7",
        "machine": "another boot",
        "pid": os.getpid(),
        "state": "running",
    }
    monkeypatch.setattr(lock.time, "time", lambda: 1000.0)
    write_heartbeat(s3, **elsewhere, time=1000.0 - lock.STALE_S + 1)
    with (
        pytest.raises(BusyError, match=rf"process {os.getpid()} on node7, last heard of at "),
        ResultsFolder(s3).lock(),
    ):
        pass


def test_a_stale_heartbeat_of_another_machine_does_not(
    s3: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lock, "STALE_S", 0.01)
    write_heartbeat(
        s3, owner="x", host="node7", machine="another boot", pid=1, state="running", time=5.0
    )
    assert not ResultsFolder(s3).is_running()
    with ResultsFolder(s3).lock():
        pass


def test_a_clock_that_is_wrong_takes_no_folder_from_a_run_that_beats(
    s3: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ResultsFolder(s3).lock():
        monkeypatch.setattr(lock, "STALE_S", 0.0)  # whatever it says seems old
        with pytest.raises(BusyError), ResultsFolder(s3).lock():
            pass


def test_a_run_that_was_taken_for_dead_is_told(s3: str) -> None:
    late = ResultsFolder(s3)
    with late.lock():
        late.beat({"state": "running", "running": ["a-0"]})
        assert late.heartbeat()["running"] == ["a-0"]
        write_heartbeat(s3, owner="another", host="node7", state="running", time=0)
        with pytest.raises(BusyError, match="on node7"):
            late.beat({"state": "running", "running": ["a-0"]})
    assert late.heartbeat()["owner"] == "another"  # and leaves it to the other
