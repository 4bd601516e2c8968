"""Numbers that change from step to step of a trial: learning rate, weight decay, temperature.

All follow from the step alone, so that a trial that goes on needs nothing of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from clsweep.objective.framework import ComparingFramework, half_cosine
from clsweep.train.optim import build_schedule, lr_at, peak_lr, set_lr, set_weight_decay
from clsweep.train.state import TrialState


class Schedules:
    """Those of a trial on images whose epochs have `per_epoch` steps."""

    def __init__(self, config: Mapping[str, Any], per_epoch: int):
        self._config, self._per_epoch = config, per_epoch
        self._share_of_peak = build_schedule(config)

    def at(self, step: int) -> dict[str, float]:
        """The rate of step 0, 1, ..., and weight decay and temperature where they change."""
        config, per_epoch = self._config, self._per_epoch
        num_steps, num_warmup_steps = (
            config[name] * per_epoch for name in ("epochs", "warmup_epochs")
        )
        rate = lr_at(
            step, peak=peak_lr(config), num_steps=num_steps, num_warmup_steps=num_warmup_steps,
            schedule=self._share_of_peak,
        )  # fmt: skip
        values = {"lr": rate}
        if config.get("weight_decay_schedule") == "cosine":
            ends = config["weight_decay"], config["weight_decay_end"]
            values["weight_decay"] = half_cosine(*ends, step / num_steps)
        if config.get("tau_schedule") == "cosine":
            half_period = config["tau_period"] * per_epoch / 2 or num_steps
            values["tau"] = half_cosine(config["tau"], config["tau_end"], step / half_period)
        return values


def begin_step(state: TrialState, values: Mapping[str, float]) -> None:
    """Have the next step of a trial take these values of its schedules."""
    set_lr(state.optimizer, values["lr"])
    if "weight_decay" in values:
        set_weight_decay(state.optimizer, values["weight_decay"])
    if "tau" in values:
        cast(ComparingFramework, state.objective).compare_at(values["tau"])
