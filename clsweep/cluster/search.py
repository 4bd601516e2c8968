"""The rest of the plan, row by row: drawn rows are handed out as they are, live rows get their
values then.

One search walks the interleaved plan for all objectives. For `tpe` and `gp` it holds a design per
objective, which chooses one configuration; the seeds of that configuration run as separate trials
and Optuna is told their mean. A race may leave some of them out.
"""

from __future__ import annotations

import copy
import hashlib
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from functools import cache, partial

import numpy as np
import optuna
from optuna.storages import JournalStorage
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState, create_trial

from clsweep.catalog.rows import Row
from clsweep.cluster.earlier_studies import EarlierTrials, Scored, earlier_trials
from clsweep.cluster.schedulers.racing import SKIPPED, SeedRacing
from clsweep.cluster.search_budget import SearchBudget
from clsweep.cluster.search_end import end_by_evidence
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
from clsweep.study.schema import LIVE_METHODS
from clsweep.study.space import Objective

# times that a live search is asked, while it suggests what has been tried; `gp` takes its time
MAX_ASKED = {"tpe": 10, "gp": 2}
FEWEST_RANKED = 3  # scores of a study that give a place among them to those of others


class PlanSearch:
    """Hands out what is left of the plan and keeps the Optuna journal.

    Args:
        study: the study that runs.
        left: trials to run, in order.
        recorded: rows of the trials that have ended. One whose trial is in `left` too is run again,
            with its values.
        storage: the journal.
        race: decides which of the trials run, where the study races its seeds.
        budget: decides when no further configuration begins.
    """

    def __init__(
        self,
        study: Study,
        left: Sequence[PlannedTrial],
        recorded: Iterable[Row],
        storage: JournalStorage,
        race: SeedRacing | None = None,
        budget: SearchBudget | None = None,
    ):
        self._left: Iterator[PlannedTrial] = race or iter(left)
        self._race, self._metric = race, study.sections.metric.name
        self._second = study.sections.search.second_objective
        self._workers = study.sections.resources.workers
        recorded = list(recorded)
        self._budget = budget or SearchBudget(study, recorded)
        samplers = {o.name: sampler_of(study, o) for o in study.objectives}
        samplers |= {row["objective"]: row["sampler"] for row in recorded}
        samplers |= {trial.objective: trial.sampler for trial in left}
        self.notes = list[str]()  # what is taken of earlier studies
        earlier = cache(partial(earlier_trials, study))
        self._designs = {}
        for o in study.objectives:
            if samplers[o.name] not in LIVE_METHODS:
                self._designs[o.name] = DrawnDesign(study, o, storage)
                continue
            self._designs[o.name] = design = LiveDesign(study, o, storage)
            if study.sections.search.from_ and not design.has_learnt:
                design.learn(earlier()[o.name])
                self.notes += earlier()[o.name].notes
        again = {trial.trial_id for trial in left}
        for row in recorded:
            self._designs[row["objective"]].know(row)
            if row["trial_id"] not in again:
                self._note(row, row)

    @property
    def awaits(self) -> bool:
        """True if more rows may come once a trial that runs has ended."""
        return self._race is not None and self._race.awaits

    def next_row(self) -> Row | None:
        """The plan's next trial as a row with all its values; None at its end, that of the budget,
        or `awaits`.
        """
        trial = next(filter(self._admits, self._left), None)
        if trial is None:
            return None
        row = self._designs[trial.objective].start(trial)
        self._budget.start(row)
        return row

    def _admits(self, trial: PlannedTrial) -> bool:
        if self._budget.is_open(trial) and (end := self._designs[trial.objective].end()):
            self._budget.close(trial.objective, end)
        return self._budget.admits(trial)

    def tell(self, row: Row, outcome: Row) -> None:
        """The end of a trial: status, metric, epochs_trained and wall_time_s, as in the tables;
        nothing if it left no word.
        """
        self._budget.end(row, outcome)
        self._note(row, outcome)

    def leave_open(self, row: Row) -> None:
        """A trial was lost with its machine too often: it runs no more, and has no end."""
        self._budget.end(row, {})

    def _note(self, row: Row, outcome: Row) -> None:
        ended = Outcome.of(outcome, self._metric, self._second, workers=self._workers)
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
            list(study.sections.goals.values()),
            self._space,
            key=self.key,
            conditional=self._conditions.names,
        )

    def know(self, row: Row) -> None:
        """Nothing: the plan has all values."""

    def start(self, trial: PlannedTrial) -> Row:
        """The row of a trial that begins."""
        row = plan_row(self._study, trial)
        self._journal.start(self._attributes(row), self._conditions.taken(row))
        return row

    def end(self) -> str:
        """The reason for which no further configuration is tried; empty while some are."""
        return ""

    def tell(self, row: Row, outcome: Outcome) -> None:
        self._journal.finish(self._attributes(row), self._conditions.taken(row), outcome)

    def _attributes(self, row: Row) -> Row:
        return {name: row[name] for name in ("trial_id", "config", "seed")}


