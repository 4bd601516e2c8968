"""How long a trial takes, timed on a few of its steps and on its scores."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from time import perf_counter
from typing import Any, TypeVar

import torch

from clsweep.catalog import DATASET
from clsweep.catalog.rows import Row
from clsweep.data.datasets import load_splits
from clsweep.data.found import DataPlace
from clsweep.objective.framework import Framework
from clsweep.train.images import DRAWN_AT_ONCE, Images, scored_images, steps_per_epoch
from clsweep.train.loop import train_epoch, train_trial
from clsweep.train.memory import PeakMemory
from clsweep.train.scores import diagnose, embed_in_plane, score_encoder, transfer_of
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

    begin_s: float = 0.0
    epoch_s: float = 0.0
    scored_s: float = 0.0
    last_s: float = 0.0
    peak_gib: float | None = None

    def trial_s(self, row: Mapping[str, Any]) -> float:
        """A trial of as many epochs as the row of the plan says, scored as often."""
        epochs: int = row["epochs"]
        num_scored = -(-epochs // row["eval_every"]) if self.scored_s else 0  # pairs have no scores
        return self.begin_s + epochs * self.epoch_s + num_scored * self.scored_s + self.last_s


def pace_of(config: Mapping[str, Any], place: DataPlace, device: torch.device) -> Pace:
    """Time the parts of a trial in this process, each after it has run once.

    Large splits are scored in part: the time is that of all their images by proportion.

    Args:
        config: as in `train_trial`.

    Raises:
        RequestError: the data set is not there.
    """
    memory = PeakMemory(device)
    if DATASET[config["dataset"]].kind == "pairs":  # an epoch of them is short: it is trained
        rows: list[Row] = []
        short = {**config, "epochs": 1}
        took, _ = _seconds(
            lambda: train_trial(short, rows.append, place=place, device=device), device
        )
        seconds = {"epoch_s": rows[0]["time_s"], "last_s": took - rows[0]["time_s"]}
    else:
        seconds = _of_images(config, place, device)
    return Pace(**seconds, peak_gib=memory.peak_gib())


def _of_images(
    config: Mapping[str, Any], place: DataPlace, device: torch.device
) -> dict[str, float]:
    torch.backends.cudnn.benchmark = device.type == "cuda"
    splits = load_splits(config, place)
    train, val = (
        scored_images(each, splits, config, device) for each in (splits.train, splits.val)
    )
    transfer = transfer_of(config, splits, place, device)
    bank, query = _some(train), _some(val)
    share = (len(bank) + len(query)) / (len(train) + len(val))

    def score_s(encoder: torch.nn.Module, trained: Framework | None, *, last: bool) -> float:
        """Of all images, and of the diagnostics that come with it, which look at some alone."""
        how: dict[str, Any] = {"last": last, "transfer": transfer if last else None}
        took, scores = _seconds(
            lambda: score_encoder(encoder, bank, query, config, objective=trained, **how), device
        )

        def look_closer() -> None:
            if trained is not None:
                diagnose(trained, query, scores.features_MD, config, base_loss=0.0)
            if last:
                embed_in_plane(scores.features_MD, query, config)

        return took / share + _seconds(look_closer, device)[0]

    if not config["epochs"]:
        begin_s, encoder = _seconds(lambda: untrained_encoder(config, device), device)
        score_s(encoder, None, last=False)
        return {"begin_s": begin_s, "last_s": score_s(encoder, None, last=True)}
    new_state(config, device)  # what is compiled is so once for many trials
    begin_s, state = _seconds(lambda: new_state(config, device), device)
    encoder = state.objective.encoder
    score_s(encoder, state.objective, last=False)
    scored_s, last_s = (score_s(encoder, state.objective, last=last) for last in (False, True))
    _step_s(state, train, config, most=WARM_STEPS)
    epoch_s = steps_per_epoch(train, config) * _step_s(state, train, config)
    last_s = max(0.0, last_s - scored_s)
    return {"begin_s": begin_s, "epoch_s": epoch_s, "scored_s": scored_s, "last_s": last_s}


class _EnoughError(Exception):
    """Enough steps have been timed."""


def _step_s(state: TrialState, train: Images, config: Mapping[str, Any], *, most: int = 0) -> float:
    """Seconds a step, of at most so many steps."""
    done, start = 0, perf_counter()
    block = max(1, DRAWN_AT_ONCE // config["batch_size"])

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
            train_epoch(state, state.objective, train, config, after_step=after_step)
    except _EnoughError:
        _wait_for(train.device)
    return (perf_counter() - start) / done


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
