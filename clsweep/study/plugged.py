"""The plug-ins of a study: read beside its file, or kept with its results."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path

from clsweep.catalog.open_encoders import is_own
from clsweep.catalog.plugins import (
    Plugin,
    PluginError,
    activate,
    opened,
    read_plugins,
    would_execute,
)
from clsweep.errors import StudyError
from clsweep.files import read_regular
from clsweep.study.document import Document

KEPT = "plugins.json"  # in a results folder, beside study.yaml
MAX_KEPT = 20_000_000


def load_plugins(document: Document) -> None:
    """Read the plug-ins that a study names and make them those of this process. Its tree then has
    their digests by name, as a results folder keeps them.

    Raises:
        StudyError: one of them is wrong: one line, with its file and line.
    """
    asked = document.tree.get("plugins")
    try:
        if isinstance(asked, dict):
            found = _kept(document)
            require_same(found, asked)
            found = opened(found)
        else:
            names = [] if asked is None else [asked] if isinstance(asked, str) else asked
            if not isinstance(names, list) or not all(isinstance(n, str) and n for n in names):
                expected = f"expected a list of files and packages, given {asked!r:.80}"
                raise StudyError(document.error(("plugins",), expected))
            found = read_plugins(names, Path(document.source).parent)
        activate(found)
    except PluginError as error:
        lines = [document.error(("plugins",), line) for line in str(error).splitlines()]
        raise StudyError("\n".join(lines)) from None
    document.plugins = found
    document.tree.pop("plugins", None)
    if found:
        document.tree["plugins"] = digests(found)


def digests(plugins: Sequence[Plugin]) -> dict[str, str]:
    """The digest of each plug-in by name."""
    return {plugin.name: plugin.digest for plugin in plugins}


def require_same(plugins: Sequence[Plugin], recorded: object) -> None:
    """Refuse plug-ins that are not those of a recorded study.

    Raises:
        PluginError: they are not.
    """
    if digests(plugins) != recorded:
        raise PluginError(f"{KEPT} has other plug-ins than this study: {recorded!r:.200}")


def clash(first: Sequence[Plugin], second: Sequence[Plugin]) -> str:
    """What two studies mean different things by: a plug-in, or a row of one; empty if nothing."""
    versions = {plugin.name: plugin.digest for plugin in first}
    rows = {(type(row), row.name): plugin.digest for plugin in first for row in plugin.rows}
    for plugin in second:
        if versions.get(plugin.name, plugin.digest) != plugin.digest:
            return f"plug-in {plugin.name}"
        for row in plugin.rows:
            if rows.get((type(row), row.name), plugin.digest) != plugin.digest:
                return f"{type(row).__name__.lower()} {row.name} of plug-in {plugin.name}"
    return ""


def require_trusted(document: Document) -> None:
    """Refuse to execute what a results folder names.

    Raises:
        StudyError: its study has plug-ins or encoders `module:function`, and nobody trusts it.
    """
    if document.is_trusted:
        return
    asked = document.tree.get("plugins")
    plugins = _kept(document) if isinstance(asked, dict) else ()
    named = [f"plug-ins {asked!r:.200}"] if asked and not isinstance(asked, dict) else []
    words = re.split(r"[\s\[\]{},'\"]+", document.dump())
    encoders = sorted({word for word in words if is_own(word)})
    refuse([*named, *would_execute(plugins, encoders)], document.source)


def refuse(named: Sequence[str], place: str) -> None:
    """Refuse to execute these files.

    Raises:
        StudyError: there are any.
    """
    if named:
        raise StudyError(
            f"{place}: a results folder may be anybody's, and this one would have executed: "
            f"{'; '.join(named)}. Where you trust it, give --trust; in Python, trust=True"
        )


def _kept(document: Document) -> tuple[Plugin, ...]:
    """The plug-ins of a recorded study: those that were read with it, or lie beside it."""
    if document.plugins:
        return document.plugins
    try:
        return from_json(read_regular(Path(document.source).parent / KEPT, MAX_KEPT))
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise PluginError(f"{KEPT}: cannot be read: {reason}") from None


def to_json(plugins: Sequence[Plugin]) -> bytes:
    """The plug-ins as a results folder keeps them."""
    return json.dumps([plugin.packed() for plugin in plugins], indent=1).encode()


def from_json(data: bytes) -> tuple[Plugin, ...]:
    """What `to_json` wrote, sealed.

    Raises:
        ValueError: it did not.
    """
    found = json.loads(data)
    if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
        raise ValueError("expected a list of plug-ins")
    return tuple(Plugin.unpacked(each).sealed() for each in found)
