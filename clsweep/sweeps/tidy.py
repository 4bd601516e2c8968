"""A table of trials from anywhere, made plain: what statistics cannot read is refused by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from numbers import Real
from typing import Any

import numpy as np
import pandas as pd

from clsweep.analysis.read_sweeps import SCALES, is_numeric_column
from clsweep.analysis.sweep import LABEL_KEYS, Sweep
from clsweep.catalog import DIAGNOSTIC, METRICS
from clsweep.catalog.plugin_guard import LARGEST_SCORE
from clsweep.display.numbers import count, mentioned, setting
from clsweep.errors import RequestError, nearest
from clsweep.sweeps.parsing import UNWRITABLE

LABEL_NAMES = ("objective", "config", "seed", "status", "sampler")
# Read as numbers beside the metric.
_MEASURED = (*DIAGNOSTIC, *(m.name for m in METRICS if m.takes))
_MEASURED = (*_MEASURED, "wall_time_s", "workers", "num_classes")
SMALLEST = 1e-60  # of sizes whose fourth powers are still numbers, as those of LARGEST are


def tidied(trials: Any, source: str) -> pd.DataFrame:
    """The table with texts as column names, and labels that can be told apart. RequestError for no
    table, a column twice, or a label that is neither a number nor a text.
    """
    if not isinstance(trials, pd.DataFrame):
        given = type(trials).__name__
        raise RequestError(f"{source}: trials: expected a pandas DataFrame, given {given}")
    names = ["None" if name is None or name != name else str(name) for name in trials.columns]
    for name in names:
        _require_writable(name, source, name)
    trials = trials.set_axis(names, axis=1).reset_index(drop=True)
    if twice := list(trials.columns[trials.columns.duplicated()]):
        raise RequestError(f"{source}: trials: expected every column once, given {twice[0]} twice")
    labels = {name: _label(trials[name], source) for name in LABEL_NAMES if name in trials}
    numbers = {name: numeric(trials[name], source) for name in _MEASURED if name in trials}
    return trials.assign(**labels, **numbers)


def without_copies(trials: pd.DataFrame) -> tuple[pd.DataFrame, str]:
    """The table without rows that repeat another, as overlapping exports have, and a note."""
    keys = [name for name in LABEL_KEYS if name in trials]
    if not keys or not trials.duplicated(keys).any():
        return trials, ""
    copies = trials.duplicated([name for name in trials if is_plain(trials[name])])
    note = f"{count(copies.sum())} rows are copies of others and are left out"
    return trials[~copies].reset_index(drop=True), note if copies.any() else ""


def with_settings_once(
    trials: pd.DataFrame, params: Sequence[str], sweeps: Sequence[Sweep]
) -> tuple[pd.DataFrame, str]:
    """The table with one configuration a setting, the first of those that have it, and a note.

    A table with an id for each trial has one setting under several. Where these have a seed twice,
    what tells them apart is not among `params`, and they stay apart. `sweeps` are of the table as
    it is.
    """
    recurs = [x.settings.duplicated().any() if x.params else len(x.configs) > 1 for x in sweeps]
    if not params or not any(recurs):
        return trials, ""
    codes = trials.groupby(["objective", *params], dropna=False, sort=False).ngroup()
    first = trials["config"].groupby(codes).transform("first")
    is_twice = trials.assign(config=codes).duplicated(["config", "seed"], keep=False)
    is_merged = ~is_twice.groupby(codes).transform("any")
    moved = trials.loc[is_merged & (first != trials["config"]), ["objective", "config"]]
    if moved.empty:
        return trials, ""
    num = len(moved.drop_duplicates())
    note = f"{count(num)} configurations have the setting of another: they are read as one with it"
    return trials.assign(config=first.where(is_merged, trials["config"])), note


def _label(column: pd.Series[Any], source: str) -> pd.Series[Any]:
    """Texts, or the numbers of configurations and seeds."""
    missing = column.isna()
    if is_numeric_column(column) and column.dtype.kind != "c" and column.name in ("config", "seed"):
        return column
    known = column[~missing]
    for value in known.unique() if is_plain(known) else known:
        if not _is_one(value) or np.iscomplexobj(value) or value == "":
            raise _refused(source, str(column.name), "a number or a text", value)
        _require_writable(value, source, str(column.name))
    is_text = column.dtype == "str"
    return column if is_text else column.map(setting).astype(str).where(~missing)


def numeric(column: pd.Series[Any], source: str) -> pd.Series[Any]:
    """A column of numbers, as float64 where its type was none of numpy's. RequestError where it has
    something else, a truth value or a complex number included.
    """
    if column.dtype.kind in "iuf" and isinstance(column.dtype, np.dtype):
        return column
    numbers = np.full(len(column), np.nan)
    for row in np.flatnonzero(~column.isna()):
        value = column.iloc[row]
        if not _is_real(value):
            raise _refused(source, str(column.name), "numbers", value)
        try:
            numbers[row] = float(value)
        except OverflowError:
            raise _refused(source, str(column.name), "smaller numbers", value) from None
    return pd.Series(numbers, index=column.index, name=column.name)


def is_plain(column: pd.Series[Any]) -> bool:
    """True if all values of a column can be told apart: no lists and the like."""
    is_text = isinstance(column.dtype, pd.StringDtype)
    return is_text or column.dtype.kind != "O" or all(map(_is_one, column))


def _is_one(value: Any) -> bool:
    """True if a value can be told from others, which a list cannot."""
    try:
        hash(value)
    except TypeError:
        return False
    return True


def _is_real(value: Any) -> bool:
    return isinstance(value, Real | Decimal) and not np.issubdtype(type(value), np.bool_)


def as_setting(column: pd.Series[Any], source: str) -> pd.Series[Any]:
    """The values of a hyperparameter: finite numbers, truth values or texts. A mixture, dates and
    the like are texts. RequestError for a list and the like, a complex, infinite or huge number.
    """
    name, known = str(column.name), column[~column.isna()]
    for value in known if column.dtype.kind in "Oc" else ():
        if not _is_one(value) or np.iscomplexobj(value):
            raise _refused(source, name, "numbers or texts", value)
        _require_writable(value, source, name)
    if column.dtype.kind == "b":
        return column.astype(bool) if known.size == column.size else _texts(column)
    if not is_numeric_column(column) and not all(map(_is_real, known)):
        return _texts(column)
    column = numeric(column, source)
    if column.dtype in (np.float16, np.float32):  # 0.1 of fewer bits is 0.1
        column = pd.Series(column.to_numpy().astype(str).astype(float), column.index, name=name)
    known = column.dropna()
    sizes = known.astype(float).abs()
    if len(wrong := known[(sizes > LARGEST_SCORE) | np.isinf(sizes)]):
        raise _refused(
            source, name, f"finite numbers up to {setting(LARGEST_SCORE)}", wrong.iloc[0]
        )
    if (sizes > 0).any() and sizes.max() < SMALLEST:
        raise _refused(source, name, f"a number of at least {setting(SMALLEST)}", sizes.max())
    return column


def is_numbers_as_text(column: pd.Series[Any]) -> bool:
    """True if a column of texts holds nothing but numbers, as a file without types has them."""
    known = column.dropna()
    is_text = len(known) > 0 and all(isinstance(value, str) for value in known)
    return is_text and bool(pd.to_numeric(known, errors="coerce").notna().all())


def _texts(column: pd.Series[Any]) -> pd.Series[Any]:
    texts = [
        None if missing else setting(value) or repr(setting(value))
        for value, missing in zip(column.astype(object), column.isna(), strict=True)
    ]
    return pd.Series(texts, index=column.index, name=column.name, dtype=object)


def check_sizes(scores: np.ndarray[Any, Any], metric: str, source: str) -> None:
    """Refuse scores whose squares overflow or vanish."""
    largest = float(np.abs(scores[np.isfinite(scores)]).max(initial=0.0))
    if largest > LARGEST_SCORE or 0 < largest < SMALLEST:
        expected = f"sizes from {setting(SMALLEST)} to {setting(LARGEST_SCORE)}"
        raise RequestError(
            f"{source}: metric {metric!r}: expected {expected}, given {mentioned(largest)}; "
            "multiply the column by a constant, or mark such trials as failed"
        )


def checked_scales(
    scales: Any, trials: pd.DataFrame, params: Sequence[str], source: str
) -> dict[str, str]:
    """The scales that were told; none where nothing was. RequestError for one that is none, of no
    hyperparameter, or that it cannot have.
    """
    if not isinstance(scales, Mapping | None):
        raise RequestError(f"{source}: scales: expected {{'tau': 'log'}}, given {scales!r}")
    named = {str(name): scale for name, scale in (scales or {}).items()}
    for name, scale in named.items():
        wrong = ""
        if scale not in SCALES:
            hint = nearest(str(scale), SCALES)
            wrong = f"{name}: expected {' or '.join(map(repr, SCALES))}, given {scale!r}.{hint}"
        elif name not in params:
            hint, known = nearest(name, params), ", ".join(params) or "none"
            wrong = f"expected a hyperparameter, given {name!r}.{hint} Hyperparameters: {known}"
        elif scale != "category":
            values = trials[name].dropna()
            if not is_numeric_column(values):
                wrong = f"{name}: expected 'category' for texts, given {scale!r}"
            elif scale == "log" and (values <= 0).any():
                given = setting(values.min())
                wrong = f"{name}: expected positive numbers for 'log', given {given}"
        if wrong:
            raise RequestError(f"{source}: scales: {wrong}")
    return named


def _require_writable(value: Any, source: str, column: str) -> None:
    """Refuse a text that no file can hold."""
    if isinstance(value, str) and UNWRITABLE.search(value):
        raise _refused(source, column, "a text without NUL and half characters", value)


def _refused(source: str, column: str, expected: str, value: Any) -> RequestError:
    given = repr(value.item() if isinstance(value, np.generic) else value)[:40]
    return RequestError(f"{source}: column {column!r}: expected {expected}, given {given}")
