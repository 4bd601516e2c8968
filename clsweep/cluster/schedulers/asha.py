"""Asynchronous successive halving (ASHA) of what tpe and gp try: more epochs for the better
configurations.

The first seed stands for its configuration. Its scores and what was decided are in the
configuration's entry of the Optuna journal, which the driver has open too. A scheduler that is
started again goes on from there.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from optuna.exceptions import UpdateFinishedTrialError
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial

from clsweep.results.journal import latest_entries, open_storage
from clsweep.study.design import Study, sampler_of
from clsweep.study.schema import LIVE_METHODS

_ATTRIBUTE = "asha"  # the user attribute


@dataclass(frozen=True, kw_only=True)
class AshaConfig:
    """A study's `scheduler: asha`."""

    first_seed: int  # its scores stand for the configuration
    grace_epochs: int
    reduction_factor: int
    # of the objectives that are judged; an enumerated space just runs
    last_epochs: Mapping[str, int]

    @classmethod
    def of(cls, study: Study) -> AshaConfig | None:
        """None if the study's scheduler stops nothing."""
        scheduler = study.sections.scheduler
        live: dict[str, Any] = {
            objective.name: objective.fixed["epochs"]
            for objective in study.objectives
            if scheduler.name == "asha" and sampler_of(study, objective) in LIVE_METHODS
        }
        if not live:
            return None
        return cls(
            first_seed=study.sections.seeds[0],
            grace_epochs=scheduler.grace_epochs,
            reduction_factor=scheduler.reduction_factor,
            last_epochs=live,
        )


@dataclass(frozen=True, kw_only=True)
class RungState:
    """The rungs that a configuration has reached, and where it stopped."""

    epoch: int = 0  # up to which it is judged
    rungs: tuple[float, ...] = ()  # its scores on the rungs that it has reached
    stopped_at: int | None = None  # epoch

    @classmethod
    def of(cls, entry: FrozenTrial) -> RungState:
        noted = entry.user_attrs.get(_ATTRIBUTE, {})
        return cls(**{**noted, "rungs": tuple(noted.get("rungs", ()))})


class AshaScheduler:
    """Decides at every scored epoch whether a trial goes on.

    Args:
        journal: path of the Optuna journal.
        config: the study's.
    """

    def __init__(self, journal: str, config: AshaConfig):
        self._storage, self._config = open_storage(journal), config

    def may_go_on(self, objective: str, config: int, seed: int, epoch: int, score: float) -> bool:
        """True if a trial that has just been scored trains on; at its last epoch it has finished in
        any case.

        Asked again about an epoch it answers the same. The seeds after the first stop where the
        first has stopped, or later; they wait for no decision.
        """
        if objective not in self._config.last_epochs:
            return True
        study_id = self._storage.get_study_id_from_name(objective)
        entries = latest_entries(self._storage, study_id, "config")
        entry = entries[config]
        state, is_last = RungState.of(entry), epoch >= self._config.last_epochs[objective]
        if seed == self._config.first_seed and epoch > state.epoch and state.stopped_at is None:
            if not is_last:
                [direction] = self._storage.get_study_directions(study_id)
                others = [
                    RungState.of(each) for number, each in entries.items() if number != config
                ]
                is_max = direction == StudyDirection.MAXIMIZE
                state = self._decide(state, others, epoch, score, is_max)
            self._note(entry, state, epoch, score)
        return is_last or state.stopped_at is None or epoch < state.stopped_at

    def _decide(
        self,
        state: RungState,
        others: Sequence[RungState],
        epoch: int,
        score: float,
        is_max: bool,
    ) -> RungState:
        """ASHA's rule (Li et al. 2020, Algorithm 2), as Optuna's pruner has it: a rung lies at
        every grace x factor^k epochs, and one in `factor` of those that reached it goes on, the
        best at least.
        """
        rungs = list(state.rungs)
        while epoch >= self._config.grace_epochs * self._config.reduction_factor ** len(rungs):
            there = [other.rungs[len(rungs)] for other in others if len(other.rungs) > len(rungs)]
            num_better = sum(other > score if is_max else other < score for other in there)
            if math.isnan(score):  # no rung has such a one
                return RungState(epoch=epoch, rungs=tuple(rungs), stopped_at=epoch)
            rungs.append(score)
            if num_better >= max(1, (len(there) + 1) // self._config.reduction_factor):
                return RungState(epoch=epoch, rungs=tuple(rungs), stopped_at=epoch)
        return RungState(epoch=epoch, rungs=tuple(rungs))

    def _note(self, entry: FrozenTrial, state: RungState, epoch: int, score: float) -> None:
        """The score first: if killed in between, it is called again and writes the same."""
        try:
            self._storage.set_trial_intermediate_value(entry._trial_id, epoch, score)
            if state.epoch == epoch:
                self._storage.set_trial_user_attr(entry._trial_id, _ATTRIBUTE, asdict(state))
        except UpdateFinishedTrialError:
            pass  # a process that the driver holds for dead still asks: whatever it is told
