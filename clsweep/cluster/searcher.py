"""What Tune asks for trials: those of the plan, and the lost ones once more."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ray.tune.search import Searcher

from clsweep.catalog.rows import Row
from clsweep.cluster.losses import AGAIN, FAILED, Losses
from clsweep.cluster.search import PlanSearch


class Dispatch(Searcher):
    """Hands out a plan's trials; finished when none is left and none runs, or when the next ones
    would lack memory.

    Args:
        plan: the trials to run.
        context: passed to every trial beside its row.
        losses: what becomes of trials that lose their processes or machines.
        metric: what the plan wants to know of an outcome, beside how far it came and how long
            it took.
    """

    def __init__(
        self,
        plan: PlanSearch,
        context: Mapping[str, Any],
        losses: Losses,
        *,
        metric: str,
    ):
        super().__init__()
        self._plan, self._context, self._losses = plan, dict(context), losses
        self._wanted = ("status", "epochs_trained", "wall_time_s", metric)
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
        if self._losses.is_hopeless and not self._running:
            return str(Searcher.FINISHED)
        if len(self._running) >= self._losses.limit or self._losses.waits:
            return None
        row = self._next()
        if row is None:  # one of those that run may still be lost
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
        if outcome or not error:  # else it is lost, and Tune says next by what
            # Tune comes again if this raises, and shall get the same error
            self._plan.tell(row, outcome)
            self._losses.ended()
        del self._running[trial_id]
        self._outcomes.pop(trial_id, None)

    def lost(self, row: Row, error: BaseException | None) -> tuple[str, str, BaseException | None]:
        """A trial was lost by this error, as Tune has just said; see `Losses.fate`."""
        fate = self._losses.fate(row["trial_id"], error, len(self._running) + 1)
        if fate[0] == AGAIN:
            self._lost.append(row)
        elif fate[0] == FAILED:
            self._plan.tell(row, {})
        return (
            fate  # of one that stays open the plan is told nothing, as where a run is interrupted
        )

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
