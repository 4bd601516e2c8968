"""A run whose Ray breaks, whose trials hang or whose machine lacks memory: it goes on or ends soon,
with a word for the user, and what is left runs with the same command.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

import clsweep
from tests.cluster.conftest import clsweep as command
from tests.cluster.conftest import study_tree
from tests.cluster.disturbed import Disturbed, assert_same_numbers, assert_tidy

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

BASE: dict[str, Any] = {**study_tree()["base"], "epochs": 12}  # type: ignore[dict-item]
STUDY = study_tree(base=BASE, checkpoints={"every_s": 0})


def written(folder: Path, tree: dict[str, Any]) -> Path:
    path = folder / "study.yaml"
    path.write_text(yaml.safe_dump(tree, sort_keys=False))
    return path


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("undisturbed")
    code, output = command("run", written(folder, STUDY), "--out", folder / "out")
    assert code == 0, output
    return folder / "out"


@pytest.fixture
def study(tmp_path: Path) -> Iterator[Disturbed]:
    made = Disturbed(written(tmp_path, STUDY), tmp_path / "out", "--max-concurrent", 2)
    yield made
    made.stop()


def kill_one(study: Disturbed, title: str, *, but: int = 0) -> int:
    """SIGKILL to the process of Ray of that name, as soon as there is another one than `but`."""
    found: list[psutil.Process] = []

    def is_there() -> bool:
        # the raylet's own arguments name the others
        found[:] = [
            process
            for process in study.processes(title)
            if process.pid != but and title in process.cmdline()[0]
        ]
        return bool(found)

    study.wait_until(is_there, title)
    found[0].kill()
    return found[0].pid


@pytest.mark.parametrize("title", ["DashboardAgent", "raylet/raylet", "gcs_server"])
def test_a_lost_process_of_ray_costs_a_start_of_ray(
    study: Disturbed, undisturbed: Path, title: str
) -> None:
    study.start()
    study.reach(20)
    kill_one(study, title)
    code, output = study.wait()
    gone = "gcs_server" if title == "gcs_server" else "raylet"
    assert f"{gone}, a process of Ray (" in output
    if code:  # it may wait for what is gone in a call that does not come back
        assert title == "gcs_server"
        assert "the same command continues it" in output.splitlines()[-1]
        study.run_to_the_end()
    else:
        assert "has ended. Starting Ray once more." in output
    assert_same_numbers(study.out, undisturbed)
    assert_tidy(study)


def test_the_second_time_the_run_ends_with_a_line(study: Disturbed, undisturbed: Path) -> None:
    study.start()
    study.reach(5)
    first = kill_one(study, "raylet/raylet")
    study.reach(30)
    kill_one(study, "raylet/raylet", but=first)
    code, output = study.wait()
    assert code not in (0, 130)
    assert output.splitlines()[-1].endswith(
        "has ended. What has finished is kept; the same command continues it."
    )
    before = clsweep.open_results(study.out).trials
    assert 0 < len(before) < 8
    assert "Nothing is left" not in study.run_to_the_end()
    assert_same_numbers(study.out, undisturbed)
    assert_tidy(study)


HANGING = """
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


ROWS = [
    Component(part="loss", name=f.__name__, impl=f.__name__, owns=("tau",), on=("simclr",), **TEXT)
    for f in (sleeping, spinning)
]
"""


def test_a_trial_that_hangs_gives_its_place_to_others(tmp_path: Path) -> None:
    (tmp_path / "hanging.py").write_text(HANGING)
    losses = ("sleeping", "spinning", "dcl")
    tree = study_tree(
        plugins=["hanging.py"],
        seeds=[0],
        base={**BASE, "epochs": 6},
        objectives={loss: {"framework": "simclr", "loss": loss} for loss in losses},
        resources={"stall_s": 10},
    )
    path, out = written(tmp_path, tree), tmp_path / "out"
    code, output = command("run", path, "--out", out, "--max-concurrent", 2)
    assert code == 1, output
    trials = clsweep.open_results(out).trials.set_index("objective")
    assert set(trials.loc["dcl", "status"]) == {"finished"}
    for loss, place in (("sleeping", "at epoch "), ("spinning", "at epoch 1/6, step 0/10")):
        assert set(trials.loc[loss, "error_class"]) == {"StalledError"}
        for message in trials.loc[loss, "error_message"]:
            assert message.startswith("silent for ")
            assert place in message
    assert "lost its process" not in output, "none of them is tried again"


def test_trials_that_memory_is_missing_for_stay_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = study_tree(seeds=[0], resources={"max_restarts": 0})
    path, out = written(tmp_path, tree), tmp_path / "out"
    with monkeypatch.context() as patch:
        patch.setenv("RAY_memory_usage_threshold", "0.01")  # Ray stops whatever it can
        patch.setenv("RAY_memory_monitor_refresh_ms", "100")
        code, output = command("run", path, "--out", out, "--max-concurrent", 2)
    assert code == 1, output
    assert "Traceback" not in output
    assert "3 trials were lost with their machine (out of memory) and stay open" in output
    assert "ran alone: the run ends with 4 open. With more memory the same command" in output
    assert "0 finished, 0 failed, 4 left" in output
    assert "Nothing is left" not in output
    assert os.listdir(out / "parts" / "trials") == [] if (out / "parts").exists() else True
    code, output = command("run", path, "--out", out, "--max-concurrent", 2)
    assert code == 0, output
    assert set(clsweep.open_results(out).trials["status"]) == {"finished"}
