"""A trial that is cut in mid-epoch, by whatever reaches a process, goes on from there."""

from __future__ import annotations

import json
import random
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import clsweep
from clsweep.train.attempt import unpack
from tests.cluster.conftest import study_tree
from tests.cluster.disturbed import TRIAL, Disturbed, assert_as_undisturbed

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

STUDY = study_tree(
    seeds=[0],
    base={**study_tree()["base"], "width": 32, "epochs": 2, "batch_size": 16},  # type: ignore[dict-item]
    space={},
    objectives={"moco": {"framework": "moco", "loss": "dcl"}},
    checkpoints={"every_s": 1e6},  # none but those that are asked for
)


@pytest.fixture
def study(tmp_path: Path) -> Iterator[Disturbed]:
    path = tmp_path / "study.yaml"
    path.write_text(yaml.safe_dump(STUDY, sort_keys=False))
    made = Disturbed(path, tmp_path / "out")
    yield made
    made.stop()


def said(study: Disturbed) -> dict[str, Any]:
    """What the trial last said."""
    files = study.scratch("said/*s0")
    state: dict[str, Any] = json.loads(files[0].read_text())["state"] if files else {}
    return state


def step(study: Disturbed) -> int:
    """Of its epoch, as the trial last said."""
    state = said(study)
    return state.get("step", 0) if state.get("step") != state.get("steps") else 0


def saved_at(study: Disturbed) -> tuple[int, int]:
    """Epochs that the one checkpoint has finished, and steps of the next; (0, 0) without one."""
    for path in study.files("checkpoints", ".ckpt"):
        state: Any = unpack(path.read_bytes())["state"]
        return int(state["epoch"]), int((state["under_way"] or {"step": 0})["step"])
    return 0, 0


def test_a_trial_that_is_cut_in_mid_epoch_goes_on_there(study: Disturbed, tmp_path: Path) -> None:
    longer = {**STUDY, "base": {**STUDY["base"], "epochs": 5}}
    study.path.write_text(yaml.safe_dump(longer, sort_keys=False))
    study.start()
    study.wait_until(lambda: step(study), "a step")
    [trial] = study.processes(TRIAL)
    trial.send_signal(signal.SIGTERM)
    study.wait_until(lambda: saved_at(study) > (0, 0), "a checkpoint")
    first = saved_at(study)
    study.wait_until(lambda: study.processes(TRIAL) not in ([], [trial]), "another process")
    study.wait_until(
        lambda: step(study) and (said(study)["epoch"] - 1, step(study)) > first, "further steps"
    )

    study.signal(signal.SIGTERM)
    second = saved_at(study)
    assert second > first

    study.start("--set", "checkpoints.every_s=1")
    study.wait_until(lambda: saved_at(study) > second, "a later checkpoint")
    study.kill(TRIAL, random.Random(0))
    study.run_to_the_end() if study.wait()[0] else None

    assert clsweep.open_results(study.out).trials["num_resumes"].tolist() == [3]
    undisturbed = Disturbed(study.path, tmp_path / "undisturbed")
    undisturbed.run_to_the_end()
    assert_as_undisturbed(study, undisturbed.out, tmp_path)
