"""Which planned trials a race still runs: a configuration gets its next seed while it may be the
best.

All configurations of an objective run a seed before any gets the next one. A decision thereby
depends on the scores alone, and not on the order in which trials end: a study that was cut decides
as it would have done.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from clsweep.catalog.rows import Row
from clsweep.display.numbers import number
from clsweep.study.design import PlannedTrial
from clsweep.study.racing import standing
from clsweep.study.schema import FIRST_SEEDS

SKIPPED = "skipped"  # status of a planned trial that the race left out
Skip = Callable[[PlannedTrial, str], None]


class Race:
    """An iterator over the trials to run, which ends where none can run now.

    Args:
        planned: all trials of the study.
        left: those without a row, in any order.
        seeds: of the study, in the order in which they run.
        confidence: see `study.racing.standing`.
        mode: "max" or "min" is best.
        metric: of the rows.
        skip: told of every trial that does not run, and why.
    """

    def __init__(
        self,
        planned: Sequence[PlannedTrial],
        left: Iterable[PlannedTrial],
        *,
        seeds: Sequence[int],
        confidence: float,
        mode: str,
        metric: str,
        skip: Skip,
    ):
        self._turn = {seed: turn for turn, seed in enumerate(seeds)}
        self._confidence, self._skip, self._metric = confidence, skip, metric
        self._sign = 1.0 if mode == "max" else -1.0
        self._open: dict[str, list[set[str]]] = {}  # by objective and turn: trials without an end
        self._scores: dict[str, dict[int, list[float]]] = {}  # by objective and configuration
        # configurations that have lost: from which turn on, and why
        self._out: dict[tuple[str, int], tuple[int, str]] = {}
        self._decided: dict[tuple[str, int], dict[int, str]] = {}
        self._running: set[str] = set()
        for trial in planned:
            turns = self._open.setdefault(trial.objective, [set() for _ in seeds])
            turns[self._turn[trial.seed]].add(trial.trial_id)
            table = self._scores.setdefault(trial.objective, {})
            table.setdefault(trial.config, [math.nan] * len(seeds))
        in_turn = enumerate(in_order(left, seeds))
        self._queues: dict[str, deque[tuple[int, PlannedTrial]]] = {}
        for place, trial in in_turn:
            self._queues.setdefault(trial.objective, deque()).append((place, trial))

    @property
    def awaits(self) -> bool:
        """Whether a trial that runs may let further ones run."""
        return bool(self._running) and any(self._queues.values())

    def tell(self, row: Row, status: str | None, score: float | None) -> None:
        """How a trial ended, now or in an earlier session."""
        objective, turn = row["objective"], self._turn[row["seed"]]
        self._end(objective, turn, row["trial_id"])
        if status == SKIPPED:
            self._lose((objective, row["config"]), turn, row.get("skipped_because") or SKIPPED)
        elif status == "finished" and score is not None and math.isfinite(score):
            self._scores[objective][row["config"]][turn] = self._sign * score

    def __iter__(self) -> Race:
        return self

    def __next__(self) -> PlannedTrial:
        for queue in sorted(filter(None, self._queues.values()), key=lambda each: each[0][0]):
            while queue and self._is_ready(queue[0][1]):
                trial = queue.popleft()[1]
                if (reason := self._why_not(trial)) is None:
                    self._running.add(trial.trial_id)
                    return trial
                turn = self._turn[trial.seed]
                self._lose((trial.objective, trial.config), turn, reason)
                self._end(trial.objective, turn, trial.trial_id)
                self._skip(trial, reason)
        raise StopIteration

    def _end(self, objective: str, turn: int, trial_id: str) -> None:
        self._open[objective][turn].discard(trial_id)
        self._running.discard(trial_id)

    def _lose(self, key: tuple[str, int], turn: int, reason: str) -> None:
        self._out[key] = min((turn, reason), self._out.get(key, (turn, reason)))

    def _is_ready(self, trial: PlannedTrial) -> bool:
        """Whether all that its place in the race depends on has ended."""
        turn = self._turn[trial.seed]
        return turn < FIRST_SEEDS or not any(self._open[trial.objective][:turn])

    def _why_not(self, trial: PlannedTrial) -> str | None:
        key, turn = (trial.objective, trial.config), self._turn[trial.seed]
        if turn < FIRST_SEEDS:
            return None
        if key in self._out:
            return self._out[key][1]
        decision = trial.objective, turn
        if decision not in self._decided:
            self._decided[decision] = self._decide(*decision)
        return self._decided[decision].get(trial.config)

    def _decide(self, objective: str, turn: int) -> dict[int, str]:
        """The configurations that do not get the seed of this turn, and why."""
        table = self._scores[objective]
        # those that lost in this turn were told by the same decision, and are still part of it
        lost_at = {config: self._out.get((objective, config), (turn,))[0] for config in table}
        configs = [config for config, lost in lost_at.items() if lost >= turn]
        scores = np.array([table[config][:turn] for config in configs])
        if not np.isfinite(scores).any():
            return dict.fromkeys(configs, f"no score on its first {turn} seeds")
        now = standing(scores, confidence=self._confidence)
        leader = configs[now.leader]
        return {
            configs[row]: (
                f"no score on its first {turn} seeds"
                if now.margins[row] < 0
                else f"{self._metric} {number(now.gaps[row])} behind configuration {leader} after "
                f"{turn} seeds; noise explains {number(now.margins[row])}"
            )
            for row in np.flatnonzero(now.beaten).tolist()
        }


def in_order(trials: Iterable[PlannedTrial], seeds: Sequence[int]) -> list[PlannedTrial]:
    """The trials as a race runs them: the first seeds of all configurations, then seed by seed."""
    turn = {seed: max(0, at + 1 - FIRST_SEEDS) for at, seed in enumerate(seeds)}
    return sorted(trials, key=lambda trial: turn[trial.seed])
