"""What the package imports, it declares: nothing is there by the grace of another package. And what
reads and analyses results runs where torch, Ray and Optuna are not there: the light installation.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any

import pytest

from clsweep.cli.main import HEAVY_PACKAGES
from tests.planted import planted
from tests.test_words import PACKAGE, TREES


@cache
def imported() -> dict[str, set[str]]:
    """Top-level modules that the package imports, wherever the line stands -> who brings them."""
    names: set[str] = set()
    for tree in TREES.values():
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                names |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                names.add(node.module.partition(".")[0])
    brought = packages_distributions()
    others = names - sys.stdlib_module_names - {"clsweep"}
    return {name: {normalised(each) for each in brought.get(name, ())} for name in others}


def normalised(line: str) -> str:
    """The name of a package in a requirement."""
    return re.sub(r"[-_.]+", "-", re.split(r"[\[<>=!~; ]", line)[0]).lower()


def project(path: str) -> dict[str, Any]:
    return tomllib.loads((PACKAGE.parent / path).read_text())["project"]


def declared() -> set[str]:
    whole = project("pyproject.toml")
    extras = whole["optional-dependencies"]
    users = [line for name in extras if name != "dev" for line in extras[name]]
    return set(map(normalised, whole["dependencies"] + users))


def test_every_import_is_declared_and_every_declared_package_is_imported():
    assert {"torch", "ray", "yaml"} <= {*imported()}
    assert not [name for name, owners in imported().items() if not owners & declared()]
    assert declared() <= set().union(*imported().values())


def test_the_light_project_is_the_other_one_without_what_is_left_out():
    whole, light = project("pyproject.toml"), project("clsweep/light/pyproject.toml")
    assert set(light["dependencies"]) < set(whole["dependencies"])
    for key in ("scripts", "requires-python", "license"):
        assert light[key] == whole[key]
    missing = map(normalised, {*whole["dependencies"]} - {*light["dependencies"]})
    assert {*missing} == set().union(*(imported()[name] for name in HEAVY_PACKAGES))


BLOCKED = f"""
import sys
class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {HEAVY_PACKAGES!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Blocker())
"""
RUN = """
import shlex
from clsweep.cli.main import run_app
for line in sys.stdin.read().splitlines():
    sys.argv = ["clsweep", *shlex.split(line)]
    try:
        run_app()
        code = 0
    except SystemExit as ended:
        code = ended.code or 0
    print(f"ended {code}", file=sys.stderr)
"""


def without_them(*lines: str, cwd: Path) -> list[str]:
    """What each command line ends with on the error stream, where those packages are missing."""
    done = subprocess.run(
        [sys.executable, "-c", BLOCKED + RUN],
        input="\n".join(lines), capture_output=True, text=True, cwd=cwd, check=False,
    )  # fmt: skip
    return re.split(r"ended \d\n", done.stderr)[:-1] if not done.returncode else [done.stderr]


def test_without_them_tables_are_analysed_and_what_needs_more_says_so_in_one_line(tmp_path):
    grid = {"tau": [0.1, 0.2]}
    tables = [planted(lambda x: x["tau"], objective=name, grid=grid) for name in "ab"]
    tables[0].merge(tables[1], how="outer").to_parquet(tmp_path / "trials.parquet")
    advice = "which is not installed here: pip install clsweep\n"
    imports_by_name = {
        **{f"{name} trials.parquet": "" for name in ("sensitivity", "compare", "reproduce")},
        "plan quickstart": "",
        "run quickstart": f"clsweep run: needs optuna, {advice}",
        "try quickstart -o simclr": f"clsweep try: needs torch, {advice}",
    }
    assert without_them(*imports_by_name, cwd=tmp_path) == [*imports_by_name.values()]


@pytest.mark.slow
def test_a_report_is_written(tmp_path):
    planted(lambda x: x["tau"], grid={"tau": [0.1, 0.2]}).to_parquet(tmp_path / "trials.parquet")
    assert without_them("report trials.parquet --out out", cwd=tmp_path) == [""]
    assert (tmp_path / "out" / "index.html").stat().st_size > 100_000
