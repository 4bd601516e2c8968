"""SIGTERM to a trial's process: the trial saves a checkpoint before that takes effect."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import threading
from collections.abc import Iterator
from typing import Any

from clsweep.train.save_request import SaveRequest

TERM_S = 25.0  # Slurm, Kubernetes and spot markets leave 30 s and more

_notice: SaveRequest | None = None  # of the trial that this process works on
_previous: Any = signal.SIG_DFL  # Ray's own handler


@contextlib.contextmanager
def saved_on_term(notice: SaveRequest) -> Iterator[None]:
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


def _leave(notice: SaveRequest) -> None:
    notice.give()
    notice.wait(TERM_S)
    os.kill(os.getpid(), signal.SIGTERM)
