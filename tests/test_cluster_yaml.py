"""`cluster.yaml` and what `clsweep new cluster` writes, as Ray and a shell read them, and what a
study may expect of them. Other readers: `cluster/test_aws_nodes.py`, `test_cluster_tools.py`.
"""

from __future__ import annotations

import os
import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from clsweep.cli.new import CLUSTER_FILES, CLUSTERS, cluster
from clsweep.data.locations import DataPlace
from clsweep.errors import RequestError

ROOT = Path(__file__).parents[1]
HOME = "/home/ubuntu"


@pytest.fixture
def config():
    return yaml.safe_load((ROOT / "cluster.yaml").read_text())


@pytest.fixture
def ray_cluster():
    return yaml.safe_load((CLUSTERS / "kuberay.yaml").read_text())


@pytest.fixture(scope="module")
def flags():
    """The options that `ray start` knows."""
    from ray.scripts.scripts import start

    return {name for parameter in start.params for name in parameter.opts}


def ray_starts(config: dict[str, Any]) -> list[str]:
    commands = config["head_start_ray_commands"] + config["worker_start_ray_commands"]
    return [command for command in commands if "ray start" in command]


def test_ray_starts_on_no_node_without_the_token(config, ray_cluster):
    assert len(ray_starts(config)) == 2
    assert all(" RAY_AUTH_MODE=token " in command for command in ray_starts(config))
    assert config["file_mounts"][f"{HOME}/.ray/auth_token"] == "~/.ray/auth_token"
    assert ray_cluster["spec"]["authOptions"] == {"mode": "token"}


def test_ray_accepts_it_and_no_port_of_ray_is_opened(config, flags):
    from ray.autoscaler._private.util import prepare_config, validate_config

    prepared = prepare_config(config)
    validate_config(prepared)
    assert set(prepared["available_node_types"]) == {"head", "gpu_worker", "gpu4_worker"}
    head = next(command for command in ray_starts(config) if "--head" in command)
    assert "--dashboard-host=127.0.0.1" in head
    assert {*re.findall(r"--[a-z-]+", " ".join(ray_starts(config)))} <= flags


@pytest.fixture
def installation():
    """Files and folders that `pip install` reads with the constraints."""
    written = tomllib.loads((ROOT / "pyproject.toml").read_text())
    project, wheel = written["project"], written["tool"]["hatch"]["build"]["targets"]["wheel"]
    needed = {*wheel["packages"], *wheel["force-include"], "pyproject.toml", "constraints.txt"}
    needed |= {project["readme"], *project["license-files"]}
    assert all((ROOT / name).exists() for name in needed)
    return needed


def test_everything_that_the_installation_reads_is_on_the_nodes(config, installation):
    mounted = config["file_mounts"].items()
    mounts = {remote.removeprefix(f"{HOME}/clsweep/"): local for remote, local in mounted}
    assert {name: mounts.get(name) for name in installation} == {n: n for n in installation}


def test_everything_that_the_installation_reads_is_in_the_image(installation):
    lines = (CLUSTERS / CLUSTER_FILES["docker"]).read_text().splitlines()
    copied = [line.split()[1:] for line in lines if line.startswith("COPY ")]
    assert {name for *names, _ in copied for name in names} == installation
    for *names, target in copied:  # COPY of a folder copies what is in it
        assert target == (names[0] if (ROOT / names[0]).is_dir() else "./")
    installs = [line for line in lines if "pip install" in line]
    assert all("-c constraints.txt" in line for line in installs)


def test_kuberay_s_autoscaler_reads_the_file(ray_cluster):
    from ray.autoscaler._private.kuberay.autoscaling_config import (
        _derive_autoscaling_config_from_ray_cr,
    )

    applied = {**ray_cluster, "metadata": {**ray_cluster["metadata"], "namespace": "default"}}
    # What the autoscaler does, with Ray's schema check.
    limits = _derive_autoscaling_config_from_ray_cr(applied)
    resources = {name: kind["resources"] for name, kind in limits["available_node_types"].items()}
    assert resources["headgroup"]["CPU"] == 0
    assert [resources[f"{name}-worker"]["GPU"] for name in ("gpu", "gpu4")] == [1, 4]


