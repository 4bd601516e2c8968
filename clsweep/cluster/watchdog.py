"""A look at the processes of a run's Ray, where Ray itself would let the run wait for ever."""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import sys
import threading
import time
from pathlib import Path

from clsweep.cluster.leftovers import end_all_of
from clsweep.cluster.ray_session import OWNER, owner

LOOK_S = 1.0
RAY_ANSWER_S, MOST_UNANSWERED = 5.0, 5  # Ray ends a driver whose head does not answer for a minute
ECHO_S = 2.0  # for the end of a process of Ray to be seen after what it brought about
STUCK_S, END_S = 20.0, 30.0  # for a run to come out of what it waits for, and to let go of Ray
LET_GO_S = 60.0  # for a Ray that works to let go of a run that is over
CONTINUES = "What has finished is kept; the same command continues it."


class Watchdog:
    """A context manager of the thread that waits for Ray, around Ray. Where that is gone, the
    thread gets a KeyboardInterrupt, and the processes of its session are killed in the end. What
    the session would leave is removed where it ends in order.

    scratch: the run's temporary folder.
    """

    def __init__(self, scratch: str):
        Path(scratch, OWNER).write_text(owner())
        self._ray, self._lost = "", ""
        self._run = threading.get_ident()
        self._is_out, self._has_ended = threading.Event(), threading.Event()

    def __enter__(self) -> Watchdog:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._has_ended.set()
        if self._lost or kind is None:
            self._end_processes()
        if kind is None and self._ray:  # else Ray's logs may say why: they stay until the next run
            shutil.rmtree(self._ray, ignore_errors=True)

    def begin(self, ray_folder: str | None) -> None:
        """Ray has begun, in this folder if it is this run's own."""
        self._ray = ray_folder or ""
        threading.Thread(target=self._watch, daemon=True).start()

    def _end_processes(self) -> None:
        """Kill all processes of a session that is broken: they may not know it."""
        if self._ray:
            end_all_of(self._ray)

    def look(self) -> str:
        """The part of Ray that is gone, empty if none."""
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
        while not self._is_out.wait(LOOK_S) and not self.look():
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
            print(f"{self._lost}. {CONTINUES}", file=sys.stderr, flush=True)
            os._exit(1)

    def _answers(self) -> bool:
        """True if the head answers, and knows this machine."""
        from ray._private.worker import global_worker

        with contextlib.suppress(Exception):
            [lives] = global_worker.gcs_client.check_alive(
                [global_worker.current_node_id], timeout=RAY_ANSWER_S
            )
            return bool(lives)
        return False
