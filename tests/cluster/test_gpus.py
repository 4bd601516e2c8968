"""GPUs on a real Ray that has none: who sees them, and what becomes of one that breaks."""

import json
import socket
import subprocess
import sys

import pytest
import torch

import clsweep
from clsweep.cluster import trial
from clsweep.cluster.gpus import Seen, require_gpus
from clsweep.errors import RequestError
from clsweep.study.design import plan_trials
from clsweep.study.resolve import load_study
from clsweep.study.schema import ResourcesSection
from clsweep.train.device import without_bf16
from tests.planted import study_at

OWN = """
import sys
import clsweep
clsweep.run(clsweep.load_study(sys.argv[1]), out=sys.argv[2], max_concurrent=1)
"""
# Others have started it, on a node that declares two GPUs; of these a study would have one.
OF_OTHERS = """
import sys
import clsweep
import ray
ray.init(num_cpus=2, num_gpus=2, include_dashboard=False, object_store_memory=100 * 2**20)
study = clsweep.load_study(sys.argv[1], settings=["resources.gpus_per_worker=1"])
try:
    clsweep.run(study, out="refused")
except ValueError as error:
    print(error, file=open("error", "w"))
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


@pytest.mark.slow
@pytest.mark.parametrize(
    ("before", "workers"), [(OF_OTHERS, 1), pytest.param("", 2, marks=pytest.mark.soak)]
)
def test_a_study_that_asks_for_no_gpu_sees_none(study, tmp_path, monkeypatch, before, workers):
    """Neither its trials nor its reference scores, each of which makes the network. GPUs that are
    only declared are refused before anything starts.
    """
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    path = study(seeds=[0], space={}, resources={"workers": workers})
    results, calls = run(path, before)
    assert results.trials["status"].tolist() == ["finished"]
    assert len(results.references) == 2
    assert {call["sees"] for call in calls} == {""}
    assert len({call["pid"] for call in calls}) == 1 + workers
    if before and not torch.cuda.is_available():
        node = f"node {socket.gethostname()} declares 2 GPUs, but torch can use none there: "
        assert f": resources.gpus_per_worker: {node}" in (tmp_path / "error").read_text()
        assert not (tmp_path / "refused" / "study.yaml").exists()


@pytest.mark.slow
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


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_a_trial_on_a_gpu_that_is_only_declared_names_key_and_node():
    context = trial.TrialContext(
        places={}, resources=ResourcesSection(gpus_per_worker=1), results="", near=None
    )
    expected = (
        f"resources.gpus_per_worker: .* node {socket.gethostname()}, where torch can use none"
    )
    for begin in (lambda: trial._device(context), lambda: trial._score([], context)):
        with pytest.raises(RequestError, match=expected):
            begin()


GOOD = Seen("a", 2.0, "", [])
OLD = Seen("b", 1.0, "", ["Tesla T4"])
ABSENT = Seen("c", 4.0, "Found no NVIDIA driver on your system.", [])


@pytest.mark.parametrize(
    ("seen", "precision", "expected"),
    [
        ([OLD], "auto", "base.precision: Tesla T4 of node b has no bf16 arithmetic. Expected fp16 "
         "or fp32, as in --set base.precision=fp16"),
        ([ABSENT, OLD], "bf16", "resources.gpus_per_worker: node c declares 4 GPUs, but torch can "
         "use none there: Found no NVIDIA driver on your system. Expected a driver"),
        ([ABSENT], "fp32", "resources.gpus_per_worker: node c"),
        ([OLD], "fp16", ""),
        ([GOOD, OLD, ABSENT], "auto", ""),
        ([], "auto", ""),
    ],
)  # fmt: skip
def test_a_run_that_could_only_fail_does_not_begin(study, capsys, seen, precision, expected):
    base = {**BASE, "encoder": "conv4", "precision": precision}
    path = study(base=base, resources={"gpus_per_worker": 1})
    loaded = load_study(path)
    if expected:
        with pytest.raises(RequestError) as caught:
            require_gpus(loaded, plan_trials(loaded), seen)
        assert expected in str(caught.value)
        assert str(caught.value).startswith(f"{path}:")
        return
    require_gpus(loaded, plan_trials(loaded), seen)
    printed = " ".join(capsys.readouterr().out.split())
    for unfit in ("Tesla T4 of node b", "node c declares 4 GPUs"):
        assert (unfit in printed) == (len(seen) == 3)


@pytest.mark.parametrize(("capability", "expected"), [((7, 5), ["Old"]), ((8, 0), [])])
def test_gpus_of_compute_capability_8_have_bf16(capability, expected, monkeypatch):
    monkeypatch.setattr(torch.version, "hip", None)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: capability)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "Old")
    assert without_bf16() == expected
