"""The study file as a plain tree that knows where each value is from: YAML, preset, `--set`."""

from __future__ import annotations

import errno
import itertools
import json
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from clsweep.catalog.open_encoders import is_own
from clsweep.catalog.plugin_import import PluginError
from clsweep.catalog.plugins import Plugin, activate, opened_plugins, read_plugins, would_execute
from clsweep.errors import StudyError, first_line, listed, nearest
from clsweep.files import read_regular

Keys = tuple[str | int, ...]

# What a study can need, with room: a file beyond it is no study, and gets an answer at once.
MAX_BYTES = 2_000_000
MAX_MESSAGE = 4_000  # characters of a mistake, whatever was given
MAX_NODES = 200_000  # as written, and once aliases are expanded
PLAN = "plan.parquet"  # beside the study of a results folder
_MERGE = "tag:yaml.org,2002:merge"


@dataclass(frozen=True)
class Setting:
    """One `--set KEY=VALUE`, as messages call it; a value of None removes the key."""

    label: str
    keys: Keys
    value: Any


@dataclass
class Document:
    """A merged study file: `tree` holds the values, `places` where each path was written, and
    `settings` what `--set` laid over it.
    """

    source: str
    tree: dict[str, Any]
    places: dict[Keys, str] = field(default_factory=dict)
    plugins: tuple[Plugin, ...] = ()  # whose names and digests are the tree's `plugins`
    settings: list[Setting] = field(default_factory=list)
    is_trusted: bool = True  # else it is a results folder's, and nothing that it names is executed

    def place(self, keys: Keys) -> str:
        """`file:line` (or the `--set` text) of the value at `keys`, or of the nearest key above."""
        for length in range(len(keys), -1, -1):
            if keys[:length] in self.places:
                return self.places[keys[:length]]
        return self.source

    def error(self, keys: Keys, message: str) -> str:
        """One line for the user: place, dotted path, message."""
        path = dotted(keys)
        return f"{self.place(keys)}: {path + ': ' if path else ''}{message:.{MAX_MESSAGE}}"

    def dump(self) -> str:
        """The tree as YAML that reads back as the same tree."""
        return yaml.dump(self.tree, Dumper=_Dumper, sort_keys=False, allow_unicode=True)


class _Loader(yaml.SafeLoader):
    """YAML text -> plain values, noting the line of each. Numbers are as everywhere else: YAML 1.1
    takes `1e-3` for a text, `010` for eight and `1:30` for ninety. What is too large is refused
    while it is read, and a key that stands twice.
    """

    def __init__(self, text: str, document: Document):
        super().__init__(text)
        self.document, self._num_nodes, self._num_values = document, 0, 0

    def tree(self) -> Any:
        node = self.get_single_node()
        return None if node is None else self._build(node, ())

    def compose_node(self, parent: Any, index: Any) -> yaml.Node | None:
        self._num_nodes += 1
        if self._num_nodes > MAX_NODES:
            wrong = f"the file holds more than {MAX_NODES:,} values."
            raise self._wrong(self.peek_event(), wrong)
        return super().compose_node(parent, index)

    def _build(self, node: yaml.Node, keys: Keys) -> Any:
        self._num_values += 1
        if self._num_values > MAX_NODES:
            raise self._wrong(node, f"the file expands to more than {MAX_NODES:,} values.")
        self.document.places[keys] = self._place(node)
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, keys)
        if isinstance(node, yaml.SequenceNode):
            return [self._build(child, (*keys, i)) for i, child in enumerate(node.value)]
        try:
            return self.construct_object(node)
        except yaml.YAMLError:
            raise
        except Exception:  # PyYAML converts without looking: `2024-13-45`, `!!bool maybe`
            given = f"{node.value!r:.80} as {node.tag.rpartition(':')[2]}"
            raise self._wrong(node, f"not valid YAML: cannot read {given}.") from None

    def _mapping(self, node: yaml.MappingNode, keys: Keys) -> dict[str, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise self._wrong(key, "expected a plain word as key.")
            if key.value in seen:
                raise self._wrong(key, f"the key '{key.value}' stands twice in one mapping.")
            seen.add(key.value)
        tree: dict[str, Any] = {}
        # `<<: *anchor` first, so that the mapping's own keys override it, wherever it stands. Not
        # by PyYAML's flatten_mapping: it copies without bound, and changes a node that an alias
        # shows again.
        for key, child in sorted(node.value, key=lambda pair: pair[0].tag != _MERGE):
            if key.tag != _MERGE:
                tree[key.value] = self._build(child, (*keys, key.value))
                self.document.places[(*keys, key.value)] = self._place(key)
                continue
            sources = child.value if isinstance(child, yaml.SequenceNode) else [child]
            for source in reversed(sources):  # the first one wins
                merged = self._build(source, keys)
                if not isinstance(merged, dict):
                    expected = "'<<' expects a mapping or a list of them"
                    raise self._wrong(child, f"{expected}, given {merged!r:.80}.")
                tree.update(merged)
        self.document.places[keys] = self._place(node)
        return tree

    def _place(self, node: Any) -> str:
        return f"{self.document.source}:{node.start_mark.line + 1}"

    def _wrong(self, node: Any, message: str) -> StudyError:
        return StudyError(f"{self._place(node)}: {message}")


class _Dumper(yaml.SafeDumper):
    """Quotes texts that `_Loader` or another reader would take for numbers."""


_NUMBERS = {
    "tag:yaml.org,2002:int": re.compile(r"[-+]?(0|[1-9][0-9]*)$"),
    "tag:yaml.org,2002:float": re.compile(
        r"[-+]?([0-9]+\.[0-9]*|\.[0-9]+|[0-9]+(?=[eE]))([eE][-+]?[0-9]+)?$"
    ),
}
_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag not in _NUMBERS]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
for _tag, _pattern in _NUMBERS.items():
    _Loader.add_implicit_resolver(_tag, _pattern, list("-+.0123456789"))
    _Dumper.add_implicit_resolver(_tag, _pattern, list("-+.0123456789"))


