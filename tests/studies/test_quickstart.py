"""The quickstart has one answer on every processor, that of the README.

Kernels of another instruction set, or another number of threads, round otherwise. Training carries
that on: single scores differ by points.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from tests.cluster.conftest import COMMAND
from tests.test_docs import ROOT

FIRST = ("default", 1)  # the others are of the soak
CAPABILITY = "import torch; print(torch.backends.cpu.get_cpu_capability())"


def verdicts(text: str) -> list[str]:
    """The sentences above the table of robustness, without their numbers."""
    before, after = text.split("\n\nRobustness of linear_top1")[:2]
    assert "best level" in after
    paragraph = " ".join(re.split(r"\n\n|```text\n", before)[-1].split())
    return re.sub(r"-?\d+(\.\d+)?", "#", paragraph).split(". ")


@pytest.mark.parametrize(
    ("capability", "num_threads"),
    [
        pytest.param(
            name,
            threads,
            marks=getattr(pytest.mark, "slow" if (name, threads) == FIRST else "soak"),
        )
        for name in ("default", "avx2", "avx512")
        for threads in (1, 2)
    ],
)
def test_the_verdicts_are_those_of_the_readme(tmp_path, capability, num_threads):
    env = {**os.environ, "ATEN_CPU_CAPABILITY": capability, "OMP_NUM_THREADS": str(num_threads)}
    words = [sys.executable, "-c", CAPABILITY]
    name = subprocess.run(words, env=env, check=True, capture_output=True, text=True).stdout
    if name.strip().lower() != capability:
        pytest.skip(f"this processor computes by {name.strip()} where {capability} is asked for")
    words = [*COMMAND, "run", "quickstart", "--out", str(tmp_path / "out")]
    words += ["--set", f"resources.cpus_per_worker={num_threads}"]
    run = subprocess.run(words, env=env, capture_output=True, text=True, timeout=800)
    assert run.returncode == 0, run.stderr
    assert verdicts(run.stdout) == verdicts((ROOT / "README.md").read_text("utf-8"))
