"""The budget of a search, `search.budget`: hours by the clock, or of GPUs, within which its trials
are to end. No configuration is left half done: one that has begun gets all its seeds.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

from clsweep.catalog.rows import Row
from clsweep.errors import RequestError
from clsweep.results.folder import ResultsFolder
from clsweep.study.design import PlannedTrial, Study

_HOUR_S = 3600.0
_Config = tuple[str, int]  # objective and number


class SearchBudget:
    """The part of a study's budget that is spent, and whether another configuration fits in.

    A configuration fits if it would end in time by the mean of the objective's trials so far. Once
    one does not, no further one begins, whatever objective it is of. Trials that left no row, as
    where a run is killed, count for nothing.

    Args:
        study: without `search.budget` everything fits.
        recorded: rows of the trials that have ended before this run.
        concurrent: trials at once, where that is known.
        folder: keeps the hours between runs.
    """

    def __init__(
        self,
        study: Study,
        recorded: Iterable[Row] = (),
        concurrent: float = math.inf,
        folder: ResultsFolder | None = None,
    ):
        sections = study.sections
        self._budget, self._num_seeds = sections.search.budget, len(sections.seeds)
        self._gpus = sections.resources.workers * float(sections.resources.gpus_per_worker)
        self._concurrent = concurrent
        self._num_begun = Counter[_Config]()  # trials of each configuration
        self._running: dict[str, tuple[str, float]] = {}  # objective and start
        self._ended_s: dict[str, list[float]] = defaultdict(list)
        self._begin: float | None = None  # of the first trial of this run
        self._closed: dict[str, str] = {}  # objectives whose search has ended by evidence, and why
        self.is_spent = False
        spans = []
        for row in recorded:
            self._num_begun[row["objective"], row["config"]] += 1
            if (seconds := row.get("wall_time_s")) is not None:
                self._ended_s[row["objective"]].append(seconds)
                if started := row.get("started_at"):  # a table that was made by hand may lack it
                    spans.append((started.timestamp(), started.timestamp() + seconds))
        self._earlier_s, self._folder = _covered(spans), None
        if folder and self._budget and self._budget.hours:
            self._folder = folder
            self._earlier_s = max(self._earlier_s, folder.clock_s())

    def __str__(self) -> str:
        return "" if self._budget is None else str(self._budget)

    def ends(self) -> list[str]:
        """Sentences: why no further configuration begins, where one would be left."""
        spent = f"The budget of {self} has no room for a further configuration."
        return [*self._closed.values(), *[spent] * self.is_spent]

    @property
    def _is_timed(self) -> bool:
        return self._budget is not None and self._budget.hours != self._budget.gpu_hours

    def is_open(self, trial: PlannedTrial) -> bool:
        """True of the first trial of a configuration whose objective is searched still."""
        is_first = not self._num_begun[trial.objective, trial.config]
        return is_first and trial.objective not in self._closed and not self.is_spent

    def close(self, objective: str, reason: str) -> None:
        """Begin no further configuration of an objective."""
        self._closed[objective] = reason

    def admits(self, trial: PlannedTrial) -> bool:
        """True if a trial may begin."""
        if self._budget is None or self._num_begun[trial.objective, trial.config]:
            return True
        if trial.objective in self._closed:
            return False
        self.is_spent = self.is_spent or not self._fits(trial.objective)
        return not self.is_spent

    def start(self, row: Row) -> None:
        now = time.time()
        self._begin = now if self._begin is None else self._begin
        self._num_begun[row["objective"], row["config"]] += 1
        self._running[row["trial_id"]] = (row["objective"], now)

    def end(self, row: Row, outcome: Row) -> None:
        """A trial has ended; one that left no word took the time since its start. Where what comes
        after this has failed, Tune says so twice.
        """
        if row["trial_id"] not in self._running:
            return
        objective, start = self._running.pop(row["trial_id"])
        seconds = outcome.get("wall_time_s")
        self._ended_s[objective].append(time.time() - start if seconds is None else seconds)
        if self._folder:
            with contextlib.suppress(RequestError):  # a folder that cannot be written says so soon
                self._folder.keep_clock_s(self._spent_s())

    def seconds_left(self) -> float:
        """Until it is spent, by the trials that run; infinite without a budget."""
        if self._budget is None or not self._is_timed:
            return math.inf
        at_once = 1.0 if self._budget.hours else self._gpus * max(len(self._running), 1)
        return max(self._limit_s() - self._spent_s(), 0.0) / at_once

    def _fits(self, objective: str) -> bool:
        """True if another configuration of an objective would end in time."""
        if not self._num_begun or not self._is_timed:
            return True
        each_s = self._expected_s(objective)
        to_come_s = self._num_seeds * each_s
        for name, start in list(self._running.values()):
            to_come_s += max(self._expected_s(name) - (time.time() - start), 0.0)
        for (name, _), num_begun in self._num_begun.items():
            to_come_s += (self._num_seeds - num_begun) * self._expected_s(name)
        if self._budget and self._budget.gpu_hours:
            to_come_s *= self._gpus
        else:
            to_come_s = max(to_come_s / self._concurrent, each_s)
        return self._spent_s() + to_come_s <= self._limit_s()

    def _limit_s(self) -> float:
        assert self._budget is not None
        return (self._budget.hours or self._budget.gpu_hours or 0.0) * _HOUR_S

    def _spent_s(self) -> float:
        """Seconds by the clock since trials run, or of all GPUs."""
        assert self._budget is not None
        now = time.time()
        if self._budget.hours:
            return self._earlier_s + (0.0 if self._begin is None else now - self._begin)
        running = list(self._running.values())  # others may read this while trials start
        ended_s = sum(map(sum, self._ended_s.values()))
        return self._gpus * (ended_s + sum(now - start for _, start in running))

    def _expected_s(self, objective: str) -> float:
        """Mean seconds of an objective's trials, of all while none of its own has ended."""
        known = self._ended_s.get(objective) or [s for each in self._ended_s.values() for s in each]
        return sum(known) / len(known) if known else 0.0


def _covered(spans: Sequence[tuple[float, float]]) -> float:
    """Seconds that lie in some of these spans of time."""
    seconds, reached = 0.0, -math.inf
    for start, end in sorted(spans):
        seconds += max(end - max(start, reached), 0.0)
        reached = max(reached, end)
    return seconds