class LiveDesign(DrawnDesign):
    """One objective whose next configuration depends on those before: each configuration is an
    entry of the journal.

    A suggestion depends on the search's seed, the objective, the number of the configuration and
    the journal alone: its entries, and what it keeps of earlier studies. With one trial at a time a
    study that was cut and continued thereby tries what it would have tried. Where it weighs seconds
    it depends on times, which no two runs have in common.
    """

    key = "config"

    def __init__(self, study: Study, objective: Objective, storage: JournalStorage):
        super().__init__(study, objective, storage)
        self._earlier = self._journal.note("earlier") or asdict(EarlierTrials())
        self._params: dict[int, Row] = {}  # those that take part, as the journal has them
        self._outcomes: dict[int, dict[int, Outcome]] = {}  # by configuration and seed

    @property
    def has_learnt(self) -> bool:
        """The journal has what the search takes of earlier studies, wherever these are now."""
        return self._journal.note("earlier") is not None

    def learn(self, earlier: EarlierTrials) -> None:
        """Take the configurations of earlier studies into account from now on."""
        self._earlier = asdict(earlier)
        self._journal.keep_note("earlier", self._earlier)

    def know(self, row: Row) -> None:
        """The values of a configuration with a recorded row, should the journal lack them."""
        self._params[row["config"]] = self._conditions.taken(row)

    def start(self, trial: PlannedTrial) -> Row:
        config = trial.config
        if config not in self._params:
            entry = self._journal.entry(config)
            planned = self._conditions.taken({name: trial.params[name] for name in self._space})
            chosen = dict(entry.params) if entry else planned  # one of those that are tried first
            self._params[config] = chosen or self._choose(config)
        self._journal.start({"config": config}, self._params[config])
        return plan_row(self._study, trial, self._conditions.settled(self._params[config]))

    def tell(self, row: Row, outcome: Outcome) -> None:
        outcomes = self._outcomes.setdefault(config := row["config"], {})
        outcomes[row["seed"]] = outcome
        seeds = self._study.sections.seeds
        if len(outcomes) == len(seeds):
            ended = _over_seeds([outcomes[seed] for seed in seeds])
            self._journal.finish({"config": config}, self._params[config], ended)

    def end(self) -> str:
        sections = self._study.sections
        budget = sections.search.budget
        if budget is None or budget.min_gain is None:
            return ""
        sign = 1.0 if sections.metric.mode == "max" else -1.0
        scores: dict[int, list[float]] = {}
        for config, of in sorted(self._outcomes.items()):
            ended = [of[seed] for seed in sections.seeds if seed in of]
            values = [sign * o.score for o in ended if o.score is not None and o.is_complete]
            if len(values) == len(sections.seeds):
                scores[config] = values
        configs = [self._params[config] for config in scores]
        seed = _seed_of(sections.search.seed, self._objective.label, "end")
        return end_by_evidence(self._objective, configs, [*scores.values()], budget.min_gain, seed)

    def _choose(self, config: int) -> Row:
        """Ask a new sampler, in a study of its own: the journal gets the choice in one piece.

        What has been tried is not tried again: with the same seeds it gives the same scores. A
        sampler that insists is left for a random one.
        """
        search = self._study.sections.search
        seed = _seed_of(search.seed, self._objective.label, config)
        entries = [*self._journal.entries().values()]
        tried = [*self._params.values(), *(entry.params for entry in entries)]
        imagined = optuna.create_study(
            directions=self._journal.directions, sampler=build_sampler(search.method, seed)
        )
        seen = _as_seen(entries, imagined.directions, search.method)
        imagined.add_trials(self._with_earlier(seen))
        for num_asked in range(MAX_REPEATS):
            if num_asked == MAX_ASKED[search.method]:
                imagined.sampler = build_sampler("random", seed)
            params = self._suggested(imagined.ask())
            if params not in tried:
                break
        return params

    def _with_earlier(self, seen: list[FrozenTrial]) -> list[FrozenTrial]:
        """The entries with those of earlier studies: evidence as it is, or else guides."""
        if evidence := [self._entry_of(each) for each in self._earlier["evidence"]]:
            return [*evidence, *seen]
        guides = [self._entry_of(each) for each in self._earlier["guides"]]
        own = [entry.values for entry in seen if entry.state == TrialState.COMPLETE]
        if guides and len(own) >= FEWEST_RANKED:
            aligned = _aligned([entry.values for entry in guides], own)
            for entry, values in zip(guides, aligned, strict=True):
                entry.values = values
            return [*guides, *seen]
        return guides or seen

    def _entry_of(self, earlier: Scored) -> FrozenTrial:
        params, *values = earlier
        return create_trial(
            params=params,
            distributions={name: self._space[name] for name in params},
            values=values[: len(self._journal.directions)],
        )

    def _suggested(self, trial: optuna.Trial) -> Row:
        """A sampler's suggestion for one configuration: nothing for what takes no part in it."""
        params: Row = {}
        for name in self._conditions.order:
            if self._conditions.takes_part(name, params):
                params[name] = trial._suggest(name, self._space[name])
        return self._conditions.taken(params)


