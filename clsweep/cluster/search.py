"""What is left of the plan, row by row: drawn rows are handed out as they are, live rows get their
values then.

One search walks the interleaved plan for all objectives. For `tpe` and `gp` it holds a design per
objective, which chooses one configuration; the seeds of that configuration run as separate trials
and Optuna is told their mean. In a race, all configurations of an objective run a seed before any
gets the next one. Its decisions thereby depend on the scores alone, and not on the order in which
trials end: a study that was cut decides as it would have done.
"""

from __future__ import annotations

import copy
import hashlib
import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
import optuna
from optuna.storages import JournalStorage
from optuna.trial import FrozenTrial, TrialState

from clsweep.catalog.rows import Row
from clsweep.display.numbers import number
from clsweep.results.journal import Journal, Outcome
from clsweep.study.design import (
    MAX_REPEATS,
    PlannedTrial,
    Study,
    distributions,
    plan_row,
    sampler_of,
)
from clsweep.study.racing import standing
from clsweep.study.samplers import build_sampler
from clsweep.study.schema import FIRST_SEEDS, LIVE_METHODS
from clsweep.study.space import Objective

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


# times that a live search is asked, while it suggests what has been tried; `gp` takes its time
MAX_ASKED = {"tpe": 10, "gp": 2}


class PlanSearch:
    """Hands out what is left of the plan and keeps the Optuna journal.

    Args:
        study: the study that runs.
        left: trials to run, in order.
        recorded: rows of the trials that have ended. One whose trial is in `left` too is run again,
            with its values.
        storage: the journal.
        race: decides which of the trials run, where the study races its seeds.
    """

    def __init__(
        self,
        study: Study,
        left: Sequence[PlannedTrial],
        recorded: Iterable[Row],
        storage: JournalStorage,
        race: Race | None = None,
    ):
        self._left: Iterator[PlannedTrial] = race or iter(left)
        self._race, self._metric = race, study.sections.metric.name
        self._workers = study.sections.resources.workers
        recorded = list(recorded)
        samplers = {o.name: sampler_of(study, o) for o in study.objectives}
        samplers |= {row["objective"]: row["sampler"] for row in recorded} | {
            t.objective: t.sampler for t in left
        }
        self._designs: dict[str, DrawnDesign | LiveDesign] = {
            objective.name: (
                LiveDesign if samplers[objective.name] in LIVE_METHODS else DrawnDesign
            )(study, objective, storage)
            for objective in study.objectives
        }
        again = {trial.trial_id for trial in left}
        for row in recorded:
            self._designs[row["objective"]].know(row)
            if row["trial_id"] not in again:
                self.tell(row, row)

    @property
    def awaits(self) -> bool:
        """Whether more rows may come once a trial that runs has ended."""
        return self._race is not None and self._race.awaits

    def next_row(self) -> Row | None:
        """The next trial of the plan as a row with all its values; None when it is at its end, or
        `awaits`.
        """
        trial = next(self._left, None)
        return None if trial is None else self._designs[trial.objective].start(trial)

    def tell(self, row: Row, outcome: Row) -> None:
        """How a trial ended: status, metric, epochs_trained and wall_time_s, as in the tables;
        nothing if it left no word.
        """
        ended = Outcome.of(outcome, self._metric, workers=self._workers)
        if self._race:
            self._race.tell(row, ended.status, ended.score)
        if ended.status != SKIPPED:  # such a trial has no entry
            self._designs[row["objective"]].tell(row, ended)


class DrawnDesign:
    """One objective whose trials were drawn beforehand: each is an entry of the journal."""

    def __init__(self, study: Study, objective: Objective, storage: JournalStorage):
        self._study = study
        self._journal = _journal(study, objective, storage, key="trial_id")

    def know(self, row: Row) -> None:
        """Nothing: the plan has all values."""

    def start(self, trial: PlannedTrial) -> Row:
        row = plan_row(self._study, trial)
        self._journal.start(_attributes(row), row)
        return row

    def tell(self, row: Row, outcome: Outcome) -> None:
        self._journal.finish(_attributes(row), row, outcome)


