"""Tables on the screen and as text: one list of rows, four formats."""

from __future__ import annotations

import csv
import json
import math
import os
import re
import sys
import textwrap
from collections.abc import Collection, Iterator, Mapping, Sequence
from enum import StrEnum
from itertools import accumulate, zip_longest
from typing import Any, NamedTuple, TextIO

from rich.cells import cell_len
from rich.console import Console
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

# A column of texts that is wider may be folded, but to no less than LEAST_WIDTH, and no word or
# number of up to WHOLE_WORD characters is broken. A longer one, as a name is, breaks behind a mark.
FOLDED_WIDTH, LEAST_WIDTH, WHOLE_WORD = 20, 16, 40
# Columns of a sentence at most; and of tables, where neither a terminal nor COLUMNS says how wide.
PAGE_WIDTH = 80
_PART = re.compile(r"[^/_-]*[/_-]+|[^/_-]+")


class Format(StrEnum):
    """The format of a command's tables: for eyes, for a page, for a spreadsheet, for a program."""

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
    spare: Sequence[str | Sequence[str]] = (),
    wide: bool = False,
) -> list[str]:
    """Print rows that share their keys; returns the columns that found no room.

    Floats get `digits` decimals for eyes and full precision for programs. `columns` are the keys,
    for a table that may have no row. `spare` ones may be left out of a table that is wider than the
    screen, the first to go first, several together; `wide`: nothing is left out or folded.
    """
    if format is Format.json:
        records = [{k: _jsonable(v) for k, v in row.items()} for row in rows]
        print(json_text(json.dumps(records, indent=2, ensure_ascii=False)))
        return []
    keys = list(rows[0]) if rows else list(columns or ())
    if format is Format.csv:
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow([spreadsheet(str(name)) for name in keys])
        for row in rows:
            cells = [row[key] for key in keys]
            values = [float(v) if _is_infinite(v) else _jsonable(v) for v in cells]
            writer.writerow(["" if value is None else spreadsheet(value) for value in values])
        return []
    if format is Format.md:
        shown = [_column(key, [row[key] for row in rows], digits) for key in keys]
        names, is_right = [column.name for column in shown], [c.is_right for c in shown]
        print(markdown_table(names, zip(*(c.texts for c in shown), strict=True), is_right))
        return []
    if not rows:
        print("no rows")
        return []
    blocks, left_out = laid_out(
        rows, digits=digits, spare=spare, room=math.inf if wide else screen_width()
    )
    bold, before = Console(soft_wrap=True, highlight=False), printable(title)
    for head, *lines in blocks:
        if before:
            bold.print(Text(before if wide else _wrapped(before), style="bold"))
        bold.print(Text(head, style="bold"))
        print("\n".join(lines))
        before = " "
    return left_out


def laid_out(
    rows: Sequence[Mapping[str, Any]],
    *,
    room: float,
    digits: int = 2,
    spare: Sequence[str | Sequence[str]] = (),
) -> tuple[list[list[str]], list[str]]:
    """The lines of a table no wider than `room`, in blocks with the first columns that tell rows
    apart where it does not fit without those of `spare`; and the columns that found no room.
    """
    by_key = {key: _column(key, [row[key] for row in rows], digits) for key in rows[0]}
    left_out: list[str] = []
    for names in spare:
        going = [each for each in ([names] if isinstance(names, str) else names) if each in by_key]
        if len(by_key) > len(going) and _least(by_key.values()) > room:
            left_out += going
            by_key = {name: column for name, column in by_key.items() if name not in going}
    columns = list(by_key.values())
    num = _num_keys(columns, room)
    blocks = [columns[:num]]
    for column in columns[num:]:
        if len(blocks[-1]) > num and _least([*blocks[-1], column]) > room:
            blocks.append(columns[:num])
        blocks[-1].append(column)
    return [list(_lines(block, room)) for block in blocks], left_out


def _num_keys(columns: Sequence[_Column], room: float) -> int:
    """Number of first columns that tell rows apart; 1 where they leave no room for another."""
    for num in range(1, len(columns)):
        texts = (accumulate(column.texts, _or_above) for column in columns[:num])
        cells = list(zip(*texts, strict=True))
        if _least(columns[:num]) + 2 + max(column.least for column in columns[num:]) > room:
            break
        if len(set(cells)) == len(cells):
            return num
    return 1