def test_the_image_of_kuberay_is_filled_in_once_and_its_cache_is_on_the_node(
    ray_cluster, monkeypatch
):
    assert (CLUSTERS / "kuberay.yaml").read_text().count("FILL-IN") == 1
    for group in ray_cluster["spec"]["workerGroupSpecs"]:
        pod = group["template"]["spec"]
        (container,) = pod["containers"]
        mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
        for each in container["env"]:
            monkeypatch.setenv(each["name"], each["value"])
        [volume] = pod["volumes"]
        assert DataPlace().cache_folder.is_relative_to(mounts[volume["name"]])
        limits, taints = container["resources"]["limits"], pod["tolerations"]
        assert set(limits) & {taint["key"] for taint in taints} == {"nvidia.com/gpu"}


@pytest.fixture
def task():
    return yaml.safe_load((CLUSTERS / CLUSTER_FILES["skypilot"]).read_text())


def test_ray_knows_the_options_of_the_skypilot_task(task, flags):
    for script in (task["setup"], task["run"]):
        subprocess.run(["bash", "-n"], input=script, text=True, check=True)
    starts = [line for line in task["run"].splitlines() if "ray start" in line]
    assert ["--head" in line for line in starts] == [False, True]
    used = {o for line in [*starts, task["run"].split("common=")[1].splitlines()[0]]
            for o in re.findall(r"--[a-z-]+", line)}  # fmt: skip
    assert used <= flags
    assert "ray stop" not in task["run"]  # it would end SkyPilot's own Ray
    assert "RAY_AUTH_MODE=token" in task["run"]
    assert "RAY_AUTH_TOKEN" in task["secrets"]


def test_skypilot_s_head_runs_the_study_and_the_others_join(task, tmp_path):
    """The shell of the task, with stand-ins for what it calls."""
    for name in ("ray", "clsweep"):
        (tmp_path / name).write_text(f'#!/bin/bash\necho {name} "$@"\n')
        (tmp_path / name).chmod(0o755)
    (tmp_path / "clsweep-venv" / "bin").mkdir(parents=True)
    (tmp_path / "clsweep-venv" / "bin" / "activate").write_text(f"export PATH={tmp_path}:$PATH\n")
    lines = []
    for rank in "01":
        environment = {
            "HOME": str(tmp_path), "PATH": os.environ["PATH"],
            "STUDY": "tau.yaml", "OUT": "s3://b/tau", "OPTIONS": "--set dataset.root=/images",
            "SKYPILOT_NODE_IPS": "10.0.0.1\n10.0.0.2", "SKYPILOT_NODE_RANK": rank,
            "SKYPILOT_NUM_GPUS_PER_NODE": "1",
        }  # fmt: skip
        done = subprocess.run(
            ["bash", "-ec", task["run"]],
            env=environment, capture_output=True, text=True, check=True,
        )  # fmt: skip
        lines.append(done.stdout.splitlines())
    assert lines[0][-1] == (
        "clsweep run tau.yaml --out s3://b/tau --address 10.0.0.1:6379 --set dataset.root=/images"
    )
    assert lines[0][0].startswith("ray start --head --port=6379 --node-ip-address=10.0.0.1")
    assert lines[1][-1].startswith("ray start --address=10.0.0.1:6379 --num-gpus=1")


@pytest.mark.parametrize("scheduler", CLUSTER_FILES)
def test_a_new_file_is_written_once(scheduler, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    cluster(scheduler)
    name = CLUSTER_FILES[scheduler]
    assert (tmp_path / name).read_text() == (CLUSTERS / name).read_text()
    with pytest.raises(RequestError, match=f"{name}: exists already"):
        cluster(scheduler)
