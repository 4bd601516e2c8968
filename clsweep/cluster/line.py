"""A trial's line to its run: how far it is, and whether it is to save now. SIGTERM to its process
asks for that, too.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from clsweep.catalog.rows import Row
from clsweep.train.notice import Notice

RELAY_S = 6.0  # for the first worker to hear and to save


class Line:
    """Of one worker.

    Args:
        tell: lets the run know how far the trial is, and the latest demand that it has met; returns
            what the run asks, if it could be told.
        relay: asks all trials for a checkpoint: of a worker that is not the first of its group,
            which alone tells and saves.
    """

    def __init__(
        self, tell: Callable[[Row, str], str | None], relay: Callable[[str], object] | None = None
    ):
        self._tell = tell
        self._state: Row = {}
        self._asked = self._saved = ""
        self.notice = Notice(self._answer) if relay is None else _Relayed(relay)

    def tell(self, state: Row) -> None:
        """Say how far the trial is; a demand that was not heard before gives notice."""
        self._state = state
        asked = self._tell(state, self._saved)
        if asked and asked != self._asked:
            self._asked = asked
            self.notice.give()

    def _answer(self) -> None:
        self._saved = self._asked
        if self._state:
            self._tell(self._state, self._saved)


class _Relayed(Notice):
    """Of a worker that saves nothing: it asks the first one, by way of the run."""

    def __init__(self, relay: Callable[[str], object]):
        super().__init__()
        self._relay = relay

    def give(self) -> None:
        self._relay(f"worker {os.getpid()} {time.time_ns()}")

    def wait(self, timeout_s: float) -> bool:
        time.sleep(min(timeout_s, RELAY_S))
        return True


LEAVE_S = 25.0  # Slurm, Kubernetes and spot markets leave 30 s and more

_notice: Notice | None = None  # of the trial that this process works on
_previous: Any = signal.SIG_DFL  # Ray's own handler


@contextlib.contextmanager
def saved_on_term(notice: Notice) -> Iterator[None]:
    """Meanwhile SIGTERM gives notice, and takes effect once that is answered."""
    global _notice
    _notice = notice
    if threading.current_thread() is threading.main_thread():
        _install()
    else:  # the main thread alone may set handlers, and Ray works in another
        ctypes.pythonapi.Py_AddPendingCall(_PENDING, None)
    try:
        yield
    finally:
        _notice = None


def _install() -> int:
    global _previous
    if signal.getsignal(signal.SIGTERM) is not _on_term:
        _previous = signal.signal(signal.SIGTERM, _on_term)
    return 0


_PENDING = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(lambda _: _install())


def _on_term(number: int, frame: Any) -> None:
    global _notice
    notice, _notice = _notice, None  # a second signal takes effect at once
    if notice is not None:
        threading.Thread(target=_leave, args=(notice,), daemon=True).start()
    elif callable(_previous):
        _previous(number, frame)
    else:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTERM)


def _leave(notice: Notice) -> None:
    notice.give()
    notice.wait(LEAVE_S)
    os.kill(os.getpid(), signal.SIGTERM)
