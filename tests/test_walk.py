"""The walk of a table from its Parquet files to the terminal: which files it enters, and from
which to which it steps. A stranger who follows a number goes the same way.
"""

import os
import subprocess
import sys

import pytest

from tests.test_words import PACKAGE

KEPT = PACKAGE.parent / "docs" / "results" / "tau-digits"

# Calls of the main thread that one file of the package makes into another, once it has begun.
TRACE = """
import sys
from clsweep.cli.main import run_app

root, *words = sys.argv[1:]
files, steps = set(), set()

def is_import(frame):
    if frame is None:
        return False
    code = frame.f_code
    begun = code.co_name == "<module>" and code.co_filename.startswith(root)
    return begun or is_import(frame.f_back)

def note(frame, event, _):
    to, back = frame.f_code.co_filename, frame.f_back
    if event == "call" and to.startswith(root) and not is_import(frame):
        files.add(to)
        if back.f_code.co_filename.startswith(root):
            steps.add((back.f_code.co_filename, to))

sys.argv = ["clsweep", *words]
sys.setprofile(note)
try:
    run_app()
except SystemExit:
    pass
finally:
    sys.setprofile(None)
    steps = {(a, b) for a, b in steps if a != b}
    print(len(files), len(steps), file=sys.stderr)
"""


@pytest.mark.parametrize(
    ("words", "most_files", "most_steps"), [([], 45, 90), (["--format", "csv"], 35, 55)]
)
def test_robustness_is_a_short_walk(words, most_files, most_steps):
    done = subprocess.run(
        [sys.executable, "-c", TRACE, f"{PACKAGE}{os.sep}", "robustness", KEPT, *words],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": str(PACKAGE.parent)},
        check=True,
    )
    num_files, num_steps = map(int, done.stderr.split()[-2:])
    assert "simclr" in done.stdout
    assert num_files <= most_files
    assert num_steps <= most_steps
