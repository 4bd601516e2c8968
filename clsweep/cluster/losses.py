"""What becomes of a trial that goes wrong or loses its process or machine: its error out of Ray's
wrappers, and whether it goes on, has failed, or stays open. What a machine does is no score.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import shutil
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from clsweep.catalog.rows import Row
from clsweep.cluster.session import OWNER, owner
from clsweep.machine import here, living

AGAIN, FAILED, OPEN = "again", "failed", "open"
MEMORY, NODE, RAY = "out of memory", "its node is gone", "Ray has ended"
# In classes and texts of Ray. "OOM killer" is in the text of every death, as one of its guesses.
_SAID = {
    "OutOfMemoryError": MEMORY, "low on memory": MEMORY, "OutOfDiskError": "disk full",
    "NodeDiedError": NODE, "node has died": NODE, "node was terminated": NODE,
    "owner has died": RAY,
}  # fmt: skip
PAUSE_S, LONGEST_PAUSE_S = 5.0, 60.0  # for memory to be free again; each time twice as long
MOST_TEXT = 8 * 1024  # bytes of an error's text that are kept
MOST_ALONE = 3  # trials in a row that memory was missing for though nothing else ran


class StalledError(RuntimeError):
    """A trial said nothing for too long, and its process was ended."""


class Losses:
    """Of one run.

    Attributes:
        actors: of the trials that run, by id.
        open: trials that stay without a row in this run, and why.
        limit: trials at once, by what memory has allowed.
        is_ray_lost: whether Ray itself is gone.
    """

    def __init__(self, max_restarts: int):
        self._max_restarts, self._num = max_restarts, Counter[tuple[str, bool]]()
        self._stalled: dict[str, str] = {}
        self._num_killed, self._pause_s, self._pause_end = _num_killed(), PAUSE_S, 0.0
        self._num_alone, self._has_lost = 0, False
        self.actors: dict[str, Any] = {}
        self.open: dict[str, str] = {}
        self.limit, self.is_ray_lost = sys.maxsize, lambda: ""

    @property
    def waits(self) -> bool:
        """Whether memory has just run out, so that nothing should be started."""
        return time.monotonic() < self._pause_end

    @property
    def is_hopeless(self) -> bool:
        """Whether the next trials would lack memory, too."""
        return self._num_alone >= MOST_ALONE

    def ended(self) -> None:
        """A trial has come to its end."""
        self._num_alone = 0

    def stall(self, trial_id: str, message: str) -> None:
        """End the process of a trial that says nothing any more."""
        import ray

        self._stalled[trial_id] = message
        with contextlib.suppress(Exception):  # of Ray: it is gone, which others see
            ray.kill(self.actors[trial_id])

    def fate(
        self, trial_id: str, error: BaseException | None, num_running: int
    ) -> tuple[str, str, BaseException | None]:
        """What becomes of a trial that was lost, one of so many that ran; why; and its error."""
        self._has_lost = True
        if message := self._stalled.pop(trial_id, ""):
            return FAILED, message, StalledError(message)
        reason = self._reason(error)
        is_own = reason != RAY
        if reason == MEMORY:
            is_own = num_running == 1 and not self.waits
            if not self.waits:  # else one of several that were stopped at once
                self.limit = max(1, num_running * 3 // 4)
                reason = f"{MEMORY} with {num_running} at once; going on with {self.limit}"
                self._pause_end = time.monotonic() + self._pause_s
                self._pause_s = min(2 * self._pause_s, LONGEST_PAUSE_S)
        self._num[trial_id, bool(reason)] += is_own
        if self._num[trial_id, bool(reason)] <= self._max_restarts:
            return AGAIN, reason, error
        if reason:
            self.open[trial_id] = reason.partition(" with ")[0]
            self._num_alone += reason.startswith(MEMORY)
        return OPEN if reason else FAILED, reason, error

    def free_groups(self) -> None:
        """Give back what the worker groups of lost trials still hold: else no other would start."""
        if self._has_lost:
            remove_orphaned_groups()

    def _reason(self, error: BaseException | None) -> str:
        """What the machine has done; empty where the trial's own process may be to blame."""
        if self.is_ray_lost():
            return RAY
        try:
            os.getcwd()
        except OSError:  # no process starts any more
            return "the working folder is gone"
        for cause in causes(error) if error else ():
            if type(cause).__module__.startswith("ray."):
                text = f"{type(cause).__name__} {cause}"
                if reason := next((why for said, why in _SAID.items() if said in text), ""):
                    return reason
        before, self._num_killed = self._num_killed, _num_killed()
        return MEMORY if self._num_killed > before else ""


