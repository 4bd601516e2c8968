"""Plug-ins: rows of the catalog, and functions behind them, from a user's file or package.

A plug-in is a module with a list `ROWS`. A row's `impl` names a function of the same module. Its
user's file or package is imported as it is read. To other processes its text travels, and each of
them makes the module of it. What a results folder has is sealed: none of it is executed.
"""

from __future__ import annotations

import ast
import contextlib
import hashlib
import importlib
import itertools
import os
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from importlib import metadata
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

from clsweep.catalog import COMPONENT, install, mismatch
from clsweep.catalog.rows import (
    SEALED,
    CatalogRow,
    Component,
    Dataset,
    Diagnostic,
    Metric,
    Param,
)
from clsweep.errors import UserError
from clsweep.files import read_regular

MAX_BYTES = 256_000  # of a plug-in's text, which goes to every process of a study
GROUP = "clsweep"  # of the entry points of installed packages
KINDS: dict[str, type] = {
    kind.__name__: kind for kind in (Param, Component, Dataset, Metric, Diagnostic)
}
_PREFIX = "clsweep_plugin_"


class PluginError(UserError):
    """A plug-in is wrong: one line with its file and line."""


@dataclass(frozen=True, kw_only=True)
class Plugin:
    """One plug-in, as it travels with its study.

    Attributes:
        name: of the file or package, `my_losses.py`.
        module: which its functions are imported from.
        text: of the module.
        digest: tells versions apart; of a package with its version.
        is_package: it is imported where it is installed; else `text` is what is executed.
        is_sealed: a results folder has it, which may be anybody's: its rows name no function.
        file: of a package, `my_package/losses.py`, as messages name it.
        rows: what it adds to the catalog, with `impl` as module:function.
    """

    name: str
    module: str
    text: str = field(repr=False)
    digest: str
    is_package: bool = False
    is_sealed: bool = False
    file: str = ""
    rows: tuple[CatalogRow, ...] = field(repr=False)

    def packed(self) -> dict[str, Any]:
        """As plain values, for JSON and for the way to other processes."""
        rows = [{"row": type(row).__name__, **asdict(row)} for row in self.rows]
        kept = ("name", "module", "text", "digest", "is_package", "file")
        return {name: getattr(self, name) for name in kept} | {"rows": rows}

    @classmethod
    def unpacked(cls, packed: Mapping[str, Any]) -> Plugin:
        """From what `packed` gave, or somebody wrote. Nothing is executed.

        Raises:
            ValueError: it is not what `packed` gives.
        """
        try:
            rows = tuple(_row(KINDS[row["row"]], row) for row in packed["rows"])
            name, module, text, digest, file = _typed(
                list[str], [packed.get(key) for key in ("name", "module", "text", "digest", "file")]
            )
        except (TypeError, KeyError) as error:
            raise ValueError(f"not a recorded plug-in: {str(error).splitlines()[0]}") from None
        is_package = bool(packed.get("is_package"))
        if not is_package:
            if digest != _digest(text):
                raise ValueError(f"{name}: its text is not of its digest")
            module = _module_of(name, digest)
        return cls(
            name=name, module=module, text=text, digest=digest, is_package=is_package, file=file,
            rows=rows,
        )  # fmt: skip

    def sealed(self) -> Plugin:
        """The same as a results folder has it: to read tables by its rows, and no more."""
        rows = []
        for row in self.rows:
            named = [key for key in ("impl", "arrays", "files") if getattr(row, key, "")]
            kept: dict[str, Any] = dict.fromkeys(named, f"{SEALED}:{self.name}")
            if getattr(row, "pattern", ""):
                kept["pattern"] = "(?s:.*)"  # some regular expressions never end
            rows.append(replace(row, **kept))
        return replace(self, rows=tuple(rows), is_sealed=True)


def _row(kind: type, values: Mapping[str, Any]) -> CatalogRow:
    """A row of checked types; lists become tuples."""
    known = {each.name: values[each.name] for each in fields(kind) if each.name in values}
    row: CatalogRow = _typed(kind, known)
    return row


def _typed(kind: Any, values: Any) -> Any:
    """These values as `kind` has them.

    Raises:
        TypeError: one is of another type.
    """
    from pydantic import TypeAdapter, ValidationError  # training alone needs none

    try:
        return TypeAdapter(kind).validate_python(values)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise TypeError(f"{place}: {first['msg']}, given {first['input']!r:.60}") from None


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


# Reading.


