"""Studies of seconds, run by the real command line on a real Ray.

`finished` is the one that the fast tier runs: tests that only read a study share it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

COMMAND = [sys.executable, "-c", "from clsweep.cli.main import main; main()"]


def study_tree(**changes: object) -> dict[str, object]:
    """A study of two objectives on digits; a trial takes about a second."""
    tree: dict[str, object] = {
        "name": "small",
        "dataset": {"name": "digits"},
        "seeds": [0, 1],
        "base": {
            "encoder": "conv4",
            "width": 8,
            "epochs": 2,
            "batch_size": 128,
            "flip_prob": 0,
            "eval_every": 1,
        },
        "space": {"tau": {"low": 0.05, "high": 1.0, "log": True, "grid": [0.1, 0.5]}},
        "objectives": {
            "simclr": {"framework": "simclr", "loss": "infonce"},
            "dcl": {"framework": "simclr", "loss": "dcl"},
        },
        "search": {"method": "grid"},
    }
    return {**tree, **changes}


@pytest.fixture
def write_study(tmp_path: Path) -> Callable[..., Path]:
    def write(**changes: object) -> Path:
        path = tmp_path / "study.yaml"
        path.write_text(yaml.safe_dump(study_tree(**changes), sort_keys=False))
        return path

    return write


@dataclass(frozen=True, kw_only=True)
class Finished:
    """A study that has run: its file, its results, which nobody changes, and what was printed."""

    path: Path
    out: Path
    code: int
    output: str


@dataclass(frozen=True, kw_only=True)
class Continued(Finished):
    """A study that has run in two sessions; `first`: its results after the first of them."""

    first: Path


OBJECTIVES: dict[str, object] = {
    "simclr": {"framework": "simclr", "loss": "infonce"},
    "dcl": {"framework": "simclr", "loss": "dcl"},
    "untrained": {"framework": "simclr", "loss": "dcl", "base": {"epochs": 0}},
    "bad": {"framework": "simclr", "loss": "infonce", "base": {"lr": 1e30}},
    "huge": {"framework": "simclr", "loss": "dcl", "base": {"proj_dim": 10**12}, "space": {}},
}


PRINTED = """\
# item: Table 1
# study: study.yaml
objective,dataset,encoder,tau,metric,value
dcl,digits,conv4,0.1,knn_top1,90.0
dcl,digits,conv4,0.7,knn_top1,90.0
"""


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    """Objectives that train, that do not, that diverge and that need more memory than there is."""
    folder = tmp_path_factory.mktemp("finished")
    path, out = folder / "study.yaml", folder / "out"
    tree = study_tree(objectives=OBJECTIVES, checkpoints={"keep": "best"})
    path.write_text(yaml.safe_dump(tree, sort_keys=False))
    (folder / "table.csv").write_text(PRINTED)
    code, output = clsweep("run", path, "--out", out)
    return Finished(path=path, out=out, code=code, output=output)


@pytest.fixture(scope="session")
def continued(tmp_path_factory: pytest.TempPathFactory) -> Continued:
    """A live search of six configurations. Its first session ends after five of twelve trials,
    within a configuration, and keeps all encoders; its second keeps no further ones.
    """
    folder = tmp_path_factory.mktemp("continued")
    path, out = folder / "study.yaml", folder / "out"
    search = {"method": "tpe", "trials_per_objective": 3}
    tree = study_tree(search=search, encoders={"keep": "all"})
    path.write_text(yaml.safe_dump(tree, sort_keys=False))
    code, output = clsweep("run", path, "--out", out, "--limit", 5)
    assert code == 0, output
    assert "7 left" in output
    first = shutil.copytree(out, folder / "first")
    (out / "encoders" / "dcl-9999-s0.safetensors").write_bytes(b"of a trial that has no row")
    (out / "encoders" / ".0123.tmp").write_bytes(b"half an encoder")
    code, output = clsweep("run", path, "--out", out, "--set", "encoders.keep=none")
    return Continued(path=path, out=out, code=code, output=output, first=first)


def start(*arguments: object) -> subprocess.Popen[str]:
    """The command line in a process group of its own, as a terminal would start it."""
    return subprocess.Popen(
        [*COMMAND, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        # Ray lets whatever else runs go before its trials.
        env=os.environ | {"COLUMNS": "200", "RAY_worker_niceness": "0"},
    )


def clsweep(*arguments: object) -> tuple[int, str]:
    """Exit code and output of one command."""
    process = start(*arguments)
    output, _ = process.communicate(timeout=600)
    return process.returncode, output


def wait_until(condition: Callable[[], object], what: str, timeout_s: float = 400) -> None:
    """Return as soon as the condition holds; fail if it never does."""
    pause = threading.Event()
    for _ in range(int(timeout_s / 0.05)):
        if condition():
            return
        pause.wait(0.05)
    pytest.fail(f"waited {timeout_s} s for {what}")
