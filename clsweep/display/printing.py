"""All that is printed for eyes: text that is no order or markup where it is shown, tables in five
formats, notes and what to type next, and the standard streams that take it.
"""

from __future__ import annotations

import contextlib
import csv
import io
import json
import math
import os
import re
import sys
import textwrap
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from functools import partial
from itertools import accumulate, zip_longest
from typing import Any, NamedTuple, TextIO

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from clsweep.display.numbers import fixed
from clsweep.errors import RequestError

# Control characters and halves of pairs: no XML may hold them, no terminal shows them.
_UNSEEN = "\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff"
# What XML 1.0 forbids, and so HTML and an SVG; tabs and C1 controls it allows.
_ILLEGIBLE = re.compile(f"[{_UNSEEN}\ufffe\uffff]")
# What a terminal obeys instead of showing it, marks that turn the direction of a text among it, and
# what cannot be encoded; lines may break.
_TURNING = "\u200e\u200f\u202a-\u202e\u2066-\u2069"
_CONTROLS = re.compile(f"[{_UNSEEN}\t\r\x7f-\x9f\u2028\u2029{_TURNING}]")

# What a spreadsheet reads as a formula, unless it is a number; a dash alone is none.
_FORMULA = re.compile(r"[=+\-@\t\r\n].", re.DOTALL)
MOST_SHOWN = 2_000  # characters of one cell for eyes, whoever wrote them

# Markdown in which text stays text.
MD_ESCAPES = str.maketrans({mark: f"\\{mark}" for mark in "\\|<`*&~$"})
# An emphasis or a link; batch_size and [0.40, 0.55] are none.
_MD_EDGE = re.compile(r"(?<!\w)_|_(?!\w)|](?=[(\[:])")

_GREEK = (
    "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi mathrm{o} pi "
    "rho varsigma sigma tau upsilon phi chi psi omega"
)
# LaTeX in which text stays text, with the letters and signs of our own headings.
LATEX_ESCAPES = str.maketrans(
    {mark: f"\\{mark}" for mark in "&%$#_{}"}
    | {mark: f"\\text{name}{{}}" for mark, name in {
        "\\": "backslash", "~": "asciitilde", "^": "asciicircum", "<": "less", ">": "greater",
        "|": "bar", "`": "asciigrave", '"': "quotedbl",
    }.items()}
    | {chr(0x3B1 + i): f"$\\{name}$" for i, name in enumerate(_GREEK.split(" "))}
    | {"−": "$-$", "×": "$\\times$", "≥": "$\\geq$", "≤": "$\\leq$", "±": "$\\pm$"}
)  # fmt: skip
_MINUS = re.compile(r"(?<![\w.)-])-(?=[\d.])")  # of a number, not of an exponent or a range

# What a column of numbers may hold besides: "0.48 [0.40, 0.55]", "1.2e-05", "0.05..0.08", "12 %",
# "< 0.001".
_FIGURES = re.compile(
    r"(?=.*\d)(?:[-−+<>≤≥~≈±=.,:;%×()\[\]\s\d–…]|(?<=\d)e(?=[-+]?\d)|\binf\b)*|-?inf|n/a|[-–—]",
    re.IGNORECASE,
)


def legible(text: str) -> str:
    """Text with U+FFFD in the place of every character that XML forbids."""
    return _ILLEGIBLE.sub("\ufffd", text)


def printable(text: str) -> str:
    """Text whose control characters are seen: a terminal shows `\\x1b`, and obeys nothing."""
    return _CONTROLS.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def json_text(text: str) -> str:
    """JSON in which the control characters that it may hold as they are stand as escapes."""
    return _CONTROLS.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def say(text: str = "", *, file: TextIO | None = None) -> None:
    """Print a text for eyes, at once; whatever is in it, nothing of it is an order."""
    print(printable(text), file=file, flush=True)


def shortened(text: str, most: int = MOST_SHOWN) -> str:
    """The beginning of a text, and how much more there is."""
    more = len(text) - most
    return f"{text[:most]} ... ({more:,} more characters)" if more > 0 else text


