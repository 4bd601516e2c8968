"""The end of a search by evidence, `search.budget.min_gain`: once the space is expected to hold
little that is better than the best configuration so far.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from clsweep.analysis.array_types import Array
from clsweep.analysis.remaining_gain import remaining_gain
from clsweep.analysis.surrogate import Space
from clsweep.catalog.rows import Row
from clsweep.cluster.schedulers.racing import residual_variance
from clsweep.display.numbers import setting
from clsweep.study.space import Dimension, Objective

# Configurations a swept hyperparameter before which no search ends: the process knows little before
CONFIGS_PER_PARAM = 5


def end_by_evidence(
    objective: Objective,
    configs: Sequence[Row],
    scores: Sequence[Sequence[float]],
    min_gain: str | float,
    seed: int,
) -> str:
    """The reason for which an objective's search ends; empty while it is to go on.

    Args:
        configs, scores: what has finished: swept values, and a score for each seed, of which more
            is better.
        min_gain: a difference of scores; `noise`: the standard error of a configuration's mean.
        seed: of the draws.
    """
    if len(configs) < CONFIGS_PER_PARAM * len(objective.space):
        return ""
    table = np.array(scores, dtype=float)
    variance = residual_variance(table)[0] / table.shape[1]
    least = math.sqrt(variance) if min_gain == "noise" else float(min_gain)
    inputs, space = _places(objective, configs)
    means, gains = table.mean(axis=1), []
    for num in (len(means), len(means) - 1):  # a chance low of one configuration ends nothing
        rng = np.random.default_rng([seed, num])
        gains.append(remaining_gain(inputs[:num], space, means[:num], variance, rng))
        if gains[-1] >= least:
            return ""
    left, limit = (setting(float(f"{value:.2g}")) for value in (max(gains), least))
    of = " (the noise of a mean over its seeds)" if min_gain == "noise" else ""
    return (
        f"{objective.label}: {len(configs)} configurations are enough: the best of all is expected "
        f"to be better by {left} than the best of these, which is less than {limit}{of}"
    )


def _places(objective: Objective, configs: Sequence[Row]) -> tuple[Array, Space]:
    """Configurations in the unit cube; what takes no part in one is in its middle there."""
    columns: list[Array] = []
    levels: list[Array | None] = []
    for name, dimension in objective.space.items():
        values = [config.get(name) for config in configs]
        levels.append(_levels(dimension))
        columns.append(_column(dimension, levels[-1], values))
    widths = [column.shape[1] for column in columns]
    space = Space(
        names=tuple(objective.space),
        is_category=tuple(column.shape[1] > 1 for column in columns),
        levels=tuple(levels),
        owner=np.repeat(np.arange(len(columns)), widths),
        margins=np.zeros(len(columns)),
    )
    return np.concatenate(columns, axis=1), space


def _levels(dimension: Dimension) -> Array | None:
    """Places of the listed values, in their order where they are numbers; None of a range."""
    if not dimension.choices and dimension.is_range:
        return None
    points = dimension.points
    if all(isinstance(x, (int, float)) and not isinstance(x, bool) for x in points):
        return np.argsort(np.argsort(np.array(points)))[:, None] / max(len(points) - 1, 1)
    return np.eye(len(points))


def _column(dimension: Dimension, levels: Array | None, values: Sequence[Any]) -> Array:
    if levels is not None:
        places = dict(zip(dimension.points, levels, strict=True))
        return np.array([places.get(value, levels.mean(axis=0)) for value in values])
    assert dimension.low is not None
    assert dimension.high is not None
    scale = np.log if dimension.log else np.asarray
    low, high = scale(dimension.low), scale(dimension.high)
    span = (high - low) or 1.0
    units = [0.5 if value is None else (scale(value) - low) / span for value in values]
    return np.clip(np.array(units, dtype=float)[:, None], 0.0, 1.0)