def _or_above(above: str, text: str) -> str:
    """An empty cell below a text reads as that text."""
    return text or above


class _Column(NamedTuple):
    """A column as texts for eyes; one of numbers is set to the right."""

    name: str
    texts: list[str]
    is_right: bool
    width: int
    least: int  # the least width, at which texts are cut into lines and numbers are whole


def _column(name: str, values: Sequence[Any], digits: int) -> _Column:
    name, texts = printable(name), [cell(value, digits) for value in values]
    has_number = any(isinstance(v, int | float) and not isinstance(v, bool) for v in values)
    is_right = has_number or is_numeric(texts)
    texts = [text.replace("\n", " ") for text in texts]
    least = width = max(map(cell_len, {name, *texts}))
    if not is_right and width > FOLDED_WIDTH:
        words = {word for text in (name, *texts) for word in text.split(" ")}
        lengths = (cell_len(part) for word in words for part in _parts(word, WHOLE_WORD))
        least = max([LEAST_WIDTH, *(length for length in lengths if length <= WHOLE_WORD)])
    return _Column(name, texts, is_right, width, least)


def _parts(word: str, width: float) -> list[str]:
    """A word, or where it is wider its parts, each with the marks behind it."""
    return _PART.findall(word) if cell_len(word) > width else [word]


def _broken(text: str, width: float) -> str:
    """A text with line ends behind the parts of the words that are wider."""
    words = []
    for word in text.split(" "):
        lines = [""]
        for part in _parts(word, width):
            if lines[-1] and cell_len(lines[-1] + part) > width:
                lines.append("")
            lines[-1] += part
        words.append("\n".join(lines))
    return " ".join(words)


def _least(columns: Collection[_Column]) -> int:
    """The width at which no number and no short cell is cut, columns two apart."""
    return sum(column.least + 2 for column in columns) - 2


def _lines(columns: Sequence[_Column], room: float) -> Iterator[str]:
    """Head and rows; what room is left goes to the columns that need the least first."""
    left, widths = max(0, room - _least(columns)), [column.least for column in columns]
    by_need = sorted(range(len(columns)), key=lambda i: columns[i].width - widths[i])
    for num, i in enumerate(by_need):
        more = min(columns[i].width - widths[i], left // (len(columns) - num))
        widths[i], left = widths[i] + int(more), left - more
    console = Console(width=PAGE_WIDTH)
    for texts in zip(*((column.name, *column.texts) for column in columns), strict=True):
        cells = [
            [text] if cell_len(text) <= width
            else [line.plain.rstrip() for line in Text(_broken(text, width)).wrap(console, width)]
            for text, width in zip(texts, widths, strict=True)
        ]  # fmt: skip
        for line in zip_longest(*cells, fillvalue=""):
            padded = []
            for text, width, column in zip(line, widths, columns, strict=True):
                space = " " * (width - cell_len(text))
                padded.append(space + text if column.is_right else text + space)
            yield "  ".join(padded).rstrip()


def print_note(text: str, *, file: TextIO | None = None) -> None:
    """A text as wide as the screen, or a page; lists are indented, and no path is broken."""
    say(_wrapped(printable(text)), file=file)


def _wrapped(text: str) -> str:
    wrapper = textwrap.TextWrapper(
        width=min(screen_width(), PAGE_WIDTH),
        subsequent_indent="  " if text.startswith("- ") else "",
        break_on_hyphens=False,
        break_long_words=False,
    )
    return "\n".join(map(wrapper.fill, text.split("\n")))


def screen_width() -> int:
    """Columns of the terminal, or of whatever else is printed to."""
    console = Console()
    return console.width if console.is_terminal or "COLUMNS" in os.environ else PAGE_WIDTH


def _is_infinite(value: Any) -> bool:
    return isinstance(value, float) and math.isinf(value)


def _jsonable(value: Any) -> Any:
    if hasattr(value, "item"):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if isinstance(value, (str, int, float, bool)) or value is None else str(value)
