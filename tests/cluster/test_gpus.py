"""GPUs on a real Ray that has none: who sees them, and what becomes of one that breaks."""

import json
import subprocess
import sys

import pytest

import clsweep
from tests.planted import study_at

pytestmark = pytest.mark.slow

OWN = """
import sys
import clsweep
clsweep.run(clsweep.load_study(sys.argv[1]), out=sys.argv[2], max_concurrent=1)
"""
# Others have started it, on a node that declares two GPUs.
OF_OTHERS = """
import ray
ray.init(num_cpus=2, num_gpus=2, include_dashboard=False, object_store_memory=100 * 2**20)
"""
# Each call in a process of Ray says which one it is, and what it sees.
NETWORK = """
import json, os
from pathlib import Path

import torch
from torch import nn


def small(channels):
    if "RAY_RAYLET_PID" in os.environ:
        call = {"pid": os.getpid(), "sees": os.environ.get("CUDA_VISIBLE_DEVICES", "all")}
        with Path(__file__).with_name("calls").open("a") as file:
            print(json.dumps(call), file=file)
    return nn.Sequential(
        nn.Conv2d(channels, 8, 3, 2), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
    )
"""
# A loss that fails on the device, at one temperature.
BREAKS = """
import json, os
from pathlib import Path

import torch

from clsweep.catalog import Component
from clsweep.objective.losses import dcl


def refuse():
    raise torch.AcceleratorError("CUDA error: device-side assert triggered, as empty_cache says")


def breaks(z1_ND, z2_ND, tau, **memory):
    if "RAY_RAYLET_PID" in os.environ:
        with Path(__file__).with_name("steps").open("a") as file:
            print(json.dumps([os.getpid(), tau]), file=file)
    if tau == 0.5:
        torch.cuda.is_initialized, torch.cuda.synchronize = lambda: True, lambda: None
        torch.cuda.empty_cache = refuse
        raise torch.AcceleratorError("CUDA error: device-side assert triggered")
    return dcl(z1_ND, z2_ND, tau=tau, **memory)


ROWS = [
    Component(part="loss", name="breaks", impl="breaks", owns=("tau",), on=("simclr",),
              source="this test", doc="a loss that fails"),
]
"""
BASE = {
    "encoder": "nets:small", "epochs": 1, "batch_size": 128, "linear_probe": "none", "flip_prob": 0
}  # fmt: skip
ONE = {"dcl": {"framework": "simclr", "loss": "dcl"}}


@pytest.fixture
def study(tmp_path, monkeypatch):
    """A study of these sections in a working folder with a network of its own."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "nets.py").write_text(NETWORK)

    def write(**sections):
        return study_at(tmp_path / "study.yaml", **{"base": BASE, "objectives": ONE, **sections})

    return write


def run(path, before=""):
    """The results, and the calls of the network in processes of Ray."""
    words = [sys.executable, "-c", before + OWN, str(path), "out"]
    done = subprocess.run(words, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "lost its process" not in done.stdout
    lines = path.with_name("calls").read_text().splitlines()
    return clsweep.open_results("out"), list(map(json.loads, lines))


@pytest.mark.parametrize(("before", "workers"), [(OF_OTHERS, 1), ("", 2)])
def test_a_study_that_asks_for_no_gpu_sees_none(study, monkeypatch, before, workers):
    """Neither its trials nor its reference scores, each of which makes the network."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    path = study(seeds=[0], space={}, resources={"workers": workers})
    results, calls = run(path, before)
    assert results.trials["status"].tolist() == ["finished"]
    assert len(results.references) == 2
    assert {call["sees"] for call in calls} == {""}
    assert len({call["pid"] for call in calls}) == 1 + workers


def test_a_process_whose_gpu_is_lost_to_it_ends_with_its_trial(study, tmp_path):
    """The first error is the trial's own, in one row and never tried again; the others finish in
    processes of their own.
    """
    (tmp_path / "mine.py").write_text(BREAKS)
    objectives = {"dcl": {"framework": "simclr", "loss": "breaks"}}
    space = {"tau": {"choices": [0.5, 0.1]}}
    path = study(plugins=["mine.py"], objectives=objectives, space=space, encoders={"keep": "none"})
    results, _ = run(path)
    trials = results.trials.sort_values(["tau", "seed"])
    assert trials["status"].tolist() == ["finished", "finished", "failed", "failed"]
    for row in trials[trials["status"] == "failed"].to_dict("records"):
        assert row["error_class"] == "AcceleratorError"
        assert row["error_message"].endswith("CUDA error: device-side assert triggered")
        assert "in breaks" in row["error_traceback"]
        assert "empty_cache" not in row["error_traceback"]
    steps = [json.loads(line) for line in (tmp_path / "steps").read_text().splitlines()]
    broke = [pid for pid, tau in steps if tau == 0.5]
    assert len(broke) == len(set(broke)) == 2
    for pid in broke:
        assert [step for step in steps if step[0] == pid][-1] == [pid, 0.5]
