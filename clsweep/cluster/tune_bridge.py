"""Between Tune and the run: Tune gets the trials of the plan, and lost ones once more; the recorder
gets the results.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import Any

from ray import tune
from ray.air.execution._internal import RayActorManager
from ray.exceptions import ActorDiedError, RayActorError, RayTaskError
from ray.tune import Callback
from ray.tune.experiment import Trial
from ray.tune.search import Searcher

from clsweep.catalog.rows import Row
from clsweep.cluster.failures import FAILED, RETRY, Decision, FailurePolicy
from clsweep.cluster.ray_session import replaced
from clsweep.cluster.recorder import Recorder
from clsweep.cluster.search import PlanSearch
from clsweep.cluster.trial import TrialContext, run_trial
from clsweep.study.design import Study

_Trials = list[Trial]


def tuner(
    study: Study, scratch: str, searcher: PlanSearcher, recorder: Recorder, concurrent: int
) -> tune.Tuner:
    """Tune, set up to run a study's trials, so many at once."""
    resources = study.sections.resources
    # The Tune actor of a worker group only waits: holding CPUs would starve the workers.
    claim = {"CPU": 0, "node:__internal_head__": 0.001}
    if resources.workers == 1:
        claim = {"CPU": resources.cpus_per_worker, "GPU": float(resources.gpus_per_worker)}
        claim = {name: amount for name, amount in claim.items() if amount}
    return tune.Tuner(
        tune.with_resources(run_trial, claim),
        tune_config=tune.TuneConfig(
            search_alg=searcher,
            num_samples=-1,  # the search says when the plan is finished
            max_concurrent_trials=concurrent,
            # A worker group leaves nothing in its driver worth keeping, and hangs if its actor
            # is reused.
            reuse_actors=resources.workers == 1,
            trial_dirname_creator=lambda trial: f"trial_{trial.trial_id}",
        ),
        run_config=tune.RunConfig(
            name="tune",
            storage_path=scratch,
            verbose=0,
            callbacks=[TuneBridge(recorder, searcher)],
            failure_config=tune.FailureConfig(max_failures=0),
        ),
    )


class PlanSearcher(Searcher):
    """Hands out a plan's trials; finished when none is left and none runs, or when the next ones
    would lack memory.

    Args:
        plan: the trials to run.
        context: passed to every trial beside its row.
        failures: decides on trials that lose their processes or machines.
        scores: those that the plan needs of an outcome, beside its length and seconds.
    """

    def __init__(
        self,
        plan: PlanSearch,
        context: TrialContext,
        failures: FailurePolicy,
        *,
        scores: Iterable[str],
    ):
        super().__init__()
        self._plan, self._context, self.failures = plan, context, failures
        self._wanted = ("status", "epochs_trained", "wall_time_s", *scores)
        self._running: dict[str, Row] = {}  # by Tune's id
        self._outcomes: dict[str, Row] = {}  # what running trials have said of their end
        self._lost: list[Row] = []
        self._is_exhausted = False  # nothing is left of the plan

    def __getstate__(self) -> Row:
        return {}  # a run is resumed from its results and its journal, never from Tune's snapshots

    def set_search_properties(
        self, metric: str | None, mode: str | None, config: Any, **spec: Any
    ) -> bool:
        return True  # the plan says it all

    def suggest(self, trial_id: str) -> Row | str | None:
        """Row and context of the next trial; None: not now."""
        if self.failures.is_hopeless and not self._running:
            return str(Searcher.FINISHED)
        if len(self._running) >= self.failures.limit or self.failures.waits:
            return None
        row = self._lost.pop(0) if self._lost else None
        if row is None and not self._is_exhausted:
            row = self._plan.next_row()
            self._is_exhausted = row is None and not self._plan.awaits
        if row is None:  # one of those that run may still be lost
            return None if self._running else str(Searcher.FINISHED)
        self._running[trial_id] = row
        return {"row": row, "context": self._context}

    def on_trial_result(self, trial_id: str, result: Row) -> None:
        if "outcome/status" in result:  # Tune hands over flat results
            self._outcomes[trial_id] = {n: result.get(f"outcome/{n}") for n in self._wanted}

    def on_trial_complete(
        self, trial_id: str, result: Row | None = None, error: bool = False
    ) -> None:
        outcome = self._outcomes.get(trial_id, {})
        if outcome or not error:  # else it is lost, and Tune says next by what
            # Tune comes again if this raises, and shall get the same error
            self._plan.tell(self._running[trial_id], outcome)
            self.failures.ended()
        del self._running[trial_id]
        self._outcomes.pop(trial_id, None)

    def lost(self, row: Row, error: BaseException | None) -> Decision:
        """`FailurePolicy.decide` on a trial that was lost by this error, as Tune has just said. Of
        one that stays open the plan hears no end, as where a run is interrupted.
        """
        decision = self.failures.decide(row["trial_id"], error, len(self._running) + 1)
        if decision[0] == RETRY:
            self._lost.append(row)
        elif decision[0] == FAILED:
            self._plan.tell(row, {})
        else:
            self._plan.leave_open(row)
        return decision

    def save(self, checkpoint_path: str) -> None:
        """Nothing, see `__getstate__`."""

    def restore(self, checkpoint_path: str) -> None:
        """Nothing, see `__getstate__`."""