def read_plugins(names: Sequence[str], folder: Path) -> tuple[Plugin, ...]:
    """The plug-ins that a study names: files, relative to its folder, and packages.

    Raises:
        PluginError: one of them cannot be read, or is none.
    """
    found = [
        _of_text(_text(folder / name, name), Path(name).name)
        if name.endswith(".py")
        else _read_package(name)
        for name in names
    ]
    for i, plugin in enumerate(found):
        if plugin.name in [each.name for each in found[:i]]:
            raise PluginError(f"{names[i]}: two plug-ins of this name; rename one of them")
    return tuple(found)


def _of_text(text: str, name: str) -> Plugin:
    digest = _digest(text)
    module = _module_of(name, digest)
    lines = _lines(text, name)
    if module not in sys.modules:  # else this process has made it
        sys.modules[module] = ModuleType(module)  # as Python does: dataclasses look for it
        try:
            with _errors_of(name):
                exec(compile(text, name, "exec"), sys.modules[module].__dict__)
        except BaseException:
            del sys.modules[module]
            raise
    rows = _rows_of(module, name, lines)
    return Plugin(name=name, module=module, text=text, digest=digest, rows=rows)


def _module_of(file: str, digest: str) -> str:
    """A module for each version, so that those of two studies do not meet."""
    return f"{_PREFIX}{file.removesuffix('.py')}_{digest}"


def _text(path: Path, name: str) -> str:
    """A file's text; neither a pipe nor a device is waited for."""
    try:
        data = read_regular(path, MAX_BYTES)
    except OSError as error:
        siblings = sorted(each.name for each in path.parent.glob("*.py"))[:5]
        hint = f" Beside the study: {', '.join(siblings)}." if siblings else ""
        reason = (error.strerror or str(error)).lower()
        raise PluginError(f"{name}: this plug-in cannot be read: {reason}.{hint}") from None
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise PluginError(f"{name}: expected a Python text in UTF-8, given binary data") from None


def _read_package(name: str, expected: str = "") -> Plugin:
    """A package that is installed, of this digest where one is expected."""
    points = {point.name: point.value for point in metadata.entry_points(group=GROUP)}
    module = points.get(name, name).partition(":")[0]
    spec = _spec(module)
    if spec is None or not spec.origin or not spec.origin.endswith(".py"):
        known = f"; installed: {', '.join(sorted(points))}" if points else ""
        raise PluginError(
            f"{name}: expected a file NAME.py or an installed package, found neither{known}"
        )
    origin = Path(spec.origin)
    # the whole source of a package, or of a module that is no package
    files = sorted(origin.parent.rglob("*.py")) if origin.name == "__init__.py" else [origin]
    source = "\n".join(f"{f.relative_to(origin.parent)}\n{_text(f, str(f))}" for f in files)
    installed = metadata.packages_distributions().get(module.partition(".")[0], [])
    version = metadata.version(installed[0]) if installed else "0"
    digest = f"{version} {_digest(source)}"
    if expected and digest != expected:
        raise PluginError(f"{name}: planned with version {expected}, found {digest} here")
    text = _text(origin, name)
    tail = ".py" if spec.submodule_search_locations is None else "/__init__.py"
    file = module.replace(".", "/") + tail
    lines = _lines(text, file)
    with _errors_of(file, _folders([module])):
        importlib.import_module(module)
    return Plugin(
        name=name, module=module, text=text, digest=digest, is_package=True, file=file,
        rows=_rows_of(module, file, lines),
    )  # fmt: skip


def _spec(module: str) -> ModuleSpec | None:
    """Where a module is. Nothing is executed: `importlib.util.find_spec` would import the packages
    that it lies in.
    """
    spec: ModuleSpec | None = None
    for name in itertools.accumulate(module.split("."), "{}.{}".format):
        path = None if spec is None else spec.submodule_search_locations
        if spec is not None and path is None:
            return None
        finders = (getattr(finder, "find_spec", None) for finder in sys.meta_path)
        try:
            spec = next(filter(None, (find(name, path) for find in finders if find)), None)
        except (ImportError, ValueError):
            return None
        if spec is None:
            return None
    return spec


# The rows of a module.