def _seed_of(*parts: object) -> int:
    return int.from_bytes(hashlib.sha256("/".join(map(str, parts)).encode()).digest()[:4], "big")


def _aligned(
    others: Sequence[Sequence[float]], own: Sequence[Sequence[float]]
) -> list[list[float]]:
    """Scores that cannot be compared with one's own, as the quantiles of these at their ranks: the
    best of the others is among the best, the worst among the worst.

    Args:
        others, own: one entry a configuration, of the metric or of both objectives.
    """
    columns = []
    for theirs, mine in zip(zip(*others, strict=True), zip(*own, strict=True), strict=True):
        ranks = np.argsort(np.argsort(theirs, kind="stable"), kind="stable")
        columns.append(np.quantile(mine, (ranks + 0.5) / len(ranks)).tolist())
    return [list(values) for values in zip(*columns, strict=True)]


def _as_seen(
    entries: Sequence[FrozenTrial], directions: Sequence[StudyDirection], method: str
) -> list[FrozenTrial]:
    """Entries that a sampler learns from: no sampler looks at failures, and GPSampler at nothing
    that was stopped.

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
    """Outcome of a configuration, from its seeds; the first stands for it while it is judged."""
    if any(outcome.state == TrialState.FAIL for outcome in outcomes):
        return Outcome(status="failed")
    if outcomes[0].state == TrialState.PRUNED:
        return outcomes[0]
    # in whatever order they ended
    score, second = (
        None if None in values else math.fsum(map(float, values)) / len(values)
        for values in zip(*((o.score, o.second) for o in outcomes), strict=True)
    )
    return Outcome(status="finished", score=score, second=second)
