"""What a command does once more whenever a running study knows more."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from clsweep.api import Results
from clsweep.display.numbers import count
from clsweep.results.reading import open_folder

PAUSE_S = 5.0  # between two looks
WORK_SHARE = 0.2  # of the time that the command's own work may take


def followed(
    is_running: Callable[[], bool],
    read: Callable[[], Results],
    *,
    wait: Callable[[float], object] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[Results]:
    """Results as they grow: at once, if a trial has ended, and after every further trial or epoch.
    The last ones were read after the end of the run.
    """
    seen, pause = (0, 0), PAUSE_S
    while True:
        goes_on, results = is_running(), read()
        now = len(results.trials), len(results.under_way())
        if (now[0] and now != seen) or not goes_on:
            seen, start = now, clock()
            yield results
            pause = max(PAUSE_S, (clock() - start) * (1.0 / WORK_SHARE - 1.0))
        if not goes_on:
            return
        wait(pause)


def is_any_running(paths: Sequence[str]) -> bool:
    """Whether a run is under way in any of these results folders."""
    return any(open_folder(path).is_running() for path in paths)


def told_at(results: Results, page: Path) -> str:
    """`13:05:10  reports/tau/index.html: 12 trials have ended`."""
    return f"{time.strftime('%H:%M:%S')}  {page}: {count(len(results.trials))} trials have ended"
