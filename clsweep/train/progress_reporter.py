"""Progress of a trial within an epoch, and a check that its loss is still finite."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping
from time import monotonic
from typing import Any

from torch import Tensor

from clsweep.catalog.rows import Row
from clsweep.train.finite import DivergedError

ReportProgress = Callable[[Row], object]

REPORT_EVERY_S = 2.0
CHECK_EVERY_STEPS = 50  # to read a loss waits for the device, which no step should


class ProgressReporter:
    """Of one trial, looked at after every step.

    Args:
        config: as in `train_trial`.
        tell: called at most every `TELL_S` with epoch, epochs, step, steps, loss (the mean of the
            epoch so far) and images_per_s (of all steps so far, of this attempt, without the
            scores), without the last two before the first step, and with `scoring` before scores
            that may take long. Before all that with `preparing` alone, a text. None: nobody
            listens.
    """

    def __init__(self, config: Mapping[str, Any], tell: ReportProgress | None = None):
        self._config, self._tell = config, tell
        self._begun_at = self._reported_at = monotonic()
        self._epoch = self._num_steps = self._num_done = 0
        self._scored_s = 0.0
        self._last_state: Row = {}
        self._scores_are_long = True

    def prepare(self, text: str) -> None:
        """Say how far the images are that the trial waits for."""
        if self._tell:
            self._tell({"preparing": text})

    def begin_epoch(self, epoch: int, num_steps: int, done: int = 0) -> None:
        """`done`: steps of it that an earlier attempt has done."""
        self._epoch, self._num_steps = epoch, num_steps
        if not self._last_state:
            self._begun_at = monotonic()
            self._report({"step": done})

    def step(self, done: int, total: Tensor) -> None:
        """After `done` steps of the epoch, whose losses come to `total`.

        Raises:
            DivergedError: it is not finite; seen within `CHECK_STEPS` steps.
        """
        self._num_done += 1
        is_due = self._tell is not None and monotonic() - self._reported_at >= REPORT_EVERY_S
        if not is_due and done % CHECK_EVERY_STEPS:
            return
        loss = total.item() / done
        if not math.isfinite(loss):
            where = f"in epoch {self._epoch}, by step {done} of {self._num_steps}"
            raise DivergedError.of(f"the loss is {loss} {where}", self._config)
        if is_due:
            num_images = self._num_done * self._config["batch_size"]
            pace = num_images / (monotonic() - self._begun_at - self._scored_s)
            self._report({"step": done, "loss": loss, "images_per_s": pace})

    @contextlib.contextmanager
    def scoring(self) -> Iterator[None]:
        """Around the scores after the steps of an epoch. If they were long, say that it goes on, as
        whoever listens may have a demand; what follows the last epoch is not said to have ended.
        """
        started, is_last = monotonic(), self._epoch == self._config["epochs"]
        if self._scores_are_long or is_last:
            self._report({"step": self._num_steps, "scoring": 1})
        yield
        took = monotonic() - started
        is_long, self._scored_s = took >= REPORT_EVERY_S, self._scored_s + took
        if not is_last and (is_long or self._scores_are_long):
            self._report({"step": self._num_steps})
        self._scores_are_long = is_long

    def _report(self, state: Row) -> None:
        place = {"epoch": self._epoch, "epochs": self._config["epochs"], "steps": self._num_steps}
        self._last_state = {**place, **state}
        if self._tell:
            self._tell(self._last_state)
        self._reported_at = monotonic()
