"""Which configurations of a search are its best, by the mean of the metric over the study's seeds."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Row = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Ranked:
    """One configuration with its score, the mean over `num_seeds` seeds; the objective's best has rank 1."""

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


def rank_configs(planned: Iterable[Row], recorded: Iterable[Row], *, metric: str, mode: str) -> list[Ranking]:
    """The objectives' configurations in the order of the plan's objectives; of equals the one planned first.

    A configuration takes part once every planned seed has finished: a mean over the seeds that did not fail would hide
    the failures, and one over fewer seeds is more often high by chance.

    Args:
        planned: trial_id, objective and config of every planned trial.
        recorded: trial_id, status and the metric of every trial that has ended.
        metric, mode: what is best.
    """
    scores = {
        row["trial_id"]: row[metric] for row in recorded if row["status"] == "finished" and _is_score(row[metric])
    }
    trials: dict[str, dict[int, list[float | None]]] = {}
    for row in planned:
        configs = trials.setdefault(row["objective"], {})
        configs.setdefault(row["config"], []).append(scores.get(row["trial_id"]))
    return [_rank(objective, configs, sign=-1 if mode == "max" else 1) for objective, configs in trials.items()]


def _rank(objective: str, configs: Mapping[int, Sequence[float | None]], *, sign: int) -> Ranking:
    means: list[tuple[float, int, int]] = []
    for config, scores in configs.items():
        known = [score for score in scores if score is not None]
        if len(known) == len(scores):
            mean = math.fsum(known) / len(known)  # the same in whatever order the seeds stand
            means.append((sign * mean, config, len(known)))
    best_first = [
        Ranked(objective=objective, config=config, rank=rank, score=sign * signed, num_seeds=num_seeds)
        for rank, (signed, config, num_seeds) in enumerate(sorted(means), start=1)
    ]
    return Ranking(objective=objective, configs=best_first, num_left_out=len(configs) - len(means))


def _is_score(value: Any) -> bool:
    return value is not None and math.isfinite(value)