class TuneBridge(Callback):
    """Every trial ends in exactly one row: with its outcome, or with the error of a process that
    was lost too often. It has none where its machine is to blame.
    """

    def __init__(self, recorder: Recorder, searcher: PlanSearcher):
        self._recorder, self._searcher = recorder, searcher
        self._ended: set[str] = set()

    def __getstate__(self) -> Row:
        return {}  # Tune pickles its callbacks for a restore that never happens

    def on_step_begin(self, iteration: int, trials: _Trials, **_: object) -> None:
        self._recorder.folder.held.check()  # hours may pass until the next row

    def on_trial_start(self, iteration: int, trials: _Trials, trial: Trial, **_: object) -> None:
        row = trial.config["row"]
        self._searcher.failures.actors[row["trial_id"]] = trial.temporary_state.ray_actor
        self._recorder.started(row)

    def on_trial_result(
        self, iteration: int, trials: _Trials, trial: Trial, result: Row, **_: object
    ) -> None:
        if outcome := result.pop("outcome", None):  # Tune would hold it as the trial's last result
            self._ended.add(trial.trial_id)
            self._recorder.ended(trial.config["row"], outcome)

    def on_trial_complete(self, iteration: int, trials: _Trials, trial: Trial, **_: object) -> None:
        if trial.trial_id not in self._ended:  # it never said how it ended
            self._recorder.crashed(trial.config["row"], None)

    def on_trial_error(self, iteration: int, trials: _Trials, trial: Trial, **_: object) -> None:
        if trial.trial_id not in self._ended:
            self._ended.add(trial.trial_id)  # this attempt
            row = trial.config["row"]
            decision, reason, error = self._searcher.lost(row, trial.__dict__.pop(_ERROR, None))
            if decision == FAILED:
                self._recorder.crashed(row, error)
            else:
                self._recorder.lost(row, reason, goes_on=decision == RETRY)


_ERROR = "lost_by"  # of a trial, from Tune's note of an error to `TuneBridge.on_trial_error`


@contextlib.contextmanager
def errors_passed_on() -> Iterator[None]:
    """Meanwhile each error by which a trial is lost comes to `TuneBridge`.

    Tune keeps those of two classes, and gives up at others: that a machine lacks memory is one.
    """
    note, fail = Trial.handle_error, RayActorManager._actor_task_failed

    def handle_error(trial: Trial, error: Any = None) -> None:
        trial.__dict__[_ERROR] = error
        note(trial, error)

    def failed(manager: RayActorManager, tracked_actor_task: Any, exception: Exception) -> None:
        if not isinstance(exception, RayActorError | RayTaskError):
            cause, exception = exception, ActorDiedError()
            exception.__dict__["cause"] = cause
        fail(manager, tracked_actor_task, exception)

    with (
        replaced(Trial, handle_error=handle_error),
        replaced(RayActorManager, _actor_task_failed=failed),
    ):
        yield
