"""What a shell and a notebook meet: version, completion, one entry of the catalog, HTML."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import clsweep
from clsweep.cli.main import expand_user
from clsweep.version import VERSION

REPOSITORY = Path(clsweep.__file__).parents[1]


def run(*words, **environment):
    done = subprocess.run(
        [sys.executable, "-m", "clsweep", *words], capture_output=True, text=True, check=True,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY), **environment},
    )  # fmt: skip
    return done.stdout


def test_the_module_is_the_command():
    assert run("--version") == f"clsweep {VERSION}\n"


def test_python_without_docstrings_is_refused():
    with pytest.raises(subprocess.CalledProcessError) as caught:
        run("report", "nothing", PYTHONOPTIMIZE="2")
    assert caught.value.stderr.startswith("PYTHONOPTIMIZE, or -O: expected at most 1, as Ray, ")
    assert caught.value.stderr.endswith("given 2\n")


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        *[("~", "/h/u"), ("~/a b", "/h/u/a b"), ("--out=~/a", "--out=/h/u/a")],
        *[(w, w) for w in ("--set=dataset.root=~/d", "a~/b", "~b", "--where=~(lr > 1)", "--out")],
    ],
)
def test_a_home_that_the_shell_has_left(word, expected, monkeypatch):
    monkeypatch.setenv("HOME", "/h/u")
    assert expand_user(word) == expected


def test_a_width_of_0_says_none(cli_command, monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    said = cli_command("plan", "quickstart")
    monkeypatch.setenv("COLUMNS", "0")
    assert cli_command("plan", "quickstart") == said


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("clsweep plan quick", ["quickstart"]),
        ("clsweep catalog proj_l", ["proj_layers"]),
    ],
)
def test_a_shell_completes(line, offered):
    words = line.split()
    found = run(_CLSWEEP_COMPLETE="complete_bash", COMP_WORDS=line, COMP_CWORD=str(len(words) - 1))
    assert found.split() == offered


def test_one_entry_of_the_catalog(cli_command):
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
