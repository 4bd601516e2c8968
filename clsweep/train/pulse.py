"""What a trial says while an epoch is under way, and whether its loss is still finite."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from time import monotonic
from typing import Any

from torch import Tensor

from clsweep.catalog.rows import Row
from clsweep.train.scores import DivergedError

Tell = Callable[[Row], object]

TELL_S = 2.0
CHECK_STEPS = 50  # to read a loss waits for the device, which no step should


class Pulse:
    """Of one trial, looked at after every step.

    Args:
        config: as in `train_trial`.
        tell: called at most every `TELL_S` with epoch, epochs, step, steps, loss (the mean of the
            epoch so far) and images_per_s (since it was called last); None: nobody listens.
    """

    def __init__(self, config: Mapping[str, Any], tell: Tell | None = None):
        self._config, self._tell = config, tell
        self._told_at, self._told_step = monotonic(), 0
        self._epoch = self._num_steps = 0
        self._said: Row = {}

    def begin_epoch(self, epoch: int, num_steps: int, done: int = 0) -> None:
        """`done`: steps of it that an earlier attempt has done."""
        self._epoch, self._num_steps, self._told_step = epoch, num_steps, done

    def step(self, done: int, total: Tensor) -> None:
        """After `done` steps of the epoch, whose losses come to `total`.

        Raises:
            DivergedError: it is not finite; seen within `CHECK_STEPS` steps.
        """
        is_due = self._tell is not None and monotonic() - self._told_at >= TELL_S
        if not is_due and done % CHECK_STEPS:
            return
        loss = total.item() / done
        if not math.isfinite(loss):
            where = f"in epoch {self._epoch}, by step {done} of {self._num_steps}"
            raise DivergedError.of(f"the loss is {loss} {where}", self._config)
        if is_due:
            self._say(done, loss)

    def after_scores(self) -> None:
        """Say again what was said last, if that is long ago: whoever listens may have a demand."""
        if self._tell and self._said and monotonic() - self._told_at >= TELL_S:
            self._tell(self._said)

    def _say(self, done: int, loss: float) -> None:
        assert self._tell is not None
        now = monotonic()
        num_images = (done - self._told_step) * self._config["batch_size"]
        self._said = {
            "epoch": self._epoch,
            "epochs": self._config["epochs"],
            "step": done,
            "steps": self._num_steps,
            "loss": loss,
            "images_per_s": num_images / (now - self._told_at),
        }
        self._tell(self._said)
        self._told_at, self._told_step = now, done