def spreadsheet(value: Any) -> Any:
    """A value of a CSV file: no text is a formula, or holds a control character."""
    if not isinstance(value, str):
        return value
    text = printable(value)
    if _FORMULA.match(value):
        try:
            float(value)
        except ValueError:
            return f"'{text}"
    return text


def cell(value: Any, digits: int = 2) -> str:
    """One value for eyes: no trailing noise, nothing for what does not exist, and no order."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    return fixed(value, digits) if isinstance(value, float) else printable(shortened(str(value)))


def is_numeric(texts: Iterable[str]) -> bool:
    """True if a column holds only numbers, so that it is set to the right."""
    filled = [text for text in texts if text]
    return bool(filled) and all(_FIGURES.fullmatch(text) for text in filled)


def markdown(text: str, marks: re.Pattern[str] = _MD_EDGE) -> str:
    """One line of Markdown in which `text` stays text; `marks` match what is escaped in its place
    only.
    """
    return marks.sub(r"\\\g<0>", legible(" ".join(text.split())).translate(MD_ESCAPES))


def markdown_table(
    columns: Sequence[str], rows: Iterable[Sequence[str]], is_right: Sequence[bool]
) -> str:
    """A Markdown table; `is_right` says of every column whether it is set to the right."""
    rule = ["---:" if right else "---" for right in is_right]
    head, *lines = [[markdown(text) for text in row] for row in (columns, *rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in (head, rule, *lines))


def latex(text: str) -> str:
    """One line of LaTeX in which `text` stays text; behind the end of a row its first mark is no
    option.
    """
    line = legible(" ".join(text.split())).translate(LATEX_ESCAPES).replace("--", "-{}-")
    return f"{{{line[0]}}}{line[1:]}" if line.startswith(("[", "*")) else line


def latex_table(
    columns: Sequence[str], rows: Iterable[Sequence[str]], is_right: Sequence[bool], title: str = ""
) -> str:
    """A LaTeX table with the rules of booktabs; its columns as in `markdown_table`."""
    texts = [
        [
            _MINUS.sub("−", text) if right else text
            for text, right in zip(row, is_right, strict=True)
        ]
        for row in rows
    ]
    head, *lines = [" & ".join(map(latex, row)) + r" \\" for row in (columns, *texts)]
    return "\n".join(
        [
            r"\begin{table}  % \usepackage{booktabs}",
            r"\centering",
            *([rf"\caption{{{latex(title)}}}"] if title else []),
            rf"\begin{{tabular}}{{{''.join('r' if right else 'l' for right in is_right)}}}",
            *(r"\toprule", head, r"\midrule", *lines, r"\bottomrule"),
            *(r"\end{tabular}", r"\end{table}"),
        ]
    )


# Tables

# A column of texts that is wider may be folded, but to no less than LEAST_WIDTH, and no word or
# number of up to WHOLE_WORD characters is broken. A longer one, as a name is, breaks behind a mark.
FOLDED_WIDTH, LEAST_WIDTH, WHOLE_WORD = 20, 16, 40
# Columns of a sentence at most; and of tables, where neither a terminal nor COLUMNS says how wide.
PAGE_WIDTH = 80
_PART = re.compile(r"[^/_-]*[/_-]+|[^/_-]+")


class Format(StrEnum):
    """The format of a command's tables: for eyes, a page, a paper, a spreadsheet, a program."""

    table = "table"
    md = "md"
    latex = "latex"
    csv = "csv"
    json = "json"

    @property
    def is_exact(self) -> bool:
        """True for programs, which get every column and digit."""
        return self in (Format.csv, Format.json)