def _lines(text: str, name: str) -> dict[tuple[str, str], int]:
    """Where each row is written, by its kind and name, and each name of a module, by "" and it."""
    try:
        tree = ast.parse(text, filename=name)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line = getattr(error, "lineno", None) or 1
        reason = getattr(error, "msg", None) or str(error)
        raise PluginError(f"{name}:{line}: not valid Python: {reason}") from None
    found: dict[tuple[str, str], int] = {}
    for node in ast.walk(tree):  # from the outermost inwards
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.setdefault(("", node.name), node.lineno)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.setdefault(("", node.id), node.lineno)
        elif isinstance(node, ast.Call):
            kind = getattr(node.func, "id", getattr(node.func, "attr", ""))
            names = [each.value for each in node.keywords if each.arg == "name"]
            values = [each.value for each in names if isinstance(each, ast.Constant)]
            found |= {(kind, value): node.lineno for value in values if isinstance(value, str)}
    return found


def _rows_of(
    module: str, name: str, lines: Mapping[tuple[str, str], int]
) -> tuple[CatalogRow, ...]:
    loaded = sys.modules[module]
    if not hasattr(loaded, "ROWS"):
        raise PluginError(f"{name}:1: expected a list ROWS of rows of the catalog, found none")
    start = lines.get(("", "ROWS"), 1)
    found = loaded.ROWS
    if not isinstance(found, (list, tuple)) or not found:
        raise PluginError(f"{name}:{start}: ROWS: expected a list of rows, given {found!r:.60}")
    rows = []
    for row in found:
        if type(row) not in KINDS.values():
            expected = "expected a Param, Component, Dataset, Metric or Diagnostic"
            raise PluginError(f"{name}:{start}: ROWS: {expected}, given {row!r:.60}")
        line = lines.get((type(row).__name__, str(row.name)), start)
        try:
            row = _row(type(row), {each.name: getattr(row, each.name) for each in fields(row)})
            if not row.name.replace(".", "_").replace("-", "_").isidentifier():
                expected = "name: expected letters, digits and '_'"
                raise TypeError(f"{expected}, given {row.name!r:.60}")
            if isinstance(row, Param):
                row.coerce(row.default)
        except TypeError as error:
            raise PluginError(f"{name}:{line}: {row.name}: {error}") from None
        except ValueError as error:
            raise PluginError(f"{name}:{line}: {row.name}: default: {error}") from None
        if not isinstance(row, Param) and row.impl and ":" not in row.impl:
            function = getattr(loaded, row.impl, None)
            if not callable(function):
                reason = f"impl: no function '{row.impl}' in {name}"
                raise PluginError(f"{name}:{line}: {row.name}: {reason}")
            if wrong := mismatch(row, function):
                place = f"{name}:{lines.get(('', row.impl), line)}"
                raise PluginError(f"{place}: {row.impl}: {wrong}")
            if isinstance(row, Dataset) and row.arrays:
                row = replace(row, arrays=f"{module}:{row.arrays}")
            row = replace(row, impl=f"{module}:{row.impl}")
        rows.append(row)
    return tuple(rows)


@contextlib.contextmanager
def _errors_of(name: str, folders: Sequence[str] = ()) -> Iterator[None]:
    """What a plug-in raises as one line with its place. What it prints is no command's output."""
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    except (Exception, SystemExit) as error:
        text = (str(error).strip().splitlines() or [""])[0]
        place = _place(error, (name,), folders) or f"{name}:1"
        said = f"{type(error).__name__}: {text}" if text else type(error).__name__
        raise PluginError(f"{place}: {said}") from None


def _place(error: BaseException, names: Iterable[str], folders: Sequence[str] = ()) -> str:
    """The innermost line of one of these files, or of one in these folders, that an error has
    passed through; empty if there is none.
    """
    known = set(names)
    found = [(f.filename, f.lineno) for f in traceback.extract_tb(error.__traceback__)]
    if isinstance(error, SyntaxError) and error.filename:
        found.append((error.filename, error.lineno))
    for file, line in reversed(found):
        if file in known:
            return f"{file}:{line}"
        if folder := next((f for f in folders if f"{file}/".startswith(f"{f}/")), ""):
            return f"{os.path.relpath(file, os.path.dirname(folder))}:{line}"
    return ""


# In this process.

_active: dict[str, Plugin] = {}
_undo: list[Callable[[], None]] = []


def active() -> tuple[Plugin, ...]:
    """The plug-ins of this process."""
    return tuple(_active.values())


def activate(plugins: Sequence[Plugin]) -> None:
    """Make these the plug-ins of this process, in place of those before.

    Raises:
        PluginError: a name that is taken, or a row that names what there is not.
    """
    wanted = {plugin.name: plugin for plugin in plugins}
    if wanted == _active:
        return
    for undo in reversed(_undo):
        undo()
    _undo.clear()
    _active.clear()
    for plugin in plugins:
        try:
            _undo.append(install(plugin.rows))
        except ValueError as error:
            place, word = plugin.file or plugin.name, str(error).split("'")[1:2]
            row = next((row for row in plugin.rows if [row.name] == word), None)
            if row is not None and not plugin.is_sealed:
                lines = _lines(plugin.text, place)
                place = f"{place}:{lines.get((type(row).__name__, row.name), 1)}"
            raise PluginError(f"{place}: {error}") from None
        _active[plugin.name] = plugin


