"""Plug-ins: rows of the catalog, and functions behind them, from a user's file or package.

A plug-in is a Python module with a list `ROWS`. A row's `impl` names a function of the same module.
A file is imported with the modules beside it that it imports, all of which are its identity, and
travel with their study. A package is imported where it is installed. What a results folder has is
sealed: none of it is executed.
"""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import importlib
import inspect
import json
import os
import re
import shutil
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path, PurePosixPath
from typing import Any

from clsweep.catalog import COMPONENT, install, signature_mismatch
from clsweep.catalog.plugin_import import (
    PluginError,
    find_package,
    import_file,
    read_files,
    search,
    source_text,
    spec_of,
)
from clsweep.catalog.rows import (
    SEALED,
    CatalogRow,
    Component,
    Dataset,
    Diagnostic,
    Metric,
    Param,
    named,
)
from clsweep.catalog.trainers import trainer_rows
from clsweep.errors import UserError, first_line

ROW_TYPES: dict[str, type] = {
    kind.__name__: kind for kind in (Param, Component, Dataset, Metric, Diagnostic)
}
_PREFIX = "clsweep_plugin_"
_FUNCTIONS = ("impl", "arrays", "files")  # keys of a row that name one


@dataclass(frozen=True, kw_only=True)
class Plugin:
    """One plug-in, as it travels with its study.

    Attributes:
        name: of the file or package, `my_losses.py`.
        module: which its functions are imported from.
        files: its own text first, and those of the modules beside it that it imports, by path from
            its folder; of a package the module alone.
        digest: tells versions apart; of a package that of all its modules, with its version.
        is_package: it is imported where it is installed; else `files` are what is executed.
        is_sealed: a results folder has it, which may be anybody's: its rows name no function.
        folder: where it is imported from, on this machine.
        rows: what it adds to the catalog, with `impl` as module:function.
    """

    name: str
    module: str
    files: Mapping[str, str] = field(repr=False)
    digest: str
    is_package: bool = False
    is_sealed: bool = False
    folder: str = field(default="", compare=False)
    rows: tuple[CatalogRow, ...] = field(default=(), repr=False)

    def packed(self) -> dict[str, Any]:
        """As plain values, for JSON."""
        rows = [{"row": type(row).__name__, **asdict(row)} for row in self.rows]
        recorded = ("name", "module", "files", "digest", "is_package")
        return {name: getattr(self, name) for name in recorded} | {"rows": rows}

    @classmethod
    def unpacked(cls, packed: Mapping[str, Any]) -> Plugin:
        """From what `packed` gave, or somebody wrote. Nothing is executed.

        Raises:
            ValueError: it is not what `packed` gives.
        """
        try:
            rows = tuple(_row(ROW_TYPES[row["row"]], row) for row in packed["rows"])
            name, module, digest = _typed(
                list[str], [packed[key] for key in ("name", "module", "digest")]
            )
            files = _typed(dict[str, str], packed.get("files") or {name: packed["text"]})
        except (TypeError, KeyError) as error:
            raise ValueError(f"not a recorded plug-in: {first_line(error)}") from None
        is_package = bool(packed.get("is_package"))
        if any(path.startswith("/") or ".." in PurePosixPath(path).parts for path in files):
            raise ValueError(f"{name}: expected paths below its folder")
        if not is_package:
            if digest != _digest(files):
                raise ValueError(f"{name}: its text is not of its digest")
            module = _module_of(name, digest)
        return cls(
            name=name, module=module, files=files, digest=digest, is_package=is_package,
            rows=rows,
        )  # fmt: skip

    def sealed(self) -> Plugin:
        """The same as a results folder has it: to read tables by its rows, and no more."""
        rows = []
        for row in self.rows:
            named = [key for key in _FUNCTIONS if getattr(row, key, "")]
            changes: dict[str, Any] = dict.fromkeys(named, f"{SEALED}:{self.name}")
            if getattr(row, "pattern", ""):
                changes["pattern"] = "(?s:.*)"  # some regular expressions never end
            rows.append(replace(row, **changes))
        return replace(self, rows=tuple(rows), is_sealed=True, folder="")

    def shown(self, file: str) -> str:
        """One of its files as messages name it, by the path from its folder; "" if another's."""
        path = os.path.relpath(file, self.folder) if self.folder and os.path.isabs(file) else ""
        top = self.module.partition(".")[0]
        is_own = self.is_package and path.partition("/")[0].removesuffix(".py") == top
        return path if is_own or path in self.files else ""

    def line_of(self, name: object) -> str:
        """Where the row of a name is written, `my_losses.py:12`, or at least the list."""
        ours = rf"\bname\s*=\s*[\"']{re.escape(str(name))}[\"']"
        of_trainer = rf"^def {re.escape(str(name).rpartition('.')[2])}\("
        for pattern in (ours, of_trainer, r"^ROWS\b"):
            for file, text in self.files.items():
                for number, line in enumerate(text.splitlines(), start=1):
                    if re.search(pattern, line):
                        return f"{file}:{number}"
        return f"{next(iter(self.files))}:1"

    def line_in(self, function: Any, row: CatalogRow) -> str:
        """Where the function of a row is written, or else the row."""
        with contextlib.suppress(OSError, TypeError):
            function = inspect.unwrap(function)
            if file := self.shown(inspect.getsourcefile(function) or ""):
                return f"{file}:{max(1, inspect.getsourcelines(function)[1])}"
        return self.line_of(row.name)


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
        first, *more = error.errors()
        place = ".".join(map(str, first["loc"]))
        if more and first["loc"][:1] == more[0]["loc"][:1]:  # of several types that may be
            place, types = str(first["loc"][0]), [str(e["loc"][-1]) for e in (first, *more)]
            first["msg"] = f"expected {' or '.join(types)}"
        raise TypeError(f"{place}: {first['msg']}, given {first['input']!r:.60}") from None


