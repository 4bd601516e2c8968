"""What every command says on a terminal of 80 columns, and in a pipe."""

import fcntl
import os
import re
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest

import clsweep

REPOSITORY = Path(clsweep.__file__).parents[1]
FOLDER = f"{REPOSITORY}/docs/results/tau-digits"
QUICK = [
    ["catalog"],
    ["catalog", "tau"],
    ["plan", "quickstart"],
    ["plan", "quickstart", "--trials"],
]
COMMANDS = [
    *[[name, "--help"] for name in ("run", "confirm", "compare", "import", "new")],
    *[[name, FOLDER] for name in ("status", "trials", "sensitivity", "pareto", "recommend")],
    *[[name, FOLDER, "--explain"] for name in ("robustness", "compare", "picks")],
    ["robustness", FOLDER, "--by", "tau"], ["compare", FOLDER, "--stat", "within"],
    ["reproduce", FOLDER.replace("tau-digits", "eqco-table-09")],
    ["trials", FOLDER.replace("tau-digits", "quickstart")],
    ["plan", "quickstart", "--trials"], ["plan", "dcl/table_18"],
    ["try", "quickstart", "-o", "simclr", "--set=base.epochs=2"],
    ["report", FOLDER, "--out", "report"], ["report", f"{FOLDER}-which-there-is-not"],
    ["new", "loss", "abc"], ["export", f"{FOLDER}/simclr-0000-s0", "--out", "e.pt"],
]  # fmt: skip
CODES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
# What is to be copied as it is: a path, a command.
WHOLE = re.compile(r"\S+|(Next|Results|Report|Resume with|Reading):? .*|  \S+")


def on_screen(words, folder):
    """What a terminal of 80 x 24 gets to show."""
    env = {name: text for name, text in os.environ.items() if name not in ("COLUMNS", "LINES")}
    screen, far = os.openpty()
    fcntl.ioctl(far, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    with subprocess.Popen(
        [sys.executable, "-m", "clsweep", *words], stdin=far, stdout=far, stderr=far, cwd=folder,
        env={**env, "PYTHONPATH": str(REPOSITORY), "TERM": "xterm"},
    ) as command:  # fmt: skip
        os.close(far)
        said = b""
        while True:
            try:
                said += os.read(screen, 65536)
            except OSError:  # the command has left
                break
    os.close(screen)
    assert command.returncode in (0, 2), said
    return said.decode()


@pytest.mark.parametrize(
    "words", [*QUICK, *(pytest.param(w, marks=pytest.mark.slow) for w in COMMANDS)], ids=" ".join
)
def test_nothing_is_wider_than_the_terminal(words, tmp_path):
    lines = CODES.sub("", on_screen(words, tmp_path)).splitlines()
    assert lines
    assert [line for line in lines if len(line) > 80 and not WHOLE.fullmatch(line)] == []
