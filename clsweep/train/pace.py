"""How long a trial takes, timed on a few of its steps and on its scores."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from time import perf_counter
from typing import Any, TypeVar

import torch

from clsweep.catalog import DATASET
from clsweep.catalog.rows import Row
from clsweep.data.availability import DataPlace
from clsweep.data.datasets import load_splits
from clsweep.train.diagnostics import StepStatistics
from clsweep.train.images import DRAWN_AT_ONCE, Images, scored_images, steps_per_epoch
from clsweep.train.loop import begin_epoch, train_epoch, train_trial
from clsweep.train.memory import PeakMemory
from clsweep.train.scores import (
    Heads,
    Transfer,
    diagnose,
    embed_in_plane,
    score_encoder,
    transfer_of,
)
from clsweep.train.state import TrialState, new_state, untrained_encoder

STEPS_S = 2.0  # of steps that are timed, or longer until a block of views is through,
LONGEST_S = 8.0  # but no longer
WARM_STEPS = 2
SCORED_IMAGES = 2048  # of each split, on which scores are timed

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Pace:
    """What the parts of a trial take, seconds.

    Attributes:
        begin_s: from its images to its first step.
        epoch_s: the steps of an epoch.
        scored_s: what an epoch that is scored takes more.
        last_s: what the last one takes more than that.
        peak_gib: memory of the trial; None where the system does not tell.
    """

    begin_s: float
    epoch_s: float
    scored_s: float
    last_s: float
    peak_gib: float | None

    def trial_s(self, row: Mapping[str, Any]) -> float:
        """A trial of as many epochs as the row of the plan says, scored as often."""
        epochs: int = row["epochs"]
        num_scored = -(-epochs // row["eval_every"]) if self.scored_s else 0  # pairs have no scores
        return self.begin_s + epochs * self.epoch_s + num_scored * self.scored_s + self.last_s


def pace_of(
    config: Mapping[str, Any],
    place: DataPlace,
    device: torch.device,
) -> Pace:
    """Time the parts of a trial in this process, each after it has run once.

    Large splits are scored in part: the time is that of all their images by proportion.

    Args:
        config: as in `train_trial`.

    Raises:
        RequestError: the data set is not there.
    """
    memory = PeakMemory(device)
    if DATASET[config["dataset"]].kind == "pairs":
        seconds = _of_pairs(config, place, device)
    else:
        torch.backends.cudnn.benchmark = device.type == "cuda"
        timed = _Timed(config, place, device)
        seconds = timed.trained() if config["epochs"] else timed.untrained()
    return Pace(**seconds, peak_gib=memory.peak_gib())


def _of_pairs(
    config: Mapping[str, Any], place: DataPlace, device: torch.device
) -> dict[str, float]:
    """An epoch of pairs of vectors is short: it is trained."""
    rows: list[Row] = []
    took, _ = _seconds(
        lambda: train_trial({**config, "epochs": 1}, rows.append, place=place, device=device),
        device,
    )
    epoch_s = rows[0]["time_s"]
    return {"begin_s": 0.0, "epoch_s": epoch_s, "scored_s": 0.0, "last_s": took - epoch_s}


class _Timed:
    """A trial on images whose parts are timed."""

    def __init__(self, config: Mapping[str, Any], place: DataPlace, device: torch.device):
        self._config, self._device = config, device
        splits = load_splits(config, place)
        self._train, self._val = (
            scored_images(split, splits, config, device) for split in (splits.train, splits.val)
        )
        self._transfer = transfer_of(config, splits, place, device)

    def untrained(self) -> dict[str, float]:
        begin_s, encoder = _seconds(
            lambda: untrained_encoder(self._config, self._device), self._device
        )
        self._score_s(encoder, Heads(), last=False)
        last_s = self._score_s(encoder, Heads(), last=True)
        return {"begin_s": begin_s, "epoch_s": 0.0, "scored_s": 0.0, "last_s": last_s}

    def trained(self) -> dict[str, float]:
        new_state(self._config, self._device)  # what is compiled is so once for many trials
        begin_s, state = _seconds(lambda: new_state(self._config, self._device), self._device)
        encoder, heads = state.objective.encoder, Heads.of(state.objective)
        self._score_s(encoder, heads, last=False)
        each_s, last_s = (self._score_s(encoder, heads, last=last) for last in (False, True))
        self._step_s(state, most=WARM_STEPS)
        plain_s, watched_s = self._step_s(state), self._step_s(state, watched=True)
        per_epoch = steps_per_epoch(self._train, self._config)
        return {
            "begin_s": begin_s,
            "epoch_s": per_epoch * plain_s,
            "scored_s": per_epoch * max(0.0, watched_s - plain_s) + each_s,
            "last_s": max(0.0, last_s - each_s),
        }

    def _step_s(self, state: TrialState, *, watched: bool = False, most: int = 0) -> float:
        """Seconds a step.

        Args:
            watched: with the diagnostics of an epoch that is scored.
            most: at most so many steps.
        """
        done, start = 0, perf_counter()
        block = max(1, DRAWN_AT_ONCE // self._config["batch_size"])

        def after_step() -> float:
            nonlocal done
            done += 1
            took = perf_counter() - start
            if done == most or took > (LONGEST_S if done % block else STEPS_S):
                raise _EnoughError
            return 0.0

        try:
            while True:
                state.epoch, state.under_way = 0, None
                statistics = StepStatistics() if watched else None
                begin_epoch(state, self._train, statistics)
                train_epoch(
                    state,
                    state.objective,
                    self._train,
                    self._config,
                    statistics,
                    after_step=after_step,
                )
        except _EnoughError:
            _wait_for(self._device)
        return (perf_counter() - start) / done

    def _score_s(self, encoder: torch.nn.Module, heads: Heads, *, last: bool) -> float:
        """Seconds of a score of all images, and of the diagnostics that come with it."""
        bank, query = _some(self._train), _some(self._val)
        transfer: Transfer | None = self._transfer if last else None
        how: dict[str, Any] = {"last": last, "heads": heads, "transfer": transfer}
        took, (_, features) = _seconds(
            lambda: score_encoder(encoder, bank, query, self._config, **how), self._device
        )
        share = (len(bank) + len(query)) / (len(self._train) + len(self._val))
        more_s, _ = _seconds(lambda: self._look_closer(heads, query, features, last), self._device)
        return took / share + more_s

    def _look_closer(self, heads: Heads, query: Images, features: torch.Tensor, last: bool) -> None:
        """What looks at some images however many there are."""
        if heads.objective is not None:
            diagnose(heads.objective, query, features, self._config, base_loss=0.0)
        if last:
            embed_in_plane(features, query, self._config)


class _EnoughError(Exception):
    """Enough steps have been timed."""


def _seconds(work: Callable[[], T], device: torch.device) -> tuple[float, T]:
    """How long it takes, and what it returns."""
    _wait_for(device)
    start = perf_counter()
    made = work()
    _wait_for(device)
    return perf_counter() - start, made


def _wait_for(device: torch.device) -> None:
    """Wait until a GPU has done what it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _some(images: Images) -> Images:
    """At most `SCORED_IMAGES` of them, evenly."""
    if len(images) <= SCORED_IMAGES:
        return images
    return images.chosen(torch.linspace(0, len(images) - 1, SCORED_IMAGES).long())
