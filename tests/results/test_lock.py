"""One run at a time writes to a results folder: on a disk by a lock, in an object store by a
heartbeat.
"""

import errno
import json
import os
import shlex
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

import pyarrow.fs as pafs
import pytest

from clsweep.errors import BusyError, RequestError
from clsweep.results import lock, object_store
from clsweep.results.folder import ResultsFolder, checkpoint_file, encoder_file
from clsweep.results.object_store import ObjectStore


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch):
    monkeypatch.setattr(lock, "RENEW_S", 0.2)


OF_ANOTHER = {
    "owner": "x", "host": "node7", "machine": "another boot", "pid": 1, "state": "running"
}  # fmt: skip


def take(place):
    with ResultsFolder(place).lock():
        pass


def write_heartbeat(place, **state):
    ResultsFolder(place).write("heartbeat.json", json.dumps(state).encode())


def test_a_second_run_is_refused_until_the_first_has_ended(place):
    first, second = ResultsFolder(place), ResultsFolder(place)
    command = f"clsweep status {shlex.quote(place)}"
    with first.lock():
        assert second.is_running()
        with pytest.raises(BusyError, match="another clsweep run is writing here") as refused:
            take(place)
        assert str(refused.value).endswith(command)
        first.held.beat({"state": "ended", "running": [], "time": 0})  # it may still compact
        assert second.is_running()
    assert not second.is_running()
    take(place)


def test_a_fresh_heartbeat_of_another_machine_refuses_by_name(s3, monkeypatch):
    elsewhere = {**OF_ANOTHER, "pid": os.getpid()}
    monkeypatch.setattr(lock.time, "time", lambda: 1000.0)
    write_heartbeat(s3, **elsewhere, time=1000.0 - lock.STALE_S + 1)
    message = rf"process {os.getpid()} on node7, last heard of at "
    with pytest.raises(BusyError, match=message):
        take(s3)


def test_a_clock_that_is_wrong_takes_no_folder_from_a_run_that_beats(s3, monkeypatch):
    with ResultsFolder(s3).lock():
        monkeypatch.setattr(lock, "STALE_S", 0.0)  # whatever it says seems old
        with pytest.raises(BusyError):
            take(s3)


# Conditional writes: the store decides between two that claim a folder at once.

TAKE = """
import sys, time
from clsweep.errors import BusyError
from clsweep.results import lock
from clsweep.results.folder import ResultsFolder
lock.STALE_S, lock.RENEW_S = 5.0, 0.1
print("ready", flush=True)
while line := sys.stdin.readline():
    place, start = line.split()
    folder = ResultsFolder(place)
    folder.held._versioned_heartbeat()  # connected: what follows is the claim alone
    time.sleep(max(0.0, float(start) - time.time()))
    try:
        with folder.lock():
            print("held", flush=True)
            sys.stdin.readline()
    except BusyError as error:
        print(f"refused {error}", flush=True)
        sys.stdin.readline()
"""


@pytest.fixture
def two_runs():
    """Two processes that take a folder in the same instant; what each of them says."""
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", TAKE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for _ in range(2)
    ]

    def say(line):
        for process in processes:
            process.stdin.write(f"{line}\n")
            process.stdin.flush()

    def hear():
        return [process.stdout.readline() for process in processes if process.stdout is not None]

    def take(place):
        say(f"{place} {time.time() + 0.1}")
        outcomes = hear()
        say("")
        return sorted(outcomes)

    assert hear() == ["ready\n"] * 2
    yield take
    for process in processes:
        process.communicate(timeout=60)


def beside(place, number):
    """Another folder of the same bucket."""
    return place.replace("/out?", f"/out{number}?")


def test_of_two_processes_that_start_in_the_same_instant_one_has_it(s3, two_runs):
    for i in range(9):
        place = beside(s3, i)
        if i > 5:  # there was a run, whose lease has run out
            write_heartbeat(place, **OF_ANOTHER, time=5.0)
        held, refused = two_runs(place)
        assert held == "held\n"
        assert refused.startswith(f"refused {place}: another clsweep run is writing here: process ")


def test_a_claim_that_the_store_gets_late_is_refused(s3, s3_server):
    """The time that a request takes has no limit that a pause could wait for."""
    arrived, go_on = threading.Event(), threading.Event()
    slow = [True]

    def delay(environ):
        if environ["REQUEST_METHOD"] == "PUT" and slow and slow.pop():
            arrived.set()
            go_on.wait(20)

    s3_server.refuse = delay
    outcome = []

    def claim():
        try:
            with ResultsFolder(s3).lock():
                outcome.append("held")
        except BusyError as error:
            outcome.append(error)

    late = threading.Thread(target=claim)
    late.start()
    assert arrived.wait(20)
    with ResultsFolder(s3).lock():
        go_on.set()
        late.join()
        assert isinstance(outcome[0], BusyError)
        assert ResultsFolder(s3).is_running()


def test_a_write_whose_answer_is_lost_is_known_for_ours(s3, monkeypatch):
    real, lost = ObjectStore._s3, []

    def lose_the_first(self, request, *more, **given):
        answer = real(self, request, *more, **given)
        if request == "put_object" and not lost:
            lost.append(answer)
            raise OSError("AWS Error SLOW_DOWN (HTTP status 503) during PutObject operation: slow")
        return answer

    monkeypatch.setattr(ObjectStore, "_s3", lose_the_first)
    with ResultsFolder(s3).lock():
        assert ResultsFolder(s3).is_running()
    assert lost != [None]


def test_a_store_that_heeds_no_condition_is_refused(s3, s3_server):
    s3_server.conditional = False
    try:
        with pytest.raises(RequestError, match=r"does not heed the conditions .*If-None-Match"):
            take(s3)
    finally:
        s3_server.conditional = True


