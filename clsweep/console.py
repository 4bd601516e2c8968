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

Row = Mapping[str, Any]

MD_ESCAPES = str.maketrans({"\\": "\\\\", "|": "\\|", "<": "\\<", "\n": " "})  # Markdown in which text stays text
FOLDED_WIDTH = 28  # a wider column may be folded
PIPED_WIDTH = 200  # columns, where no terminal says how wide it is
MANY_ROWS = 500  # more are printed line by line: to lay them out would take longer than to make them


class Format(StrEnum):
    """What a command prints: for eyes, for a page, for a spreadsheet, for a program."""

    table = "table"
    md = "md"
    csv = "csv"
    json = "json"


def print_table(
    rows: Sequence[Row],
    columns: Sequence[str] | None = None,
    *,
    format: Format = Format.table,
    title: str = "",
    digits: int = 2,
) -> None:
    """Print rows that share their keys. Floats get `digits` decimals for eyes and full precision for programs.

    `columns` names the keys, for a table that may have no row.
    """
    if format is Format.json:
        print(json.dumps([{k: _jsonable(v) for k, v in row.items()} for row in rows], indent=2, ensure_ascii=False))
        return
    columns = list(rows[0]) if rows else list(columns or ())
    if format is Format.csv:
        print(_csv(rows, columns), end="")
        return
    cells = [[cell(row[c], digits) for c in columns] for row in rows]
    if format is Format.md:
        print(_markdown(cells, columns))
    elif not rows:
        print("no rows")
    elif len(rows) > MANY_ROWS:
        print("\n".join([*([title] if title else []), *_lines(cells, columns, rows)]))
    else:
        console = Console()
        # Never narrower than the numbers: a cropped number reads as another one. The terminal wraps long lines.
        room = console.width if console.is_terminal else PIPED_WIDTH
        Console(width=max(room, _least_width(cells, columns))).print(rich_table(cells, columns, rows, title))


def rich_table(cells: Sequence[Sequence[str]], columns: Sequence[str], rows: Sequence[Row], title: str = "") -> Table:
    """A rich table: numbers to the right, text as it is (never as markup); only long texts are folded."""
    table = Table(
        title=title or None, title_justify="left", title_style="bold", box=None, pad_edge=False, padding=(0, 1)
    )
    for column, width in zip(columns, _widths(cells, columns), strict=True):
        numeric = _is_numeric(rows, column)
        table.add_column(
            Text(column),
            justify="right" if numeric else "left",
            overflow="fold",
            no_wrap=width <= FOLDED_WIDTH,
            min_width=min(width, FOLDED_WIDTH),
        )
    for row in cells:
        table.add_row(*(Text(text) for text in row))
    return table


def _lines(cells: Sequence[Sequence[str]], columns: Sequence[str], rows: Sequence[Row]) -> Iterator[str]:
    """The same as lines of text; nothing is folded."""
    widths = _widths(cells, columns)
    numeric = [_is_numeric(rows, column) for column in columns]
    for texts in (columns, *cells):
        padded = []
        for text, width, is_right in zip(texts, widths, numeric, strict=True):
            text = text.replace("\n", " ")
            space = " " * (width - (len(text) if text.isascii() else cell_len(text)))
            padded.append(space + text if is_right else text + space)
        yield "  ".join(padded).rstrip()


def _is_numeric(rows: Sequence[Row], column: str) -> bool:
    return any(_is_number(row[column]) for row in rows)


def _widths(cells: Sequence[Sequence[str]], columns: Sequence[str]) -> list[int]:
    return [max(map(cell_len, set(texts))) for texts in zip(columns, *cells, strict=True)]


def _least_width(cells: Sequence[Sequence[str]], columns: Sequence[str]) -> int:
    """Width at which no short cell is cut: columns two apart, long texts folded."""
    return sum(min(width, FOLDED_WIDTH) + 2 for width in _widths(cells, columns))


def cell(value: Any, digits: int = 2) -> str:
    """One value for eyes: no trailing noise, an empty cell for what does not exist."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    if isinstance(value, float):
        return f"{value:.{digits}f}" if abs(value) >= 10**-digits or value == 0 else f"{value:.1e}"
    return str(value)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _jsonable(value: Any) -> Any:
    if hasattr(value, "item"):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if isinstance(value, (str, int, float, bool)) or value is None else str(value)


def _csv(rows: Sequence[Row], columns: Sequence[str]) -> str:
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(columns)
    for row in rows:
        values = [_jsonable(row[c]) for c in columns]
        writer.writerow(["" if value is None else value for value in values])
    return buffer.getvalue()


def _markdown(cells: Sequence[Sequence[str]], columns: Sequence[str]) -> str:
    escaped = [[text.translate(MD_ESCAPES) for text in line] for line in (columns, *cells)]
    lines = [escaped[0], ["---"] * len(columns), *escaped[1:]]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