class LiveDesign:
    """One objective whose next configuration depends on those before: each configuration is an
    entry of the journal.

    A suggestion depends on the search's seed, the objective, the number of the configuration and
    the entries of the journal alone. With one trial at a time a study that was cut and continued
    thereby tries what it would have tried. With `search.cost` it depends on times, which no two
    runs have in common.
    """

    def __init__(self, study: Study, objective: Objective, storage: JournalStorage):
        self._study, self._objective, self._space = study, objective, distributions(objective)
        self._journal = _journal(study, objective, storage, key="config")
        self._params: dict[int, Row] = {}
        self._outcomes: dict[int, dict[int, Outcome]] = {}  # by configuration and seed

    def know(self, row: Row) -> None:
        """The values of a configuration of which a row is recorded, should the journal have lost
        them.
        """
        self._params[row["config"]] = {name: row[name] for name in self._space}

    def start(self, trial: PlannedTrial) -> Row:
        config = trial.config
        if config not in self._params:
            entry = self._journal.entry(config)
            self._params[config] = dict(entry.params) if entry else self._choose(config)
        self._journal.start({"config": config}, self._params[config])
        return plan_row(self._study, trial, self._params[config])

    def tell(self, row: Row, outcome: Outcome) -> None:
        config = row["config"]
        outcomes = self._outcomes.setdefault(config, {})
        outcomes[row["seed"]] = outcome
        seeds = self._study.sections.seeds
        if len(outcomes) == len(seeds):
            self._journal.finish(
                {"config": config}, self._params[config], _over_seeds([outcomes[s] for s in seeds])
            )

    def _choose(self, config: int) -> Row:
        """Ask a new sampler, in a study of its own: the journal gets the configuration in one
        piece.

        What has been tried is not tried again: with the same seeds it gives the same scores. A
        sampler that insists is left for a random one.
        """
        search = self._study.sections.search
        digest = hashlib.sha256(f"{search.seed}/{self._objective.label}/{config}".encode()).digest()
        seed = int.from_bytes(digest[:4], "big")
        entries = self._journal.entries().values()
        imagined = optuna.create_study(
            directions=self._journal.directions, sampler=build_sampler(search.method, seed)
        )
        imagined.add_trials(entries if search.method == "tpe" else map(_as_complete, entries))
        tried = [*self._params.values(), *(entry.params for entry in entries)]
        for num_asked in range(MAX_REPEATS):
            if num_asked == MAX_ASKED[search.method]:
                imagined.sampler = build_sampler("random", seed)
            params = dict(imagined.ask(self._space).params)
            if params not in tried:
                break
        return params


def _journal(study: Study, objective: Objective, storage: JournalStorage, *, key: str) -> Journal:
    sections = study.sections
    return Journal(
        storage,
        objective.name,
        sections.metric.mode,
        distributions(objective),
        key=key,
        with_seconds=sections.search.cost == "seconds",
    )


def _attributes(row: Row) -> Row:
    return {name: row[name] for name in ("trial_id", "config", "seed")}


def _over_seeds(outcomes: Sequence[Outcome]) -> Outcome:
    """How a configuration ended, from its seeds, of which the first stands for it while it is
    judged.
    """
    if any(outcome.state == TrialState.FAIL for outcome in outcomes):
        return Outcome(status="failed")
    if outcomes[0].state == TrialState.PRUNED:
        return outcomes[0]
    # in whatever order they ended
    score, seconds = (
        None if None in values else math.fsum(map(float, values)) / len(values)
        for values in zip(*((o.score, o.seconds) for o in outcomes), strict=True)
    )
    return Outcome(status="finished", score=score, seconds=seconds)


def _as_complete(entry: FrozenTrial) -> FrozenTrial:
    """A stopped configuration with the score that it had reached: GPSampler would not look at it
    otherwise.
    """
    entry = copy.copy(entry)
    if entry.state == TrialState.PRUNED:
        entry.state = TrialState.COMPLETE
    return entry
