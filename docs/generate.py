"""The reference pages, from what the code itself knows: catalog, commands, statistics."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import typer

from clsweep.cli.main import app
from clsweep.cli.plan import catalog_tables
from clsweep.display.printing import cell, markdown_table
from clsweep.statistics.registry import formulas


def write(folder: Path) -> None:
    """Write every reference page."""
    folder.mkdir(exist_ok=True)
    for name, text in pages().items():
        (folder / f"{name}.md").write_text(text, encoding="utf-8")


def pages() -> dict[str, str]:
    """The pages by name, as Markdown."""
    return {"catalog": catalog_page(), "commands": commands_page(), "columns": columns_page()}


def catalog_page() -> str:
    """All that `clsweep catalog` prints."""
    parts = ["# Catalog", "What `clsweep catalog` prints."]
    for title, rows in catalog_tables(None).items():
        parts += [f"## {title.capitalize()}", _table(list(rows[0]), [row.values() for row in rows])]
    return _page(parts)


def commands_page() -> str:
    """The help of every command."""
    group = typer.main.get_command(app)
    parts = ["# Commands", "Each command has `--help`; what it says stands here."]
    for name, command in sorted(group.commands.items()):
        context = typer.Context(command, info_name=f"clsweep {name}")
        parts += [f"## clsweep {name}", f"```text\n{command.get_help(context).rstrip()}\n```"]
    return _page(parts)


def columns_page() -> str:
    """The formula of each column of the statistics."""
    files = "Those of the files in a results folder stand on [their page](../results.md#columns)."
    parts = ["# Columns", f"The columns of the statistics. {files}"]
    for name, columns in formulas().items():
        table = _table(["column", "formula"], columns.items())
        parts += [f"## {name.capitalize()}", table]
    return _page(parts)


def _table(columns: Sequence[str], rows: Iterable[Iterable[Any]]) -> str:
    texts = [[cell(value) for value in row] for row in rows]
    return markdown_table(columns, texts, [False] * len(columns))


def _page(parts: Sequence[str]) -> str:
    return "\n\n".join(parts) + "\n"
