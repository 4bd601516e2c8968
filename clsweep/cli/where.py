"""The condition of `--where`, as pandas' `query` takes it: names with other signs in backticks.

The user types the condition; the names of the columns come from a results folder. pandas looks
names up and never evaluates them.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from clsweep.errors import RequestError, nearest

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd

EXAMPLE = "\"tau < 0.1 and status == 'finished'\""
_NONE = re.compile(r"(?:[=!]=|\bis(?: not)?)\s*None\b")
_UNKNOWN = re.compile(r"name '(.*)' is not defined")
_QUOTED = re.compile(r"`([^`]*)`")
_TEXTS = re.compile(r"'[^']*'|\"[^\"]*\"|`[^`]*`")


def selected(frame: pd.DataFrame, where: str) -> pd.Series[bool]:
    """Which rows a condition selects; a row without a value that it asks for is not selected.

    Raises:
        RequestError: it is no condition, or names a column that there is not.
    """
    import pandas as pd

    typed = frame.convert_dtypes()  # with types that know missing values none compares as true
    try:
        _require_columns(where, list(map(str, typed.columns)))
        # Nothing of this program is in reach of the condition.
        mask = typed.eval(where, engine="python", local_dict={}, global_dict={})
    except Exception as error:  # whatever the user's expression raises
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        if unknown := _UNKNOWN.search(reason):
            reason = _no_column(unknown[1], list(map(str, typed.columns)))
        raise RequestError(f"--where {_shown(where)}: {reason:.2000}") from None
    if not isinstance(mask, pd.Series) or not pd.api.types.is_bool_dtype(mask):
        raise RequestError(f"--where {_shown(where)}: expected a condition, as in {EXAMPLE}")
    return mask.fillna(False).astype(bool)


def _require_columns(where: str, columns: Sequence[str]) -> None:
    """Raises ValueError for what pandas would say in words of its own, or not at all."""
    for name in _QUOTED.findall(where):
        if name not in columns:
            raise ValueError(_no_column(name, columns))
    if "@" in _TEXTS.sub("", where):
        raise ValueError(f"expected columns and values, as in {EXAMPLE}, given '@'")
    if compared := _NONE.search(where):  # no comparison with a missing value holds
        raise ValueError(
            "expected .isna() or .notna() of a column, as in 'tau.isna()', given "
            f"{compared[0]!r:.80}"
        )


def _no_column(name: str, columns: Sequence[str]) -> str:
    quoted = [column if column.isidentifier() else f"`{column}`" for column in columns]
    return f"no column {name!r:.80}.{nearest(name, quoted)} Columns: {', '.join(quoted)}"


def _shown(where: str) -> str:
    return repr(where) if len(where) <= 80 else f"{where[:80]!r}..."
