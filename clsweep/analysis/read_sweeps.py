"""A table of trials as the sweeps of its objectives, and their axes: which columns are axes of
their own, and on which scale values stand where nothing says so, the one that spreads them evenly.

Shape legend of the axes: n = values, one a configuration, m = different ones, a and b = the
smallest and the largest.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

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
            (`analysis.read_sweeps.scale_of`).
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
    columns = [str(name) for name in trials.columns]
    for name in (*labels, metric, *params):
        if name not in columns:
            raise ValueError(
                f"trials: no column {name!r}.{nearest(name, columns)} Columns: {', '.join(columns)}"
            )
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

        skipped, stopped = (group["status"].to_numpy() == each for each in ("skipped", "stopped"))
        return Sweep(
            objective=objective,
            sign=self.sign,
            params=tuple(swept),
            scales=scales,
            configs=np.asarray(configs),
            seeds=np.asarray(seeds),
            settings=settings,
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
            **scores_and_failures(
                group[self.metric],
                group["status"],
                rows,
                columns,
                shape=(len(configs), len(seeds)),
                sign=self.sign,
                limits=self.limits,
            ),
            constants={
                name: group[name].iloc[0]
                for name in self.every
                if name not in swept and group[name].notna().all() and group[name].nunique() == 1
            },
        )


def scores_and_failures(
    values: pd.Series[Any],
    statuses: pd.Series[Any],
    rows: NDArray[Any],
    columns: NDArray[Any],
    *,
    shape: tuple[int, int],
    sign: float,
    limits: tuple[float, float],
) -> dict[str, Any]:
    """`scores`, `failed` and `limits` of the `Sweep` of an objective, by the values of a metric:
    those of its trials, at these rows and columns.
    """
    status = statuses.to_numpy(dtype=object)
    score = pd.to_numeric(values).to_numpy(dtype=float, na_value=np.nan)
    # A failed trial's leftover value and an infinity are no score. Nor is what the other trials
    # of a configuration reached of which one was stopped: they would stand for it.
    finite, ended = np.isfinite(score), status == "finished"
    ended &= ~np.isin(rows, rows[status == "stopped"])
    is_failed = status == "failed"
    if finite.any():  # else an objective that does not have this metric
        is_failed |= ended & ~finite
    scored = ended & finite
    scores = np.full(shape, np.nan)
    scores[rows[scored], columns[scored]] = sign * score[scored]
    failed = np.zeros(scores.shape, dtype=bool)
    failed[rows[is_failed], columns[is_failed]] = True
    is_within = np.array_equal(np.clip(score[scored], *limits), score[scored])
    return {"scores": scores, "failed": failed, "limits": limits if is_within else ANYWHERE}


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


SCALES = ("log", "linear", "category")
LOG_RATIO = 10.0  # b / a from which a log axis is the likelier one before the values are looked at
PRIOR_ODDS = 2.0  # of that against the other axis
NARROW_ODDS = 20.0  # of a linear axis where a and b are all but equal: few would take a log axis
EVEN_SAMPLES = ("qmc", "random")
_MAX_LEVELS = 16  # different values of a sample that recur and are so few were given as a list
MIN_POINTS = 5  # two independent columns rise or fall together in five points once in sixty times
MAX_LEADERS = 3
_FIRST = 100  # rows that show of most columns that they do not rise together


def scale_of(column: pd.Series[Any], samplers: tuple[str, ...] = ()) -> str:
    """The scale of one value a configuration; text and truth values are a category.

    Numbers that are not all positive are linear. Positive ones stand on the axis that spreads them
    more evenly:

    - values drawn by a `qmc` or `random` sampler: by the likelihood of a uniform sample on either
      axis, the ends given (Neyman and Pearson 1933). Its log ratio is (n - 2) log(L / G), where L =
      (b - a) / log(b / a) is the logarithmic mean of the ends and G the geometric mean of the other
      values. To it come the log odds before: `PRIOR_ODDS` for a log axis from `LOG_RATIO` on, for a
      linear one below it, and up to `NARROW_ODDS` the narrower the range.
    - values of a list: by the largest distance to m points of equal gaps. One axis must be at least
      twice as near as the other.

    Where these cannot tell, and for other samplers, it is the log axis from `LOG_RATIO` on.
    """
    if not is_numeric_column(column):
        return "category"
    values = column.to_numpy(dtype=float, na_value=np.nan)
    values = np.sort(values[np.isfinite(values)])
    if not len(values) or values[0] <= 0:
        return "linear"
    levels = np.unique(values)
    is_wide = _width(values) >= 1.0 - 1e-9
    is_list = len(levels) <= _MAX_LEVELS and 2 * len(levels) <= len(values)
    if samplers == ("grid",) or is_list:
        on_log, on_linear = _unevenness(np.log(levels)), _unevenness(levels)
        if 2 * min(on_log, on_linear) < max(on_log, on_linear):
            is_wide = on_log < on_linear
    elif len(samplers) == 1 and samplers[0] in EVEN_SAMPLES and len(levels) > 1:
        narrow = max(np.log(PRIOR_ODDS), np.log(NARROW_ODDS) * (1.0 - _width(values)))
        low, high, inner = values[0], values[-1], values[1:-1]
        mean = (1.0 - low / high) / (_width(values) * np.log(LOG_RATIO))  # in units of the largest
        odds = len(inner) * np.log(mean) - np.log(inner / high).sum()
        is_wide = bool(odds + (np.log(PRIOR_ODDS) if is_wide else -narrow) > 0)
    return "log" if is_wide else "linear"


def is_numeric_column(column: pd.Series[Any]) -> bool:
    return pd.api.types.is_numeric_dtype(column) and not pd.api.types.is_bool_dtype(column)


def _unevenness(levels: NDArray[np.float64]) -> float:
    """Largest distance of the levels to points of equal gaps, as a share of the range."""
    if len(levels) < 3:
        return 0.0
    even = np.linspace(0.0, 1.0, len(levels))
    return float(np.abs((levels - levels[0]) / (levels[-1] - levels[0]) - even).max())


def _width(values: NDArray[np.float64]) -> float:
    """log(b / a) of sorted values, in units of the log of `LOG_RATIO`."""
    return float((np.log(values[-1]) - np.log(values[0])) / np.log(LOG_RATIO))


def followers(settings: pd.DataFrame, *, is_grid: bool) -> dict[str, tuple[str, ...]]:
    """The columns that have one value wherever certain others have one: name -> those others.

    In a sample of a continuous space every column has one value for each value of any other. So a
    column follows only where there is evidence:

    - from one other, where the values of that other recur, each in two configurations on average;
    - from one other, where each has one value for each of the other's, in a grid; else where both
      strictly rise or fall together, in at least `MIN_POINTS` points or with equal values;
    - from two or three others, where these are fully crossed, and recur or are all of a grid; but
      not if it could take the place of one of them, as in a Latin square;
    - a text that is another one in each of `MIN_POINTS` or more configurations is their label. It
      follows from the others if they tell the configurations apart.

    Of two columns that follow from each other the first one stays. What they follow from are no
    followers. Raises TypeError for a column of lists and the like.

    Args:
        settings: one row a configuration; columns in the order of preference.
        is_grid: whether the configurations are a grid of their axes, and no sample.
    """
    design = _Design(settings, is_grid)
    leaders_of: dict[str, tuple[str, ...]] = {}
    for position, name in enumerate(design.names):
        for other in design.names:
            if other == name or other in leaders_of or not design.follows_one(name, other):
                continue
            if design.names.index(other) < position or not design.follows_one(other, name):
                leaders_of[name] = (other,)
                break
    for name, (leader,) in leaders_of.items():
        while leader in leaders_of:
            (leader,) = leaders_of[leader]
        leaders_of[name] = (leader,)
    for name in reversed(design.names):
        others = [other for other in design.names if other != name and other not in leaders_of]
        if name not in leaders_of and (leaders := design.leaders(name, others)):
            leaders_of[name] = leaders
    return {name: leaders_of[name] for name in design.names if name in leaders_of}


class _Design:
    """The columns that take two or more values, as codes of their values."""

    def __init__(self, settings: pd.DataFrame, is_grid: bool):
        self._settings, self._num, self._is_grid = settings, len(settings), is_grid
        codes = {str(n): settings[n].factorize(use_na_sentinel=False)[0] for n in settings}
        self._codes = {name: code for name, code in codes.items() if code.max(initial=0) > 0}
        self._levels = {name: int(code.max()) + 1 for name, code in self._codes.items()}
        self.names = list(self._codes)

    def count(self, names: Iterable[str]) -> int:
        """Distinct combinations of values."""
        names = list(names)
        if any(self._levels[name] == self._num for name in names):
            return self._num
        joint, num = np.zeros(self._num, dtype=np.int64), 1
        for name in names:
            joint = joint * self._levels[name] + self._codes[name]
            combinations, joint = np.unique(joint, return_inverse=True)
            num = len(combinations)
        return num

    def follows_one(self, name: str, other: str) -> bool:
        num = self._levels[other]
        if self._settings[other].isna().any() and self._settings[name].notna().all():
            return False  # the other may be nested in it
        if self.count([name, other]) != num:
            return False
        return 2 * num <= self._num or (
            self._levels[name] == num and (self._is_grid or self._rise_together(name, other, num))
        )

    def _rise_together(self, name: str, other: str, num: int) -> bool:
        first = self._settings[:_FIRST][[other, name]]
        is_numeric = all(map(is_numeric_column, (first[other], first[name])))
        if not is_numeric or not _is_monotone(first):
            return False
        points = self._settings[[other, name]].astype(float).drop_duplicates()
        same = np.array_equal(points[other], points[name])
        return same or (num >= MIN_POINTS and _is_monotone(points))

    def leaders(self, name: str, others: list[str]) -> tuple[str, ...]:
        """Two or three of the others that `name` follows from, or all whose label it is."""
        num = self._levels[name]
        is_label = num == self._num >= MIN_POINTS and not is_numeric_column(self._settings[name])
        if is_label and others and self.count(others) == self._num:
            return tuple(others)
        sizes = range(2, MAX_LEADERS + 1)
        for chosen in itertools.chain(*(itertools.combinations(others, size) for size in sizes)):
            num = self._product(chosen)
            recur = 2 * num <= self._num or (self._is_grid and num == self._num)
            if recur and self.count(chosen) == num == self.count([*chosen, name]):
                swapped = ([name if c == gone else c for c in chosen] for gone in chosen)
                if not any(self.count(names) == self._product(names) for names in swapped):
                    return chosen
        return ()

    def _product(self, names: Iterable[str]) -> int:
        """Combinations of values if every one occurred."""
        return math.prod(self._levels[name] for name in names)


def _is_monotone(pair: pd.DataFrame) -> bool:
    """True where the second column strictly rises, or falls, with the first."""
    points = pair.astype(float).drop_duplicates().sort_values(str(pair.columns[0])).to_numpy()
    steps = np.diff(points[:, 1])
    return bool((steps > 0).all() or (steps < 0).all())


def encloses(ends: tuple[float, float] | None, column: pd.Series[Any], scale: str) -> bool:
    """True for declared ends that are finite, have a place on the axis, and hold all values."""
    if ends is None or scale == "category" or not np.isfinite(ends).all():
        return False
    values = pd.to_numeric(column)
    has_place = scale != "log" or ends[0] > 0
    return bool(has_place and ends[0] <= values.min() and values.max() <= ends[1])