def declare(plugins: Sequence[Plugin]) -> None:
    """Know the rows of plug-ins of a results folder, to read it: beside those of this process, of
    which one of the same name gives way, unless it is the same. Nothing is executed.
    """
    found = [_own(plugin) or plugin for plugin in plugins]
    if all(_active.get(plugin.name) == plugin for plugin in found):
        return
    names = {plugin.name for plugin in found}
    try:
        activate([*(p for name, p in _active.items() if name not in names), *found])
    except PluginError:  # two studies that mean different things by one name
        activate(found)


def forget_folders() -> None:
    """Take out what results folders have brought: a trial is the user's own."""
    activate([plugin for plugin in _active.values() if not plugin.is_sealed])


def _own(plugin: Plugin) -> Plugin | None:
    """The same plug-in, if this process has it from its user."""
    own = _active.get(plugin.name)
    same = own is not None and own.digest == plugin.digest
    return own if own is not None and same and not own.is_sealed else None


def opened(plugins: Sequence[Plugin]) -> tuple[Plugin, ...]:
    """Plug-ins of a results folder as they are executed, the user's own where there is one.

    Their rows are read anew, off what the digest is of: the text, or the installed package.

    Raises:
        PluginError: one cannot be read, or is another version here.
    """
    return tuple(_own(p) or _opened(p) if p.is_sealed else p for p in plugins)


def _opened(plugin: Plugin) -> Plugin:
    if plugin.is_package:
        return _read_package(plugin.name, plugin.digest)
    return _of_text(plugin.text, plugin.name)


def would_execute(plugins: Sequence[Plugin], encoders: Iterable[str]) -> list[str]:
    """The files behind plug-ins of a results folder and encoders `module:function`, each with its
    digest; those that this process has from its user are left out.
    """
    files = [f"plug-in {p.name} ({p.digest})" for p in plugins if p.is_sealed and not _own(p)]
    for name in encoders:
        spec = _spec(name.partition(":")[0])
        origin = spec.origin if spec and spec.origin and os.path.isfile(spec.origin) else None
        at = f"{origin} ({_digest(_text(Path(origin), name))})" if origin else "no file here"
        files.append(f"encoder {name}, of {at}")
    return files


def execute(plugins: Sequence[Plugin]) -> None:
    """Execute the modules, where this process has not yet.

    Raises:
        PluginError: one raises, is another version than the study was planned with, or sealed.
    """
    for plugin in plugins:
        if plugin.is_sealed:
            raise PluginError(f"{plugin.name}: a results folder has it, and nobody trusts it")
        _opened(plugin)


def plug_in(packed: Iterable[Mapping[str, Any]]) -> None:
    """Make plug-ins that another process has packed those of this one, and execute them.

    Raises:
        PluginError: as `activate` and `execute`.
    """
    plugins = [Plugin.unpacked(each) for each in packed]
    activate(plugins)
    execute(plugins)


OF_THE_LOSS = ("DivergedError", "LossShapeError")  # raised for its value, after it has returned


def place_of(error: BaseException, loss: str = "") -> str:
    """Where in a plug-in of this process an error comes from, `my_losses.py:12`; empty if from
    none. `loss` is that of the trial, whose value is to blame for an error of `OF_THE_LOSS`.
    """
    names = [plugin.name for plugin in _active.values() if not plugin.is_package]
    folders = _folders([plugin.module for plugin in _active.values() if plugin.is_package])
    if (place := _place(error, names, folders)) or type(error).__name__ not in OF_THE_LOSS:
        return place
    row = COMPONENT["loss"].get(loss)
    module, _, function = (row.impl if row else "").partition(":")
    if (plugin := next((p for p in _active.values() if p.module == module), None)) is None:
        return ""
    file = plugin.file or plugin.name
    return f"{file}:{_lines(plugin.text, file).get(('', function), 1)}"


def _folders(modules: Sequence[str]) -> list[str]:
    """The paths of the packages of these modules, or of modules that are in none."""
    tops = [_spec(module.partition(".")[0]) for module in modules]
    return [
        path for top in tops if top for path in top.submodule_search_locations or [top.origin or ""]
    ]
