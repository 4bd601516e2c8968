"""Conditions of `--where`: expressions of columns and plain values, read by Python's parser and
made of the nodes that are listed here.

A comparison with a missing value is unknown, as in SQL, and so is what hangs on it: `tau != 0.1`
and `not tau in [0.1]` select no row without a tau.
"""

from __future__ import annotations

import ast
import io
import keyword
import operator
import re
import tokenize
from collections.abc import Callable, Mapping
from contextlib import suppress
from decimal import Decimal
from functools import reduce
from typing import Any, TypeAlias

import numpy as np
import pandas as pd

from clsweep.errors import RequestError, first_line, nearest

_Operand: TypeAlias = "pd.Series[Any] | pd.Timestamp | float | str | bool"

EXAMPLE = "\"tau < 0.1 and status == 'finished'\""
MOST_NAMED = 30  # columns that an error lists
MOST_OPERANDS = 4000  # columns and values: each comparison takes about a millisecond
_COMPARISONS: Mapping[type, Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le,
    ast.Gt: operator.gt, ast.GtE: operator.ge,
}  # fmt: skip
_ARITHMETIC: Mapping[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Pow: operator.pow,
    ast.Div: operator.truediv, ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod,
}  # fmt: skip
_FUNCTIONS = {"abs": np.abs, "exp": np.exp, "sqrt": np.sqrt}
_FUNCTIONS |= {"log": np.log, "log2": np.log2, "log10": np.log10}
_MISSING = {"isna": True, "isnull": True, "notna": False, "notnull": False}
_NO_VALUE = ".isna() or .notna() of a column"
_CONSTANTS = {"true": "True", "false": "False", **dict.fromkeys(("null", "nan", "na"), _NO_VALUE)}
_TEXTS = re.compile(r"'[^']*'|\"[^\"]*\"|`[^`]*`")
_WORDS = {"&": "and", "|": "or"}  # of pandas, which binds them as loosely


def selected(frame: pd.DataFrame, where: str) -> pd.Series[bool]:
    """Which rows a condition selects; names with other signs than a word has stand in backticks.

    Raises:
        RequestError: it is no condition, or names a column that there is not.
    """
    plain, columns = where, {name: name for name in map(str, frame)}
    for number, name in enumerate(sorted(columns, key=len, reverse=True)):
        if f"`{name}`" in plain:  # whatever signs it has
            plain = plain.replace(f"`{name}`", f"column_{number}_")
            columns[f"column_{number}_"] = name
    try:
        with np.errstate(all="ignore"):  # a root of what is negative is unknown
            mask = _Condition(frame, columns).of(_parsed(plain, frame))
    except OverflowError:
        raise RequestError(f"--where {_shown(where)}: expected numbers below 1e308") from None
    except Exception as error:  # whatever a comparison raises
        reason, bare = first_line(error), _TEXTS.sub("", plain)
        if isinstance(error, SyntaxError):
            reason = f"{error.msg}: expected a condition, as in {EXAMPLE}"
        signs = (name for name in map(str, frame) if _quoted(name) != name)
        if meant := [x for x in signs if re.search(rf"(?<!\w){re.escape(x)}(?!\w)", bare)]:
            reason = f"expected backticks, as in {_quoted(max(meant, key=len))}"
        raise RequestError(f"--where {_shown(where)}: {reason:.2000}") from None
    return mask.fillna(False).astype(bool)


def _parsed(plain: str, frame: pd.DataFrame) -> ast.expr:
    for name in re.findall(r"`([^`]*)`", plain):
        raise ValueError(_no_column(name, frame))
    if not plain.strip():
        raise ValueError(f"expected a condition, as in {EXAMPLE}, given an empty one")
    with suppress(tokenize.TokenError):  # the parser says what is wrong
        tokens = tokenize.generate_tokens(io.StringIO(plain.strip()).readline)
        plain = tokenize.untokenize(
            (tokenize.NAME, _WORDS[each.string]) if each.string in _WORDS else each[:2]
            for each in tokens
        )
    tree = ast.parse(plain.strip(), mode="eval").body
    num = sum(isinstance(node, ast.Name | ast.Constant) for node in ast.walk(tree))
    if num > MOST_OPERANDS:
        raise ValueError(f"expected at most {MOST_OPERANDS:,} columns and values, given {num:,}")
    return tree


