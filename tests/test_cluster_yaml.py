"""`cluster.yaml` as Ray itself checks it, and what clsweep reads from it."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from clsweep.cluster.capacity import max_trials, scalable_nodes
from clsweep.study.schema import ResourcesSection

PATH = Path(__file__).parents[1] / "cluster.yaml"


@pytest.fixture
def config() -> dict:
    return yaml.safe_load(PATH.read_text())


def test_ray_accepts_it(config: dict) -> None:
    from ray.autoscaler._private.util import prepare_config, validate_config

    prepared = prepare_config(config)
    validate_config(prepared)
    assert set(prepared["available_node_types"]) == {"head", "gpu_worker"}


def test_every_ray_command_authenticates_and_no_port_is_opened(config: dict) -> None:
    commands = config["head_start_ray_commands"] + config["worker_start_ray_commands"]
    assert all(command.startswith("RAY_AUTH_MODE=token ") for command in commands)
    assert "/home/ubuntu/.ray/auth_token" in config["file_mounts"]
    assert "--dashboard-host=127.0.0.1" in " ".join(commands)
    assert "IpPermissions" not in config["provider"]["security_group"]  # Ray's default: SSH, and the group itself


def test_workers_are_spot_and_leave_when_idle(config: dict) -> None:
    worker = config["available_node_types"]["gpu_worker"]
    assert worker["node_config"]["InstanceMarketOptions"]["MarketType"] == "spot"
    assert worker["min_workers"] == 0
    assert config["idle_timeout_minutes"] > 0


def test_capacity_counts_the_nodes_that_the_autoscaler_may_start(config: dict) -> None:
    nodes = scalable_nodes(config)
    assert max_trials(ResourcesSection(gpus_per_worker=1, cpus_per_worker=6), nodes) == 8
    assert max_trials(ResourcesSection(gpus_per_worker=0.25, cpus_per_worker=2), nodes) == 32
    assert max_trials(ResourcesSection(workers=4, gpus_per_worker=1, cpus_per_worker=6), nodes) == 2
    assert max_trials(ResourcesSection(gpus_per_worker=2), nodes) == 0


@pytest.mark.parametrize(
    ("request_", "nodes", "expected"),
    [
        ({"cpus_per_worker": 3}, [{"CPU": 8}, {"CPU": 4}], 3),
        ({"gpus_per_worker": 0.1}, [{"CPU": 16, "GPU": 0.3}], 3),
        ({"workers": 3}, [{"CPU": 2}, {"CPU": 2}], 1),
        ({"workers": 5}, [{"CPU": 2}, {"CPU": 2}], 0),
        ({"gpus_per_worker": 1}, [{"CPU": 64}], 0),
        ({}, [], 0),
    ],
)
def test_trials_that_fit(request_: dict, nodes: list[dict], expected: int) -> None:
    assert max_trials(ResourcesSection(**request_), nodes) == expected