def dotted(keys: Keys) -> str:
    """`('objectives', 'dcl', 'tau')` as `objectives.dcl.tau`."""
    return ".".join(f"{key!s:.80}" for key in keys)


def read_document(path: str | Path, *, preset: str | None = None, trust: bool = False) -> Document:
    """Read a study file, or a shipped study by its name; lay a preset over it, or several with
    commas between. That of a results folder is trusted where this is said.

    A preset's mappings are merged key by key, everything else replaces; `null` removes a key.

    Raises:
        StudyError: the file cannot be read or is no YAML mapping, a key stands twice, the preset is
            unknown, or removes what neither the file nor a preset before it has.
    """
    file = study_file(path)
    document = _parse(file)
    recorded = isinstance(document.tree.get("plugins"), dict) or (file.parent / PLAN).exists()
    document.is_trusted = trust or not recorded
    presets = document.tree.pop("presets", None) or {}
    if not isinstance(presets, dict):
        expected = f"expected a mapping of names to partial studies, given {presets!r:.80}"
        raise StudyError(document.error(("presets",), expected))
    for name, patch in presets.items():
        if not isinstance(patch, dict):
            expected = f"expected a partial study, a mapping, given {patch!r:.80}"
            raise StudyError(document.error(("presets", name), expected))
    for name in preset.split(",") if preset is not None else ():
        if name not in presets:
            known = f"Expected one of: {', '.join(presets)}."
            known = known if presets else "The study has no presets."
            unknown = f"no preset '{name}'.{nearest(name, presets)} {known}"
            raise StudyError(document.error(("presets",), unknown))
        written = document.places.keys()
        lines = [
            document.error(("presets", name, *keys), reason)
            for keys, reason in overlay(document, presets[name], origin=("presets", name))
            if keys not in written
        ]
        if lines:
            raise StudyError("\n".join(lines))
    return document


def preset_names(path: str | Path) -> list[str]:
    """The presets that a study file offers; empty if there are none."""
    file = study_file(path)
    presets = _parse(file).tree.get("presets") if file.is_file() else None
    return list(presets) if isinstance(presets, dict) else []


def _parse(path: Path) -> Document:
    try:
        data = read_regular(path, MAX_BYTES)
    except FileNotFoundError:
        siblings = [str(p) for p in path.parent.glob("*.yaml")] if path.parent.is_dir() else []
        meant = nearest(str(path), siblings) or nearest(path.stem, shipped_studies())
        raise StudyError(f"{path}: no such study file.{meant}") from None
    except IsADirectoryError:
        inside = ", ".join(sorted(p.name for p in path.glob("*.yaml"))[:5])
        given = f"given a folder.{f' It holds: {inside}.' if inside else ''}"
        raise StudyError(f"{path}: expected a study file, {given}") from None
    except OSError as error:
        reason = error.strerror or str(error)
        if error.errno == errno.EFBIG:
            reason += ". A range, {low, high}, needs no list of its values"
        raise StudyError(f"{path}: cannot be read: {reason}.") from None
    return parse_document(data, str(path))


