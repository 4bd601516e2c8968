"""One entry of the catalog: `clsweep catalog tau`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from clsweep.catalog.ownership import aliases
from clsweep.catalog.rows import Row
from clsweep.errors import RequestError, nearest


def entry_tables(name: str, tables: Mapping[str, Sequence[Row]]) -> dict[str, list[Row]]:
    """The rows of this name in all tables, each as a table of what is known and its value; by
    title.

    Raises:
        RequestError: there is no such entry, and no table of that name.
    """
    entries = [(kind, _name(row), row) for kind, rows in tables.items() for row in rows]
    known, others = dict.fromkeys(each for _, each, _ in entries), aliases()
    meant = name if name in known else others.get(name.lower().replace("-", "_"), name)
    found = {kind: _facts(row) for kind, each, row in entries if each == meant}
    if not found:
        raise RequestError(
            f"catalog: unknown kind '{name:.80}'.{nearest(name, [*tables, *known], others)} "
            f"Expected: {', '.join(tables)}, or an entry of one of them"
        )
    return {f"{meant} ({kind})": rows for kind, rows in found.items()}


def entry_names(tables: Mapping[str, Sequence[Row]]) -> list[str]:
    """Everything that `clsweep catalog` can be asked for."""
    names = [_name(row) for rows in tables.values() for row in rows]
    return list(dict.fromkeys([*tables, *names]))


def _name(row: Row) -> str:
    return str(next(iter(row.values())))


def _facts(row: Row) -> list[dict[str, Any]]:
    facts = list(row.items())[1:]
    return [{"about": key, "value": value} for key, value in facts if value not in (None, "", ())]
