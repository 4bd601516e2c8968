"""Which configurations are worth more epochs: asynchronous successive halving (ASHA) of what tpe
and gp try.

The first seed stands for its configuration. Its scores and what was decided are in the
configuration's entry of the Optuna journal, which the driver has open too; a judge that is started
again goes on from there.
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

VERDICT = "asha"  # the user attribute


@dataclass(frozen=True, kw_only=True)
class Rules:
    """What a study's scheduler goes by."""

    first_seed: int  # its scores stand for the configuration
    grace_epochs: int
    reduction_factor: int
    # of the objectives that are judged; an enumerated space just runs
    last_epochs: Mapping[str, int]

    @classmethod
    def of(cls, study: Study) -> Rules | None:
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
class Verdict:
    """What has been decided about a configuration so far."""

    epoch: int = 0  # up to which it is judged
    rungs: tuple[float, ...] = ()  # its scores on the rungs that it has reached
    stopped_at: int | None = None  # epoch

    @classmethod
    def of(cls, entry: FrozenTrial) -> Verdict:
        noted = entry.user_attrs.get(VERDICT, {})
        return cls(**{**noted, "rungs": tuple(noted.get("rungs", ()))})


class Judge:
    """Decides at every scored epoch whether a trial goes on.

    Args:
        journal: path of the Optuna journal.
        rules: the study's.
    """

    def __init__(self, journal: str, rules: Rules):
        self._storage, self._rules = open_storage(journal), rules

    def may_go_on(self, objective: str, config: int, seed: int, epoch: int, score: float) -> bool:
        """Whether a trial that has just been scored trains on; at its last epoch it has finished in
        any case.

        Asked again about an epoch it answers the same. The seeds after the first stop where the
        first has stopped, or later; they wait for no decision.
        """
        if objective not in self._rules.last_epochs:
            return True
        study_id = self._storage.get_study_id_from_name(objective)
        entries = latest_entries(self._storage, study_id, "config")
        entry = entries[config]
        verdict, is_last = Verdict.of(entry), epoch >= self._rules.last_epochs[objective]
        if seed == self._rules.first_seed and epoch > verdict.epoch and verdict.stopped_at is None:
            if not is_last:
                [direction] = self._storage.get_study_directions(study_id)
                others = [Verdict.of(each) for number, each in entries.items() if number != config]
                is_max = direction == StudyDirection.MAXIMIZE
                verdict = self._decide(verdict, others, epoch, score, is_max)
            self._note(entry, verdict, epoch, score)
        return is_last or verdict.stopped_at is None or epoch < verdict.stopped_at

    def _decide(
        self, verdict: Verdict, others: Sequence[Verdict], epoch: int, score: float, is_max: bool
    ) -> Verdict:
        """ASHA's rule (Li et al. 2020, Algorithm 2), as Optuna's pruner has it: a rung lies at
        every grace x factor^k epochs, and one in `factor` of those that reached it goes on, the
        best at least.
        """
        rungs = list(verdict.rungs)
        while epoch >= self._rules.grace_epochs * self._rules.reduction_factor ** len(rungs):
            there = [other.rungs[len(rungs)] for other in others if len(other.rungs) > len(rungs)]
            num_better = sum(other > score if is_max else other < score for other in there)
            if math.isnan(score):  # no rung has such a one
                return Verdict(epoch=epoch, rungs=tuple(rungs), stopped_at=epoch)
            rungs.append(score)
            if num_better >= max(1, (len(there) + 1) // self._rules.reduction_factor):
                return Verdict(epoch=epoch, rungs=tuple(rungs), stopped_at=epoch)
        return Verdict(epoch=epoch, rungs=tuple(rungs))

    def _note(self, entry: FrozenTrial, verdict: Verdict, epoch: int, score: float) -> None:
        """The score first: a judge that is killed in between is asked again and writes the same
        score.
        """
        try:
            self._storage.set_trial_intermediate_value(entry._trial_id, epoch, score)
            if verdict.epoch == epoch:
                self._storage.set_trial_user_attr(entry._trial_id, VERDICT, asdict(verdict))
        except UpdateFinishedTrialError:
            pass  # a process that the driver holds for dead still asks: whatever it is told
