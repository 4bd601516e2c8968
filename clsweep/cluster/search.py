"""The plan as a Tune searcher: drawn rows are handed out as they are, live rows get their values when they start.

One searcher walks the interleaved plan for all objectives. For `tpe` it holds one `OptunaSearch` per objective, which
suggests one configuration; the seeds of that configuration run as separate trials and Optuna is told their mean.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import optuna
from optuna.storages import JournalStorage
from optuna.trial import TrialState
from ray.tune.search import Searcher
from ray.tune.search.optuna import OptunaSearch

from clsweep.results.journal import Journal
from clsweep.study.design import LIVE_METHODS, PlannedTrial, distributions, plan_row
from clsweep.study.resolve import Study
from clsweep.study.space import Objective

Row = dict[str, Any]


class PlanSearch(Searcher):
    """Hands out what is left of the plan and keeps the Optuna journal.

    Args:
        study: the study that runs.
        left: trials to run, in order.
        recorded: rows of the trials that have already finished or failed.
        storage: the journal.
        context: passed to every trial beside its row.
    """

    def __init__(
        self,
        study: Study,
        left: Sequence[PlannedTrial],
        recorded: Iterable[Mapping[str, Any]],
        storage: JournalStorage,
        context: Mapping[str, Any],
    ):
        super().__init__()
        self._study, self._left, self._context = study, iter(left), dict(context)
        self._metric_name = study.sections.metric.name
        self._trials: dict[str, PlannedTrial] = {}  # by Tune's id
        recorded = list(recorded)
        live = {t.objective for t in left if t.sampler in LIVE_METHODS}
        live |= {row["objective"] for row in recorded if row["sampler"] in LIVE_METHODS}
        self._live: dict[str, LiveDesign] = {}
        self._journals: dict[str, Journal] = {}
        for objective in study.objectives:
            if objective.name in live:
                rows = [row for row in recorded if row["objective"] == objective.name]
                self._live[objective.name] = LiveDesign(study, objective, rows, storage)
            else:
                mode = study.sections.metric.mode
                self._journals[objective.name] = Journal(storage, objective.name, mode, distributions(objective))
        self._catch_up(recorded)

    def __getstate__(self) -> Row:
        return {}  # a run is resumed from its results and its journal, never from Tune's snapshots

    def set_search_properties(self, metric: str | None, mode: str | None, config: Any, **spec: Any) -> bool:
        return True  # the plan says it all

    def suggest(self, trial_id: str) -> Row | str:
        """Row and context of the next trial of the plan."""
        trial = next(self._left, None)
        if trial is None:
            return str(Searcher.FINISHED)
        self._trials[trial_id] = trial
        if trial.objective in self._live:
            row = plan_row(self._study, trial, self._live[trial.objective].suggest(trial.config))
        else:
            row = plan_row(self._study, trial)
            attributes = {"config": trial.config, "seed": trial.seed}
            self._journals[trial.objective].start(trial.trial_id, row, attributes)
        return {"row": row, "context": self._context}

    def on_trial_complete(self, trial_id: str, result: Row | None = None, error: bool = False) -> None:
        trial = self._trials.pop(trial_id)
        score = None if error else (result or {}).get(f"outcome/{self._metric_name}")  # Tune hands over flat results
        if trial.objective in self._live:
            self._live[trial.objective].tell(trial.config, trial.seed, score)
        else:
            self._journals[trial.objective].finish(trial.trial_id, score)

    def on_trial_result(self, trial_id: str, result: Row) -> None:
        pass  # one score per trial, at its end

    def save(self, checkpoint_path: str) -> None:
        """Nothing, see `__getstate__`."""

    def restore(self, checkpoint_path: str) -> None:
        """Nothing, see `__getstate__`."""

    def _catch_up(self, recorded: Iterable[Mapping[str, Any]]) -> None:
        """Close journal entries of trials whose row was written just before an interruption."""
        for row in recorded:
            if row["objective"] in self._journals:
                self._journals[row["objective"]].finish(row["trial_id"], row[self._metric_name])


class LiveDesign:
    """One objective whose next configuration depends on the finished ones, through Ray's `OptunaSearch`."""

    def __init__(
        self, study: Study, objective: Objective, recorded: Sequence[Mapping[str, Any]], storage: JournalStorage
    ):
        sections = study.sections
        self._num_seeds = len(sections.seeds)
        self._params: dict[int, Row] = {}
        self._scores: dict[int, dict[int, float | None]] = {}
        num_known = _num_trials(storage, objective.name)
        sampler = optuna.samplers.TPESampler(seed=sections.search.seed + num_known)  # a resumed run goes on, not back
        self._search = _ConfigSearch(
            space=distributions(objective),
            metric=sections.metric.name,
            mode=sections.metric.mode,
            sampler=sampler,
            study_name=objective.name,
            storage=storage,
        )
        self._params.update(self._search.unfinished)
        for row in recorded:
            self._params[row["config"]] = {name: row[name] for name in objective.space}
            self._scores.setdefault(row["config"], {})[row["seed"]] = row[sections.metric.name]
        for config in list(self._scores):
            self._tell_if_complete(config)

    def suggest(self, config: int) -> Row:
        """The swept values of a configuration: known since its first seed, or from an earlier session, or new."""
        if config not in self._params:
            self._params[config] = self._search.suggest(str(config))
        return self._params[config]

    def tell(self, config: int, seed: int, score: float | None) -> None:
        self._scores.setdefault(config, {})[seed] = score
        self._tell_if_complete(config)

    def _tell_if_complete(self, config: int) -> None:
        """Tell Optuna the mean over the seeds; a configuration of which any seed failed has failed."""
        scores = list(self._scores[config].values())
        if len(scores) == self._num_seeds:
            failed = any(score is None or math.isnan(score) for score in scores)
            self._search.finish(config, None if failed else sum(s for s in scores if s is not None) / len(scores))


class _ConfigSearch(OptunaSearch):
    """`OptunaSearch` whose trials are configurations, with those that an earlier session left unfinished."""

    def __init__(self, **arguments: Any):
        super().__init__(**arguments)
        self._numbers: dict[int, int] = {}
        self.unfinished: dict[int, Row] = {}
        for trial in self._ot_study.get_trials(states=(TrialState.RUNNING,)):
            config = trial.user_attrs.get("config")
            if config is None:  # killed between the suggestion and its note: no trial has started with it
                self._ot_study.tell(trial.number, state=TrialState.FAIL)
                continue
            self._numbers[config] = trial.number
            self.unfinished[config] = dict(trial.params)

    def suggest(self, trial_id: str) -> Row:
        params: Row = super().suggest(trial_id)
        self._ot_trials[trial_id].set_user_attr("config", int(trial_id))
        self._numbers[int(trial_id)] = self._ot_trials[trial_id].number
        return params

    def finish(self, config: int, score: float | None) -> None:
        """Close a configuration; one that the journal already has as closed stays as it is."""
        number = self._numbers.pop(config, None)
        if number is not None:
            state = TrialState.FAIL if score is None else TrialState.COMPLETE
            self._ot_study.tell(number, score, state=state)


def _num_trials(storage: JournalStorage, objective: str) -> int:
    names = {s.study_name: s._study_id for s in storage.get_all_studies()}
    return storage.get_n_trials(names[objective]) if objective in names else 0