class _Condition:
    """The value of an expression: of each row, or one for all.

    columns: their names by the words that stand for them.
    """

    def __init__(self, frame: pd.DataFrame, columns: Mapping[str, str]):
        self.frame, self.columns = frame, columns
        self._typed: dict[str, pd.Series[Any]] = {}  # each once, however often it is named

    def of(self, node: ast.expr) -> pd.Series[Any]:
        """Its truth in each row: yes, no or unknown."""
        match node:
            case ast.BoolOp(op=op, values=values):
                join = operator.and_ if isinstance(op, ast.And) else operator.or_
                return reduce(join, map(self.of, values))
            case ast.UnaryOp(op=ast.Not() | ast.Invert(), operand=operand):
                return ~self.of(operand)
            case ast.Compare(left=left, ops=ops, comparators=others):
                sides = [left, *others]
                return reduce(operator.and_, map(self.compared, sides, ops, others))
            case ast.Call(func=ast.Attribute(value=of, attr="isin"), args=[others], keywords=[]):
                return self.compared(of, ast.In(), others)
            case ast.Call(func=ast.Attribute(value=of, attr=name), args=[], keywords=[]):
                if name in _MISSING:
                    is_missing = self._column(of).isna().astype("boolean")
                    return is_missing if _MISSING[name] else ~is_missing
        value = self.value(node)
        if isinstance(value, pd.Series) and pd.api.types.is_bool_dtype(value):
            return value.astype("boolean")
        raise ValueError(f"expected a condition, as in {EXAMPLE}, given {_text(node)}")

    def compared(self, left: ast.expr, op: ast.cmpop, right: ast.expr) -> pd.Series[Any]:
        if isinstance(op, ast.In | ast.NotIn):
            if not isinstance(right, ast.List | ast.Tuple):
                raise ValueError(f"expected a list of values after in, given {_text(right)}")
            none = pd.Series(False, self.frame.index, dtype="boolean")
            equal = (self.compared(left, ast.Eq(), each) for each in right.elts)
            is_in = reduce(operator.or_, equal, none)
            return ~is_in if isinstance(op, ast.NotIn) else is_in
        if type(op) not in _COMPARISONS or _is_none(left) or _is_none(right):
            raise ValueError(
                "expected .isna() or .notna() of a column, as in 'tau.isna()', given "
                f"{_text(ast.Compare(left, [op], [right]))}"
            )
        values = _of_one_type(self.value(left), self.value(right))
        answer = _COMPARISONS[type(op)](*values)
        missing = (value.isna() for value in values if isinstance(value, pd.Series))
        unknown = reduce(operator.or_, missing, pd.Series(False, self.frame.index))
        return pd.Series(answer, self.frame.index, dtype="boolean").mask(unknown)

    def value(self, node: ast.expr) -> _Operand:
        match node:
            case ast.Name():
                return self._column(node)
            case ast.Constant(value=bool() | int() | float() | str() as value):
                return value
            case ast.UnaryOp(op=ast.USub() | ast.UAdd() as op, operand=operand):
                return self._number(operand) * (-1 if isinstance(op, ast.USub) else 1)
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _ARITHMETIC:
                return _ARITHMETIC[type(op)](self._number(left), self._number(right))
            case ast.Call(func=ast.Name(id=name), args=[operand], keywords=[]):
                if name in _FUNCTIONS:
                    return _FUNCTIONS[name](self._number(operand))
            case ast.Compare() | ast.BoolOp() | ast.UnaryOp():
                return self.of(node)
            case ast.Attribute(value=of) | ast.Call(func=ast.Attribute(value=of)):
                for inner in ast.walk(of):  # an unknown column is said first
                    if isinstance(inner, ast.Name):
                        self._column(inner)
        raise ValueError(
            f"expected columns, values, comparisons, in, and, or, not, + - * / // % **, "
            f"{', '.join(_FUNCTIONS)}, .isna(), .notna() or .isin(), given {_text(node)}"
        )

    def _column(self, node: ast.expr) -> pd.Series[Any]:
        if not isinstance(node, ast.Name):
            raise ValueError(f"expected a column, given {_text(node)}")
        if node.id not in self.columns:
            raise ValueError(_no_column(node.id, self.frame))
        name = self.columns[node.id]
        if name not in self._typed:
            self._typed[name] = _typed(self.frame[name])
        return self._typed[name]

    def _number(self, node: ast.expr) -> Any:
        """Of float64: a whole number grows no further than that."""
        value = self.value(node)
        if isinstance(value, pd.Series) and pd.api.types.is_numeric_dtype(value):
            return value.astype("Float64")
        if isinstance(value, pd.Series | str):
            raise ValueError(f"expected a number, given {_text(node)}")
        return float(value)