def parse_document(data: bytes, source: str) -> Document:
    """A study file's bytes as a document; `source` is what messages call it.

    Raises:
        StudyError: it is no YAML mapping, or a key stands twice.
    """
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        raise StudyError(f"{source}: expected a YAML text in UTF-8, given binary data.") from None
    document = Document(source=source, tree={})
    try:
        tree = _Loader(text, document).tree()
    except yaml.MarkedYAMLError as error:
        line = f":{error.problem_mark.line + 1}" if error.problem_mark else ""
        problem = " ".join(part for part in (error.context, error.problem) if part)
        raise StudyError(f"{source}{line}: not valid YAML: {problem}.") from None
    except yaml.YAMLError as error:  # characters that YAML does not allow
        raise StudyError(f"{source}: not valid YAML: {first_line(error)}.") from None
    except RecursionError:
        raise StudyError(f"{source}: not valid YAML: nested too deeply.") from None
    if not isinstance(tree, dict):
        given = "an empty file" if tree is None else "a list" if isinstance(tree, list) else ""
        expected = "expected a mapping with the keys name, seeds, objectives, ..."
        raise StudyError(f"{source}: {expected}, given {given or repr(tree)[:80]}.")
    document.tree = tree
    return document


def overlay(document: Document, patch: dict[str, Any], *, origin: Keys) -> list[tuple[Keys, str]]:
    """Lay `patch`, written at the keys `origin`, over the tree, and take its places along. What it
    removes and is not there comes back, with the reason.
    """
    replaced: set[Keys] = set()
    missing = [*_lay(document.tree, patch, (), replaced)]
    # a value within a mapping that was set whole has its place
    moved = {there: document.place((*origin, *there)) for there in replaced}
    for keys, place in document.places.items():
        there = keys[len(origin) :]
        if keys[: len(origin)] == origin and any(
            there[:length] in replaced for length in range(1, len(there) + 1)
        ):
            moved[there] = place
    document.places |= moved
    return missing


def nothing_to_remove(key: object, target: Collection[str]) -> str:
    """Why a null removes nothing, and what it could remove."""
    hint = f"{nearest(str(key), target)} There: {listed([*target])}"
    return f"null removes a key, and none is there.{hint}"


def _lay(
    target: dict[str, Any], patch: dict[str, Any], at: Keys, replaced: set[Keys]
) -> Iterator[tuple[Keys, str]]:
    """Lay a mapping over the one at the keys `at`, see `overlay`; `replaced` collects what it
    replaces.
    """
    for key, value in patch.items():
        if value is None:
            if key not in target:
                yield (*at, key), nothing_to_remove(key, target)
            target.pop(key, None)
        elif isinstance(value, dict) and isinstance(target.get(key), dict):
            yield from _lay(target[key], value, (*at, key), replaced)
        else:
            target[key] = value
            replaced.add((*at, key))


def parse_value(text: str, label: str) -> Any:
    """One YAML value; `label` is what messages call it.

    Raises:
        YAMLError, RecursionError: it is none.
    """
    return _Loader(text, Document(label, {})).tree()


# The plug-ins of a study: read beside its file, or kept with its results.


PLUGINS_FILE = "plugins.json"  # in a results folder, beside study.yaml
MAX_PLUGIN_BYTES = 20_000_000


def load_plugins(document: Document) -> None:
    """Read the plug-ins that a study names and make them those of this process. Its tree then has
    their digests by name, as a results folder keeps them.

    Raises:
        StudyError: one of them is wrong: one line, with its file and line.
    """
    written = document.tree.get("plugins")
    try:
        if isinstance(written, dict):
            plugins = _recorded_plugins(document)
            require_same(plugins, written)
            plugins = opened_plugins(plugins)
        else:
            names = [] if written is None else [written] if isinstance(written, str) else written
            if not isinstance(names, list) or not all(isinstance(n, str) and n for n in names):
                expected = f"expected a list of files and packages, given {written!r:.80}"
                raise StudyError(document.error(("plugins",), expected))
            names = list(dict.fromkeys([*names, *_trainers(document).values()]))
            plugins = read_plugins(names, Path(document.source).parent)
        activate(plugins)
    except PluginError as error:
        lines = [document.error(("plugins",), line) for line in str(error).splitlines()]
        raise StudyError("\n".join(lines)) from None
    document.plugins = plugins
    document.tree.pop("plugins", None)
    if plugins:
        document.tree["plugins"] = digests(plugins)


