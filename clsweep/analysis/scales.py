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
NARROW_ODDS = 20.0  # of a linear axis where a and b are all but equal: few would take a log axis
EVEN_SAMPLES = ("qmc", "random")
MAX_LEVELS = 16  # different values of a sample that recur and are so few were given as a list


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
    if not is_number(column):
        return "category"
    values = column.to_numpy(dtype=float, na_value=np.nan)
    values = np.sort(values[np.isfinite(values)])
    if not len(values) or values[0] <= 0:
        return "linear"
    levels = np.unique(values)
    is_wide = _width(values) >= 1.0 - 1e-9
    is_list = len(levels) <= MAX_LEVELS and 2 * len(levels) <= len(values)
    if samplers == ("grid",) or is_list:
        on_log, on_linear = _unevenness(np.log(levels)), _unevenness(levels)
        if 2 * min(on_log, on_linear) < max(on_log, on_linear):
            is_wide = on_log < on_linear
    elif len(samplers) == 1 and samplers[0] in EVEN_SAMPLES and len(levels) > 1:
        narrow = max(np.log(PRIOR_ODDS), np.log(NARROW_ODDS) * (1.0 - _width(values)))
        is_wide = _log_odds(values) + (np.log(PRIOR_ODDS) if is_wide else -narrow) > 0
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


def _width(values: NDArray[np.float64]) -> float:
    """log(b / a) of sorted values, in units of the log of `LOG_RATIO`."""
    return float((np.log(values[-1]) - np.log(values[0])) / np.log(LOG_RATIO))


def _log_odds(values: NDArray[np.float64]) -> float:
    """Log likelihood of a log axis less that of a linear one, of sorted values between the ends."""
    low, high, inner = values[0], values[-1], values[1:-1]
    mean = (1.0 - low / high) / (_width(values) * np.log(LOG_RATIO))  # in units of the largest
    return float(len(inner) * np.log(mean) - np.log(inner / high).sum())
