"""Tables on the screen and as text: one list of rows, four formats."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
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
# What a column of numbers may hold besides: "0.48 [0.40, 0.55]", "1.2e-05", "0.05..0.08", "12 %", "< 0.001".
_FIGURES = re.compile(
    r"(?=.*\d)(?:[-−+<>≤≥~≈±=.,:;%×()\[\]\s\d–…]|(?<=\d)e(?=[-+]?\d)|\binf\b)*|-?inf|n/a|[-–—]", re.IGNORECASE
)
# What a terminal obeys instead of showing it, and what cannot be encoded; lines may break.
_CONTROLS = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")


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
    keys = list(rows[0]) if rows else list(columns or ())
    if format is Format.csv:
        print(_csv(rows, keys), end="")
        return
    cells = [[cell(row[key], digits) for key in keys] for row in rows]
    columns, title = [printable(key) for key in keys], printable(title)
    numeric = _numeric(cells, keys, rows)
    if format is Format.md:
        print(_markdown(cells, columns))
    elif not rows:
        print("no rows")
    elif len(rows) > MANY_ROWS:
        print("\n".join([*([title] if title else []), *_lines(cells, columns, numeric)]))
    else:
        console = Console()
        # Never narrower than the numbers: a cropped number reads as another one. The terminal wraps long lines.
        room = console.width if console.is_terminal else PIPED_WIDTH
        Console(width=max(room, _least_width(cells, columns, numeric))).print(
            _rich_table(cells, columns, numeric, title)
        )


def _rich_table(cells: Sequence[Sequence[str]], columns: Sequence[str], numeric: Sequence[bool], title: str) -> Table:
    """Numbers to the right, text as it is (never as markup); only long texts are folded."""
    table = Table(
        title=title or None, title_justify="left", title_style="bold", box=None, pad_edge=False, padding=(0, 1)
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


def _lines(cells: Sequence[Sequence[str]], columns: Sequence[str], numeric: Sequence[bool]) -> Iterator[str]:
    """The same as lines of text; nothing is folded."""
    widths = _widths(cells, columns)
    for texts in (columns, *cells):
        padded = []
        for text, width, is_right in zip(texts, widths, numeric, strict=True):
            text = text.replace("\n", " ")
            space = " " * (width - (len(text) if text.isascii() else cell_len(text)))
            padded.append(space + text if is_right else text + space)
        yield "  ".join(padded).rstrip()


def is_numeric(texts: Iterable[str]) -> bool:
    """Whether all that a column says is numbers, so that it is set to the right."""
    filled = [text for text in texts if text]
    return bool(filled) and all(_FIGURES.fullmatch(text) for text in filled)


def _numeric(cells: Sequence[Sequence[str]], keys: Sequence[str], rows: Sequence[Row]) -> list[bool]:
    """Of each column, whether it is set to the right: it has a number, or nothing but texts that are numbers."""
    return [
        any(_is_number(row[key]) for row in rows) or is_numeric(texts[i] for texts in cells)
        for i, key in enumerate(keys)
    ]


def _widths(cells: Sequence[Sequence[str]], columns: Sequence[str]) -> list[int]:
    return [max(map(cell_len, set(texts))) for texts in zip(columns, *cells, strict=True)]


def _least_width(cells: Sequence[Sequence[str]], columns: Sequence[str], numeric: Sequence[bool]) -> int:
    """Width at which no number and no short cell is cut: columns two apart, long texts folded."""
    widths = zip(_widths(cells, columns), numeric, strict=True)
    return sum((width if is_right else min(width, FOLDED_WIDTH)) + 2 for width, is_right in widths)


def cell(value: Any, digits: int = 2) -> str:
    """One value for eyes: no trailing noise, an empty cell for what does not exist, no character that is an order."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    if isinstance(value, float):
        return f"{value:.{digits}f}" if abs(value) >= 10**-digits or value == 0 else f"{value:.1e}"
    return printable(str(value))


def printable(text: str) -> str:
    """Text with control characters made visible: a terminal shows `\\x1b` where it would obey the character."""
    return _CONTROLS.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


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
