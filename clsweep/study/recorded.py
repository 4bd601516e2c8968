"""A study as its results folder keeps it, checked before anything is read off it.

Checked is its shape: the data set and the components of a study may be missing where its results
are only read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from clsweep.catalog import PARAM
from clsweep.catalog.plugins import Plugin, PluginError, declare
from clsweep.errors import StudyError
from clsweep.study.document import Document, Keys, parse_document
from clsweep.study.plugged import require_same
from clsweep.study.schema import parse_sections
from clsweep.study.space import parse_dimension


def recorded_study(
    data: bytes, source: str, plugins: Callable[[], tuple[Plugin, ...]] = tuple
) -> Document:
    """The `study.yaml` of a results folder. `plugins` reads those that the folder keeps; nothing of
    them is executed.

    Raises:
        StudyError: it is not what clsweep wrote: one line per mistake, as of a study file.
    """
    document = parse_document(data, source)
    document.is_trusted = False
    if document.tree.get("plugins"):
        document.plugins = plugins()
        try:
            require_same(document.plugins, document.tree["plugins"])
            declare(document.plugins)
        except PluginError as error:
            raise StudyError(document.error(("plugins",), str(error))) from None
    parse_sections(document)
    errors = [
        document.error(keys, f"expected a printable name, given {keys[1]!r:.80}")
        for keys in (("objectives", name) for name in document.tree["objectives"])
        if not keys[1].isprintable()
    ]
    errors += [
        document.error((*keys, name), message)
        for keys, space in _spaces(document.tree)
        for name, raw in space.items()
        if (message := _mistake(name, raw))
    ]
    if errors:
        raise StudyError("\n".join(errors))
    return document


def _spaces(tree: Mapping[str, Any]) -> list[tuple[Keys, Mapping[str, Any]]]:
    own = [
        (("objectives", name, "space"), section.get("space", {}))
        for name, section in tree["objectives"].items()
    ]
    return [(("space",), tree.get("space", {})), *own]


def _mistake(name: str, raw: object) -> str:
    if name not in PARAM:  # of a catalog that is not installed here
        return "" if isinstance(raw, Mapping) else f"expected a mapping, given {raw!r:.80}"
    try:
        parse_dimension(PARAM[name], raw)
    except ValueError as error:
        return str(error)
    return ""
