"""On which axis the values of a hyperparameter stand, where nothing says so: the one on which they
are spread evenly.

Shape legend: n = values, one a configuration, m = different ones, a and b = the smallest and the
largest.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

SCALES = ("log", "linear", "category")
LOG_RATIO = 10.0  # b / a from which a log axis is the likelier one before the values are looked at
PRIOR_ODDS = 2.0  # of that against the other axis
EVEN_SAMPLES = ("qmc", "random")
MAX_LEVELS = 16  # different values of a sample that recur and are so few were given as a list


def scale_of(column: pd.Series[Any], samplers: tuple[str, ...] = ()) -> str:
    """The scale of one value a configuration; text and truth values are a category.

    Numbers that are not all positive are linear. Positive ones stand on the axis that spreads them
    more evenly:

    - values drawn by a `qmc` or `random` sampler: by the likelihood of a uniform sample on either
      axis, the ends given (Neyman and Pearson 1933). Its log ratio is (n - 2) log(L / G), where L =
      (b - a) / log(b / a) is the logarithmic mean of the ends and G the geometric mean of the other
      values. It is added to the log of `PRIOR_ODDS`.
    - values of a list: by the largest distance to m points of equal gaps. One axis must be at least
      twice as near as the other.

    Where these cannot tell, and for other samplers, it is the log axis from `LOG_RATIO` on.
    """
    if not is_number(column):
        return "category"
    values = column.to_numpy(dtype=float, na_value=np.nan)
    values = np.sort(values[np.isfinite(values)])
    if not len(values) or values[0] <= 0:
        return "linear"
    levels, odds = np.unique(values), np.log(PRIOR_ODDS)
    is_wide = bool(_decades(values) >= np.log10(LOG_RATIO) - 1e-9)
    is_list = len(levels) <= MAX_LEVELS and 2 * len(levels) <= len(values)
    if samplers == ("grid",) or is_list:
        on_log, on_linear = _unevenness(np.log(levels)), _unevenness(levels)
        if 2 * min(on_log, on_linear) < max(on_log, on_linear):
            is_wide = on_log < on_linear
    elif len(samplers) == 1 and samplers[0] in EVEN_SAMPLES and len(levels) > 1:
        is_wide = _log_odds(values) + (odds if is_wide else -odds) > 0
    return "log" if is_wide else "linear"


def is_guess(column: pd.Series[Any]) -> bool:
    """Whether the values could stand on either axis, and it matters: positive, three or more."""
    return is_number(column) and bool(column.min() > 0) and column.nunique() > 2


def is_number(column: pd.Series[Any]) -> bool:
    return pd.api.types.is_numeric_dtype(column) and not pd.api.types.is_bool_dtype(column)


def _unevenness(levels: NDArray[np.float64]) -> float:
    """Largest distance of the levels to points of equal gaps, as a share of the range."""
    if len(levels) < 3:
        return 0.0
    even = np.linspace(0.0, 1.0, len(levels))
    return float(np.abs((levels - levels[0]) / (levels[-1] - levels[0]) - even).max())


def _decades(values: NDArray[np.float64]) -> float:
    return float(np.log10(values[-1]) - np.log10(values[0]))


def _log_odds(values: NDArray[np.float64]) -> float:
    """Log likelihood of a log axis less that of a linear one, of sorted values between the ends."""
    low, high, inner = values[0], values[-1], values[1:-1]
    mean = (1.0 - low / high) / (_decades(values) * np.log(10.0))  # in units of the largest
    return float(len(inner) * np.log(mean) - np.log(inner / high).sum())
