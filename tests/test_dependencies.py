"""What the package imports, it declares: nothing is there by the grace of another package."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import clsweep

PACKAGE = Path(clsweep.__file__).parent


def imported() -> set[str]:
    """Top-level modules that the package imports, wherever the line stands."""
    names: set[str] = set()
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                names |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                names.add(node.module.partition(".")[0])
    return names - sys.stdlib_module_names - {"clsweep"}


def normalised(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def declared() -> set[str]:
    project = tomllib.loads((PACKAGE.parent / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    users = [line for name in extras if name != "dev" for line in extras[name]]
    return {
        normalised(re.split(r"[\[<>=!~; ]", line)[0]) for line in project["dependencies"] + users
    }


def test_every_import_is_declared():
    distributions = packages_distributions()
    names = imported()
    assert {"torch", "ray", "yaml"} <= names
    undeclared = {
        name
        for name in names
        if not {normalised(dist) for dist in distributions.get(name, [])} & declared()
    }
    assert not undeclared


def test_every_declared_package_is_imported():
    distributions = packages_distributions()
    used = {normalised(dist) for name in imported() for dist in distributions.get(name, [])}
    assert declared() <= used