def _of_one_type(left: _Operand, right: _Operand) -> tuple[_Operand, _Operand]:
    """A text beside dates is one, and beside numbers a number. A number is equal to no text, and so
    selects nothing, or all: it is refused.
    """
    if not isinstance(left, pd.Series) and isinstance(right, pd.Series):
        return _of_one_type(right, left)[::-1]
    if not isinstance(left, pd.Series) or not isinstance(right, str):
        _require_one_kind(left, right)
        return left, right
    if pd.api.types.is_datetime64_any_dtype(left):
        return left, pd.Timestamp(right).tz_localize(left.dt.tz)
    if not pd.api.types.is_numeric_dtype(left):
        return left, right
    if pd.api.types.is_bool_dtype(left):
        raise ValueError(f"expected True or False, given {right!r:.80}")
    try:
        return left, float(right)
    except ValueError:
        raise ValueError(f"expected a number, given {right!r:.80}") from None


def _require_one_kind(left: _Operand, right: _Operand) -> None:
    """Raises ValueError for a column of texts or dates beside numbers or truth values."""
    for one, other in ((left, right), (right, left)):
        kind = _in_quotes(one)
        is_number = isinstance(other, bool | int | float) or (
            isinstance(other, pd.Series) and pd.api.types.is_numeric_dtype(other)
        )
        if kind and is_number:
            given = f"column {other.name!r}" if isinstance(other, pd.Series) else other
            raise ValueError(f"expected a {kind} in quotes, given {given!s:.80}")


def _in_quotes(value: _Operand) -> str:
    """`text` or `date`, which stand in quotes beside such a column; empty beside numbers."""
    if not isinstance(value, pd.Series) or value.isna().all():
        return ""
    if isinstance(value.dtype, pd.StringDtype):
        return "text"
    return "date" if pd.api.types.is_datetime64_any_dtype(value) else ""


def _typed(column: pd.Series[Any]) -> pd.Series[Any]:
    """A column with a type that knows missing values."""
    if isinstance(column.dtype, pd.CategoricalDtype):
        column = column.astype(object)
    known = column.dropna()
    if column.dtype == object and len(known) and all(isinstance(v, Decimal) for v in known):
        column = column.astype(float)
    column = column.convert_dtypes()
    is_text = isinstance(column.dtype, pd.StringDtype)  # in Python, to stand beside numbers
    return column.astype(pd.StringDtype("python")) if is_text else column


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _text(node: ast.AST) -> str:
    return repr(ast.unparse(node)[:80])


def _no_column(name: str, frame: pd.DataFrame) -> str:
    if frame.astype(object).isin([name]).to_numpy().any():
        return f'no column {name!r:.80}. A text stands in quotes: "{name:.80}"'
    if meant := _CONSTANTS.get(name.lower()):
        return f"no column {name!r}. Did you mean {meant}?"
    columns = [str(column) for column in frame.columns]
    quoted = [*map(_quoted, columns)]
    more = f" and {len(quoted) - MOST_NAMED} more" if len(quoted) > MOST_NAMED else ""
    shown = ", ".join(quoted[:MOST_NAMED])
    return f"no column {name!r:.80}.{nearest(name, quoted)} Columns: {shown}{more}"


def _quoted(name: str) -> str:
    is_plain = name.isidentifier() and not keyword.iskeyword(name)
    return name if is_plain else f"`{name}`"


def _shown(where: str) -> str:
    return repr(where) if len(where) <= 80 else f"{where[:80]!r}..."
