"""The axes of a design: which columns are axes of their own, and on which scale their values stand
where nothing says so: the one on which they are spread evenly.

Shape legend: n = values, one a configuration, m = different ones, a and b = the smallest and the
largest.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

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
