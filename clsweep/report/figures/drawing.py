"""Pictures of charts, and the script that draws charts on a page, made beside the statistics: in
other processes, as vl-convert holds the interpreter while it works.

Such a process is this module. It answers each line on its input with a line, and ends with its
input: so with us, however we end.
"""

from __future__ import annotations

import base64
import contextlib
import functools
import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import ContextVar
from typing import Any, NamedTuple, TypeVar

from clsweep.machine import num_cores

MOST_PROCESSES = 2  # a large report's pictures are ready before its statistics
SCRIPTS = "scripts"  # the request for them; any other is a spec

T = TypeVar("T")


class Picture(NamedTuple):
    svg: str
    png: bytes


@contextlib.contextmanager
def drawn_beside() -> Iterator[None]:
    """Meanwhile other processes draw what this thread asks for. They have ended afterwards."""
    processes = _Processes(min(MOST_PROCESSES, num_cores()))
    token = _processes.set(processes)
    try:
        yield
    finally:
        _processes.reset(token)
        processes.close()


def draw(spec: Mapping[str, Any]) -> Future[Picture]:
    """Draw a themed spec: beside other work within `drawn_beside`, else at once."""
    return _asked(spec, lambda answer: Picture(answer[0], base64.b64decode(answer[1])))


def scripts() -> Future[str]:
    """Vega, Vega-Lite and Vega-Embed as one script, made likewise."""
    processes = _processes.get()
    return processes.scripts if processes else _asked(SCRIPTS, str)


class _Processes:
    """So many, each with a thread that asks it."""

    def __init__(self, num: int):
        self._threads, self._own = ThreadPoolExecutor(num), threading.local()
        self._started: list[subprocess.Popen[str]] = []

    @functools.cached_property
    def scripts(self) -> Future[str]:
        return self.submit(SCRIPTS, str)

    def submit(self, request: Any, read: Callable[[Any], T]) -> Future[T]:
        return self._threads.submit(lambda: read(self._ask(request)))

    def close(self) -> None:
        self._threads.shutdown(cancel_futures=True)
        for process in self._started:
            with contextlib.suppress(BrokenPipeError), process:
                pass  # closes its input and waits

    def _ask(self, request: Any) -> Any:
        with contextlib.suppress(OSError):
            process = self._process()
            assert process.stdin
            assert process.stdout
            process.stdin.write(json.dumps(request) + "\n")
            process.stdin.flush()
            if line := process.stdout.readline():
                return json.loads(line)
        return _answer(request)  # it could not be started, or was killed

    def _process(self) -> subprocess.Popen[str]:
        """The one of this thread."""
        if not hasattr(self._own, "process"):
            self._own.process = subprocess.Popen(
                [sys.executable, "-m", __name__],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,  # what fails there fails here once more
                text=True,
                start_new_session=True,  # Ctrl-C is ours
            )
            self._started.append(self._own.process)
        found: subprocess.Popen[str] = self._own.process
        return found


_processes: ContextVar[_Processes | None] = ContextVar("drawing", default=None)


def _asked(request: Any, read: Callable[[Any], T]) -> Future[T]:
    if processes := _processes.get():
        return processes.submit(request, read)
    found = Future[T]()
    found.set_result(read(_answer(request)))
    return found


def _answer(request: Any) -> Any:
    """As JSON has it: a picture as SVG and, in base64, PNG."""
    if request == SCRIPTS:
        return _bundle()
    from clsweep.report.figures.theme import svg_to_png, to_svg

    svg = to_svg(request)
    return svg, base64.b64encode(svg_to_png(svg)).decode()


@functools.cache
def _bundle() -> str:
    import vl_convert

    return vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")


if __name__ == "__main__":
    for line in sys.stdin:
        print(json.dumps(_answer(json.loads(line))), flush=True)
