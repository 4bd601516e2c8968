"""Tables on the screen and as text: one list of rows, four formats."""

from __future__ import annotations

import csv
import io
import json
import math
import os
import textwrap
from collections.abc import Collection, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any, NamedTuple

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
    kept = {key: _column(key, [row[key] for row in rows], digits) for key in keys}
    left_out: list[str] = []
    for name in spare:
        if name in kept and _least(kept.values(), FOLDED_WIDTHS[0]) > room:
            left_out += [name]
            del kept[name]
    shown, title = list(kept.values()), printable(title)
    if format is Format.md:
        names, is_right = [column.name for column in shown], [c.is_right for c in shown]
        print(markdown_table(names, zip(*(c.texts for c in shown), strict=True), is_right))
    elif not rows:
        print("no rows")
    elif len(rows) > MANY_ROWS:
        print("\n".join([*([title] if title else []), *_lines(shown)]))
    else:
        # Never narrower than the numbers: a cropped number reads as another one. The terminal wraps
        # long lines.
        whole = _least(shown, math.inf)
        fits = [width for width in FOLDED_WIDTHS if _least(shown, width) <= room]
        folded = fits[-1] if fits else FOLDED_WIDTHS[-1]
        width = whole if wide else min(whole, screen_width())
        console = Console(width=max(width, _least(shown, folded), cell_len(title)))
        console.print(_rich_table(shown, title, folded))
    return left_out


class _Column(NamedTuple):
    """A column as texts for eyes; one of numbers is set to the right."""

    name: str
    texts: list[str]
    is_right: bool
    width: int

    def least(self, folded: float) -> int:
        """The least width: only texts wider than `folded` may be cut into lines."""
        return self.width if self.is_right or self.width <= folded else LEAST_WIDTH


def _column(name: str, values: Sequence[Any], digits: int) -> _Column:
    texts = [cell(value, digits) for value in values]
    has_number = any(isinstance(v, int | float) and not isinstance(v, bool) for v in values)
    width = max(map(cell_len, {printable(name), *texts}))
    return _Column(printable(name), texts, has_number or is_numeric(texts), width)


def _least(columns: Collection[_Column], folded: float) -> int:
    """The width at which no number and no short cell is cut, columns two apart."""
    return sum(column.least(folded) + 2 for column in columns) - 2


def print_note(text: str) -> None:
    """A text as wide as the screen, no wider than a page; further lines of a list are indented."""
    indent = "  " if text.startswith("- ") else ""
    width = min(screen_width(), PIPED_WIDTH)
    say(textwrap.fill(printable(text), width, subsequent_indent=indent, break_on_hyphens=False))


def screen_width() -> int:
    """Columns of the terminal, or of whatever else is printed to."""
    console = Console()
    return console.width if console.is_terminal or "COLUMNS" in os.environ else PIPED_WIDTH


def _rich_table(columns: Sequence[_Column], title: str, folded: int) -> Table:
    """Numbers to the right, text as it is (never as markup); only long texts are folded."""
    table = Table(
        title=title or None,
        title_justify="left",
        title_style="bold",
        box=None,
        pad_edge=False,
        padding=(0, 1),
    )
    for column in columns:
        table.add_column(
            Text(column.name),
            justify="right" if column.is_right else "left",
            overflow="fold",
            no_wrap=column.is_right or column.width <= folded,
            min_width=column.least(folded),
        )
    for texts in zip(*(column.texts for column in columns), strict=True):
        table.add_row(*map(Text, texts))
    return table


def _lines(columns: Sequence[_Column]) -> Iterator[str]:
    """The same as lines of text; nothing is folded."""
    for texts in zip(*((column.name, *column.texts) for column in columns), strict=True):
        padded = []
        for text, column in zip(texts, columns, strict=True):
            text = text.replace("\n", " ")
            space = " " * (column.width - (len(text) if text.isascii() else cell_len(text)))
            padded.append(space + text if column.is_right else text + space)
        yield "  ".join(padded).rstrip()


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