def _num_killed() -> int:
    """Processes that the kernel has killed here for lack of memory, as far as it says."""
    with contextlib.suppress(OSError):
        _, _, more = Path("/proc/vmstat").read_text().partition("\noom_kill ")
        return int(more.partition("\n")[0] or 0)
    return 0


def describe(error: BaseException) -> Row:
    """Class, message and traceback of the error at the root of Ray's wrappers."""
    root = root_cause(error)
    name, place = _cut(type(root).__name__, 200), getattr(root, "plugin_place", "")
    # Ray's own texts hold process ids and advice on Ray; equal failures shall have equal messages.
    message = (_of_ray(root) and _LOST.get(name)) or text_of(root).strip() or name
    message = f"{place}: {name}: {message}" if place else message
    trace = _cut("".join(traceback.format_exception(root)), MOST_TEXT, end=MOST_TEXT // 2)
    return {
        "error_class": name,
        "error_message": _cut(message, MOST_TEXT),
        "error_traceback": trace,
    }


def text_of(error: BaseException) -> str:
    """What an error says; nothing where it fails at that, as one of a user's class may."""
    try:
        return str(error)
    except Exception:
        return ""


def _cut(text: str, most: int, *, end: int = 0) -> str:
    """At most about so many bytes of UTF-8 of a text, `end` of them its last ones: it goes through
    Ray, into a table, and onto screens.
    """
    data = text.encode("utf-8", "backslashreplace")
    if len(data) <= most:
        return data.decode()
    head, tail = (
        part.decode("utf-8", "ignore") for part in (data[: most - end], data[len(data) - end :])
    )
    return f"{head} ... {len(data) - most:,} bytes cut ... {tail}"


def _of_ray(error: BaseException) -> bool:
    return type(error).__module__.startswith("ray.")  # torch has an OutOfMemoryError too


_DIED = "the trial's process died: killed from outside, out of memory, or crashed"
_LOST = {
    "ActorDiedError": _DIED,
    "ActorUnavailableError": _DIED,
    "WorkerCrashedError": _DIED,
    "WorkerHealthCheckFailedError": _DIED,
    "NodeDiedError": "the node of the trial died",
    "OutOfMemoryError": "the node ran out of memory; Ray stopped the trial",
}
# What torch says in the other workers of a group when one of them is gone.
_CUT_OFF = re.compile(
    "connection|broken pipe|timed out|timeout|remote process|peer|shut ?down|aborted|system error",
    re.IGNORECASE,
)
_OF_THE_GROUP = re.compile("gloo|nccl|c10d|distributed|tcpstore", re.IGNORECASE)


def is_lost(error: BaseException) -> bool:
    """Whether a process or a machine was lost, rather than that the trial itself went wrong."""
    root = root_cause(error)
    return _of_ray(root) or _is_cut_off(root)


def _is_cut_off(error: BaseException) -> bool:
    text = text_of(error)
    return _may_be_torch_s(error) and bool(_OF_THE_GROUP.search(text) and _CUT_OFF.search(text))


def _may_be_torch_s(error: BaseException) -> bool:
    """Whether torch's messages between workers raise such errors; a trial's have other classes."""
    name = type(error).__name__
    return (
        type(error) is RuntimeError or isinstance(error, ConnectionError) or name.startswith("Dist")
    )


def root_cause(error: BaseException) -> BaseException:
    """What went wrong, out of Ray's wrappers, whose messages repeat tracebacks.

    Of several workers that failed, the one with an error of its own. Where one of them died, the
    others only miss it, in whatever words.
    """
    found = list(causes(error))
    has_died = any(map(_of_ray, found))
    return min(
        found,
        key=lambda cause: (has_died and _may_be_torch_s(cause), _is_cut_off(cause), _of_ray(cause)),
    )


def causes(error: BaseException, depth: int = 10) -> Iterator[BaseException]:
    """What an error of Ray wraps."""
    failures = getattr(error, "worker_failures", None) or {}
    names = ("_base_exc", "cause", "health_check_failure", "controller_failure")
    inner = list(failures.values()) or [getattr(error, name, None) for name in names]
    found = [cause for cause in inner if isinstance(cause, BaseException) and cause is not error]
    if not found or not depth:
        yield error
        return
    for cause in found if failures else found[:1]:
        yield from causes(cause, depth - 1)


# The processes of a run's Ray: whether it still works, where Ray itself would let the run wait for
# ever, and what a killed run leaves on its machine.
#
# Temporary folders of a run say whose they are. The next run on the machine removes those of runs
# that are no more, and ends the processes of their Ray, some of which take a minute to see that
# they are alone.

INTERVAL_S = 1.0
ANSWER_S, MOST_UNANSWERED = 5.0, 5  # Ray ends a driver whose head does not answer for a minute
ECHO_S = 2.0  # for the end of a process of Ray to be seen after what it brought about
STUCK_S, END_S = 20.0, 30.0  # for a run to come out of what it waits for, and to let go of Ray
LET_GO_S = 60.0  # for a Ray that works to let go of a run that is over
KEPT = "What has finished is kept; the same command continues it."


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


def remove_orphaned_groups() -> None:
    """Remove the placement groups of this run whose creator is dead, which Ray keeps for the whole
    job. Ray Train has a process that removes them: it may be killed too, for want of memory, and
    knows of a group only once all of its workers have started.
    """
    import ray
    from ray._private.state import state
    from ray.core.generated.gcs_pb2 import PlacementGroupTableData
    from ray.util.placement_group import PlacementGroup, remove_placement_group

    job = ray.get_runtime_context().get_job_id()
    for data in state._connect_and_get_accessor().get_placement_group_table():
        group = PlacementGroupTableData.FromString(data)
        creator = state.actor_table(group.creator_actor_id.hex(), None, None)
        if group.creator_job_id.hex() == job and creator.get("State") == "DEAD":
            remove_placement_group(PlacementGroup(ray.PlacementGroupID(group.placement_group_id)))


PATIENCE_S = 5.0  # for killed processes to go


def end_all_of(folder: str) -> None:
    """Kill all other processes of the Ray that has a folder, and wait for them to go."""
    import psutil

    killed = set()
    for process in psutil.process_iter():
        if process.pid != os.getpid() and _is_of(process.pid, folder):
            with contextlib.suppress(psutil.Error):
                process.kill()
                killed.add(process.pid)
    deadline = time.monotonic() + PATIENCE_S
    while killed & living().keys() and time.monotonic() < deadline:
        time.sleep(0.02)


def remove_leftovers() -> None:
    """Remove what killed runs of this user have left on this machine: temporary folders, and the
    processes of a Ray that had one. Of a folder that is another user's nothing is read.
    """
    places = {Path(place).resolve() for place in (tempfile.gettempdir(), "/tmp")}
    for told in (told for place in places for told in place.glob(f"clsweep-*/{OWNER}")):
        folder = told.parent
        with contextlib.suppress(OSError, ValueError):
            if folder.lstat().st_uid == told.lstat().st_uid == os.getuid():
                machine, pid, start = told.read_text().split()
                if machine == here() and str(living().get(int(pid))) != start:
                    end_all_of(str(folder))
                    shutil.rmtree(folder, ignore_errors=True)


def _is_of(pid: int, folder: str) -> bool:
    """Whether a process is this user's, and has a file in that folder open: Ray's logs."""
    import psutil

    try:
        process = psutil.Process(pid)
        return process.uids().real == os.getuid() and any(
            file.path.startswith(f"{folder}/") for file in process.open_files()
        )
    except psutil.Error:
        return False
