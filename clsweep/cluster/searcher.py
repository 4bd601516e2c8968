"""What Tune asks for trials: those of the plan, as many at once as this run may hold, and the lost
ones once more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from ray.tune.search import Searcher

from clsweep.catalog.rows import Row
from clsweep.cluster.search import PlanSearch
from clsweep.cluster.sharing import Share


class Dispatch(Searcher):
    """Hands out a plan's trials; finished when none is left and none runs, or when the run is to
    yield.

    Args:
        plan: the trials to run.
        context: passed to every trial beside its row.
        share: how many may run at once.
        losses: how often each trial has lost its process or machine in this run; counted on here.
        max_restarts: a trial that is lost goes on from its checkpoint, so many times.
        metric: what the plan wants to know of an outcome, beside how far it came and how long
            it took.
    """

    def __init__(
        self,
        plan: PlanSearch,
        context: Mapping[str, Any],
        share: Share,
        losses: Counter[str],
        *,
        max_restarts: int,
        metric: str,
    ):
        super().__init__()
        self._plan, self._context, self._share = plan, dict(context), share
        self._losses, self._max_restarts = losses, max_restarts
        self._wanted = ("status", "epochs_trained", "wall_time_s", metric)
        self._running: dict[str, Row] = {}  # by Tune's id
        self._outcomes: dict[str, Row] = {}  # what running trials have said of their end
        self._lost: list[Row] = []
        self._is_exhausted = False  # nothing is left of the plan

    @property
    def is_over(self) -> bool:
        """Whether all trials of the plan have been handed out and have ended; otherwise a turn
        has.
        """
        return self._is_exhausted and not self._lost

    def __getstate__(self) -> Row:
        return {}  # a run is resumed from its results and its journal, never from Tune's snapshots

    def set_search_properties(
        self, metric: str | None, mode: str | None, config: Any, **spec: Any
    ) -> bool:
        return True  # the plan says it all

    def suggest(self, trial_id: str) -> Row | str | None:
        """Row and context of the next trial; None: not now."""
        if len(self._running) >= self._share.limit:
            return None
        row = None if self._share.yields else self._next()
        if row is None:  # one that runs may still be lost
            return None if self._running else str(Searcher.FINISHED)
        self._running[trial_id] = row
        return {"row": row, "context": self._context}

    def on_trial_result(self, trial_id: str, result: Row) -> None:
        if "outcome/status" in result:  # Tune hands over flat results
            self._outcomes[trial_id] = {
                name: result.get(f"outcome/{name}") for name in self._wanted
            }

    def on_trial_complete(
        self, trial_id: str, result: Row | None = None, error: bool = False
    ) -> None:
        row, outcome = self._running[trial_id], self._outcomes.get(trial_id, {})
        is_lost = error and not outcome
        self._losses[row["trial_id"]] += is_lost
        if is_lost and not self.is_lost_too_often(row["trial_id"]):
            self._lost.append(row)
        else:
            self._share.num_open -= 1
            # Tune comes again if this raises, and shall get the same error
            self._plan.tell(row, outcome)
        del self._running[trial_id]
        self._outcomes.pop(trial_id, None)

    def is_lost_too_often(self, trial_id: str) -> bool:
        """Whether a trial that was lost has failed by that."""
        return self._losses[trial_id] > self._max_restarts

    def save(self, checkpoint_path: str) -> None:
        """Nothing, see `__getstate__`."""

    def restore(self, checkpoint_path: str) -> None:
        """Nothing, see `__getstate__`."""

    def _next(self) -> Row | None:
        if self._lost:
            return self._lost.pop(0)
        row = None if self._is_exhausted else self._plan.next_row()
        self._is_exhausted = row is None and not self._plan.awaits
        return row
