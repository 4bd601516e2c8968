"""Modules of the user's own: a file with the modules beside it that it imports, or a package."""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import importlib.util
import itertools
import os
import sys
from collections.abc import Mapping, Sequence
from importlib import machinery, metadata
from importlib.machinery import ModuleSpec
from pathlib import Path

from clsweep.errors import UserError
from clsweep.files import read_regular

# of a plug-in's text, and of those beside it, too: they go to every process of a study
MAX_BYTES, MAX_TOGETHER = 256_000, 1_000_000
GROUP = "clsweep"  # of the entry points of installed packages


class PluginError(UserError):
    """A plug-in is wrong: one line with its file and line."""


# A file.

_beside_of: dict[str, tuple[str, str]] = {}  # file and text of modules beside plug-ins, by name
_searched: list[str] = []  # folders of plug-ins, last of all where modules are looked for


def read_files(path: Path, name: str) -> dict[str, str]:
    """The text of a file, and those of the modules of its folder that it imports, and these, by
    path from there. Nothing is executed.

    Raises:
        PluginError: one cannot be read, or is no Python.
    """
    from modulefinder import ModuleFinder

    files = {path.name: source_text(path, name)}
    try:
        compile(files[path.name], name, "exec")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line = getattr(error, "lineno", None) or 1
        reason = getattr(error, "msg", None) or str(error)
        raise PluginError(f"{path.name}:{line}: not valid Python: {reason}") from None
    finder = ModuleFinder([str(path.parent)], excludes=["clsweep"])
    with contextlib.suppress(ImportError, SyntaxError):  # which importing it tells with its line
        finder.run_script(str(path))
    imported = (getattr(module, "__file__", None) or "" for module in finder.modules.values())
    for file in sorted(imported):
        if file.endswith(".py") and file != str(path):
            files[Path(file).relative_to(path.parent).as_posix()] = source_text(Path(file), file)
    if (size := sum(map(len, files.values()))) > MAX_TOGETHER:
        expected = f"at most {MAX_TOGETHER:,} bytes with the modules beside it that it imports"
        raise PluginError(f"{name}: expected {expected}, given {size:,} in {len(files)} files")
    return files


def source_text(path: Path, name: str) -> str:
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


def import_file(called: str, folder: str, files: Mapping[str, str]) -> None:
    """Import the first of these files, which lie in a folder, under another name than its own.

    The others are imported under their own, anew where their text has changed or another study has
    some of the same name.
    """
    first, *others = files
    modules = {path.removesuffix(".py").removesuffix("/__init__"): path for path in others}
    beside = {
        name.replace("/", "."): (os.path.join(folder, path), files[path])
        for name, path in modules.items()
    }
    for name, known in _beside_of.items():
        loaded_from = getattr(sys.modules.get(name), "__file__", None)
        if loaded_from == known[0] and beside.get(name) != known:
            del sys.modules[name]  # another version, or another study's
    _beside_of.update(beside)
    before = [*_searched]
    search([folder, *before])
    path = os.path.join(folder, first)
    spec = importlib.util.spec_from_file_location(called, path)
    assert spec is not None
    module = sys.modules[called] = importlib.util.module_from_spec(spec)
    writes, sys.dont_write_bytecode = sys.dont_write_bytecode, True  # which goes by the second
    try:
        exec(compile(files[first], path, "exec"), module.__dict__)
    except BaseException:
        del sys.modules[called]
        search(before)
        raise
    finally:
        sys.dont_write_bytecode = writes


def search(folders: Sequence[str]) -> None:
    """Look for modules in these folders of plug-ins, too."""
    others = [path for path in sys.path if path not in _searched]
    _searched[:] = [path for path in dict.fromkeys(folders) if path and path not in others]
    sys.path[:] = [*others, *_searched]
    importlib.invalidate_caches()


# A package.


def find_package(name: str) -> tuple[str, Path, str, str]:
    """The package, or a module of one, behind a name or an entry point: its module, the folder that
    it lies in, its file from there, and behind its version a digest of all modules. None of it is
    executed.

    Raises:
        PluginError: there is none.
    """
    points = {point.name: point.value for point in metadata.entry_points(group=GROUP)}
    module = points.get(name, name).partition(":")[0]
    spec = spec_of(module)
    if spec is None or not spec.origin or not spec.origin.endswith(".py"):
        known = f"; installed: {', '.join(sorted(points))}" if points else ""
        raise PluginError(
            f"{name}: expected a file NAME.py or an installed package, found neither{known}"
        )
    origin, top = Path(spec.origin), module.partition(".")[0]
    root = origin.parents[module.count(".") + (origin.name == "__init__.py")]
    digest, suffixes = hashlib.sha256(), (".py", *machinery.EXTENSION_SUFFIXES)
    for file in sorted((root / top).rglob("*")) if (root / top).is_dir() else [origin]:
        if file.name.endswith(suffixes):
            digest.update(f"{file.relative_to(root)}\0".encode() + file.read_bytes())
    installed = metadata.packages_distributions().get(top, [])
    version = metadata.version(installed[0]) if installed else "0"
    stated = f"{version} {digest.hexdigest()[:16]}"
    return module, root, origin.relative_to(root).as_posix(), stated


def spec_of(module: str) -> ModuleSpec | None:
    """Where a module is; nothing is executed, as `importlib.util.find_spec` would its packages."""
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
