"""An epoch under way: what its steps have come to so far, and what they began with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from time import perf_counter
from typing import Any

import torch
from torch import Tensor

from clsweep.train.diagnostics import StepStatistics

AfterStep = Callable[[], float]


class EpochUnderWay:
    """Between two steps of an epoch.

    Attributes:
        totals: sums of the steps' losses, on the trial's device.
        statistics: the diagnostics of the steps, if the epoch is scored.
        began_at: the state of the views' generator before the first step. A checkpoint has this
            one: views are drawn ahead, in blocks, and are drawn again up to where it goes on.
        step: steps that are done.
        lr, is_regularized: of the last of them.
    """

    def __init__(
        self,
        totals: Tensor,
        statistics: StepStatistics | None = None,
        began_at: torch.Generator | None = None,
    ):
        self.totals, self.statistics = totals, statistics
        self.began_at = began_at.get_state() if began_at else None
        self.step, self.lr, self.is_regularized = 0, 0.0, False
        self._start = perf_counter()

    @property
    def time_s(self) -> float:
        """Time of the steps, those of earlier attempts included and saving left out."""
        return perf_counter() - self._start

    def end_step(self, after_step: AfterStep | None) -> None:
        """Count a step, and let `after_step` look, which returns the seconds that it took."""
        self.step += 1
        if after_step is not None:
            self._start += after_step()

    def state_dict(self) -> dict[str, Any]:
        return {
            "totals": self.totals,
            "statistics": self.statistics.state_dict() if self.statistics else None,
            "step": self.step,
            "lr": self.lr,
            "is_regularized": self.is_regularized,
            "time_s": self.time_s,
        }

    @classmethod
    def of_state(
        cls, state: Mapping[str, Any], device: torch.device, began_at: torch.Generator
    ) -> EpochUnderWay:
        """What `state_dict` gave; the generator is back at the beginning of the epoch."""
        statistics = None
        if state["statistics"] is not None:
            statistics = StepStatistics()
            statistics.load_state_dict(state["statistics"], device)
        made = cls(state["totals"].to(device), statistics, began_at)
        made.step, made.lr = state["step"], state["lr"]
        made.is_regularized = state["is_regularized"]
        made._start -= state["time_s"]
        return made
