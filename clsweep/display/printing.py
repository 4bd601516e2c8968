"""Tables on the screen and as text: one list of rows, four formats."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from clsweep.display.text import cell, is_numeric, markdown_table, printable

FOLDED_WIDTH = 28  # a wider column may be folded
PIPED_WIDTH = 200  # columns, where no terminal says how wide it is
# More are printed line by line: to lay them out would take longer than to make them.
MANY_ROWS = 500


class Format(StrEnum):
    """What a command prints: for eyes, for a page, for a spreadsheet, for a program."""

    table = "table"
    md = "md"
    csv = "csv"
    json = "json"


def print_table(
    rows: Sequence[Mapping[str, Any]],
    columns: Sequence[str] | None = None,
    *,
    format: Format = Format.table,
    title: str = "",
    digits: int = 2,
) -> None:
    """Print rows that share their keys. Floats get `digits` decimals for eyes and full precision
    for programs.

    `columns` names the keys, for a table that may have no row.
    """
    if format is Format.json:
        print(
            json.dumps(
                [{k: _jsonable(v) for k, v in row.items()} for row in rows],
                indent=2,
                ensure_ascii=False,
            )
        )
        return
    keys = list(rows[0]) if rows else list(columns or ())
    if format is Format.csv:
        print(_csv(rows, keys), end="")
        return
    cells = [[cell(row[key], digits) for key in keys] for row in rows]
    columns, title = [printable(key) for key in keys], printable(title)
    numeric = _numeric(cells, keys, rows)
    if format is Format.md:
        print(markdown_table(columns, cells, numeric))
    elif not rows:
        print("no rows")
    elif len(rows) > MANY_ROWS:
        print("\n".join([*([title] if title else []), *_lines(cells, columns, numeric)]))
    else:
        console = Console()
        # Never narrower than the numbers: a cropped number reads as another one. The terminal wraps
        # long lines.
        room = console.width if console.is_terminal else PIPED_WIDTH
        Console(width=max(room, _least_width(cells, columns, numeric))).print(
            _rich_table(cells, columns, numeric, title)
        )


def _rich_table(
    cells: Sequence[Sequence[str]], columns: Sequence[str], numeric: Sequence[bool], title: str
) -> Table:
    """Numbers to the right, text as it is (never as markup); only long texts are folded."""
    table = Table(
        title=title or None,
        title_justify="left",
        title_style="bold",
        box=None,
        pad_edge=False,
        padding=(0, 1),
    )
    for column, width, is_right in zip(columns, _widths(cells, columns), numeric, strict=True):
        table.add_column(
            Text(column),
            justify="right" if is_right else "left",
            overflow="fold",
            no_wrap=is_right or width <= FOLDED_WIDTH,
            min_width=width if is_right else min(width, FOLDED_WIDTH),
        )
    for row in cells:
        table.add_row(*(Text(text) for text in row))
    return table


def _lines(
    cells: Sequence[Sequence[str]], columns: Sequence[str], numeric: Sequence[bool]
) -> Iterator[str]:
    """The same as lines of text; nothing is folded."""
    widths = _widths(cells, columns)
    for texts in (columns, *cells):
        padded = []
        for text, width, is_right in zip(texts, widths, numeric, strict=True):
            text = text.replace("\n", " ")
            space = " " * (width - (len(text) if text.isascii() else cell_len(text)))
            padded.append(space + text if is_right else text + space)
        yield "  ".join(padded).rstrip()


def _numeric(
    cells: Sequence[Sequence[str]], keys: Sequence[str], rows: Sequence[Mapping[str, Any]]
) -> list[bool]:
    """Of each column, whether it is set to the right: it has a number, or nothing but texts that
    are numbers.
    """
    return [
        any(_is_number(row[key]) for row in rows) or is_numeric(texts[i] for texts in cells)
        for i, key in enumerate(keys)
    ]


def _widths(cells: Sequence[Sequence[str]], columns: Sequence[str]) -> list[int]:
    return [max(map(cell_len, set(texts))) for texts in zip(columns, *cells, strict=True)]


def _least_width(
    cells: Sequence[Sequence[str]], columns: Sequence[str], numeric: Sequence[bool]
) -> int:
    """Width at which no number and no short cell is cut: columns two apart, long texts folded."""
    widths = zip(_widths(cells, columns), numeric, strict=True)
    return sum((width if is_right else min(width, FOLDED_WIDTH)) + 2 for width, is_right in widths)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _jsonable(value: Any) -> Any:
    if hasattr(value, "item"):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if isinstance(value, (str, int, float, bool)) or value is None else str(value)


def _csv(rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> str:
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(columns)
    for row in rows:
        values = [_jsonable(row[c]) for c in columns]
        writer.writerow(["" if value is None else value for value in values])
    return buffer.getvalue()
