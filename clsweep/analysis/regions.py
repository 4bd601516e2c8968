"""The regions of a hyperparameter, along which configurations are counted, averaged and compared.

A value of a grid or a category is a region. The numbers of a sampled design are cut by rank into
bins of about equal count where they hardly repeat (more than half of an objective's configurations
have a different one), or take more than 12 different values. A missing value is a region of its
own, the last.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from clsweep.analysis.array_types import Array, Codes
from clsweep.analysis.sweep import Sweep
from clsweep.display.numbers import setting, setting_column

MANTISSA_BITS = 40  # numbers match when equal to about 12 significant digits
_MAX_BINS = 6
_PER_BIN = 2
MAX_VALUES = 12  # different numbers that a sampled design keeps apart


@dataclass(frozen=True, eq=False)
class Regions:
    """The regions of one hyperparameter, numbers in ascending order, categories in order of first
    appearance.

    Attributes:
        labels: (R,) texts, all different: "0.1", "0.05..0.08" for a bin, "nan" for a missing value.
        low, high: (R,) smallest and largest value, equal for a single value; NaN for a category or
            a missing value.
        is_binned: whether numbers were cut into bins.
        starts: where the regions of the numbers begin, rounded; empty for categories.
        names: the categories, as they are compared; empty for numbers.
    """

    param: str
    labels: tuple[str, ...]
    low: Array
    high: Array
    is_binned: bool
    starts: Array
    names: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def named(self) -> tuple[str, ...]:
        """The labels with the hyperparameter: "tau=0.05..0.08"."""
        return tuple(f"{self.param}={label}" for label in self.labels)

    def place(self, column: pd.Series[Any]) -> Codes:
        """(rows,) number of the region of each value; a number beyond the outer bins counts to
        them.

        Raises ValueError for a value that is in no region.
        """
        if self.names:
            numbers = {name: code for code, name in enumerate(self.names)}
            codes = np.array([numbers.get(_name(value), -1) for value in column], dtype=np.int64)
        else:
            codes = _place(rounded(numbers_in(column)), self.starts, is_binned=self.is_binned)
        wrong = (codes < 0) | (codes >= len(self))
        if wrong.any():
            value = _name(column.iloc[int(wrong.argmax())])
            known = ", ".join(self.labels[:12])
            raise ValueError(f"{self.param}: {value} is none of the values {known}")
        return codes


def cut(
    param: str,
    sweeps: Sequence[Sweep],
    *,
    max_bins: int = _MAX_BINS,
    per_bin: int = _PER_BIN,
    scored: bool = False,
) -> Regions:
    """The regions of a hyperparameter that one or more objectives sweep, the same for all of them.

    Numbers are cut where any of the objectives asks for it (see the top of this module), into

        bins = max(1, min(max_bins, n // per_bin)),  n = configurations of the smallest objective,

    value v in bin floor(bins #{values < v} / N) of all N, so that equal values are in one. A cut
    that would leave fewer than per_bin configurations (times the objectives) on one of its sides is
    left out, which equal values can bring about. A missing value counts nowhere.

    scored: n, N and the ranks are those of configurations with a score, where there are any. The
        others are in the bin of their value, and in its `low` and `high`.
    """
    columns = [sweep.settings[param] for sweep in sweeps]
    if any(sweep.scales[param] == "category" for sweep in sweeps):
        return _categories(param, columns)
    numbers = [numbers_in(column) for column in columns]
    values = [rounded(column) for column in numbers]
    is_binned = False
    for sweep, x in zip(sweeps, values, strict=True):
        known = x[~np.isnan(x)]
        num = len(np.unique(known))  # whether they hardly repeat
        is_binned |= sweep.samplers != ("grid",) and (2 * num > len(known) or num > MAX_VALUES)
    whole = np.concatenate(values)
    if not is_binned:
        starts = np.unique(whole[~np.isnan(whole)])
    else:
        used = [x[~np.isnan(x)] for x in values]
        if scored:
            good = [x[~np.isnan(x) & s.alive] for x, s in zip(values, sweeps, strict=True)]
            used = good if any(map(len, good)) else used
        bins = max(1, min(max_bins, min(map(len, used)) // per_bin))
        starts = _starts(np.concatenate(used), bins, per_bin * len(sweeps))
    codes = _place(whole, starts, is_binned=is_binned)
    num, placed, every = len(starts), codes < len(starts), np.concatenate(numbers)
    low, high = np.full(num, np.inf), np.full(num, -np.inf)
    np.minimum.at(low, codes[placed], every[placed])
    np.maximum.at(high, codes[placed], every[placed])
    high = np.where(rounded(low) == rounded(high), low, high)
    # with as many digits as keep the edges apart
    texts = setting_column([*low.tolist(), *high.tolist()])
    edges = zip(texts[:num], texts[num:], strict=True)
    labels = [a if a == b else f"{a}..{b}" for a, b in edges]
    if np.isnan(whole).any():
        low, high, labels = np.append(low, np.nan), np.append(high, np.nan), [*labels, "nan"]
    return Regions(param, tuple(labels), low, high, is_binned, starts, ())


def numbers_in(column: pd.Series[Any]) -> Array:
    """(rows,) float64 of a column of numbers, NaN where it has none."""
    return np.asarray(pd.to_numeric(column).to_numpy(dtype=float, na_value=np.nan))


def means_by(codes: Codes, values: Array, num: int) -> Array:
    """(num,) mean of the values of each code, NaN for none."""
    counts = np.bincount(codes, minlength=num)
    return np.where(counts > 0, np.bincount(codes, values, num) / np.maximum(counts, 1), np.nan)


def rounded(values: Array) -> Array:
    """Numbers rounded to about 12 significant digits, so that 0.1 + 0.2 is 0.3."""
    mantissa, exponent = np.frexp(values)
    whole = np.round(np.ldexp(mantissa, MANTISSA_BITS))
    return np.asarray(np.ldexp(whole, exponent - MANTISSA_BITS))


def _starts(values: Array, bins: int, fewest: int) -> Array:
    """The smallest value of each bin: by rank, with `fewest` values or more in each."""
    different, ranks = np.unique(np.sort(values), return_index=True)
    firsts = np.unique(ranks * bins // len(values), return_index=True)[1]
    chosen = [0]
    for first in firsts[1:].tolist():
        if ranks[first] - ranks[chosen[-1]] >= fewest and len(values) - ranks[first] >= fewest:
            chosen.append(first)
    return np.asarray(different[chosen])


def _place(values: Array, starts: Array, *, is_binned: bool) -> Codes:
    """Region of each rounded number, one past the last for NaN, -1 for none; bins have no end."""
    codes = np.searchsorted(starts, values, side="right").astype(np.int64) - 1
    if is_binned:
        codes = np.maximum(codes, 0)
    elif len(starts):
        codes[starts[codes] != values] = -1
    codes[np.isnan(values)] = len(starts)
    return codes


def _categories(param: str, columns: Sequence[pd.Series[Any]]) -> Regions:
    """One region for each different text, a missing value last."""
    uniques = [pd.Series(column.unique(), dtype=object) for column in columns]
    values = pd.concat(uniques, ignore_index=True)
    by_name: dict[str, Any] = {}
    for value in values[values.notna()]:
        by_name.setdefault(_name(value), value)
    missing = ["nan"] if values.isna().any() else []
    names = (*by_name, *missing)
    labels, none = (*setting_column(list(by_name.values())), *missing), np.full(len(names), np.nan)
    return Regions(param, labels, none, none, False, np.empty(0), names)


def _name(value: Any) -> str:
    """Text by which a value is told from others: a number that is not whole to 12 digits."""
    if pd.isna(value):
        return "nan"
    return setting(float(f"{value:.12g}") if isinstance(value, float) else value)
