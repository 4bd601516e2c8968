"""What happens over the epochs of a trial: momentum, first epochs, a queue that fills."""

from __future__ import annotations

from clsweep.display.numbers import setting
from clsweep.study.check_base import CheckBase
from clsweep.study.space import Objective


class EpochChecks(CheckBase):
    def _check_momentum(self, objective: Objective) -> None:
        """The momentum rises, and where it stays its end would be read by nothing."""
        if "momentum_end" not in objective.owned:
            return
        keys = self._where(objective, "momentum_end")
        _, start = objective.extremes("momentum")
        lowest_end, _ = objective.extremes("momentum_end")
        is_constant = self._points(objective, "momentum_schedule") == ("constant",)
        if is_constant and keys[-2:] == ("base", "momentum_end"):
            self.error(keys, "has no effect while momentum_schedule is constant")
        elif start > lowest_end:
            message = f"expected at least momentum, {setting(start)}, given {setting(lowest_end)}"
            self.error(keys, message)

    def _check_first_epochs(self, objective: Objective) -> None:
        """Values that differ only beyond the last epoch train alike."""
        _, epochs = objective.extremes("epochs")
        if "swav_queue" in objective.owned:
            self._check_queue(objective, epochs)
        for name in ("freeze_epochs", "swav_queue_start"):
            late = [value for value in self._ends(objective, name) if value >= epochs]
            if len(late) > 1:
                listed = ", ".join(map(str, late))
                message = f"expected at most one value from {epochs} on, the epochs of a trial"
                self.error(self._where(objective, name), f"{message}; {listed} train alike")
        is_first = epochs == 1 and "teacher_tau" in objective.space
        if is_first and objective.extremes("teacher_tau_epochs")[0] > 0:
            message = "has no effect in 1 epoch, whose temperature is teacher_tau_start"
            self.error(self._where(objective, "teacher_tau"), message)

    def _check_queue(self, objective: Objective, epochs: int) -> None:
        """A queue that begins too late, or that is never full, is none."""
        start, _ = objective.extremes("swav_queue_start")
        num_train, _ = self.dataset.split_sizes(self.sections.val_fraction)
        queued = max(0, epochs - start) * num_train
        sizes = self._ends(objective, "swav_queue") or objective.extremes("swav_queue")
        unused = [size for size in sizes if size == 0 or size >= queued]
        if "swav_queue" in objective.space and len(unused) > 1:
            self.error(
                self._where(objective, "swav_queue"),
                f"has no effect in {epochs} epochs while swav_queue_start is {start}"
                if not queued
                else f"expected at most one of {', '.join(map(str, unused))}: in {epochs} epochs "
                f"from {start} on a queue of {queued} is never full, and is none",
            )
        if "swav_queue_start" in objective.space and len(unused) == len(sizes) and any(sizes):
            message = f"has no effect while a queue of {min(filter(None, sizes))} is never full"
            self.error(self._where(objective, "swav_queue_start"), message)
