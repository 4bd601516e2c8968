"""The driver's side of the loggers: events go into a queue, and a process of each logger takes them
from there. What goes wrong there is one line, and the study goes on.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence

from clsweep.catalog import OBJECTIVE_PARTS, PARAM
from clsweep.catalog.rows import Row
from clsweep.cluster.loggers.sinks import IDENTITY
from clsweep.errors import RequestError, nearest
from clsweep.results.schemas import SIDE_TABLES
from clsweep.study.design import Study
from clsweep.study.schema import LOGGERS, LoggerSection

Say = Callable[[str], None]

MOST_WAITING = 10_000  # events; a logger that is so far behind hangs
CLOSE_S = 15.0  # to write what is left at the end of a run


class Loggers:
    """All loggers of a run; a context manager. No method waits or raises, and any thread may call.

    Args:
        wanted: what the study and the command ask for; a name that comes twice counts once.
        place: a folder of this machine, for loggers that write files.
        say: prints a line.
    """

    def __init__(self, wanted: Sequence[LoggerSection], study: Study, place: str, say: Say):
        self._wanted = {logger.name: logger for logger in reversed(wanted)}
        self._about = {"study": study.sections.name, "place": os.path.abspath(place)}
        self._say, self._feeds = say, list[_Feed]()
        self._last_epoch: dict[str, int] = {}  # of each trial that has begun and not ended
        self._lock = threading.RLock()

    def __enter__(self) -> Loggers:
        for logger in self._wanted.values():
            try:
                self._feeds.append(_Feed(logger, self._about, self._say))
            except OSError as error:
                self._say(_no_more(logger.name, str(error)))
        return self

    def __exit__(self, *_: object) -> None:
        for feed in self._feeds:
            feed.put(None)
        for feed in self._feeds:
            feed.wait()

    def started(self, row: Row) -> None:
        """A trial begins, or begins again: then its epochs come again, too."""
        params = {name: row[name] for name in row if name in PARAM and row[name] is not None}
        parts = {part: row[part] for part in (*OBJECTIVE_PARTS, "dataset") if part in row}
        with self._lock:
            self._last_epoch[row["trial_id"]] = -1
            self._put("begin", {**{name: row[name] for name in IDENTITY}, "params": parts | params})

    def reported(self, trial_id: str, epochs: Sequence[Row]) -> None:
        """The epochs so far of a trial; those that are new are logged."""
        with self._lock:
            last = self._last_epoch.get(trial_id)
            if last is None:  # it has ended meanwhile
                return
            for epoch in epochs:
                if epoch["epoch"] > last:
                    last = self._last_epoch[trial_id] = epoch["epoch"]
                    self._put("epoch", trial_id, _numbers(epoch))

    def ended(self, row: Row, outcome: Row) -> None:
        """A trial has its outcome, whose epochs are logged that were not reported."""
        trial_id = row["trial_id"]
        measured = {name: x for name, x in outcome.items() if name not in SIDE_TABLES}
        error = str(outcome.get("error_message") or "")
        with self._lock:
            if trial_id not in self._last_epoch:  # of a process that died before it began
                self.started(row)
            self.reported(trial_id, outcome.get("epochs", ()))
            self._put("end", trial_id, _numbers(measured), outcome["status"], error)
            del self._last_epoch[trial_id]

    def _put(self, *event: object) -> None:
        if self._feeds:
            line = json.dumps(event, default=str).encode() + b"\n"
            for feed in self._feeds:
                feed.put(line)


def _numbers(values: Row) -> dict[str, float]:
    return {
        name: value
        for name, value in values.items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    }


def _no_more(name: str, reason: str) -> str:
    return f"{name} logs no more, the study goes on: {reason[:300]}"


class _Feed:
    """One logger's process, and the threads that write to it and hear of it."""

    def __init__(self, logger: LoggerSection, about: Row, say: Say):
        self._name, self._say = logger.name, say
        about = {"logger": logger.name, "options": logger.options, **about}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "clsweep.cluster.loggers.sinks", json.dumps(about)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C is the driver's
        )
        self._waiting: queue.Queue[bytes | None] = queue.Queue(MOST_WAITING)
        self._is_over = threading.Event()  # nothing more is to be said of it
        threading.Thread(target=self._write, daemon=True).start()
        self._reader = threading.Thread(target=self._listen, daemon=True)
        self._reader.start()

    def put(self, line: bytes | None) -> None:
        if not self._is_over.is_set():
            try:
                self._waiting.put_nowait(line)
            except queue.Full:
                self._give_up("it does not keep up with the study")

    def wait(self) -> None:
        """Until the process has ended, `CLOSE_S` at most."""
        self._reader.join(CLOSE_S)
        if self._reader.is_alive():
            self._give_up(f"it did not end within {CLOSE_S:.0f} s")
        try:
            self._process.wait(1.0)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _write(self) -> None:
        assert self._process.stdin is not None
        # A broken pipe: `_listen` hears why.
        with contextlib.suppress(OSError), self._process.stdin as pipe:
            while (line := self._waiting.get()) is not None:
                pipe.write(line)
                if self._waiting.empty():
                    pipe.flush()

    def _listen(self) -> None:
        """What the process says: that it is done, or one line on what went wrong."""
        assert self._process.stdout is not None
        said = self._process.stdout.read().decode(errors="replace").strip()
        if said == "done":
            self._is_over.set()
        else:
            self._give_up(said.splitlines()[-1] if said else "its process ended")

    def _give_up(self, reason: str) -> None:
        if not self._is_over.is_set():
            self._is_over.set()
            self._say(_no_more(self._name, reason))
            self._process.kill()


def loggers_place(local_path: str | None, name: str) -> str:
    """Where loggers put their files: beside the results, or here where those are in a store."""
    return local_path or os.path.join("results", name)


def wanted_loggers(study: Study, names: Sequence[str]) -> list[LoggerSection]:
    """Those of the study, and those that the command names.

    Raises:
        RequestError: there is no logger of that name.
    """
    for name in names:
        if name not in LOGGERS:
            raise RequestError(
                f"--log: unknown logger '{name}'.{nearest(name, LOGGERS)} Expected one of: "
                f"{', '.join(LOGGERS)}"
            )
    return [*study.sections.loggers, *map(LoggerSection.model_validate, names)]