def _trainers(document: Document) -> dict[str, str]:
    """The trainers that objectives name, each with its file or module."""
    objectives = document.tree.get("objectives")
    each = objectives.values() if isinstance(objectives, dict) else ()
    named = [str(o["trainer"]) for o in each if isinstance(o, dict) and o.get("trainer")]
    return {name: file for name in named if (file := name.rpartition(":")[0])}


def digests(plugins: Sequence[Plugin]) -> dict[str, str]:
    """The digest of each plug-in by name."""
    return {plugin.name: plugin.digest for plugin in plugins}


def require_same(plugins: Sequence[Plugin], recorded: object) -> None:
    """Refuse plug-ins that are not those of a recorded study.

    Raises:
        PluginError: they are not.
    """
    if digests(plugins) != recorded:
        raise PluginError(f"{PLUGINS_FILE} has other plug-ins than this study: {recorded!r:.200}")


def clash(first: Sequence[Plugin], second: Sequence[Plugin]) -> str:
    """First name with different meanings in two studies, a plug-in or a row of one; or empty."""
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
    written = document.tree.get("plugins")
    plugins = _recorded_plugins(document) if isinstance(written, dict) else ()
    others = written if isinstance(written, list) else [written] if written else []
    others = [] if isinstance(written, dict) else [*others, *_trainers(document).values()]
    named = [f"plug-ins {others!r:.200}"] if others else []
    words = re.split(r"[\s\[\]{},'\"]+", document.dump())
    encoders = sorted({word for word in words if is_own(word)} - _trainers(document).keys())
    refuse_untrusted([*named, *would_execute(plugins, encoders)], document.source)


def refuse_untrusted(named: Sequence[str], place: str) -> None:
    """Refuse to execute these files.

    Raises:
        StudyError: there are any.
    """
    if named:
        raise StudyError(
            f"{place}: a results folder may be anybody's, and this one would have executed: "
            f"{'; '.join(named)}. Where you trust it, give --trust; in Python, trust=True"
        )


def _recorded_plugins(document: Document) -> tuple[Plugin, ...]:
    """The plug-ins of a recorded study: those that were read with it, or lie beside it."""
    if document.plugins:
        return document.plugins
    try:
        return from_json(
            read_regular(Path(document.source).parent / PLUGINS_FILE, MAX_PLUGIN_BYTES)
        )
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise PluginError(f"{PLUGINS_FILE}: cannot be read: {reason}") from None


def to_json(plugins: Sequence[Plugin]) -> bytes:
    """The plug-ins as a results folder keeps them."""
    return json.dumps([plugin.packed() for plugin in plugins], indent=1).encode()


def from_json(data: bytes) -> tuple[Plugin, ...]:
    """The plug-ins that `to_json` wrote, sealed.

    Raises:
        ValueError: it did not.
    """
    packed = json.loads(data)
    if not isinstance(packed, list) or not all(isinstance(each, dict) for each in packed):
        raise ValueError("expected a list of plug-ins")
    return tuple(Plugin.unpacked(each).sealed() for each in packed)


# The studies that come with clsweep: found by name, `quickstart`, from any folder.


_PACKAGE = Path(__file__).parents[1]
# an installed package holds them, a checkout has them beside it
_FOLDERS = (_PACKAGE / "studies", _PACKAGE.parent / "studies")


EDITOR = "# yaml-language-server:"  # a line for an editor, at the head of a study


def shipped_studies() -> dict[str, Path]:
    """The file of each shipped study, by its name: the path without `.yaml`."""
    folder = next((folder for folder in _FOLDERS if folder.is_dir()), _PACKAGE)
    return {
        path.relative_to(folder).with_suffix("").as_posix(): path
        for path in sorted(folder.rglob("*.yaml"))
    }


def study_file(name: str | Path) -> Path:
    """The file that is meant: the user's own if it is there, else the shipped study so named."""
    path = Path(name)
    return path if path.exists() else shipped_studies().get(path.as_posix(), path)


def study_question(path: Path) -> str:
    """The question of a study: the first sentence of the comment at its head."""
    lines = path.read_text(encoding="utf-8").splitlines()
    lines = [line for line in lines if not line.startswith(EDITOR)]
    head = itertools.takewhile(lambda line: line.startswith("#"), lines)
    text = " ".join(line.lstrip("# ") for line in head)
    return re.split(r"(?<!Fig\.)(?<!Eq\.)(?<=[.?]) ", text, maxsplit=1)[0]
