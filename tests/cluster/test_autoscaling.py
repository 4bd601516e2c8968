"""Studies on a cluster that grows from a head of no CPUs and shrinks to it again."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.cluster.conftest import COMMAND, clsweep, study_tree, wait_until
from tests.cluster.fake_cluster import RAY, FakeCluster, autoscaling_cluster

pytestmark = pytest.mark.slow

BASE = study_tree()["base"]


@pytest.fixture(scope="module")
def cluster() -> Iterator[FakeCluster]:
    with autoscaling_cluster(node={"CPU": 2}, max_workers=2) as cluster:
        yield cluster
    assert cluster.leftovers() == []


@pytest.fixture(autouse=True)
def _as_a_client(cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in cluster.environment.items():
        monkeypatch.setenv(name, value)


def test_a_study_that_no_node_could_ever_hold_is_refused(
    cluster: FakeCluster, write_study: Callable[..., Path], tmp_path: Path
) -> None:
    study = write_study(resources={"cpus_per_worker": 3})
    code, output = clsweep("run", study, "--address", cluster.address, "--out", tmp_path / "out")
    assert code == 2, output
    assert "a trial needs 0 GPUs and 3 CPUs" in output
    assert cluster.worker_nodes() == []
    assert not (tmp_path / "out" / "study.yaml").exists()


def submit(cluster: FakeCluster, *arguments: object, **environment: str) -> tuple[int, str]:
    """`clsweep ...` as a job on the head; exit code and output.

    Without a working directory of its own: the fake nodes share one disk, and the first that leaves
    would empty it.
    """
    submitting = [*RAY, "job", "submit", "--address", cluster.dashboard, "--"]
    command = [*submitting, *COMMAND, *map(str, arguments)]
    environment = os.environ | cluster.environment | environment
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=600, check=False
    )
    return done.returncode, done.stdout + done.stderr


def test_nobody_submits_a_job_without_the_token(
    cluster: FakeCluster, write_study: Callable[..., Path], tmp_path: Path
) -> None:
    code, output = submit(
        cluster, "run", write_study(), "--out", tmp_path / "out", RAY_AUTH_MODE="disabled"
    )
    assert code != 0
    assert "Authentication required" in output
    assert not (tmp_path / "out").exists()


@pytest.mark.soak  # minutes: run when capacity or cluster.yaml changes
def test_nodes_come_for_the_trials_of_a_job_and_leave_after_them(
    cluster: FakeCluster, write_study: Callable[..., Path], tmp_path: Path
) -> None:
    assert cluster.num_nodes() == 1
    study = write_study(base={**BASE, "epochs": 1}, seeds=[0, 1, 2])
    code, output = submit(cluster, "run", study, "--address", "auto", "--out", tmp_path / "out")
    assert code == 0, output
    rows = pq.read_table(tmp_path / "out" / "trials.parquet").to_pylist()
    assert [row["status"] for row in rows] == ["finished"] * 12
    assert len({row["trial_id"] for row in rows}) == 12
    assert len(cluster.all_nodes()) >= 3  # both workers came: four trials at once
    wait_until(lambda: cluster.num_nodes() == 1, "the nodes to leave", timeout_s=300)
    assert cluster.placement_groups() == []
