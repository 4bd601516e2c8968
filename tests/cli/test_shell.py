"""What a shell and a notebook meet: version, completion, one entry of the catalog, HTML."""

from __future__ import annotations

import os
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

import clsweep
from clsweep.version import VERSION
from tests.planted import planted

REPOSITORY = Path(clsweep.__file__).parents[1]


def run(*words: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "clsweep", *words], capture_output=True, text=True, check=True,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY), **environment},
    )  # fmt: skip
    return done.stdout


def test_the_module_is_the_command() -> None:
    assert run("--version") == f"clsweep {VERSION}\n"


def test_who_looks_on_is_told_at_once_what_is_read_and_a_pipe_is_not(tmp_path: Path) -> None:
    folder = f"{tmp_path}/no\x1b[31m"
    asked = [sys.executable, "-m", "clsweep", "trials", folder]
    screen, far = os.openpty()
    seen = subprocess.Popen(asked, stdout=subprocess.PIPE, stderr=far, cwd=REPOSITORY)
    os.close(far)
    first = os.read(screen, 4096).decode()
    assert first.startswith(f"Reading {tmp_path}/no")
    assert "\x1b" not in first
    assert seen.communicate()[0] == b""
    assert seen.returncode == 2
    os.close(screen)
    piped = subprocess.run(asked, capture_output=True, text=True, cwd=REPOSITORY)
    assert piped.returncode == 2
    assert "Reading" not in piped.stdout + piped.stderr


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("clsweep plan quick", ["quickstart"]),
        ("clsweep catalog proj_l", ["proj_layers"]),
        ("clsweep sens", ["sensitivity"]),
    ],
)
def test_a_shell_completes(line: str, offered: list[str]) -> None:
    words = line.split()
    found = run(_CLSWEEP_COMPLETE="complete_bash", COMP_WORDS=line, COMP_CWORD=str(len(words) - 1))
    assert found.split() == offered


def test_one_entry_of_the_catalog(cli_command: Any) -> None:
    code, out, _ = cli_command("catalog", "tau")
    assert (code, out.splitlines()[0].strip()) == (0, "tau (params)")
    assert "DCL Eq. 1" in out
    assert cli_command("catalog", "temperature")[1] == out
    assert [line.strip() for line in cli_command("catalog", "vicreg")[1].splitlines()
            if "(" in line and line.startswith("vicreg")] == [
        "vicreg (frameworks)", "vicreg (losses)"
    ]  # fmt: skip
    code, _, said = cli_command("catalog", "simcrl")
    assert code == 2
    assert said.startswith("catalog: unknown kind 'simcrl'. Did you mean 'simclr'?")


class Texts(HTMLParser):
    """The tags and the texts of a fragment."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.texts: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.add(tag)

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


EVIL = "<script>alert(1)</script>"


def test_a_notebook_shows_results_and_runs_nothing_in_them() -> None:
    table = planted(lambda x: 50 + x["tau"], grid={"tau": [0.1, 0.2]}, objective=EVIL, noise=0)
    shown = Texts(clsweep.analyse(table, params=["tau"])._repr_html_())
    assert "script" not in shown.tags
    row = shown.texts[shown.texts.index(EVIL) :][:6]
    assert row == [EVIL, "6", "0", "0", "50.10", "50.20"]