def print_tables(tables: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
    """One JSON object of several tables, by their names."""
    print_json({name: _records(rows) for name, rows in tables.items()})


def print_json(value: object) -> None:
    print(json_text(json.dumps(value, indent=2, ensure_ascii=False)))


def _records(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [{key: _jsonable(value) for key, value in row.items()} for row in rows]


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
        print_json(_records(rows))
        return []
    keys = list(rows[0]) if rows else list(columns or ())
    if format is Format.csv:
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow([spreadsheet(str(name)) for name in keys])
        for row in rows:
            values = [_plain(row[key]) for key in keys]
            writer.writerow(["" if value is None else spreadsheet(value) for value in values])
        return []
    if format is not Format.table and keys:
        shown = [_column(key, [row[key] for row in rows], digits) for key in keys]
        names, is_right = [column.name for column in shown], [c.is_right for c in shown]
        texts = zip(*(c.texts for c in shown), strict=True)
        made = markdown_table if format is Format.md else partial(latex_table, title=title)
        print(made(names, texts, is_right))
        return []
    if not rows:
        print("no rows")
        return []
    room = math.inf if wide else screen_width()
    blocks, left_out = laid_out(rows, digits=digits, spare=spare, room=room)
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
        # An empty cell below a text reads as that text.
        shown: list[Iterable[str]] = [
            accumulate(c.texts, lambda above, text: text or above) for c in columns[:num]
        ]
        cells = list(zip(*shown, strict=True))
        if _least(columns[:num]) + 2 + max(column.least for column in columns[num:]) > room:
            break
        if len(set(cells)) == len(cells):
            return num
    return 1


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


def _plain(value: Any) -> Any:
    """A cell for programs; None where there is none."""
    if hasattr(value, "item"):
        value = value.item()
    if isinstance(value, float) and math.isnan(value):
        return None
    return value if isinstance(value, (str, int, float, bool)) or value is None else str(value)


def _jsonable(value: Any) -> Any:
    """A cell of JSON, which has no infinity: a text that Python, pandas and JavaScript read so."""
    value = _plain(value)
    if isinstance(value, float) and math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return value


def print_hints(
    left_out: Sequence[str], meanings: Sequence[str], *, explain: bool, command: str = ""
) -> None:
    """Under a table: what its columns are, and which options say more. `command` has these options,
    where that is another one than was typed.
    """
    if explain:
        say()
        for line in meanings:
            print_note(line)
    more = [f"--wide adds {', '.join(left_out)}"] if left_out else []
    more += [] if explain else ["--explain says what the columns are"]
    if more:
        print_note(f"({' '.join([command, '; '.join(more)]).strip()})")


def print_next(command: str) -> None:
    """The last line: what to type next, never broken; nothing where nothing is to be done."""
    if command:
        say(f"Next: {command}")


# The standard streams of a command: who reads them may leave, a disk may be full, an encoding may
# lack a letter, and they may not be there at all.


class _Stream(io.FileIO):
    """A standard stream that fails once: from then on it takes all and shows nothing."""

    failure = ""

    def __init__(self, descriptor: int, *, patient: bool) -> None:
        super().__init__(descriptor, "w", closefd=False)
        self._patient = patient

    def write(self, data: object) -> int:
        try:
            return super().write(data)  # type: ignore[arg-type]
        except OSError as error:
            with open(os.devnull, "wb") as nowhere:
                os.dup2(nowhere.fileno(), self.fileno())
            if not isinstance(error, BrokenPipeError):
                self.failure = f"standard output cannot be written: {error.strerror}"
            if not self._patient:  # else `clsweep trials DIR | head`
                raise RequestError(self.failure) if self.failure else SystemExit(0) from None
        return super().write(data)  # type: ignore[arg-type]


@contextlib.contextmanager
def robust_streams(*, patient: bool) -> Iterator[None]:
    """Standard streams that end no command with a traceback; others, as a notebook's, stay. Where
    the reader has left, it ends with 0; `patient`: it goes on, as no trial is lost with a pager.

    Raises:
        RequestError: the output could not be written.
    """
    for descriptor in range(3):  # else the next file that is opened would be standard output
        try:
            os.fstat(descriptor)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
    out = None
    for descriptor, name in ((2, "stderr"), (1, "stdout")):
        if (old := getattr(sys, name)) is getattr(sys, f"__{name}__"):
            out = _Stream(descriptor, patient=patient or name == "stderr")
            usual = {"encoding": "utf-8", "line_buffering": True, "write_through": False}
            how: dict[str, Any] = {k: getattr(old, k, value) for k, value in usual.items()}
            setattr(sys, name, io.TextIOWrapper(io.BufferedWriter(out), errors="replace", **how))
    try:
        yield
    finally:
        sys.stdout.flush()
        if out and out.failure:
            raise RequestError(out.failure)
