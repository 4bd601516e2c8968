"""Functions that other processes call."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import psutil
import pytest

from clsweep.processes import is_parallel, shared, submit, submit_once, worker_processes
from tests.cluster.conftest import wait_until


def children() -> list[psutil.Process]:
    return [c for c in psutil.Process().children() if "processes" in " ".join(c.cmdline())]


def divided(a: float, b: float) -> tuple[float, int]:
    return a / b, os.getpid()


def place_of(value: list[object]) -> tuple[int, int]:
    return id(value), os.getpid()


def pid() -> int:
    print("what is printed is no answer")
    os.write(1, b"what a library prints neither")
    return os.getpid()


def test_they_answer_as_this_process_does_and_end():
    assert not is_parallel()
    assert submit(divided, 6, 3).result() == (2.0, os.getpid())
    with worker_processes(2):
        assert is_parallel()
        answers = [submit(divided, i, 4).result() for i in range(8)]
        assert [value for value, _ in answers] == [i / 4 for i in range(8)]
        pids = {by for _, by in answers}
        assert os.getpid() not in pids
        assert pids <= {child.pid for child in children()}
        assert submit_once(pid) is submit_once(pid)
    assert not children()


def test_a_shared_value_is_sent_once():
    with worker_processes(1):
        value = shared([1, 2, 3])
        first, second = (submit(place_of, value).result() for _ in range(2))
        assert first == second
        assert first[1] != os.getpid()
    value = [1, 2, 3]
    assert shared(value) is value


def test_an_error_is_that_of_this_process():
    with worker_processes(1), pytest.raises(ZeroDivisionError):
        submit(divided, 1, 0).result()


def test_a_process_that_is_killed_is_done_without():
    with worker_processes(1):
        value = shared([1])
        assert submit(place_of, value).result()[1] != os.getpid()
        for process in children():
            process.kill()
            process.wait()
        assert submit(place_of, value).result()[1] == os.getpid()


def test_they_end_with_us_however_we_end_idle_or_in_the_middle_of_a_call(tmp_path):
    told = tmp_path / "pid"
    code = (
        "from clsweep.processes import submit, worker_processes\n"
        "from tests.test_processes import children, divided, tell_and_wait\n"
        "with worker_processes(2):\n"
        "    for waiting in [submit(divided, 1, 2) for _ in range(50)]:\n"
        "        waiting.result()\n"
        "    print(*(process.pid for process in children()), flush=True)\n"
        f"    submit(tell_and_wait, {str(told)!r}).result()\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as us:
        assert us.stdout
        started = [psutil.Process(int(word)) for word in us.stdout.readline().split()]
        wait_until(told.exists, "the call has begun")
        us.kill()
        gone, alive = psutil.wait_procs(started, timeout=60)
    assert int(told.read_text()) in {process.pid for process in gone}
    assert len(gone) == 2
    assert not alive


def test_what_cannot_be_sent_is_called_here():
    with worker_processes(1):
        assert submit(place_of, [threading.Lock()]).result()[1] == os.getpid()
        assert submit(place_of, [1]).result()[1] != os.getpid()


def test_what_they_have_not_done_is_left():
    """As after an error, or Ctrl-C: nothing is waited for."""
    with worker_processes(1):
        asked = [submit(signal.pause) for _ in range(3)]
    assert not children()
    assert all(each.done() for each in asked)


def tell_and_wait(path: str) -> None:
    """Say which process this is, in a file that is whole when it is there."""
    Path(f"{path}.new").write_text(str(os.getpid()))
    os.rename(f"{path}.new", path)
    signal.pause()
