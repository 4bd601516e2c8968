"""Functions called in other processes, beside this one: for what holds the interpreter.

Such a process reads calls from its input, and answers each on its output. It ends with us, however
we end. Both ends of these pipes are ours, so calls and answers are pickles. It is no
`ProcessPoolExecutor`: that runs the user's script once more in each process (`docs/decisions.md`).
"""

from __future__ import annotations

import contextlib
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextvars import ContextVar
from typing import Any, NamedTuple, TypeVar

T = TypeVar("T")

_UNPICKLABLE = (pickle.PickleError, TypeError, AttributeError)  # what a pickle may raise
# glibc would give large arrays back to the system, and get them page by page again.
_KEEPS_MEMORY = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(2**33)}


class Shared(NamedTuple):
    """An argument of many calls, which each process gets once."""

    number: int


@contextlib.contextmanager
def worker_processes(num: int) -> Iterator[None]:
    """Meanwhile so many processes do what this thread asks of them; each begins with its first
    call. They have ended afterwards, whatever they still had to do.
    """
    processes = _Processes(num)
    token = _current.set(processes)
    try:
        yield
    finally:
        _current.reset(token)
        processes.close()


def is_parallel() -> bool:
    """True within `worker_processes`, in its thread."""
    return _current.get() is not None


def submit(function: Callable[..., T], *args: Any) -> Future[T]:
    """The value of a module's function: from another process within `worker_processes`, else
    computed at once. What a process cannot do, or raises in, is called here. Arguments may be
    `shared`.
    """
    if processes := _current.get():
        return processes.submit(function, args)
    future = Future[T]()
    future.set_result(function(*args))
    return future


def submit_once(function: Callable[[], T]) -> Future[T]:
    """As `submit`, but called only once meanwhile."""
    processes = _current.get()
    if processes is None:
        return submit(function)
    if function not in processes.once:
        processes.once[function] = submit(function)
    return processes.once[function]


def shared(value: object) -> Any:
    """A value as an argument of many calls."""
    processes = _current.get()
    return processes.share(value) if processes else value


class _Processes:
    """So many, each with a thread that asks it."""

    def __init__(self, num: int):
        self.once: dict[Callable[[], Any], Future[Any]] = {}
        # of each thread: `popen`, its process, and `knows`, the shared values that this one has
        self._threads, self._own = ThreadPoolExecutor(num), threading.local()
        self._started: list[subprocess.Popen[bytes]] = []
        self._starting, self._is_closed = threading.Lock(), False
        self._values: list[tuple[object, bytes]] = []  # shared ones, and each as a pickle

    def share(self, value: object) -> Shared:
        self._values.append((value, pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)))
        return Shared(len(self._values) - 1)

    def submit(self, function: Callable[..., T], args: tuple[Any, ...]) -> Future[T]:
        return self._threads.submit(self._call, function, args)

    def close(self) -> None:
        with self._starting:
            self._is_closed = True
            for process in self._started:
                process.kill()
        self._threads.shutdown(cancel_futures=True)
        for process in self._started:
            with contextlib.suppress(BrokenPipeError), process:
                pass  # closes its pipes and waits

    def _call(self, function: Callable[..., T], args: tuple[Any, ...]) -> T:
        try:
            has_answered, answer = self._call_there(function, args)
            if has_answered:
                return answer
        except (OSError, EOFError, *_UNPICKLABLE):
            if hasattr(self._own, "popen"):  # half a call or answer may be left in its pipes
                self._own.popen.kill()
                del self._own.popen
        if self._is_closed:
            raise CancelledError
        return function(*[self._values[a.number][0] if isinstance(a, Shared) else a for a in args])

    def _call_there(self, function: Callable[..., Any], args: tuple[Any, ...]) -> tuple[bool, Any]:
        """True and the value of the function there; or False, as it raised."""
        call = pickle.dumps((function, args))  # whole, or nothing of it is sent
        if not hasattr(self._own, "popen"):
            with self._starting:
                if self._is_closed:
                    raise CancelledError
                self._own.popen, self._own.knows = _started(), set()
                self._started.append(self._own.popen)
        to, answers = self._own.popen.stdin, self._own.popen.stdout
        for each in args:
            if isinstance(each, Shared) and each.number not in self._own.knows:
                pickle.dump(each, to)
                to.write(self._values[each.number][1])
                self._own.knows.add(each.number)
        to.write(call)
        to.flush()
        has_value, value = pickle.load(answers)
        return has_value, value


def _started() -> subprocess.Popen[bytes]:
    # with our modules, wherever we are
    code = f"import sys; sys.path[:] = {sys.path!r}\nfrom {__name__} import _serve\n"
    code += f"_serve({os.getpid()})"
    return subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,  # what fails there is called here once more
        env={**os.environ, **_KEEPS_MEMORY},
        start_new_session=True,  # Ctrl-C is ours
    )


_current: ContextVar[_Processes | None] = ContextVar("processes", default=None)


def _serve(parent: int) -> None:
    """The loop of such a process: a call from its input, a value to its output."""
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    calls, values = sys.stdin.buffer, {}
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what is printed, by whatever library, is no answer
    with contextlib.suppress(EOFError):
        while True:
            call = pickle.load(calls)
            if isinstance(call, Shared):
                values[call.number] = pickle.load(calls)
                continue
            function, args = call
            try:
                args = [values[a.number] if isinstance(a, Shared) else a for a in args]
                answer = pickle.dumps((True, function(*args)), protocol=pickle.HIGHEST_PROTOCOL)
            except Exception:
                answer = pickle.dumps((False, None))
            answers.write(answer)
            answers.flush()


def _end_with(parent: int) -> None:
    """End with our parent in the middle of a call, too."""
    pause = threading.Event()
    while os.getppid() == parent:
        pause.wait(0.5)
    os._exit(1)
