"""Tables on the screen and as text: one list of rows, four formats."""

from __future__ import annotations

import csv
import io
import json
import math
import os
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from clsweep.display.text import (
    cell,
    is_numeric,
    json_text,
    markdown_table,
    printable,
    say,
    spreadsheet,
)

# A column of texts wider than the last may be folded, to LEAST_WIDTH; than the first, where only
# that makes the table fit.
FOLDED_WIDTHS = (20, 28)
LEAST_WIDTH = 16
PIPED_WIDTH = 110  # columns, where neither a terminal nor COLUMNS says how wide it is
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
    spare: Sequence[str] = (),
    wide: bool = False,
) -> list[str]:
    """Print rows that share their keys; returns the columns that found no room.

    Floats get `digits` decimals for eyes and full precision for programs.

    Args:
        columns: the keys, for a table that may have no row.
        spare: columns that may be left out of a table that is wider than the screen, the first to
            go first.
        wide: leave out and fold nothing.
    """
    if format is Format.json:
        records = [{k: _jsonable(v) for k, v in row.items()} for row in rows]
        print(json_text(json.dumps(records, indent=2, ensure_ascii=False)))
        return []
    keys = list(rows[0]) if rows else list(columns or ())
    if format is Format.csv:
        print(_csv(rows, keys), end="")
        return []
    room = math.inf if wide or format is not Format.table else screen_width()
    keys, left_out = _fitting(rows, keys, spare, digits, room)
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
        # Never narrower than the numbers: a cropped number reads as another one. The terminal wraps
        # long lines.
        whole = sum(_widths(cells, columns)) + 2 * (len(columns) - 1)
        fits = [w for w in FOLDED_WIDTHS if _least_width(cells, columns, numeric, w) <= room]
        folded = fits[-1] if fits else FOLDED_WIDTHS[-1]
        width = whole if wide else min(whole, screen_width())
        least = _least_width(cells, columns, numeric, folded)
        Console(width=max(width, least, cell_len(title))).print(
            _rich_table(cells, columns, numeric, title, folded)
        )
    return left_out


def print_note(text: str) -> None:
    """A text as wide as the screen, no wider than a page; further lines of a list are indented."""
    indent = "  " if text.startswith("- ") else ""
    width = min(screen_width(), PIPED_WIDTH)
    say(textwrap.fill(printable(text), width, subsequent_indent=indent, break_on_hyphens=False))


def screen_width() -> int:
    """Columns of the terminal, or of whatever else is printed to."""
    console = Console()
    return console.width if console.is_terminal or "COLUMNS" in os.environ else PIPED_WIDTH


def _fitting(
    rows: Sequence[Mapping[str, Any]],
    keys: Sequence[str],
    spare: Sequence[str],
    digits: int,
    room: float,
) -> tuple[list[str], list[str]]:
    """The columns for which there is room, and those for which there is none."""
    kept, left_out = list(keys), []
    texts = {key: [cell(row[key], digits) for row in rows] for key in keys} if spare else {}
    for name in (name for name in spare if name in keys):
        cells = list(zip(*(texts[key] for key in kept), strict=True))
        if _least_width(cells, kept, _numeric(cells, kept, rows), FOLDED_WIDTHS[0]) <= room:
            break
        kept.remove(name)
        left_out.append(name)
    return kept, left_out


def _rich_table(
    cells: Sequence[Sequence[str]],
    columns: Sequence[str],
    numeric: Sequence[bool],
    title: str,
    folded: int,
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
            no_wrap=is_right or width <= folded,
            min_width=_least(width, is_right, folded),
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
    cells: Sequence[Sequence[str]], columns: Sequence[str], numeric: Sequence[bool], folded: int
) -> int:
    """Width at which no number and no short cell is cut: columns two apart, long texts folded."""
    widths = zip(_widths(cells, columns), numeric, strict=True)
    return sum(_least(width, is_right, folded) + 2 for width, is_right in widths) - 2


def _least(width: int, is_right: bool, folded: int) -> int:
    """The least width of a column whose widest text has `width`."""
    return width if is_right or width <= folded else LEAST_WIDTH


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
    writer.writerow([spreadsheet(str(name)) for name in columns])
    for row in rows:
        values = [_jsonable(row[c]) for c in columns]
        writer.writerow(["" if value is None else spreadsheet(value) for value in values])
    return buffer.getvalue()
