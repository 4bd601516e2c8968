"""The one meaning of "best": of an objective, the configuration with the best mean of the metric
over the study's seeds.

A configuration takes part once every planned seed has finished: a mean over the seeds that did not
fail would hide the failures, and one over fewer seeds is more often high by chance. Of equal means
the configuration planned first is better. `status`, `export`, `recommend`, `confirm` and the kept
encoders all ask here.

How far a study is stands here too, as counts per objective, and which files of trials stay.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from clsweep.analysis.score_table import RankKey, rank_key
from clsweep.catalog import METRIC
from clsweep.catalog.rows import Row
from clsweep.display.numbers import mentioned
from clsweep.results.schemas import TRIAL_STATUSES


@dataclass(frozen=True)
class Ranked:
    """One configuration with its score, the mean over `num_seeds` seeds; the best has rank 1."""

    objective: str
    config: int
    rank: int
    score: float
    num_seeds: int


@dataclass(frozen=True)
class Ranking:
    """The configurations of one objective, best first."""

    objective: str
    configs: Sequence[Ranked]
    num_left_out: int  # configurations that are not finished on every planned seed


@dataclass
class _Config:
    """One configuration: its scores so far, and its lost trials."""

    num_planned: int = 0
    scores: dict[str, float] = field(default_factory=dict)  # by trial
    lost: set[str] = field(default_factory=set)  # trials that ended without a score
    is_stopped: bool = False  # a trial of it, by the scheduler, or skipped

    @property
    def is_whole(self) -> bool:
        return len(self.scores) == self.num_planned


class Standings:
    """The configurations of a study in order, while its trials end in whatever order: by trial_id,
    objective and config of the planned ones, and status and metric of those `recorded`.
    """

    def __init__(
        self, planned: Iterable[Row], recorded: Iterable[Row] = (), *, metric: str, mode: str
    ):
        self._metric, self._mode = metric, mode
        self._configs: dict[tuple[str, int], _Config] = {}
        self._of_trial: dict[str, tuple[str, int]] = {}
        self._best: dict[str, RankKey] = {}
        for row in planned:
            self._of_trial[row["trial_id"]] = key = row["objective"], row["config"]
            self._configs.setdefault(key, _Config()).num_planned += 1
        for row in recorded:
            self.add(row)

    def add(self, row: Row) -> None:
        """Note a trial that has ended: trial_id, status, metric. Unplanned ones take no part."""
        if (key := self._of_trial.get(row["trial_id"])) is None:
            return
        config, score = self._configs[key], row.get(self._metric)
        config.is_stopped |= row["status"] in ("stopped", "skipped")
        if row["status"] == "finished" and score is not None and math.isfinite(score):
            config.scores[row["trial_id"]] = score
        else:
            config.lost.add(row["trial_id"])
        if config.is_whole:
            place = rank_key(key[1], config.scores.values(), self._mode)
            self._best[key[0]] = min(place, self._best.get(key[0], place))

    def scored(self, trial_id: str) -> tuple[str, int] | None:
        """Objective and configuration of a planned trial with a score; None of any other."""
        key = self._of_trial.get(trial_id)
        return key if key is not None and trial_id in self._configs[key].scores else None

    def is_open(self, objective: str, config: int) -> bool:
        """A configuration may still become the best: a seed is left, none was stopped."""
        standing = self._configs[objective, config]
        num_ended = len(standing.scores) + len(standing.lost)
        return not standing.is_stopped and num_ended < standing.num_planned

    def place(self, objective: str, config: int) -> RankKey | None:
        """See `place_of`; None without a score, or where the scheduler stopped a trial."""
        standing = self._configs[objective, config]
        if standing.is_stopped or not standing.scores:
            return None
        return rank_key(config, standing.scores.values(), self._mode)

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
        places: dict[str, list[RankKey]] = {objective: [] for objective, _ in self._configs}
        counts = Counter(objective for objective, _ in self._configs)
        for (objective, number), config in self._configs.items():
            if config.is_whole:
                places[objective].append(rank_key(number, config.scores.values(), self._mode))
        rankings = []
        for name, own in places.items():
            configs = [self._ranked(name, place, i) for i, place in enumerate(sorted(own), 1)]
            rankings.append(Ranking(name, configs, num_left_out=counts[name] - len(own)))
        return rankings

    def _ranked(self, objective: str, place: RankKey, rank: int) -> Ranked:
        missing, signed, config = place
        score = -signed if self._mode == "max" else signed
        return Ranked(objective, config, rank, score, num_seeds=-missing)


class TrialCounts:
    """The state of a study as counts, from the rows that exist and the trials that run, and each
    objective's best configuration so far. `axes` tell an objective's configurations apart.
    """

    def __init__(
        self,
        planned: Sequence[Row],
        rows: Sequence[Row],
        *,
        metric: str,
        mode: str,
        axes: Mapping[str, Sequence[str]],
    ):
        self.metric, self._axes = metric, axes
        self.standings = Standings(planned, metric=metric, mode=mode)
        # of each objective: planned, running, and how its trials ended
        self.objectives: dict[str, Counter[str]] = {}
        self._at: dict[tuple[str, int], str] = {}  # of the best: its swept values
        for row in planned:
            self.objectives.setdefault(row["objective"], Counter())["planned"] += 1
        for row in rows:
            self.add(row)

    def add(self, row: Row) -> None:
        """Count one trial that has ended."""
        self.objectives.setdefault(row["objective"], Counter())[row["status"]] += 1
        self.standings.add(row)
        best = self.standings.best(row["objective"])
        if best is not None and best.config == row["config"]:
            axes = self._axes.get(best.objective, ())
            self._at[best.objective, best.config] = describe_params(row, axes)

    @property
    def num_done(self) -> int:
        return sum(self.total(status) for status in TRIAL_STATUSES)

    def total(self, count: str) -> int:
        return sum(counts[count] for counts in self.objectives.values())

    def rows(self) -> list[dict[str, Any]]:
        """The table of `clsweep run` and `clsweep status`; the best is a mean over seeds."""
        fewer = [name for name in ("stopped", "skipped") if self.total(name)]
        shown = ("planned", "finished", "running", *fewer, "failed")
        unit = METRIC[self.metric].unit if self.metric in METRIC else ""
        rows = []
        for name, counts in self.objectives.items():
            best = self.standings.best(name)
            row: dict[str, Any] = {"objective": name, **{key: counts[key] for key in shown}}
            row[f"best {self.metric} {unit}".rstrip()] = best.score if best else None
            row["seeds"] = best.num_seeds if best else None
            row["at"] = self._at[name, best.config] if best else ""
            rows.append(row)
        return rows


def drop_order(rows: Sequence[Row]) -> list[str]:
    """The columns of `TrialCounts.rows` that a narrow screen lacks: zeros, then what says least."""
    nowhere = [name for name in ("running", "failed") if not any(row.get(name) for row in rows)]
    return [*nowhere, "seeds", "planned"]


def describe_params(row: Row, names: Sequence[str]) -> str:
    """`tau=0.2, batch_size=64`, without the parameters that the row's objective does not own."""
    texts = ((name, mentioned(row.get(name))) for name in names)
    return ", ".join(f"{name}={text}" for name, text in texts if text)
