"""The processes of a run's Ray: whether it still works, where Ray itself would let the run wait for
ever, and what a killed run leaves on its machine.

A run notes its Ray and temporary folders in its results folder; the next run on that folder removes
them, and ends the processes of that Ray, some of which take a minute to see that they are alone. A
note may have been edited, and process ids are given again. So the system has to say, too, that what
is removed was that run's.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import re
import shutil
import sys
import tempfile
import threading
import time
from pathlib import Path

from clsweep.cluster.session import PREFIX
from clsweep.errors import BusyError, RequestError
from clsweep.machine import here, living
from clsweep.results.folder import LEFTOVERS, ResultsFolder

INTERVAL_S = 1.0
ANSWER_S, MOST_UNANSWERED = 5.0, 5  # Ray ends a driver whose head does not answer for a minute
ECHO_S = 2.0  # for the end of a process of Ray to be seen after what it brought about
STUCK_S, END_S = 20.0, 30.0  # for a run to come out of what it waits for, and to let go of Ray
LET_GO_S = 60.0  # for a Ray that works to let go of a run that is over
KEPT = "What has finished is kept; the same command continues it."


class Watchdog:
    """A context manager of the thread that waits for Ray, around Ray. Where that is gone, the
    thread gets a KeyboardInterrupt, and the processes of its session are killed in the end. What
    the session would leave is noted meanwhile, and removed where it ends in order.
    """

    def __init__(self, folder: ResultsFolder):
        self._folder, self._ray, self._lost = folder, "", ""
        self._run = threading.get_ident()
        self._is_out, self._has_ended = threading.Event(), threading.Event()

    def __enter__(self) -> Watchdog:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._has_ended.set()
        if self._lost:
            self._end_processes()
        try:
            self._folder.held.check()
        except BusyError:  # no next run would find the note
            shutil.rmtree(_whole(self._ray) if self._ray else "", ignore_errors=True)
            return
        if kind is None:  # else Ray's logs may say why: they stay until the next run
            remove_leftovers(self._folder)

    def begin(self, ray_folder: str | None) -> None:
        """Ray has begun. A note that cannot be written costs the next run a minute.

        Args:
            ray_folder: of its session, if that is this run's own.
        """
        if ray_folder is not None:
            self._ray = os.path.realpath(ray_folder)
            Path(self._ray, MARK).write_text(self._folder.place(""))
        noted = {"machine": here(), "ray": self._ray, "scratch": self._folder.scratch}
        with contextlib.suppress(RequestError):
            self._folder.write(LEFTOVERS, json.dumps(noted).encode(), durable=False)
        threading.Thread(target=self._watch, daemon=True).start()

    def _end_processes(self) -> None:
        """Kill all processes of a session that is broken: they may not know it."""
        if self._ray:
            end_all_of(self._ray)

    def look(self) -> str:
        """What of Ray is gone, empty if nothing."""
        from ray._private import worker

        if not self._lost and worker._global_node is not None:
            with contextlib.suppress(RuntimeError):  # it is being taken down
                for name, process in worker._global_node.dead_processes():
                    self._lost = f"{name}, a process of Ray ({process.pid}), has ended"
        return self._lost

    def stop(self, patience_s: float = 0.0) -> str:
        """As `look`, by the thread that waited, which is not woken any more."""
        deadline = time.monotonic() + patience_s
        while not (lost := self.look()) and time.monotonic() < deadline:
            time.sleep(0.05)
        self._is_out.set()
        return lost

    def _watch(self) -> None:
        num_unanswered = 0
        while not self._is_out.wait(INTERVAL_S) and not self.look():
            num_unanswered = 0 if self._answers() else num_unanswered + 1
            if num_unanswered == MOST_UNANSWERED:
                self._lost = "Ray does not answer any more"
        if self._is_out.is_set() and not self._lost:
            if not self._has_ended.wait(LET_GO_S):  # Ray does not let go of the run, which is over
                self._end_processes()
            return
        deadline = time.monotonic() + STUCK_S
        while not self._is_out.wait(ECHO_S) and time.monotonic() < deadline:
            interrupt = ctypes.py_object(KeyboardInterrupt)
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(self._run), interrupt)
        if not self._is_out.is_set() or not self._has_ended.wait(END_S):
            # in a call that does not come back before Ray ends this process
            self._end_processes()
            print(f"{self._lost}. {KEPT}", file=sys.stderr, flush=True)
            os._exit(1)

    def _answers(self) -> bool:
        """Whether the head answers, and knows this machine."""
        from ray._private.worker import global_worker

        with contextlib.suppress(Exception):
            [lives] = global_worker.gcs_client.check_alive(
                [global_worker.current_node_id], timeout=ANSWER_S
            )
            return bool(lives)
        return False


# In the folder of a session of Ray: the results folder of the run that had it for itself.
MARK = "clsweep"
PATIENCE_S = 5.0  # for killed processes to go


def end_all_of(ray_folder: str) -> None:
    """Kill all other processes of a session of Ray, and wait for them to go."""
    import psutil

    killed = set()
    for process in psutil.process_iter():
        if process.pid != os.getpid() and _is_of(process.pid, ray_folder):
            with contextlib.suppress(psutil.Error):
                process.kill()
                killed.add(process.pid)
    deadline = time.monotonic() + PATIENCE_S
    while killed & living().keys() and time.monotonic() < deadline:
        time.sleep(0.02)


def remove_leftovers(folder: ResultsFolder) -> None:
    """Remove what an earlier run on this folder has left here; the caller holds the folder."""
    noted = folder.leftovers()
    if noted is None:
        return
    if isinstance(noted, dict) and noted.get("machine") == here():
        if ray_folder := _own_ray_folder(noted.get("ray"), folder):
            end_all_of(ray_folder)
            shutil.rmtree(_whole(ray_folder), ignore_errors=True)
        if scratch := _own_scratch(noted.get("scratch")):
            shutil.rmtree(scratch, ignore_errors=True)
    folder.remove(LEFTOVERS)


def _own_ray_folder(noted: object, folder: ResultsFolder) -> str | None:
    """The folder of a session of Ray, if a run on this very results folder had it, and is over."""
    named = isinstance(noted, str) and re.fullmatch(r"/.+/session_[0-9_-]+_([0-9]{1,9})", noted)
    if not named:
        return None
    path, driver = Path(named[0]), int(named[1])
    try:
        ours = (
            path == path.resolve()
            and path.stat().st_uid == os.getuid() == (path / MARK).lstat().st_uid
            and (path / MARK).read_text() == folder.place("")
        )
    except (OSError, ValueError):
        return None
    if driver == os.getpid():  # which has Ray's logs open until it ends
        import ray

        is_at_work = bool(ray.is_initialized())
    else:
        is_at_work = _is_of(driver, str(path))
    return str(path) if ours and not is_at_work else None


def _whole(ray_folder: str) -> str:
    """The folder that a run made for its Ray alone, if the session is in one."""
    made = Path(ray_folder).parent.parent
    is_ours = made.name.startswith(PREFIX) and made.is_dir() and made.stat().st_uid == os.getuid()
    return str(made) if is_ours else ray_folder


def _own_scratch(noted: object) -> str | None:
    """A temporary folder whose name says that a process has made it that is no more."""
    named = isinstance(noted, str) and re.fullmatch(r".*/clsweep-([0-9]{1,9})-([0-9.]+)-\w+", noted)
    if not named:
        return None
    path, owner = Path(named[0]), living().get(int(named[1]))
    has_ended = str(owner) != named[2]
    try:
        ours = path == path.resolve() and path.stat().st_uid == os.getuid()
    except (OSError, ValueError):
        return None
    is_here = path.parent == Path(tempfile.gettempdir()).resolve()
    return str(path) if ours and is_here and has_ended else None


def _is_of(pid: int, ray_folder: str) -> bool:
    """Whether a process is this user's, and has a file of that session of Ray open: its logs."""
    import psutil

    try:
        process = psutil.Process(pid)
        return process.uids().real == os.getuid() and any(
            file.path.startswith(f"{ray_folder}/") for file in process.open_files()
        )
    except psutil.Error:
        return False