def _digest(files: Mapping[str, str]) -> str:
    texts = list(files.values())
    whole = texts[0] if len(texts) == 1 else json.dumps(sorted(files.items()))
    return hashlib.sha256(whole.encode()).hexdigest()[:16]


# Reading.


def read_plugins(names: Sequence[str], folder: Path) -> tuple[Plugin, ...]:
    """The plug-ins that a study names: files, relative to its folder, and packages.

    Raises:
        PluginError: one of them cannot be read, or is none.
    """
    plugins = [
        _read_file(folder / name, name) if name.endswith(".py") else _read_package(name)
        for name in names
    ]
    for i, plugin in enumerate(plugins):
        if plugin.name in [each.name for each in plugins[:i]]:
            raise PluginError(f"{names[i]}: two plug-ins of this name; rename one of them")
    return tuple(plugins)


def _read_file(path: Path, name: str) -> Plugin:
    path = Path(os.path.abspath(path))
    files = read_files(path, name)
    digest = _digest(files)
    module = _module_of(path.name, digest)
    return _loaded(
        Plugin(name=path.name, module=module, files=files, digest=digest, folder=str(path.parent))
    )


def _module_of(file: str, digest: str) -> str:
    """A module for each version, so that those of two studies do not meet."""
    return f"{_PREFIX}{file.removesuffix('.py')}_{digest}"


def _read_package(name: str, expected: str = "") -> Plugin:
    """A package that is installed, of this digest where one is expected."""
    module, root, file, digest = find_package(name)
    if expected and digest != expected:
        raise PluginError(f"{name}: planned with version {expected}, found {digest} here")
    files = {file: source_text(root / file, name)}
    plugin = Plugin(
        name=name, module=module, files=files, digest=digest, is_package=True, folder=str(root)
    )
    return _loaded(plugin)


def _loaded(plugin: Plugin) -> Plugin:
    """The plug-in with its rows, its module imported."""
    with _errors_of(plugin):
        if plugin.is_package:
            importlib.import_module(plugin.module)
        elif plugin.module not in sys.modules:
            import_file(plugin.module, plugin.folder, plugin.files)
    return replace(plugin, rows=_rows_of(plugin))


# The rows of a module.


