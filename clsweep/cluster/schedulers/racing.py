"""A race over seeds: a configuration that cannot be the best any more after its first seeds gets no
further one.

All configurations of an objective run a seed before any gets the next one. What is decided thereby
depends on the scores alone, and not on the order in which trials end: a study that was cut decides
as it would have done.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from clsweep.catalog.rows import Row
from clsweep.display.numbers import number
from clsweep.study.design import PlannedTrial
from clsweep.study.schema import FIRST_SEEDS, StudySections

_Array = NDArray[np.float64]
SKIPPED = "skipped"  # status of a planned trial that the race left out


class SeedRacing:
    """An iterator over the trials to run, which ends where none can run now.

    Args:
        sections: of the study; its seeds are in the order in which they run.
        planned: all trials of the study.
        left: those without a row, in any order.
        skip: told of every trial that does not run, and why.
    """

    def __init__(
        self,
        sections: StudySections,
        planned: Sequence[PlannedTrial],
        left: Iterable[PlannedTrial],
        skip: Callable[[PlannedTrial, str], None],
    ):
        seeds, metric = sections.seeds, sections.metric
        self._turn = {seed: turn for turn, seed in enumerate(seeds)}
        self._confidence, self._skip = sections.scheduler.confidence, skip
        self._metric, self._sign = metric.name, 1.0 if metric.mode == "max" else -1.0
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
        self._queues: dict[str, deque[tuple[int, PlannedTrial]]] = {}
        for place, trial in enumerate(racing_order(left, seeds)):
            self._queues.setdefault(trial.objective, deque()).append((place, trial))

    @property
    def awaits(self) -> bool:
        """True if a trial that runs may let further ones run."""
        return bool(self._running) and any(self._queues.values())

    def tell(self, row: Row, status: str | None, score: float | None) -> None:
        """The end of a trial, now or in an earlier session."""
        objective, turn = row["objective"], self._turn[row["seed"]]
        self._end(objective, turn, row["trial_id"])
        if status == SKIPPED:
            self._lose((objective, row["config"]), turn, row.get("skipped_because") or SKIPPED)
        elif status == "finished" and score is not None and math.isfinite(score):
            self._scores[objective][row["config"]][turn] = self._sign * score

    def __iter__(self) -> SeedRacing:
        return self

    def __next__(self) -> PlannedTrial:
        for queue in sorted(filter(None, self._queues.values()), key=lambda each: each[0][0]):
            while queue:
                trial = queue[0][1]
                turn = self._turn[trial.seed]
                if turn >= FIRST_SEEDS and any(self._open[trial.objective][:turn]):
                    break  # what its place in the race depends on has not ended
                queue.popleft()
                if (reason := self._why_not(trial, turn)) is None:
                    self._running.add(trial.trial_id)
                    return trial
                self._lose((trial.objective, trial.config), turn, reason)
                self._end(trial.objective, turn, trial.trial_id)
                self._skip(trial, reason)
        raise StopIteration

    def _end(self, objective: str, turn: int, trial_id: str) -> None:
        self._open[objective][turn].discard(trial_id)
        self._running.discard(trial_id)

    def _lose(self, key: tuple[str, int], turn: int, reason: str) -> None:
        self._out[key] = min((turn, reason), self._out.get(key, (turn, reason)))

    def _why_not(self, trial: PlannedTrial, turn: int) -> str | None:
        key, decision = (trial.objective, trial.config), (trial.objective, turn)
        if turn < FIRST_SEEDS:
            return None
        if key in self._out:
            return self._out[key][1]
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
        nothing = f"no score on its first {turn} seeds"
        if not np.isfinite(scores).any():
            return dict.fromkeys(configs, nothing)
        leader, gaps, margins = race_statistics(scores, confidence=self._confidence)
        return {
            configs[row]: nothing
            if margins[row] < 0
            else f"{self._metric} {number(gaps[row])} behind configuration {configs[leader]} after "
            f"{turn} seeds; noise explains {number(margins[row])}"
            for row in np.flatnonzero(gaps > margins).tolist()
        }


def racing_order(trials: Iterable[PlannedTrial], seeds: Sequence[int]) -> list[PlannedTrial]:
    """The trials as a race runs them: the first seeds of all configurations, then seed by seed."""
    turn = {seed: max(0, at + 1 - FIRST_SEEDS) for at, seed in enumerate(seeds)}
    return sorted(trials, key=lambda trial: turn[trial.seed])


def race_statistics(scores: _Array, *, confidence: float) -> tuple[int, _Array, _Array]:
    """The standing of the configurations of a race after k seeds.

    A configuration is out where d > t s sqrt(2 / k). d is the leader's lead on their k common
    seeds; s^2 is what configuration and seed leave of the variance, at (n - 1) (k - 1) degrees of
    freedom; t is Student's quantile at `confidence`. Seeds are blocks, as in F-Race (Birattari et
    al., GECCO 2002); the test is that of t-race without correction (Lopez-Ibanez et al. 2016, "The
    irace package", section 3), with one variance for all.

    `confidence` is that of one comparison, for normal noise that is the same for all. Over a whole
    race the truly best is lost more often, mostly to one that is hardly worse.

    Args:
        scores: (n, k) of the configurations still in the race, larger is better, NaN = no score;
            one at least is there.

    Returns:
        The row of the best mean. (n,) how far each mean lies behind the leader's on their common
        seeds. (n,) how far it may lie behind by chance; infinite where that cannot be told, -1 for
        a configuration without any score.
    """
    present = np.isfinite(scores)
    counts = present.sum(axis=1)
    means = np.where(present, scores, 0.0).sum(axis=1) / np.maximum(counts, 1)
    leader = int(np.where(counts == counts.max(), means, -np.inf).argmax())
    common = present & present[leader]
    shared = common.sum(axis=1)
    leads = np.where(common, scores[leader] - scores, 0.0).sum(axis=1) / np.maximum(shared, 1)
    margins = np.full(len(scores), np.inf)
    variance, freedom = residual_variance(scores[present.all(axis=1)])
    if freedom > 0:
        quantile = -stdtrit(freedom, 1 - confidence)
        known = shared > 0
        margins[known] = quantile * math.sqrt(variance) * np.sqrt(2 / shared[known])
    margins[counts == 0] = -1.0
    return leader, leads, margins


def residual_variance(table: _Array) -> tuple[float, int]:
    """Variance that configuration and seed leave of the scores (n, k), and its degrees of freedom:
    two-way analysis of variance without replicates. (0, 0) for one configuration, or seed.
    """
    freedom = (len(table) - 1) * (table.shape[1] - 1)
    if freedom <= 0:
        return 0.0, 0
    left = table - table.mean(axis=1, keepdims=True) - table.mean(axis=0) + table.mean()
    return float(np.square(left).sum()) / freedom, freedom
