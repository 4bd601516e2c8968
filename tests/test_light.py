"""The light installation: what reads and analyses results runs where torch, Ray and Optuna are not
there, and what needs them says so.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any

import pytest

import clsweep
from clsweep.cli.endings import LEFT_OUT
from tests.planted import planted

ROOT = Path(clsweep.__file__).parents[1]
BLOCKED = f"""
import sys
class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {LEFT_OUT!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Blocker())
"""
RUN = """
import shlex
from clsweep.cli.main import main
for line in sys.stdin.read().splitlines():
    sys.argv = ["clsweep", *shlex.split(line)]
    try:
        main()
        code = 0
    except SystemExit as ended:
        code = ended.code or 0
    print(f"ended {code}", file=sys.stderr)
"""


def without_them(*lines: str, cwd: Path) -> list[str]:
    """What each command line ends with on the error stream, where those packages are missing."""
    found = subprocess.run(
        [sys.executable, "-c", BLOCKED + RUN],
        input="\n".join(lines), capture_output=True, text=True, cwd=cwd, check=False,
    )  # fmt: skip
    return re.split(r"ended \d\n", found.stderr)[:-1] if not found.returncode else [found.stderr]


def project(path: str) -> dict[str, Any]:
    return tomllib.loads((ROOT / path).read_text())["project"]


def test_a_table_of_trials_is_analysed(tmp_path):
    pairs = {"a": 80.0, "b": 70.0}
    tables = [
        planted(lambda x, at=at: at + x["tau"], objective=name, grid={"tau": [0.1, 0.2]})
        for name, at in pairs.items()
    ]
    tables[0].merge(tables[1], how="outer").to_parquet(tmp_path / "trials.parquet")
    commands = ["robustness", "sensitivity", "compare", "reproduce"]
    said = without_them(*(f"{name} trials.parquet" for name in commands), cwd=tmp_path)
    assert said == [""] * len(commands)


@pytest.mark.slow
def test_a_report_is_written(tmp_path):
    planted(lambda x: x["tau"], grid={"tau": [0.1, 0.2]}).to_parquet(tmp_path / "trials.parquet")
    assert without_them("report trials.parquet --out out", cwd=tmp_path) == [""]
    assert (tmp_path / "out" / "index.html").stat().st_size > 100_000


def test_what_needs_more_says_so_in_one_line(tmp_path):
    said = without_them(
        "plan quickstart", "run quickstart", "try quickstart -o simclr", cwd=tmp_path
    )
    advice = "which is not installed here: pip install clsweep\n"
    assert said == [
        "",
        f"clsweep run: needs optuna, {advice}",
        f"clsweep try: needs torch, {advice}",
    ]


def test_the_light_project_is_the_other_one_without_what_is_left_out():
    whole, light = project("pyproject.toml"), project("clsweep/light/pyproject.toml")
    assert set(light["dependencies"]) < set(whole["dependencies"])
    for key in ("scripts", "requires-python", "license"):
        assert light[key] == whole[key]
    missing = {
        re.split(r"[\[<>=]", line)[0].lower().replace("_", "-")
        for line in {*whole["dependencies"]} - {*light["dependencies"]}
    }
    owners = packages_distributions()
    left_out = {owner.lower().replace("_", "-") for name in LEFT_OUT for owner in owners[name]}
    assert left_out == missing
