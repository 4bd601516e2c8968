"""Two studies at once on one cluster: neither waits for the end of the other."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

import clsweep
from tests.cluster.conftest import wait_until
from tests.cluster.fake_cluster import FakeCluster, static_cluster

pytestmark = pytest.mark.soak  # minutes each: run when sharing.py changes

# As `clsweep run`, with little patience: a turn is short where trials are.
COMMAND = """
import clsweep.cluster.sharing
clsweep.cluster.sharing.PATIENCE_S = 5.0
from clsweep.cli.main import main
main()
"""
BASE = {"encoder": "conv4", "width": 8, "batch_size": 128, "flip_prob": 0, "eval_every": 80}


def num_rows(out: Path) -> int:
    """Trials that have a row, as another process sees it."""
    return len(clsweep.open_results(out).trials) if (out / "study.yaml").exists() else 0


@pytest.mark.parametrize(
    ("num_cpus", "num_seeds", "epochs"),
    [(2, 2, 80), (1, 1, 240)],
    ids=["a place each", "fewer places than studies"],
)
@pytest.mark.timeout(1800)
def test_a_second_study_begins_while_the_first_runs(
    num_cpus: int,
    num_seeds: int,
    epochs: int,
    write_study: Callable[..., Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with static_cluster([num_cpus]) as cluster:
        for name, value in cluster.environment.items():
            monkeypatch.setenv(name, value)
        study = write_study(base={**BASE, "epochs": epochs}, seeds=list(range(num_seeds)))
        outs = [tmp_path / name for name in ("first", "second")]

        def start(out: Path) -> subprocess.Popen[str]:
            arguments = ["run", str(study), "--out", str(out), "--address", cluster.address]
            return subprocess.Popen(
                [sys.executable, "-c", COMMAND, *arguments],
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                env=os.environ | {"COLUMNS": "200"},
            )

        first = start(outs[0])
        wait_until(lambda: num_rows(outs[0]) >= 1, "the first study's first row")
        second = start(outs[1])
        wait_until(lambda: num_rows(outs[1]) >= 1, "the second study's first row", timeout_s=600)
        assert num_rows(outs[0]) < 4 * num_seeds, (
            "the second study had to wait for the end of the first"
        )
        for process in (first, second):
            output, _ = process.communicate(timeout=600)
            assert process.returncode == 0, output
        tables = [
            clsweep.open_results(out).trials[["trial_id", "status", "knn_top1", "train_loss"]]
            for out in outs
        ]
        assert tables[0]["trial_id"].is_unique
        pd.testing.assert_frame_equal(*tables)
        _nothing_is_held(cluster)


def _nothing_is_held(cluster: FakeCluster) -> None:
    wait_until(lambda: cluster.placement_groups() == [], "the placement groups to go")
