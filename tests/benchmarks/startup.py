"""How long the commands that need neither torch nor Ray take, beside a bare interpreter and `import
torch`.

python tests/benchmarks/startup.py [--repeats 7]
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import subprocess
import sys
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


def seconds(arguments: list[str]) -> float:
    start = time.perf_counter()
    subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=7)
    repeats = parser.parse_args().repeats
    times: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for _ in range(repeats):  # in turn, so that a slow moment of the machine hits all of them
        for name, arguments in COMMANDS.items():
            times[name].append(seconds(arguments))
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
