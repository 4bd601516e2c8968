"""The lock of a results folder: one run at a time. On a disk it is the operating system's, and
is free when its process is gone; in an object store a heartbeat does, which goes stale.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import socket
import threading
import time
import uuid
from collections.abc import Iterator, Mapping
from typing import IO, TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat

from clsweep.errors import BusyError, RequestError
from clsweep.files import UNSUPPORTED
from clsweep.machine import machine
from clsweep.results.disk import Disk

if TYPE_CHECKING:
    from clsweep.results.object_store import ObjectStore

HEARTBEAT = "heartbeat.json"
# Of a trial under way: where it is, all or none, and what else may be said of it.
PLACE, MORE = {"epoch", "epochs", "step", "steps"}, {"loss", "images_per_s", "scoring", "silent_s"}
LOCK_ATTEMPTS, LOCK_PAUSE_S = 5, 0.1
STALE_S = 60.0  # a run in an object store that has not said anything for so long is taken for dead
RENEW_S = 10.0  # at least so often it does


class FolderLock:
    """The right of one run to write to a folder on a disk, by a lock. A path may come to name
    another folder under a run, which is deleted, moved or made anew: the file says whose it is, and
    its inode tells it from a copy.

    On a file system without locks a second run is not kept out: it ends the first, which does not
    find its name any more.
    """

    def __init__(self, files: Disk, path: str, run: str | None = None):
        self._files, self._path = files, path
        self.run = run  # whose it is, for its other processes to write by

    def is_held(self) -> bool:
        """Any run holds the folder."""
        try:
            # to be read only: the folder may be somebody else's
            with open(self._files.descriptor(".lock")) as handle:
                return not _lock(handle, exclusive=False)
        except OSError:
            return False  # no run has ever held it

    def beat(self, state: Mapping[str, Any]) -> None:
        """Say that the run is alive, which keeps the folder ours; BusyError where it is not."""
        self.check()
        self._files.write(HEARTBEAT, json.dumps({**state, **_process()}).encode(), durable=False)

    def check(self) -> None:
        """Before anything is written: BusyError where the folder is not that of `run` any more."""
        if self.run is not None and self.run != self._current_run():
            raise BusyError(_busy(self._path, {}))

    def _current_run(self) -> str | None:
        """The run that has the folder which is now at this place."""
        try:
            name = self._files.read(".lock").hex()
            return f"{os.stat(self._files.place('.lock')).st_ino} {name}"
        except FileNotFoundError:
            return None

    @contextlib.contextmanager
    def hold(self) -> Iterator[None]:
        """Hold the folder; BusyError if another run does, RequestError if it cannot be made."""
        with contextlib.ExitStack() as stack:
            try:
                os.makedirs(self._files.folder, exist_ok=True)
                lock = self._files.descriptor(".lock", os.O_RDWR | os.O_CREAT)
                handle = stack.enter_context(open(lock, "w"))
                # A status command may hold it for an instant; a run holds it for long.
                pause = threading.Event()
                if not any(
                    _lock(handle, exclusive=True) or pause.wait(LOCK_PAUSE_S)
                    for _ in range(LOCK_ATTEMPTS)
                ):
                    raise BusyError(_busy(self._path))
                name = uuid.uuid4().bytes
                os.truncate(handle.fileno(), os.pwrite(handle.fileno(), name, 0))
            except OSError as error:
                raise RequestError(
                    f"{self._path}: cannot be used as a results folder: {error.strerror}"
                ) from None
            self.run = f"{os.fstat(handle.fileno()).st_ino} {name.hex()}"
            self.check()
            yield


def _lock(handle: IO[str], *, exclusive: bool) -> bool:
    """Try to lock the open file until it is closed; False if somebody else has the folder."""
    import fcntl

    try:
        fcntl.flock(handle, (fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in UNSUPPORTED:
            raise
    return True


class ObjectStoreLease:
    """The right of one run to write to an object store's folder, as `FolderLock`: it is whose name
    stands in the heartbeat, while that beats. The heartbeat is written over the last one known
    alone, so nobody takes or keeps the folder without having seen who has it.
    """

    def __init__(self, files: ObjectStore, path: str, run: str | None = None):
        self._files, self._path = files, path
        self.run = run  # our name in the heartbeat
        self._version: str | None = None  # of the heartbeat that we wrote last
        self._state: dict[str, Any] = {}
        self._said_at = 0.0
        # the heartbeat of a run that took us for dead; empty if there is none any more
        self._taken_by: dict[str, Any] | None = None
        self._saying = threading.RLock()

    def is_held(self) -> bool:
        return _is_fresh(read_heartbeat(self._files))

    def beat(self, state: Mapping[str, Any]) -> None:
        with self._saying:
            version = self._files.replace(HEARTBEAT, self._heartbeat(state), self._version)
            if version is None:
                self._taken_by = read_heartbeat(self._files)
                raise BusyError(_busy(self._path, self._taken_by))
            self._version, self._state, self._said_at = version, dict(state), time.monotonic()

    def check(self) -> None:
        if self.run is None:
            return
        if is_elsewhere := self._version is None:  # another process of the run beats
            beat = read_heartbeat(self._files)
            self._taken_by = None if beat.get("owner") == self.run else beat
        if self._taken_by is not None:
            raise BusyError(_busy(self._path, self._taken_by))
        if not is_elsewhere and time.monotonic() - self._said_at > STALE_S / 2:
            self.beat(self._state)

    @contextlib.contextmanager
    def hold(self) -> Iterator[None]:
        self._take()
        released = threading.Event()
        renewing = threading.Thread(target=self._renew, args=(released,), daemon=True)
        renewing.start()
        try:
            yield
        finally:
            released.set()
            renewing.join()
            with contextlib.suppress(RequestError):  # if it cannot be released it goes stale
                self.beat({**self._state, "state": "ended", "owner": None})
            self.run = None

    def _take(self) -> None:
        beat, self._version = self._versioned_heartbeat()
        if beat.get("owner") is not None and not _is_dead(beat):
            if _is_fresh(beat):
                raise BusyError(_busy(self._path, beat))
            # Stale by our clock, which may differ from that of its machine: see whether it beats.
            time.sleep(2 * RENEW_S)
            again, version = self._versioned_heartbeat()
            if version != self._version:
                raise BusyError(_busy(self._path, again))
        self.run = uuid.uuid4().hex
        try:
            self.beat({"state": "running", "running": [], "headline": "starting"})
            self._require_conditions()
        except RequestError:
            self.run, self._taken_by = None, None
            raise

    def _versioned_heartbeat(self) -> tuple[dict[str, Any], str | None]:
        """The heartbeat and its version."""
        content, version = self._files.versioned(HEARTBEAT) or (b"", None)
        return _parsed(content), version

    def _require_conditions(self) -> None:
        """A store that writes whatever the condition would let two runs in."""
        for wrong in (None, '"0123456789abcdef0123456789abcdef"'):
            probe = self._heartbeat({**self._state, "probe": uuid.uuid4().hex})
            if self._files.replace(HEARTBEAT, probe, wrong) is not None:
                raise RequestError(
                    f"{self._path}: this store does not heed the conditions of a write "
                    "(If-None-Match, If-Match), by which a run holds its folder. Expected a store "
                    "that does, as S3, or a local folder"
                )

    def _renew(self, released: threading.Event) -> None:
        """Keep it ours while nobody beats: Ray starts, tables are compacted."""
        while not released.wait(RENEW_S / 4):
            if time.monotonic() - self._said_at > RENEW_S:
                # a folder that is no longer ours: the next beat says so
                with contextlib.suppress(RequestError), self._saying:  # else of an older state
                    self.beat(self._state)

    def _heartbeat(self, state: Mapping[str, Any]) -> bytes:
        whole = {"owner": self.run, **_process(), **state, "time": time.time()}
        return json.dumps(whole).encode()


class _Beat(BaseModel):
    """The fields of a heartbeat, each in its type."""

    model_config = ConfigDict(strict=True, extra="allow")

    host: str = ""
    headline: str = ""
    state: str = ""
    running: list[str] = []
    time: Annotated[float, Field(ge=0, lt=2**40)] = 0
    pid: Annotated[int, Field(ge=0, lt=2**31)] = 0
    trials: dict[str, dict[str, FiniteFloat]] = {}


def read_heartbeat(files: Disk | ObjectStore) -> dict[str, Any]:
    """The last heartbeat of the run; empty if there is none, or none that can be read."""
    for _ in range(3):  # an object may be replaced while it is read
        try:
            if beat := _parsed(files.read(HEARTBEAT)):
                return beat
        except FileNotFoundError:
            break
    return {}


def _parsed(content: bytes) -> dict[str, Any]:
    try:
        beat: dict[str, Any] = json.loads(content)
        states = _Beat.model_validate(beat).trials.values()
    except (ValueError, RecursionError):
        return {}
    return beat if all(state.keys() - MORE in (PLACE, set()) for state in states) else {}


def _is_fresh(beat: Mapping[str, Any]) -> bool:
    has_owner = beat.get("owner") is not None
    return has_owner and abs(time.time() - float(beat.get("time", 0))) < STALE_S


def _is_dead(beat: Mapping[str, Any]) -> bool:
    """The heartbeat is that of a process of this very machine that is no more."""
    import psutil

    here = machine()
    is_here = here is not None and beat.get("machine") == here and "pid" in beat
    return is_here and not psutil.pid_exists(int(beat["pid"]))


def _process() -> dict[str, Any]:
    return {"host": socket.gethostname(), "machine": machine(), "pid": os.getpid()}


def _busy(path: str, beat: Mapping[str, Any] | None = None) -> str:
    """beat: of the run that has the folder, if that is known; empty if none has what was ours."""
    if beat == {}:
        return (
            f"{path}: this results folder was deleted, moved or replaced under a run, which ends "
            "and writes nothing more. Move it back and give the same command, or give another --out"
        )
    by = ""
    if beat:
        since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(beat.get("time", 0)))
        by = f": process {beat.get('pid')} on {beat.get('host')}, last heard of at {since}"
    return (
        f"{path}: another clsweep run is writing here{by}. Watch it with: clsweep status "
        f"{shlex.quote(path)}"
    )
