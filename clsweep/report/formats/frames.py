"""A table as a file: CSV that a spreadsheet can open, and Parquet."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from clsweep.display.text import spreadsheet


def to_csv(frame: pd.DataFrame) -> bytes:
    """A frame as CSV in full precision, UTF-8, without a text that a spreadsheet would read as a
    formula.
    """
    safe = frame.rename(columns=lambda name: spreadsheet(str(name)))
    for i, dtype in enumerate(frame.dtypes):
        is_time = pd.api.types.is_datetime64_any_dtype(dtype)
        if not (is_time or pd.api.types.is_numeric_dtype(dtype)):
            safe.isetitem(i, _harmless_texts(frame.iloc[:, i]))
    out = pa.BufferOutputStream()
    pyarrow.csv.write_csv(_arrow(safe), out)  # ten times as fast as pandas
    return out.getvalue().to_pybytes()


def to_parquet(frame: pd.DataFrame) -> bytes:
    """A frame as Parquet. Columns of objects that are not all of one simple type are written as
    text.
    """
    out = pa.BufferOutputStream()
    pyarrow.parquet.write_table(_arrow(frame.rename(columns=str)), out)
    return out.getvalue().to_pybytes()


def _arrow(frame: pd.DataFrame) -> pa.Table:
    typed = frame.copy(deep=False)
    for i, dtype in enumerate(frame.dtypes):
        if pd.api.types.is_object_dtype(dtype):
            column = frame.iloc[:, i]
            values = [None if gone else v for v, gone in zip(column, column.isna(), strict=True)]
            types = {type(value) for value in values if value is not None}
            if len(types) != 1 or not types <= {str, bool, int, float}:
                values = [None if value is None else str(value) for value in values]
            typed.isetitem(i, values)
    return pa.Table.from_pandas(typed, preserve_index=False)


def _harmless_texts(column: pd.Series[Any]) -> Any:
    """The column without texts that would be formulas; of texts alone each is looked at once."""
    if not isinstance(column.dtype, pd.StringDtype):
        return [spreadsheet(value) for value in column]
    codes, values = pd.factorize(column, use_na_sentinel=False)
    different = np.empty(len(values), dtype=object)
    different[:] = [spreadsheet(value) for value in values]
    return different[codes]