def _rows_of(plugin: Plugin) -> tuple[CatalogRow, ...]:
    loaded, file = sys.modules[plugin.module], next(iter(plugin.files))
    trainers = trainer_rows(loaded, plugin.name)
    if not hasattr(loaded, "ROWS") and not trainers:
        expected = "expected a list ROWS of rows of the catalog, or a function under @trainer(...)"
        raise PluginError(f"{file}:1: {expected}, found none")
    start, written = plugin.line_of(""), getattr(loaded, "ROWS", trainers)
    if not isinstance(written, (list, tuple)) or not written:
        raise PluginError(f"{start}: ROWS: expected a list of rows, given {written!r:.60}")
    rows = []
    for row in written if written is trainers else [*written, *trainers]:
        if type(row) not in ROW_TYPES.values():
            expected = "expected a Param, Component, Dataset, Metric or Diagnostic"
            raise PluginError(f"{start}: ROWS: {expected}, given {row!r:.60}")
        try:
            row = _row(type(row), {each.name: getattr(row, each.name) for each in fields(row)})
            if not row.name.replace(".", "_").replace("-", "_").isidentifier():
                expected = "name: expected letters, digits and '_'"
                raise TypeError(f"{expected}, given {row.name!r:.60}")
            if isinstance(row, Param):
                re.compile(row.pattern)
                if row.kind == "choice" and not (row.choices or row.pattern):
                    raise TypeError("choices: expected names, given none")
                row.coerce(row.default)
        except (TypeError, re.error) as error:
            raise PluginError(f"{plugin.line_of(row.name)}: {row.name}: {error}") from None
        except ValueError as error:
            raise PluginError(f"{plugin.line_of(row.name)}: {row.name}: default: {error}") from None
        rows.append(row)
    return tuple(_with_functions(plugin, row, rows) for row in rows)


def _with_functions(plugin: Plugin, row: CatalogRow, beside: Sequence[CatalogRow]) -> CatalogRow:
    """The row with its functions as module:function, which are there and can be called."""
    if isinstance(row, Param):
        return row
    for key in _FUNCTIONS:
        name = getattr(row, key, "")
        if name and ":" not in name:
            row = replace(row, **{key: f"{plugin.module}:{name}"})  # type: ignore[arg-type]
            if not callable(getattr(sys.modules[plugin.module], name, None)):
                file = next(iter(plugin.files))
                reason = f"{key}: no function '{name}' in {file}"
                raise PluginError(f"{plugin.line_of(row.name)}: {row.name}: {reason}")
    if row.impl:
        try:
            function = named(row.impl)
        except LookupError as error:
            raise PluginError(f"{plugin.line_of(row.name)}: {row.name}: impl: {error}") from None
        if wrong := signature_mismatch(row, function, beside):
            raise PluginError(f"{plugin.line_in(function, row)}: {function.__name__}: {wrong}")
    return row


@contextlib.contextmanager
def _errors_of(plugin: Plugin) -> Iterator[None]:
    """Errors of a plug-in as one line with its place. What it prints is no command's output."""
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    except (Exception, SystemExit, GeneratorExit) as error:
        text = ""
        with contextlib.suppress(Exception):  # one of its own may have no text
            text = (str(error).strip().splitlines() or [""])[0]
        place = _place(error, [plugin]) or f"{next(iter(plugin.files))}:1"
        message = f"{type(error).__name__}: {text}" if text else type(error).__name__
        raise PluginError(f"{place}: {message}") from None


def _place(error: BaseException, plugins: Sequence[Plugin]) -> str:
    """The innermost line of one of these plug-ins that an error has passed through, or ""."""
    frames = [(f.filename, f.lineno) for f in traceback.extract_tb(error.__traceback__)]
    broken = (isinstance(error, SyntaxError) and error.filename) or ""  # a module beside, perhaps
    for plugin in plugins:
        if broken.startswith(f"{plugin.folder}{os.sep}"):
            return f"{os.path.relpath(broken, plugin.folder)}:{error.lineno}"  # type: ignore[attr-defined]
    places = (
        f"{shown}:{line}" for file, line in reversed(frames)
        for plugin in plugins if (shown := plugin.shown(file))
    )  # fmt: skip
    return next(places, "")


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
            word = next(iter(str(error).split("'")[1:2]), "")
            known = any(row.name == word for row in plugin.rows) and not plugin.is_sealed
            place = plugin.line_of(word) if known else next(iter(plugin.files))
            raise PluginError(f"{place}: {error}") from None
        _active[plugin.name] = plugin
    search([plugin.folder for plugin in plugins if not plugin.is_package])


