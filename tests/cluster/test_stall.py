"""Trials that hang or fail by what a user wrote, and a machine that lacks memory: the others go on,
or the run ends soon, with a word for the user, and what is left runs with the same command.
`tests/contracts/test_kills.py` has a Ray that breaks.
"""

import os

import pytest

import clsweep
from tests.cluster.conftest import clsweep as command
from tests.cluster.without_ray import without_ray
from tests.planted import study_at, study_tree

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

LOSSES = """
import time

from clsweep.catalog import Component
from clsweep.objective.losses import dcl

TEXT = {"source": "this test", "doc": "own"}
CALLS = []


def sleeping(z1_ND, z2_ND, tau, **memory):
    CALLS.append(1)
    if len(CALLS) > 25:
        time.sleep(10_000)
    return dcl(z1_ND, z2_ND, tau=tau, **memory)


def spinning(z1_ND, z2_ND, tau, **memory):
    while True:
        pass


def raising(z1_ND, z2_ND, tau, **memory):
    raise OSError("my own")


def infinite(z1_ND, z2_ND, tau, **memory):
    return z1_ND.sum() / 0


ROWS = [
    Component(part="loss", name=f.__name__, impl=f.__name__, owns=("tau",), on=("simclr",), **TEXT)
    for f in (sleeping, spinning, raising, infinite)
]
"""
FAILED = {
    "sleeping": ("StalledError", "silent for ", "at epoch "),
    "spinning": ("StalledError", "silent for ", "at epoch 1/6, step 0/10"),
    "raising": ("OSError", "mine.py:{}: OSError: my own", ""),
    "infinite": ("DivergedError", "mine.py:{}: DivergedError: the loss is ", ""),
}


def test_a_loss_that_hangs_or_fails_fails_its_trials_alone(tmp_path):
    (tmp_path / "mine.py").write_text(LOSSES)
    base = {**study_tree()["base"], "epochs": 6}
    path = study_at(
        tmp_path / "study.yaml",
        seeds=[0],
        plugins=["mine.py"],
        base=base,
        objectives={loss: {"framework": "simclr", "loss": loss} for loss in (*FAILED, "dcl")},
        resources={"stall_s": 10},
    )
    code, output = command("run", path, "--out", tmp_path / "out", "--max-concurrent", 2)
    assert (code, "Traceback" in output) == (1, False), output
    assert "lost its process" not in output, "none of them is tried again"
    trials = clsweep.open_results(tmp_path / "out").trials.set_index("objective")
    assert set(trials.loc["dcl", "status"]) == {"finished"}
    lines = LOSSES.splitlines()
    places = {
        "raising": 1 + lines.index('    raise OSError("my own")'),
        "infinite": 1 + lines.index("def infinite(z1_ND, z2_ND, tau, **memory):"),
    }
    for loss, (error_class, begin, place) in FAILED.items():
        assert set(trials.loc[loss, "error_class"]) == {error_class}
        for message in trials.loc[loss, "error_message"]:
            assert message.startswith(begin.format(places.get(loss)))
            assert place in message
    assert f"mine.py:{places['raising']}: OSError: my own" in output


def test_trials_that_memory_is_missing_for_stay_open(tmp_path, monkeypatch, cli_command):
    path, out = tmp_path / "study.yaml", tmp_path / "out"
    study_at(path, seeds=[0], resources={"max_restarts": 0})
    monkeypatch.setenv("RAY_memory_usage_threshold", "0.01")  # Ray stops whatever it can
    monkeypatch.setenv("RAY_memory_monitor_refresh_ms", "100")
    code, output = command("run", path, "--out", out, "--max-concurrent", 2)
    assert code == 1, output
    assert "Traceback" not in output
    assert "3 trials were lost with their machine (out of memory) and stay open" in output
    assert "ran alone: the run ends with 4 open. With more memory the same command" in output
    assert "0 finished, 0 failed, 4 left" in output
    assert "Nothing is left" not in output
    assert os.listdir(out / "parts" / "trials") == [] if (out / "parts").exists() else True
    with without_ray():
        code, _, error = cli_command("run", str(path), "--out", str(out))
    assert code == 0, error
    assert set(clsweep.open_results(out).trials["status"]) == {"finished"}
