"""What is left of the plan, row by row: drawn rows are handed out as they are, live rows get their
values then.

One search walks the interleaved plan for all objectives. For `tpe` and `gp` it holds a design per
objective, which chooses one configuration; the seeds of that configuration run as separate trials
and Optuna is told their mean. A race may leave some of them out.
"""

from __future__ import annotations

import copy
import hashlib
import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
import optuna
from numpy.typing import NDArray
from optuna.storages import JournalStorage
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState
from scipy.special import stdtrit

from clsweep.catalog.rows import Row
from clsweep.display.numbers import number
from clsweep.results.journal import Journal, Outcome
from clsweep.study.design import (
    MAX_REPEATS,
    PlannedTrial,
    Study,
    build_sampler,
    distributions,
    plan_row,
    sampler_of,
)
from clsweep.study.schema import FIRST_SEEDS, LIVE_METHODS, StudySections
from clsweep.study.space import Objective

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
        samplers |= {row["objective"]: row["sampler"] for row in recorded}
        samplers |= {trial.objective: trial.sampler for trial in left}
        self._designs = {
            o.name: (LiveDesign if samplers[o.name] in LIVE_METHODS else DrawnDesign)(
                study, o, storage
            )
            for o in study.objectives
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
        """The plan's next trial as a row with all its values; None at its end, or `awaits`."""
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

    key = "trial_id"  # of the journal's entries

    def __init__(self, study: Study, objective: Objective, storage: JournalStorage):
        self._study, self._objective, self._space = study, objective, distributions(objective)
        self._conditions = objective.conditions
        self._journal = Journal(
            storage,
            objective.name,
            study.sections.metric.mode,
            self._space,
            key=self.key,
            conditional=self._conditions.names,
            with_seconds=study.sections.search.cost == "seconds",
        )

    def know(self, row: Row) -> None:
        """Nothing: the plan has all values."""

    def start(self, trial: PlannedTrial) -> Row:
        """The row of a trial that begins."""
        row = plan_row(self._study, trial)
        self._journal.start(self._attributes(row), self._conditions.taken(row))
        return row

    def tell(self, row: Row, outcome: Outcome) -> None:
        self._journal.finish(self._attributes(row), self._conditions.taken(row), outcome)

    def _attributes(self, row: Row) -> Row:
        return {name: row[name] for name in ("trial_id", "config", "seed")}


class LiveDesign(DrawnDesign):
    """One objective whose next configuration depends on those before: each configuration is an
    entry of the journal.

    A suggestion depends on the search's seed, the objective, the number of the configuration and
    the entries of the journal alone. With one trial at a time a study that was cut and continued
    thereby tries what it would have tried. With `search.cost` it depends on times, which no two
    runs have in common.
    """

    key = "config"

    def __init__(self, study: Study, objective: Objective, storage: JournalStorage):
        super().__init__(study, objective, storage)
        self._params: dict[int, Row] = {}  # those that take part, as the journal has them
        self._outcomes: dict[int, dict[int, Outcome]] = {}  # by configuration and seed

    def know(self, row: Row) -> None:
        """The values of a configuration with a recorded row, should the journal lack them."""
        self._params[row["config"]] = self._conditions.taken(row)

    def start(self, trial: PlannedTrial) -> Row:
        config = trial.config
        if config not in self._params:
            entry = self._journal.entry(config)
            self._params[config] = dict(entry.params) if entry else self._choose(config)
        self._journal.start({"config": config}, self._params[config])
        return plan_row(self._study, trial, self._conditions.settled(self._params[config]))

    def tell(self, row: Row, outcome: Outcome) -> None:
        outcomes = self._outcomes.setdefault(config := row["config"], {})
        outcomes[row["seed"]] = outcome
        seeds = self._study.sections.seeds
        if len(outcomes) == len(seeds):
            ended = _over_seeds([outcomes[seed] for seed in seeds])
            self._journal.finish({"config": config}, self._params[config], ended)

    def _choose(self, config: int) -> Row:
        """Ask a new sampler, in a study of its own: the journal gets the choice in one piece.

        What has been tried is not tried again: with the same seeds it gives the same scores. A
        sampler that insists is left for a random one.
        """
        search = self._study.sections.search
        digest = hashlib.sha256(f"{search.seed}/{self._objective.label}/{config}".encode()).digest()
        seed = int.from_bytes(digest[:4], "big")
        entries = [*self._journal.entries().values()]
        tried = [*self._params.values(), *(entry.params for entry in entries)]
        imagined = optuna.create_study(
            directions=self._journal.directions, sampler=build_sampler(search.method, seed)
        )
        imagined.add_trials(_as_seen(entries, imagined.directions, search.method))
        for num_asked in range(MAX_REPEATS):
            if num_asked == MAX_ASKED[search.method]:
                imagined.sampler = build_sampler("random", seed)
            params = self._asked(imagined.ask())
            if params not in tried:
                break
        return params

    def _asked(self, trial: optuna.Trial) -> Row:
        """What a sampler suggests for one configuration: nothing for what takes no part in it."""
        found: Row = {}
        for name in self._conditions.order:
            if self._conditions.takes_part(name, found):
                found[name] = trial._suggest(name, self._space[name])
        return self._conditions.taken(found)


def _as_seen(
    entries: Sequence[FrozenTrial], directions: Sequence[StudyDirection], method: str
) -> list[FrozenTrial]:
    """What a sampler is to learn from: no sampler looks at failures, and GPSampler at nothing that
    was stopped.

    A failed configuration counts as the worst one of those that ended, in the analysis too: else
    the search comes back to where training diverges. A stopped one counts for gp with the score
    that it had reached.
    """
    ended = [entry.values for entry in entries if entry.state == TrialState.COMPLETE]
    worst = [
        min(of) if direction == StudyDirection.MAXIMIZE else max(of)
        for direction, of in zip(directions, zip(*ended, strict=True), strict=False)
    ]
    seen = [copy.copy(entry) for entry in entries]
    for entry in seen:
        if entry.state == TrialState.FAIL and worst:
            entry.state, entry.values = TrialState.COMPLETE, worst
        elif entry.state == TrialState.PRUNED and method == "gp":
            entry.state = TrialState.COMPLETE
    return seen


def _over_seeds(outcomes: Sequence[Outcome]) -> Outcome:
    """How a configuration ended, from its seeds; the first stands for it while it is judged."""
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


# A race over seeds: a configuration that cannot be the best any more after its first seeds gets no
# further one.
#
# All configurations of an objective run a seed before any gets the next one. What is decided
# thereby depends on the scores alone, and not on the order in which trials end: a study that was
# cut decides as it would have done.

Array = NDArray[np.float64]
SKIPPED = "skipped"  # status of a planned trial that the race left out


class Race:
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
        for place, trial in enumerate(in_order(left, seeds)):
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
        leader, gaps, margins = standing(scores, confidence=self._confidence)
        return {
            configs[row]: nothing
            if margins[row] < 0
            else f"{self._metric} {number(gaps[row])} behind configuration {configs[leader]} after "
            f"{turn} seeds; noise explains {number(margins[row])}"
            for row in np.flatnonzero(gaps > margins).tolist()
        }


def in_order(trials: Iterable[PlannedTrial], seeds: Sequence[int]) -> list[PlannedTrial]:
    """The trials as a race runs them: the first seeds of all configurations, then seed by seed."""
    turn = {seed: max(0, at + 1 - FIRST_SEEDS) for at, seed in enumerate(seeds)}
    return sorted(trials, key=lambda trial: turn[trial.seed])


def standing(scores: Array, *, confidence: float) -> tuple[int, Array, Array]:
    """How the configurations of a race stand after k seeds.

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
    # What configuration and seed leave of the table.
    whole = scores[present.all(axis=1)]
    if (freedom := (len(whole) - 1) * (whole.shape[1] - 1)) > 0:
        left = whole - whole.mean(axis=1, keepdims=True) - whole.mean(axis=0) + whole.mean()
        noise = math.sqrt(float(np.square(left).sum()) / freedom)
        quantile = -stdtrit(freedom, 1 - confidence)
        known = shared > 0
        margins[known] = quantile * noise * np.sqrt(2 / shared[known])
    margins[counts == 0] = -1.0
    return leader, leads, margins
