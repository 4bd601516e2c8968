"""The standard streams of a command: who reads them may leave, a disk may be full, an encoding may
lack a letter, and they may not be there at all.
"""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import sys
from collections.abc import Iterator
from typing import Any

from clsweep.errors import RequestError


class _Stream(io.FileIO):
    """A standard stream that fails once: from then on it takes all and shows nothing."""

    failure = ""

    def __init__(self, descriptor: int, *, patient: bool) -> None:
        super().__init__(descriptor, "w", closefd=False)
        self._patient = patient

    def write(self, data: object) -> int:
        try:
            return super().write(data)  # type: ignore[arg-type]
        except OSError as error:
            with open(os.devnull, "wb") as nowhere:
                os.dup2(nowhere.fileno(), self.fileno())
            if not isinstance(error, BrokenPipeError):
                self.failure = f"standard output cannot be written: {error.strerror}"
            if not self._patient:  # else `clsweep trials DIR | head`
                raise RequestError(self.failure) if self.failure else SystemExit(0) from None
        return super().write(data)  # type: ignore[arg-type]


@contextlib.contextmanager
def lasting_streams(*, patient: bool) -> Iterator[None]:
    """Standard streams that end no command with a traceback; others, as a notebook's, stay. Where
    the reader has left, it ends with 0; `patient`: it goes on, as no trial is lost with a pager.

    Raises:
        RequestError: the output could not be written.
    """
    for descriptor in range(3):  # else the next file that is opened would be standard output
        try:
            os.fstat(descriptor)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
    out = None
    for descriptor, name in ((2, "stderr"), (1, "stdout")):
        if (old := getattr(sys, name)) is getattr(sys, f"__{name}__"):
            out = _Stream(descriptor, patient=patient or name == "stderr")
            how: dict[str, Any] = {
                "encoding": "utf-8",
                "line_buffering": True,
                "write_through": False,
            }
            how = {key: getattr(old, key, value) for key, value in how.items()}
            setattr(sys, name, io.TextIOWrapper(io.BufferedWriter(out), errors="replace", **how))
    try:
        yield
    finally:
        sys.stdout.flush()
        if out and out.failure:
            raise RequestError(out.failure)


class _Page(io.StringIO):
    def isatty(self) -> bool:
        return True


@contextlib.contextmanager
def paged() -> Iterator[None]:
    """What is printed within goes through the user's pager where a terminal has too few lines."""
    if not sys.stdout.isatty():
        yield
        return
    with contextlib.redirect_stdout(_Page()) as page:
        yield
    text = page.getvalue()
    if text.count("\n") < shutil.get_terminal_size().lines:
        print(text, end="", flush=True)
    else:
        import pydoc

        os.environ.setdefault("LESS", "FRX")  # git's
        pydoc.pager(text)
