"""A table of trials as the sweeps of its objectives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from clsweep.analysis.array_types import Array
from clsweep.analysis.scales import encloses, scale_of
from clsweep.analysis.sweep import (
    ADAPTIVE_SAMPLERS,
    ANYWHERE,
    CHANCE,
    ENDED_STATUSES,
    EVEN_SAMPLERS,
    FAILED_AS,
    LABEL_KEYS,
    WORST,
    Sweep,
    worst_score,
)
from clsweep.errors import nearest


def read_sweeps(
    trials: pd.DataFrame,
    *,
    metric: str,
    params: Sequence[str] | Mapping[str, Sequence[str]],
    mode: str = "max",
    planned: Mapping[str, int] | None = None,
    scales: Mapping[str, str] | None = None,
    bounds: Mapping[str, tuple[float, float]] | None = None,
    limits: tuple[float, float] = ANYWHERE,
    failed_as: str = WORST,
    chance: float | None = None,
) -> list[Sweep]:
    """One sweep per objective, in order of first appearance; `trials` is not changed.

    Args:
        trials: one row a trial: objective, config, seed, status ("finished" | "stopped" |
            "skipped" | "failed"), sampler, `metric` and `params`.
        metric, mode: the score, and whether "max" or "min" is best.
        params: the hyperparameter columns, of all objectives or by objective. An objective sweeps
            those that take two or more values in its rows.
        planned: number of planned configurations per objective, the ones seen by default.
        scales: "log", "linear" or "category" of some of the hyperparameters. By default text and
            truth values are categories, and numbers stand on the axis that spreads them evenly
            (`analysis.scales.scale_of`).
        bounds: (low, high) that the study declares for some of the hyperparameters. Ignored where
            the values seen are not numbers within them, or where they have no place on the axis.
        limits: the values that the metric can take. Ignored where scores lie outside.
        failed_as: what a failed trial counts as in every statistic, one of `FAILED_AS`: the worst
            score, `chance`, or nothing. The worst is that of its objective, and where objectives
            are compared that of those (`sweep.counted_alike`): no other one's matters. Without its
            failures an objective that crashes where it is bad would look robust. One of which no
            trial has a score has none.
        chance: the metric of a guess; asked for by `failed_as="chance"`.

    Raises:
        ValueError: an empty table, a missing column, a repeated (objective, config, seed) that is
            no copy, a configuration with two settings, an unknown mode, sampler or status, a metric
            that is not numbers.
    """
    _check_options(mode, failed_as, chance)
    names = trials["objective"].unique() if "objective" in trials else ()
    axes = params if isinstance(params, Mapping) else dict.fromkeys(map(str, names), params)
    every = list(dict.fromkeys(name for each in axes.values() for name in each))
    _check_trials(trials, metric, every)
    sign = 1.0 if mode == "max" else -1.0
    options = _Options(metric, sign, every, scales or {}, bounds or {}, limits)
    sweeps = [
        options.sweep(str(name), group, axes.get(str(name), ()), (planned or {}).get(str(name), 0))
        for name, group in trials.groupby("objective", sort=False, observed=True)
    ]
    sweeps = [replace(sweep, failed_as=failed_as) for sweep in _raced_alike(sweeps)]
    if failed_as == WORST:
        return [sweep.counted_at(worst_score([sweep])) for sweep in sweeps]
    guess = sign * chance if failed_as == CHANCE and chance is not None else np.nan
    return [sweep.counted_at(guess) for sweep in sweeps]


def _raced_alike(sweeps: Sequence[Sweep]) -> list[Sweep]:
    """The sweeps with the seeds that a race did not give to every space of their study."""
    studies = [sweep.objective.rpartition("/")[0] for sweep in sweeps]
    raced = {(study, x) for study, sweep in zip(studies, sweeps, strict=True) for x in sweep.raced}
    if not raced:
        return list(sweeps)
    return [
        replace(sweep, raced=tuple(x for x in sweep.seeds.tolist() if (study, x) in raced))
        for study, sweep in zip(studies, sweeps, strict=True)
    ]


def _check_options(mode: str, failed_as: str, chance: float | None) -> None:
    if mode not in ("max", "min"):
        raise ValueError(f"mode: expected 'max' or 'min', got {mode!r}")
    if failed_as not in FAILED_AS:
        raise ValueError(
            f"failed: expected one of {', '.join(FAILED_AS)}; got {failed_as!r}."
            f"{nearest(failed_as, FAILED_AS)}"
        )
    if failed_as == CHANCE and chance is None:
        raise ValueError("failed: expected worst or left out, as the chance level is not known")


def _check_trials(trials: pd.DataFrame, metric: str, params: Sequence[str]) -> None:
    labels = [*LABEL_KEYS, "status", "sampler"]
    check_columns(trials, *labels, metric, *params)
    if trials.empty:
        raise ValueError("trials: the table has no rows, so there is nothing to measure")
    if gaps := [column for column in labels if trials[column].isna().any()]:
        raise ValueError(f"trials: missing values in {', '.join(gaps)}")
    for column, known in {
        "status": ENDED_STATUSES,
        "sampler": EVEN_SAMPLERS + ADAPTIVE_SAMPLERS,
    }.items():
        if unknown := [value for value in trials[column].unique() if value not in known]:
            raise ValueError(
                f"trials: {column} is expected to be one of {', '.join(known)}; got {unknown[0]!r}"
            )
    if not pd.api.types.is_numeric_dtype(trials[metric]) and trials[metric].notna().any():
        raise ValueError(
            f"trials: metric {metric!r} is expected to be numbers, got {trials[metric].dtype}"
        )


@dataclass(frozen=True)
class _Options:
    """Options of `read_sweeps` for all objectives; `every`: the hyperparameters of any."""

    metric: str
    sign: float
    every: Sequence[str]
    scales: Mapping[str, str]
    bounds: Mapping[str, tuple[float, float]]
    limits: tuple[float, float]

    def sweep(
        self, objective: str, group: pd.DataFrame, params: Sequence[str], num_planned: int
    ) -> Sweep:
        # Sorted, so that no number hangs on the order of the rows.
        rows, configs = pd.factorize(group["config"], sort=True)
        columns, seeds = pd.factorize(group["seed"], sort=True)
        if (repeated := pd.Series(rows * len(seeds) + columns).duplicated().to_numpy()).any():
            config, seed = group.loc[repeated, ["config", "seed"]].iloc[0]
            raise ValueError(
                f"trials: objective {objective!r}, config {config}, seed {seed} appears more than "
                "once, with different values"
            )
        first = np.unique(rows, return_index=True)[1]
        swept = [name for name in params if _is_swept(objective, group[name], rows, first, configs)]
        settings = group[swept].iloc[first].reset_index(drop=True)
        samplers = tuple(map(str, group["sampler"].unique()))
        scales = {n: self.scales.get(n) or scale_of(settings[n], samplers) for n in swept}

        scores, failed, limits = self._scored(group, rows, columns)
        skipped, stopped = (group["status"].to_numpy() == each for each in ("skipped", "stopped"))
        return Sweep(
            objective=objective,
            sign=self.sign,
            params=tuple(swept),
            scales=scales,
            configs=np.asarray(configs),
            seeds=np.asarray(seeds),
            settings=settings,
            scores=scores,
            failed=failed,
            samplers=samplers,
            num_trials=int((~skipped).sum()),
            num_skipped=int(skipped.sum()),
            raced=tuple(np.unique(group.loc[skipped, "seed"]).tolist()),
            num_stopped=int(stopped.sum()),
            num_planned=max(len(configs), num_planned),
            bounds={
                name: self.bounds[name]
                for name in swept
                if encloses(self.bounds.get(name), settings[name], scales[name])
            },
            limits=limits,
            constants={
                name: group[name].iloc[0]
                for name in self.every
                if name not in swept and group[name].notna().all() and group[name].nunique() == 1
            },
        )

    def _scored(
        self, group: pd.DataFrame, rows: Any, columns: Any
    ) -> tuple[Array, NDArray[np.bool_], tuple[float, float]]:
        """(configurations, seeds) scores, larger is better; which failed; the metric's limits."""
        status = group["status"].to_numpy(dtype=object)
        score = pd.to_numeric(group[self.metric]).to_numpy(dtype=float, na_value=np.nan)
        # A failed trial's leftover value and an infinity are no score. Nor is what the other trials
        # of a configuration reached of which one was stopped: they would stand for it.
        finite, ended = np.isfinite(score), status == "finished"
        ended &= ~np.isin(rows, rows[status == "stopped"])
        is_failed = status == "failed"
        if finite.any():  # else an objective that does not have this metric
            is_failed |= ended & ~finite
        scored = ended & finite
        scores = np.full((rows.max() + 1, columns.max() + 1), np.nan)
        scores[rows[scored], columns[scored]] = self.sign * score[scored]
        failed = np.zeros(scores.shape, dtype=bool)
        failed[rows[is_failed], columns[is_failed]] = True
        is_within = np.array_equal(np.clip(score[scored], *self.limits), score[scored])
        return scores, failed, self.limits if is_within else ANYWHERE


def _is_swept(objective: str, column: pd.Series[Any], rows: Any, first: Any, configs: Any) -> bool:
    """True for a column of two or more values; each configuration must have one value of it."""
    values = column.to_numpy()
    if values.dtype.kind not in "if":
        values = pd.factorize(column, use_na_sentinel=False)[0]
    own = values[first]
    wrong = ~_are_equal(values, own[rows])
    if wrong.any():
        at = f"objective {objective!r}, config {configs[rows[wrong.argmax()]]}"
        raise ValueError(f"trials: {at} has several values of {column.name}")
    return not _are_equal(own, own[0]).all()


def _are_equal(a: NDArray[Any], b: Any) -> NDArray[np.bool_]:
    """Equal numbers; a missing one is equal to a missing one."""
    return (a == b) | ((a != a) & (b != b))


def check_columns(trials: pd.DataFrame, *names: str) -> None:
    """Raises ValueError where `trials` lacks one of these."""
    columns = [str(name) for name in trials.columns]
    for name in names:
        if name not in columns:
            raise ValueError(
                f"trials: no column {name!r}.{nearest(name, columns)} Columns: {', '.join(columns)}"
            )
