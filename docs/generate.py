"""The reference pages, from what the code itself knows: catalog, commands, columns of tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import typer

from clsweep.catalog import PARAM
from clsweep.cli.main import app
from clsweep.cli.plan import catalog_tables
from clsweep.display.text import cell, markdown_table
from clsweep.results import schemas
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
    """The columns of the Parquet files, and the formula of each column of the statistics."""
    params = schemas.param_fields(PARAM)
    tables = {
        "trials.parquet": schemas.trials_schema(params),
        "epochs.parquet": schemas.side_schema("epochs"),
        "references.parquet": schemas.references_schema(),
        **{f"{n}.parquet": schemas.side_schema(n) for n in ("histograms", "points", "hits")},
    }
    parts = ["# Columns", "## Files of a results folder"]
    for name, schema in tables.items():
        parts += [f"### {name}", _table(["column", "type", "what"], map(_field, schema))]
    parts.append("## Statistics")
    for name, columns in formulas().items():
        parts += [f"### {name.capitalize()}", _formulas(columns)]
    return _page(parts)


def _field(field: pa.Field) -> tuple[str, str, str]:
    about = field.metadata or {}
    return field.name, str(field.type), about.get(b"doc", b"").decode()


def _formulas(columns: Mapping[str, str]) -> str:
    return _table(["column", "formula"], columns.items())


def _table(columns: Sequence[str], rows: Iterable[Iterable[Any]]) -> str:
    texts = [[cell(value) for value in row] for row in rows]
    return markdown_table(columns, texts, [False] * len(columns))


def _page(parts: Sequence[str]) -> str:
    return "\n\n".join(parts) + "\n"
