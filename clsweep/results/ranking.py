"""The one meaning of "best": of an objective, the configuration with the best mean of the metric
over the study's seeds.

A configuration takes part once every planned seed has finished: a mean over the seeds that did not
fail would hide the failures, and one over fewer seeds is more often high by chance. Of equal means
the configuration planned first is better. `status`, `export`, `recommend`, `confirm` and the kept
encoders all ask here.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from clsweep.analysis.best import Place, place_of
from clsweep.catalog.rows import Row


@dataclass(frozen=True, kw_only=True)
class Ranked:
    """One configuration with its score, the mean over `num_seeds` seeds; the objective's best has
    rank 1.
    """

    objective: str
    config: int
    rank: int
    score: float
    num_seeds: int


@dataclass(frozen=True, kw_only=True)
class Ranking:
    """The configurations of one objective, best first."""

    objective: str
    configs: Sequence[Ranked]
    num_left_out: int  # configurations that are not finished on every planned seed


@dataclass
class _Config:
    """What is known of one configuration."""

    num_planned: int = 0
    scores: dict[str, float] = field(default_factory=dict)  # by trial
    lost: set[str] = field(default_factory=set)  # trials that ended without a score
    is_stopped: bool = False  # a trial of it, by the scheduler, or skipped

    @property
    def is_whole(self) -> bool:
        return len(self.scores) == self.num_planned

    @property
    def is_open(self) -> bool:
        return not self.is_stopped and len(self.scores) + len(self.lost) < self.num_planned


class Standings:
    """How the configurations of a study stand, while its trials end in whatever order.

    Args:
        planned: trial_id, objective and config of every planned trial.
        metric, mode: what is best.
    """

    def __init__(self, planned: Iterable[Row], *, metric: str, mode: str):
        self._metric, self._mode = metric, mode
        self._configs: dict[str, dict[int, _Config]] = {}
        self._of_trial: dict[str, tuple[str, int]] = {}
        self._best: dict[str, Place] = {}
        for row in planned:
            config = self._configs.setdefault(row["objective"], {}).setdefault(
                row["config"], _Config()
            )
            config.num_planned += 1
            self._of_trial[row["trial_id"]] = row["objective"], row["config"]

    def add(self, row: Row) -> None:
        """Note a trial that has ended: trial_id, status and the metric. One that is not planned
        takes no part.
        """
        if (key := self.config_of(row["trial_id"])) is None:
            return
        objective, number = key
        config, score = self._configs[objective][number], row.get(self._metric)
        config.is_stopped |= row["status"] in ("stopped", "skipped")
        if row["status"] == "finished" and score is not None and math.isfinite(score):
            config.scores[row["trial_id"]] = score
        else:
            config.lost.add(row["trial_id"])
        if config.is_whole:
            place = place_of(number, config.scores.values(), self._mode)
            self._best[objective] = min(place, self._best.get(objective, place))

    def config_of(self, trial_id: str) -> tuple[str, int] | None:
        """Objective and configuration of a planned trial."""
        return self._of_trial.get(trial_id)

    def scored(self, trial_id: str) -> tuple[str, int] | None:
        """The same of a trial that has finished with a score; None of any other."""
        key = self.config_of(trial_id)
        if key is None or trial_id not in self._configs[key[0]][key[1]].scores:
            return None
        return key

    def is_open(self, objective: str, config: int) -> bool:
        """Whether a configuration may still become the best: a seed has not ended, none was
        stopped.
        """
        return self._configs[objective][config].is_open

    def place(self, objective: str, config: int) -> Place | None:
        """See `place_of`; None without a score, or where the scheduler stopped a trial."""
        found = self._configs[objective][config]
        if found.is_stopped or not found.scores:
            return None
        return place_of(config, found.scores.values(), self._mode)

    def best(self, objective: str) -> Ranked | None:
        """The best configuration so far; None while none has finished on every seed."""
        place = self._best.get(objective)
        return None if place is None else self._ranked(objective, place, 1)

    def leader(self) -> Ranked | None:
        """The best of all objectives' best configurations so far."""
        if not self._best:
            return None
        return self.best(min(self._best, key=lambda name: self._best[name]))

    def rankings(self) -> list[Ranking]:
        """All configurations that take part, in the order of the plan's objectives."""
        return [self._ranking(objective) for objective in self._configs]

    def _ranking(self, objective: str) -> Ranking:
        configs = self._configs[objective]
        places = sorted(
            place_of(number, config.scores.values(), self._mode)
            for number, config in configs.items()
            if config.is_whole
        )
        ranked = [self._ranked(objective, place, rank) for rank, place in enumerate(places, 1)]
        return Ranking(objective=objective, configs=ranked, num_left_out=len(configs) - len(ranked))

    def _ranked(self, objective: str, place: Place, rank: int) -> Ranked:
        missing, signed, config = place
        score = -signed if self._mode == "max" else signed
        return Ranked(
            objective=objective, config=config, rank=rank, score=score, num_seeds=-missing
        )


def rank_configs(
    planned: Iterable[Row], recorded: Iterable[Row], *, metric: str, mode: str
) -> list[Ranking]:
    """The objectives' configurations, best first, in the order of the plan's objectives.

    Args:
        planned: trial_id, objective and config of every planned trial.
        recorded: trial_id, status and the metric of every trial that has ended.
        metric, mode: what is best.
    """
    standings = Standings(planned, metric=metric, mode=mode)
    for row in recorded:
        standings.add(row)
    return standings.rankings()
