"""How long the commands that need neither torch nor Ray take, beside a bare interpreter and `import
torch`; and how long `clsweep run` takes to the first row of a study of short trials.

python tests/benchmarks/startup.py [--repeats 7]
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

STUDIES = Path(__file__).parents[2] / "studies"
RUN = "import sys; sys.argv[0] = 'clsweep'; from clsweep.cli.main import main; main()"
COMMANDS = {
    "python -c pass": ["-c", "pass"],
    "clsweep catalog": ["-c", RUN, "catalog"],
    "clsweep plan quickstart": ["-c", RUN, "plan", str(STUDIES / "quickstart.yaml")],
    "clsweep plan dcl table_18": ["-c", RUN, "plan", str(STUDIES / "dcl" / "table_18.yaml")],
    "import torch": ["-c", "import torch"],
    "import ray.tune": ["-c", "import ray.tune"],
}


FIRST_ROW = "clsweep run, to the first row"


def seconds(arguments: list[str]) -> float:
    start = time.perf_counter()
    subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start


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
        command = [sys.executable, "-c", RUN, "run", "study.yaml", "--out", "out"]
        start = time.perf_counter()
        run = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL)
        while run.poll() is None and not any((folder / "out" / "parts").glob("trials/*")):
            time.sleep(0.02)
        seconds = time.perf_counter() - start
        assert run.wait() == 0
        return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=7)
    repeats = parser.parse_args().repeats
    times: dict[str, list[float]] = {name: [] for name in (*COMMANDS, FIRST_ROW)}
    for _ in range(repeats):  # in turn, so that a slow moment of the machine hits all of them
        for name, arguments in COMMANDS.items():
            times[name].append(seconds(arguments))
        times[FIRST_ROW].append(first_row_s())
    from clsweep.display.printing import print_table

    rows = [
        {"command": name, "median s": statistics.median(t), "min s": min(t), "max s": max(t)}
        for name, t in times.items()
    ]
    print_table(
        rows,
        title=f"\nStart-up on {os.cpu_count()} cores, {platform.machine()}, {repeats} runs each",
    )


if __name__ == "__main__":
    main()
