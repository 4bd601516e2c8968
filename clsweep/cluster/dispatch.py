"""What Tune asks for trials: those of the plan, as many at once as this run may hold, and the lost ones once more."""

from __future__ import annotations

from typing import Any

from ray.tune.search import Searcher

from clsweep.cluster.restarts import Restarts
from clsweep.cluster.search import PlanSearch
from clsweep.cluster.sharing import Share

Row = dict[str, Any]


class Dispatch(Searcher):
    """Hands out a `PlanSearch`'s trials; finished when none is left and none runs, or when the run is to yield."""

    def __init__(self, plan: PlanSearch, share: Share, restarts: Restarts, *, metric: str):
        super().__init__()
        self._plan, self._share, self._restarts, self._metric_name = plan, share, restarts, metric
        self._running: dict[str, tuple[str, Row]] = {}  # by Tune's id: the plan's id for it, and what it was given
        self._outcomes: dict[str, Row] = {}  # what running trials have said of their end
        self._lost: list[tuple[str, Row]] = []
        self._is_exhausted = False

    def __getstate__(self) -> Row:
        return {}  # a run is resumed from its results and its journal, never from Tune's snapshots

    def set_search_properties(self, metric: str | None, mode: str | None, config: Any, **spec: Any) -> bool:
        return True  # the plan says it all

    def suggest(self, trial_id: str) -> Row | str | None:
        """The next trial; None: not now."""
        if self._share.yields:
            return None if self._running else str(Searcher.FINISHED)
        if len(self._running) >= self._share.limit:
            return None
        entry = self._lost.pop(0) if self._lost else self._next(trial_id)
        if entry is None:  # one that runs may still be lost
            return None if self._running else str(Searcher.FINISHED)
        self._running[trial_id] = entry
        return entry[1]

    def on_trial_complete(self, trial_id: str, result: Row | None = None, error: bool = False) -> None:
        plan_id, given = self._running.pop(trial_id)
        outcome, name = self._outcomes.pop(trial_id, None), given["row"]["trial_id"]
        if outcome is None and error:
            self._restarts.note(name)
            if not self._restarts.has_failed(name):
                self._lost.append((plan_id, given))
                return
        self._plan.on_trial_complete(plan_id, outcome, error=outcome is None)

    def on_trial_result(self, trial_id: str, result: Row) -> None:
        if "outcome/status" in result:  # Tune hands over flat results
            wanted = ("outcome/status", "outcome/epochs_trained", f"outcome/{self._metric_name}")
            self._outcomes[trial_id] = {name: result.get(name) for name in wanted}

    def save(self, checkpoint_path: str) -> None:
        """Nothing, see `__getstate__`."""

    def restore(self, checkpoint_path: str) -> None:
        """Nothing, see `__getstate__`."""

    def _next(self, trial_id: str) -> tuple[str, Row] | None:
        given = None if self._is_exhausted else self._plan.suggest(trial_id)
        if not isinstance(given, dict):
            self._is_exhausted = True
            return None
        return trial_id, given
