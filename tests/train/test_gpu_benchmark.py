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

from clsweep.catalog import COMPONENT
from tests.pretended.process import Child, compiled

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
    assert len(stages) == 10
    assert {stage["ended"] for stage in stages.values()} == {"whole"}
    (speed,) = stages["throughput"]["rows"]
    assert speed["peer"] == "torchvision v2"
    assert speed["times"] == pytest.approx(speed["images/s"] / speed["peer images/s"])
    assert "infonce, N 64" in done.stdout


def _main(folder: Path) -> str | int | None:
    """In the child: all of it, and what it exits with."""
    sys.path.insert(0, str(FOLDER))
    sys.argv = ["gpu.py", "--device=cuda:0", "--small", "--limit=10000", f"--out={folder}"]
    try:
        importlib.import_module("gpu").main()
    except SystemExit as ended:
        return ended.code
    return 0


@pytest.mark.slow
def test_it_runs_whole_on_a_pretended_gpu(tmp_path):
    if not torch.backends.cuda.is_built():
        pytest.skip("this torch is built without CUDA")
    try:
        child = Child(compiled(tmp_path))
    except FileNotFoundError as error:
        pytest.skip(str(error))
    try:
        assert child.call(_main, tmp_path) == 0
    finally:
        child.close()
    report = json.loads((tmp_path / "gpu.json").read_text())
    assert report["device"] == "cuda:0"
    assert {stage["ended"] for stage in report["stages"].values()} == {"whole"}
    (graph,) = report["stages"]["graphs"]["rows"]
    assert graph["capture"].endswith("not on this device")
    assert graph["eager ms"] > 0


def test_a_stage_that_breaks_keeps_what_it_found(benchmark):
    written: list[int] = []

    def breaks(_device: torch.device, _small: bool) -> Iterator[dict[str, Any]]:
        yield {"what": "seen before", "ok": True}
        raise ZeroDivisionError

    def write(actual: dict[str, Any]) -> None:
        written.append(len(actual["rows"]))

    actual = benchmark.run(breaks, CPU, True, time.monotonic() + 60, write)
    assert [row["what"] for row in actual["rows"]] == ["seen before"]
    assert actual["ended"].startswith("Traceback")
    assert written == [1, 1]  # after the row, and at the end
    assert benchmark.run(breaks, CPU, True, 0.0, write)["ended"] == "the time was up"


def test_an_early_stage_leaves_the_later_ones_their_time(benchmark):
    ends = benchmark.ends(list(benchmark.STAGES), 540.0)
    assert list(ends.values()) == sorted(ends.values())
    assert ends["stages"] == pytest.approx(540.0)
    parts = [b - a for a, b in zip([0.0, *ends.values()], ends.values(), strict=False)]
    assert min(parts) > 10.0
    assert benchmark.ends(["study"], 60.0) == {"study": 60.0}


@pytest.mark.usefixtures("benchmark")
def test_the_objectives_have_every_part_of_the_catalog():
    parts = importlib.import_module("_gpu_checks").OBJECTIVES.values()
    work = importlib.import_module("_work")
    configs = [work.config_of("conv4-16", 32, 32, "fp32", **given) for given in parts]
    for part, rest in (("framework", {"mi_critic"}), ("loss", set()), ("regularizer", set()),
                       ("views", set())):  # fmt: skip
        assert {config[part] for config in configs} == set(COMPONENT[part]) - rest


@pytest.mark.usefixtures("benchmark")
@pytest.mark.parametrize("tau", [0.2, 0.201])
def test_a_loss_that_is_wrong_by_little_is_seen(monkeypatch, tau):
    checks = importlib.import_module("_gpu_checks")
    monkeypatch.setattr(checks, "LOSSES", {"dcl": lambda a, b, _: checks.dcl(a, b, tau)})
    monkeypatch.setattr(checks, "OBJECTIVES", {})
    (row,) = checks.losses_in_float64(CPU, True)
    assert row["ok"] is (tau == 0.2), row
