"""How long the commands that need neither torch nor Ray take, beside a bare interpreter and `import
torch`; and how long `clsweep run` takes to the first row of a study of short trials.

python tests/benchmarks/startup.py [--repeats 7]
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from _machine import CLSWEEP, in_turn, machine, python_seconds, spreads

STUDIES = Path(__file__).parents[2] / "studies"
COMMANDS = {
    "python -c pass": ("-c", "pass"),
    "clsweep catalog": (*CLSWEEP, "catalog"),
    "clsweep plan quickstart": (*CLSWEEP, "plan", STUDIES / "quickstart.yaml"),
    "clsweep plan dcl table_18": (*CLSWEEP, "plan", STUDIES / "dcl" / "table_18.yaml"),
    "import torch": ("-c", "import torch"),
    "import ray.tune": ("-c", "import ray.tune"),
}
STUDY = """
name: short
dataset: {name: digits}
base: {encoder: conv4, width: 16, epochs: 1}
seeds: [0, 1, 2, 3]
objectives: {simclr: {framework: simclr, loss: infonce}}
search: {method: grid}
"""


def first_row_s() -> float:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "study.yaml").write_text(STUDY)
        command = [sys.executable, *CLSWEEP, "run", "study.yaml", "--out", "out"]
        start = time.perf_counter()
        run = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL)
        while run.poll() is None and not any((folder / "out" / "parts").glob("trials/*")):
            time.sleep(0.02)
        waited_s = time.perf_counter() - start
        assert run.wait() == 0
        return waited_s


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=7)
    repeats = parser.parse_args().repeats
    sides = {name: lambda words=words: python_seconds(*words) for name, words in COMMANDS.items()}
    sides["clsweep run, to the first row"] = first_row_s
    times = in_turn(sides, repeats)
    from clsweep.display.printing import print_table

    title = f"\nStart-up on {machine()}, {repeats} runs each"
    print_table(spreads("command", times), title=title)


if __name__ == "__main__":
    main()