def test_without_the_client_a_run_is_refused_and_a_reader_is_not(s3, monkeypatch):
    monkeypatch.setitem(sys.modules, "botocore.session", None)
    object_store._s3_client.cache_clear()
    with pytest.raises(RequestError, match=r"pip install 'clsweep\[s3\]'"):
        take(s3)
    assert not ResultsFolder(s3).is_running()


# A path that comes to name another folder.

WRITES = {
    "checkpoint": lambda folder: folder.write(checkpoint_file("a-0"), b"x"),
    "encoder": lambda folder: folder.write(encoder_file("a-0"), b"x"),
    "no checkpoint": lambda folder: folder.remove(checkpoint_file("a-0")),
    "references": lambda folder: folder.add_references([]),
    "compaction": lambda folder: folder.compact(),
    "epochs": lambda folder: folder.keep_running({}),
    "leftovers": lambda folder: folder.write(".leftovers.json", b"{}"),
    "beat": lambda folder: folder.held.beat({"state": "running", "running": []}),
    "any error": lambda _: [][0],
}


def move(out):
    out.rename(out.with_name("moved"))


def replace_by_a_copy(out):
    shutil.copytree(out, out.with_name("copy"))
    move(out)
    out.with_name("copy").rename(out)


def begin_another(out):
    shutil.rmtree(out)
    with ResultsFolder(str(out)).lock():  # often the same inodes, if nobody keeps them
        ResultsFolder(str(out)).write(checkpoint_file("a-0"), b"theirs")


def lose_the_lock(out):
    (out / ".lock").unlink()


def content(out):
    return {str(p.relative_to(out)): p.read_bytes() for p in out.rglob("*") if p.is_file()}


@pytest.mark.parametrize(
    ("change", "write"),
    [
        *((begin_another, write) for write in WRITES),
        *(
            (change, "checkpoint")
            for change in (shutil.rmtree, move, replace_by_a_copy, lose_the_lock)
        ),
    ],
)
def test_a_run_whose_folder_is_another_one_ends_and_leaves_it_alone(tmp_path, change, write):
    out = tmp_path / "out"
    folder, after, scratch = ResultsFolder(str(out)), {}, []

    def run():
        with folder.lock():
            scratch.append(Path(folder.scratch))
            folder.write(checkpoint_file("a-0"), b"ours")
            beside = ResultsFolder(str(out), folder.held.run)  # of a trial's process
            beside.write(checkpoint_file("a-0"), b"ours again")
            change(out)
            after.update(content(out))
            with pytest.raises(BusyError):
                beside.write(encoder_file("a-0"), b"ours")
            WRITES[write](folder)

    with pytest.raises(BusyError, match="out: this results folder was deleted, moved or") as ended:
        run()
    assert len(str(ended.value).splitlines()) == 1
    assert content(out) == after
    assert out.exists() == bool(after)
    assert not scratch[0].exists()


@pytest.mark.parametrize("taken", [True, False])
def test_a_store_whose_folder_was_taken_over_or_deleted_ends_the_run(s3, taken):
    fs, base = pafs.FileSystem.from_uri(s3)
    folder = ResultsFolder(s3)
    why = "on node7" if taken else "was deleted, moved or replaced"

    def run():
        with folder.lock():
            folder.held.beat({"state": "running", "running": ["a-0"]})
            assert folder.heartbeat()["running"] == ["a-0"]
            beside = ResultsFolder(s3, folder.held.run)
            with folder.held._saying:  # the test's store lets two writes of one moment both in
                if taken:
                    write_heartbeat(s3, owner="another", host="node7", state="running", time=0)
                else:
                    fs.delete_file(f"{base}/heartbeat.json")
            with pytest.raises(BusyError, match=why):
                beside.write(checkpoint_file("a-0"), b"x")
            assert folder.checkpoint("a-0") is None
            deadline = time.monotonic() + 20  # its own heartbeat meets the other one
            while time.monotonic() < deadline:
                folder.write(encoder_file("a-0"), b"x")

    with pytest.raises(BusyError, match=why):
        run()
    assert folder.heartbeat().get("owner") == ("another" if taken else None), "left to the other"


# File systems.


@pytest.mark.parametrize("code", [errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP])
def test_without_locks_one_that_comes_unseen_ends_the_first(tmp_path, monkeypatch, code):
    def refuse(*_):
        raise OSError(code, "no locks here")

    monkeypatch.setattr("fcntl.flock", refuse)
    first, second = (ResultsFolder(str(tmp_path / "out")) for _ in range(2))

    def run():
        with first.lock():
            first.write(checkpoint_file("a-0"), b"first")
            with second.lock():  # before the first has said anything
                with pytest.raises(BusyError):
                    first.write(checkpoint_file("a-0"), b"first again")
                second.write(checkpoint_file("a-0"), b"second")
            first.compact()

    with pytest.raises(BusyError, match="was deleted, moved or replaced"):
        run()
    assert second.checkpoint("a-0") == b"second"


def test_a_folder_that_cannot_be_written_is_one_line(tmp_path, monkeypatch):
    (tmp_path / "out").mkdir()
    real = os.open

    def read_only(path, flags, *more, **options):
        if flags & (os.O_WRONLY | os.O_RDWR):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), path)
        return real(path, flags, *more, **options)

    monkeypatch.setattr(os, "open", read_only)
    with pytest.raises(RequestError) as refused:
        take(str(tmp_path / "out"))
    assert str(refused.value) == f"{tmp_path}/out/.lock: cannot be opened: Read-only file system"
