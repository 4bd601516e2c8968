"""Which configurations are worth more epochs: asynchronous successive halving (ASHA) of what tpe
and gp try.

The first seed stands for its configuration. Its scores and what was decided are in the
configuration's entry of the Optuna journal, which the driver has open too; a judge that is started
again goes on from there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

import optuna
from optuna.exceptions import UpdateFinishedTrialError
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState

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
        self._pruner = optuna.pruners.SuccessiveHalvingPruner(
            min_resource=rules.grace_epochs, reduction_factor=rules.reduction_factor
        )

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
                others = (other for number, other in entries.items() if number != config)
                verdict = self._decide(verdict, map(Verdict.of, others), epoch, score, direction)
            self._note(entry, verdict, epoch, score)
        return is_last or verdict.stopped_at is None or epoch < verdict.stopped_at

    def _decide(
        self,
        verdict: Verdict,
        others: Iterable[Verdict],
        epoch: int,
        score: float,
        direction: StudyDirection,
    ) -> Verdict:
        """Ask Optuna's pruner, in a study of its own: what it notes on the way comes to the journal
        in one piece.
        """
        passed = len(verdict.rungs)
        if epoch < self._rules.grace_epochs * self._rules.reduction_factor**passed:
            return Verdict(epoch=epoch, rungs=verdict.rungs)
        imagined = optuna.create_study(direction=direction)
        imagined.add_trials(
            _on_rungs(other.rungs, {}) for other in others if len(other.rungs) > passed
        )
        imagined.add_trial(_on_rungs(verdict.rungs, {epoch: score}))
        is_stopped = self._pruner.prune(imagined, imagined.get_trials(deepcopy=False)[-1])
        rungs = tuple(imagined.get_trials(deepcopy=False)[-1].system_attrs.values())
        return Verdict(epoch=epoch, rungs=rungs, stopped_at=epoch if is_stopped else None)

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


def _on_rungs(rungs: Iterable[float], scores: Mapping[int, float]) -> FrozenTrial:
    """A trial that has these scores, and has reached these rungs, as the pruner notes them."""
    return FrozenTrial(
        number=-1,
        trial_id=-1,
        state=TrialState.RUNNING,
        value=None,
        datetime_start=datetime.now(),
        datetime_complete=None,
        params={},
        distributions={},
        user_attrs={},
        system_attrs={f"completed_rung_{number}": score for number, score in enumerate(rungs)},
        intermediate_values=dict(scores),
    )
