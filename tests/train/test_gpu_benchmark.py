"""The GPU benchmark: runs without a GPU and without what a bare GPU machine lacks, notices what is
wrong, and keeps what it has found.
"""

import importlib
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

FOLDER = Path(__file__).parents[1] / "benchmarks"
CPU = torch.device("cpu")
LACKING = "ray pydantic optuna altair lightly tensorboardX vl_convert yaml pyarrow"
RUN = f"""
import runpy, sys
sys.modules.update(dict.fromkeys({LACKING.split()!r}))
sys.path.insert(0, {str(FOLDER)!r})
sys.argv = ["gpu.py", "--device=cpu", "--small", "--out=" + sys.argv[1]]
runpy.run_path({str(FOLDER / "gpu.py")!r}, run_name="__main__")
"""


@pytest.fixture
def benchmark(monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    return importlib.import_module("gpu")


@pytest.mark.slow
def test_it_runs_on_a_cpu_with_no_more_than_a_gpu_machine_has(tmp_path):
    words = [sys.executable, "-c", RUN, str(tmp_path)]
    done = subprocess.run(words, check=True, cwd=tmp_path, capture_output=True, text=True)
    stages = json.loads((tmp_path / "gpu.json").read_text())["stages"]
    assert len(stages) == 7
    assert {stage["ended"] for stage in stages.values()} == {"whole"}
    (speed,) = stages["throughput"]["rows"]
    assert speed["peer"] == "torchvision v2"
    assert speed["times"] == pytest.approx(speed["images/s"] / speed["peer images/s"])
    assert "infonce, N 64" in done.stdout


def test_a_stage_that_breaks_keeps_what_it_found(benchmark):
    def breaks(_device: torch.device, _small: bool) -> Iterator[dict[str, Any]]:
        yield {"what": "seen before", "ok": True}
        raise ZeroDivisionError

    found = benchmark.run(breaks, CPU, True, time.monotonic() + 60)
    assert [row["what"] for row in found["rows"]] == ["seen before"]
    assert found["ended"].startswith("Traceback")
    assert benchmark.run(breaks, CPU, True, 0.0)["ended"] == "the time was up"


@pytest.mark.usefixtures("benchmark")
@pytest.mark.parametrize("tau", [0.2, 0.201])
def test_a_loss_that_is_wrong_by_little_is_seen(monkeypatch, tau):
    checks = importlib.import_module("_gpu_checks")
    monkeypatch.setattr(checks, "LOSSES", {"dcl": lambda a, b, _: checks.dcl(a, b, tau)})
    (row,) = checks.losses_in_float64(CPU, True)
    assert row["ok"] is (tau == 0.2)
