"""Tables as notebooks show them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from clsweep.display.text import cell, printable


def html_table(title: str, rows: Sequence[Mapping[str, Any]], note: str = "") -> str:
    """A heading, a table with a row for each mapping, and a line below; all texts are escaped."""

    def line(tag: str, values: Sequence[Any]) -> str:
        return "<tr>" + "".join(f"<{tag}>{_text(value)}</{tag}>" for value in values) + "</tr>"

    columns = list(dict.fromkeys(name for row in rows for name in row))
    body = "".join(line("td", [row.get(name) for name in columns]) for row in rows)
    table = f"<table><thead>{line('th', columns)}</thead><tbody>{body}</tbody></table>"
    below = f"<p>{_text(note)}</p>" if note else ""
    return f"<div><p><b>{_text(title)}</b></p>{table}{below}</div>"


def _text(value: Any) -> str:
    return escape(printable(cell(value)))
