"""Text for a terminal, a page and Markdown: nothing in it is an order or markup there."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from typing import Any, TextIO

from clsweep.display.numbers import fixed

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
