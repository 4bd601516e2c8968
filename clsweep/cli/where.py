"""The condition of `--where`: comparisons, arithmetic and few functions of columns, of bounded
length and cost.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from clsweep.errors import RequestError, nearest

if TYPE_CHECKING:
    import pandas as pd

MAX_LENGTH = 1_000  # characters: with bounded exponents it bounds the numbers too
MAX_EXPONENT = 64
FUNCTIONS = ("abs", "sqrt", "exp", "log", "log10")  # of a number
GAPS = ("isna", "notna", "isnull", "notnull")  # methods of a column
EXAMPLE = "\"tau < 0.1 and status == 'finished'\""

_SHAPES = (
    *(ast.Expression, ast.Load, ast.BoolOp, ast.boolop, ast.unaryop, ast.UnaryOp),
    *(ast.Compare, ast.cmpop, ast.List, ast.Tuple, ast.Name, ast.Constant, ast.BinOp),
    *(ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod, ast.Pow),
    *(ast.BitAnd, ast.BitOr),  # of conditions: pandas takes them for `and` and `or`
)


def selected(frame: pd.DataFrame, where: str) -> pd.Series[bool]:
    """Which rows a condition selects; a row without a value that it asks for is not selected.

    pandas evaluates it, once it is known to hold nothing that could take long.

    Raises:
        RequestError: it is no such condition, or names a column that there is not.
    """
    import pandas as pd

    # With types that know missing values no comparison with one holds; of texts pandas' eval
    # makes objects again.
    typed = frame.convert_dtypes()
    where = re.sub(r"`(\w+)`", r"\1", where)  # as pandas has names quoted
    numbers = [name for name in typed if pd.api.types.is_numeric_dtype(typed[name])]
    try:
        _require_bounded(where, list(map(str, typed.columns)), set(map(str, numbers)))
        mask = typed.eval(where)
    except Exception as error:  # whatever the user's expression raises
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise RequestError(f"--where {_shown(where)}: {reason:.2000}") from None
    if not isinstance(mask, pd.Series) or not pd.api.types.is_bool_dtype(mask):
        raise RequestError(f"--where {_shown(where)}: expected a condition, as in {EXAMPLE}")
    return mask.fillna(False).astype(bool)


def _require_bounded(where: str, columns: list[str], numbers: set[str]) -> None:
    """Raises ValueError with a reason unless pandas can evaluate it in a moment."""
    if len(where) > MAX_LENGTH:
        raise ValueError(f"expected at most {MAX_LENGTH:,} characters, given {len(where):,}")
    tree = ast.parse(where.strip(), mode="eval")
    calls = [node for node in ast.walk(tree) if _is_known_call(node)]
    called = [node.func for node in calls if isinstance(node, ast.Call)]
    for node in ast.walk(tree):
        if node in called:
            continue
        if not isinstance(node, _SHAPES) and node not in calls:
            raise ValueError(
                f"expected comparisons and arithmetic of columns, as in {EXAMPLE}, given "
                f"{ast.unparse(node) or type(node).__name__!r:.80}{_instead(node)}"
            )
        if isinstance(node, ast.Compare):
            _require_no_none(node)
        if isinstance(node, ast.Name) and node.id not in columns:
            hint = nearest(node.id, columns)
            raise ValueError(f"no column {node.id!r:.80}.{hint} Columns: {', '.join(columns)}")
        if isinstance(node, ast.BinOp) and not isinstance(node.op, ast.BitAnd | ast.BitOr):
            _require_numbers(node, numbers)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow):
            _require_bounded_power(node)


def _is_known_call(node: ast.AST) -> bool:
    """`abs(tau - 0.1)` or `tau.isna()`."""
    if not isinstance(node, ast.Call) or node.keywords:
        return False
    match node.func:
        case ast.Name(id=name):
            return name in FUNCTIONS and len(node.args) == 1
        case ast.Attribute(value=ast.Name(), attr=name):
            return name in GAPS and not node.args
    return False


def _instead(node: ast.AST) -> str:
    """What says the same as a method that is not taken."""
    name = getattr(getattr(node, "func", None), "attr", None)
    told = {"isin": "tau in [0.1, 0.2]", "between": "0.1 <= tau <= 0.2"}
    if name in told:
        return f". The same is: {told[name]}"
    known = f"{', '.join(FUNCTIONS)}; of a column .{' .'.join(GAPS[:2])}"
    more = "clsweep.open_results(...).trials.query(...) in Python takes more"
    return f". Functions: {known}. {more}" if isinstance(node, ast.Call) else ""


def _require_no_none(node: ast.Compare) -> None:
    """No comparison with a missing value holds, so none is meant."""
    for part in (node.left, *node.comparators):
        if isinstance(part, ast.Constant) and part.value is None:
            raise ValueError(
                "expected .isna() or .notna() of a column, as in 'tau.isna()', given "
                f"{ast.unparse(node)!r:.80}"
            )


def _require_numbers(node: ast.BinOp, numbers: set[str]) -> None:
    """Arithmetic on a text repeats it: `status * 10**9`."""
    for part in _parts([node.left, node.right]):
        is_text = isinstance(part, ast.Name) and part.id not in {*numbers, *FUNCTIONS}
        if is_text or (isinstance(part, ast.Constant) and not isinstance(part.value, int | float)):
            raise ValueError(
                f"expected numbers in {ast.unparse(node)!r:.80}, given {ast.unparse(part):.80}"
            )


def _require_bounded_power(node: ast.BinOp) -> None:
    exponent = node.right.operand if isinstance(node.right, ast.UnaryOp) else node.right
    value = exponent.value if isinstance(exponent, ast.Constant) else None
    if not isinstance(value, int | float) or abs(value) > MAX_EXPONENT:
        raise ValueError(
            f"expected a number of at most {MAX_EXPONENT} as exponent, given "
            f"{ast.unparse(node.right)!r:.80}"
        )
    if any(isinstance(getattr(part, "op", None), ast.Pow) for part in _parts([node.left])):
        raise ValueError(f"expected no power of a power, given {ast.unparse(node)!r:.80}")


def _parts(nodes: Iterable[ast.expr]) -> Iterable[ast.AST]:
    for node in nodes:
        yield from ast.walk(node)


def _shown(where: str) -> str:
    return repr(where) if len(where) <= 80 else f"{where[:80]!r}..."
