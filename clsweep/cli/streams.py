"""The standard streams of a command: who reads them may leave, a disk may be full, an encoding may
lack a letter, and they may not be there at all.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Iterator

from clsweep.errors import RequestError


class _Stream(io.FileIO):
    """A standard stream that fails once: from then on it takes all and shows nothing, also when
    the interpreter ends.

    patient: the command goes on, as trials are not lost because a pager was closed.
    """

    failure: OSError | None = None

    def __init__(self, descriptor: int, *, patient: bool) -> None:
        super().__init__(descriptor, "w", closefd=False)
        self._patient = patient

    def write(self, data: object) -> int:
        try:
            return super().write(data)  # type: ignore[arg-type]
        except OSError as error:
            self.failure = error
            with open(os.devnull, "wb") as nowhere:
                os.dup2(nowhere.fileno(), self.fileno())
            if not self._patient:
                self.require()
                raise SystemExit(0) from None  # `clsweep trials DIR | head`
        return super().write(data)  # type: ignore[arg-type]

    def require(self) -> None:
        """Raises RequestError if it has failed for another reason than that its reader has left."""
        if self.failure and not isinstance(self.failure, BrokenPipeError):
            raise RequestError(f"standard output cannot be written: {self.failure.strerror}")


@contextlib.contextmanager
def lasting_streams(*, patient: bool) -> Iterator[None]:
    """Standard streams that end no command with a traceback. Others than the process's own, as in
    a notebook, stay as they are.

    Args:
        patient: the command goes on where its output can no longer be written.

    Raises:
        SystemExit: the reader of the output has left; with 0, as that is no fault.
        RequestError: it could not be written.
    """
    for descriptor in range(3):  # else the next file that is opened would be standard output
        try:
            os.fstat(descriptor)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
    streams = []
    for name, descriptor in (("stdout", 1), ("stderr", 2)):
        if (old := getattr(sys, name)) is getattr(sys, f"__{name}__"):
            stream = _Stream(descriptor, patient=patient or name == "stderr")
            setattr(sys, name, _text(stream, old))
            streams.append(stream)
    try:
        yield
    finally:
        sys.stdout.flush()
        if streams:
            streams[0].require()


def _text(stream: _Stream, old: io.TextIOWrapper | None) -> io.TextIOWrapper:
    return io.TextIOWrapper(
        io.BufferedWriter(stream),
        encoding=old.encoding if old else "utf-8",
        errors="replace",
        line_buffering=old is None or old.line_buffering,
        write_through=old is not None and old.write_through,
    )
