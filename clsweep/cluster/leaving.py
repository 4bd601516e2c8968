"""SIGTERM to the process of a trial: it saves a checkpoint before it ends."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from clsweep.train.notice import Notice

LEAVE_S = 25.0  # Slurm, Kubernetes and spot markets leave 30 s and more

_notice: Notice | None = None  # of the trial that this process works on
_previous: Any = signal.SIG_DFL  # Ray's own handler


@contextlib.contextmanager
def saved_on_term(notice: Notice) -> Iterator[None]:
    """Meanwhile SIGTERM gives notice, and takes effect once that is answered."""
    global _notice
    _notice = notice
    _in_main_thread(_install)
    try:
        yield
    finally:
        _notice = None


def _install() -> None:
    global _previous
    if signal.getsignal(signal.SIGTERM) is not _on_term:
        _previous = signal.signal(signal.SIGTERM, _on_term)


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


def _in_main_thread(call: Any) -> None:
    """Have the main thread call it soon: it alone may set handlers, and Ray works in another."""
    if threading.current_thread() is threading.main_thread():
        call()
        return

    def pending(_: Any) -> int:
        call()
        _kept.remove(made)
        return 0

    made = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(pending)
    _kept.append(made)
    ctypes.pythonapi.Py_AddPendingCall(made, None)


_kept: list[Any] = []  # what C holds no reference to