def declare(plugins: Sequence[Plugin]) -> None:
    """Know the rows of plug-ins of a results folder, to read it: beside those of this process, of
    which one of the same name gives way, unless it is the same. Nothing is executed.
    """
    declared = [_own(plugin) or plugin for plugin in plugins]
    if all(_active.get(plugin.name) == plugin for plugin in declared):
        return
    names = {plugin.name for plugin in declared}
    try:
        activate([*(p for name, p in _active.items() if name not in names), *declared])
    except PluginError:  # two studies that mean different things by one name
        activate(declared)


def forget_folders() -> None:
    """Take out what results folders have brought: a trial is the user's own."""
    activate([plugin for plugin in _active.values() if not plugin.is_sealed])


def _own(plugin: Plugin) -> Plugin | None:
    """The same plug-in, if this process has it from its user."""
    own = _active.get(plugin.name)
    same = own is not None and own.digest == plugin.digest
    return own if own is not None and same and not own.is_sealed else None


def opened_plugins(plugins: Sequence[Plugin]) -> tuple[Plugin, ...]:
    """Plug-ins of a results folder as they are executed, the user's own where there is one.

    Their rows are read anew, off what the digest is of: the texts, or the installed package.

    Raises:
        PluginError: one cannot be read, or is another version here.
    """
    return tuple(_own(p) or _opened(p) if p.is_sealed else p for p in plugins)


def _opened(plugin: Plugin) -> Plugin:
    if plugin.is_package:
        return _read_package(plugin.name, plugin.digest)
    return _loaded(replace(plugin, folder=_folder_of(plugin), is_sealed=False))


def _folder_of(plugin: Plugin) -> str:
    """The folder that a plug-in was read from, where it is as it was then; else one of its own."""
    there = Path(plugin.folder)
    with contextlib.suppress(OSError, ValueError):
        texts = {path: (there / path).read_text(encoding="utf-8") for path in plugin.files}
        if plugin.folder and texts == plugin.files:
            return plugin.folder
    there = Path(tempfile.mkdtemp(prefix="clsweep-"))
    atexit.register(shutil.rmtree, there, ignore_errors=True)
    for path, text in plugin.files.items():
        (there / path).parent.mkdir(parents=True, exist_ok=True)
        (there / path).write_text(text, encoding="utf-8")
    return str(there)


def would_execute(plugins: Sequence[Plugin], encoders: Iterable[str]) -> list[str]:
    """The files behind plug-ins of a results folder and encoders `module:function`, each with its
    digest; those that this process has from its user are left out.
    """
    files = [f"plug-in {p.name} ({p.digest})" for p in plugins if p.is_sealed and not _own(p)]
    for name in encoders:
        spec = spec_of(name.partition(":")[0])
        origin = spec.origin if spec and spec.origin and os.path.isfile(spec.origin) else None
        text = source_text(Path(origin), name) if origin else ""
        at = f"{origin} ({_digest({name: text})})" if origin else "no file here"
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
        if plugin.is_package or plugin.module not in sys.modules:
            _opened(plugin)


def plug_in(plugins: Sequence[Plugin]) -> None:
    """Make plug-ins of another process those of this one, and execute them.

    Raises:
        PluginError: as `activate` and `execute`.
    """
    if list(plugins) != list(_active.values()):  # else an earlier trial of this process had them
        activate([_opened(plugin) for plugin in plugins])


def error_place(error: BaseException, loss: str = "") -> str:
    """Where in a plug-in of this process an error comes from, `my_losses.py:12`; empty if from
    none. Where it has passed through no line of one, it may carry a row, whose function is to
    blame; for a loss that is no number that is the trial's `loss`.
    """
    errors: list[BaseException | None] = [error, error.__cause__, error.__context__]
    for each in filter(None, errors):
        if place := _place(each, active()):
            return place
    row = next((each.row for each in errors if getattr(each, "row", None)), None)  # type: ignore[union-attr]
    if type(error).__name__ in ("DivergedError", "LossShapeError"):
        row = COMPONENT["loss"].get(loss)
    for plugin in _active.values():
        if row in plugin.rows and row is not None:
            return plugin.line_in(named(row.impl), row)
    return ""


def error_line(error: BaseException, loss: str = "") -> str:
    """An error in one line, behind its place in a plug-in if it has one."""
    try:
        line = next(iter(str(error).strip().splitlines()), "")
    except Exception:  # one of the user's own, too
        line = ""
    name = "" if isinstance(error, UserError) else type(error).__name__
    return ": ".join(filter(None, (error_place(error, loss), name, line)))
