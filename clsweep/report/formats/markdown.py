"""The report as Markdown, for a pull request or a notebook: the same sentences and tables, the
figures as links.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

import pandas as pd

from clsweep.display.cells import cells_of
from clsweep.display.text import markdown, markdown_table
from clsweep.questions.model import Figure, Table
from clsweep.report.model import Report, Section, check

MAX_ROWS = 200  # of one table; all are in its files

_WITHIN_BRACKETS = re.compile(r"(?<!\w)_|_(?!\w)|[\[\]]")  # no other bracket may be open there
# What would make a heading, a list or a quotation of a line.
_START = re.compile(r"^(?:[#+=>[-]|\d+(?=[.)](?:\s|$)))")


def render_markdown(report: Report) -> str:
    """The report as GitHub-flavoured Markdown. All texts are escaped: what looks like markup is
    shown as it is.

    Raises:
        ValueError: a name of a section, table or figure is unfit or stands twice.
    """
    check(report)
    return "\n\n".join(_blocks(report)) + "\n"


def _blocks(report: Report) -> Iterator[str]:
    yield f"# {text(report.title)}"
    if report.question:
        yield text(report.question)
    if report.verdicts:
        yield "## Answer"
        yield _list(report.verdicts)
    for note in report.notes:
        yield f"> {text(note)}"
    if report.board:
        yield from _table(report.board)
    for figure in report.hero:
        yield from _figure(figure)
    if report.steps:
        commands = [f": {text(step.command)}" if step.command else "." for step in report.steps]
        steps = zip(report.steps, commands, strict=True)
        yield "\n".join(f"- {text(step.sentence)}{command}" for step, command in steps)
    if report.open:
        yield "## Not resolved"
        yield _list(report.open)
    for section in report.sections:
        yield from _section(section)
    if report.terms:
        yield "## Terms"
        yield _named(report.terms)
    if report.facts:
        yield "## This report"
        yield _named(report.facts)


def _section(section: Section) -> Iterator[str]:
    yield f"## {text(section.title)}"
    if section.sentences:
        yield _list(section.sentences)
    for note in section.notes:
        yield f"> {text(note)}"
    for figure in section.figures:
        yield from _figure(figure)
    for table in section.tables:
        yield from _table(table)


def _figure(figure: Figure) -> Iterator[str]:
    yield f"![{markdown(figure.title, _WITHIN_BRACKETS)}](figures/{figure.name}.svg)"
    yield f"**{text(figure.title)}** {text(figure.caption)} ([numbers](figures/{figure.name}.csv))"


def _table(table: Table) -> Iterator[str]:
    link = f"([all columns](tables/{table.name}.csv))"
    yield " ".join(filter(None, (f"**{text(table.title)}**", text(table.caption), link)))
    if table.shown.empty:
        yield "No rows."
        return
    yield lines_of(table.shown)
    left = len(table.shown) - min(table.limit, MAX_ROWS) + table.more
    if left > 0:
        yield f"{left} more in [tables/{table.name}.csv](tables/{table.name}.csv)."


def lines_of(frame: pd.DataFrame) -> str:
    """The first rows of a frame as a Markdown table, numbers to the right."""
    cells = cells_of(frame, limit=MAX_ROWS)
    return markdown_table(cells.columns, cells.rows, cells.is_numeric)


def text(words: str) -> str:
    """One line of plain text, escaped."""
    return _START.sub(
        lambda start: f"{start[0]}\\" if start[0].isdigit() else f"\\{start[0]}", markdown(words)
    )


def _named(parts: Mapping[str, str]) -> str:
    return "\n".join(f"- {text(name)}: {text(value)}" for name, value in parts.items())


def _list(sentences: tuple[str, ...]) -> str:
    return "\n".join(f"- {text(sentence)}" for sentence in sentences)
