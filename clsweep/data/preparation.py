"""Words on images that are copied or decoded before a trial, told to the run that waits for it."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from threading import Lock
from time import monotonic

TELL_EVERY_S = 2.0
_listener: ContextVar[Callable[[str], object] | None] = ContextVar("listener", default=None)


@contextlib.contextmanager
def told_to(listener: Callable[[str], object]) -> Iterator[None]:
    """Meanwhile `listener` is told how far the preparation of images is."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)


@contextlib.contextmanager
def progress_bar(
    text: str, total: int, words: Callable[[int], str], *, in_bytes: bool = False
) -> Iterator[Callable[[int], object]]:
    """A bar on a terminal, and elsewhere `telling`; gives what to call with each further amount."""
    if not sys.stderr.isatty():
        yield telling(words)
        return
    from rich import progress as bars
    from rich.console import Console

    amount = bars.DownloadColumn() if in_bytes else bars.MofNCompleteColumn()
    columns = "{task.description}", bars.BarColumn(), amount, bars.TimeRemainingColumn()
    with bars.Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(text, total=total)
        yield lambda amount: progress.advance(task, amount)


def telling(words: Callable[[int], str]) -> Callable[[int], object]:
    """A function to call with each further amount that is done, by several threads too. Now and
    then it tells the `words` on all of it, where somebody listens.
    """
    listener, lock = _listener.get(), Lock()
    done, told_at = 0, monotonic()

    def advance(amount: int) -> None:
        nonlocal done, told_at
        with lock:
            done += amount
            if listener is not None and monotonic() - told_at >= TELL_EVERY_S:
                listener(words(done))
                told_at = monotonic()

    return advance
