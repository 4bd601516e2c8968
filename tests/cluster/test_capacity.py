"""How many trials a cluster holds, and what is said where it holds none."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from clsweep.cluster.capacity import (
    Cluster,
    autoscaler,
    max_trials,
    require_capacity,
    scalable_nodes,
)
from clsweep.errors import RequestError
from clsweep.study.resolve import load_study
from clsweep.study.schema import ResourcesSection


@pytest.mark.parametrize(
    ("request_", "nodes", "expected"),
    [
        ({"cpus_per_worker": 3}, [{"CPU": 8}, {"CPU": 4}], 3),
        ({"workers": 3}, [{"CPU": 2}, {"CPU": 2}], 1),
        ({"workers": 5}, [{"CPU": 2}, {"CPU": 2}], 0),
        ({"gpus_per_worker": 1}, [{"CPU": 64}], 0),
        ({}, [{"CPU": 0}], 0),
        ({}, [], 0),
        # As Ray places them: a part of a GPU never reaches over two of them.
        ({"gpus_per_worker": 0.6}, [{"CPU": 8, "GPU": 2}], 2),
        ({"gpus_per_worker": 0.4}, [{"CPU": 8, "GPU": 2}], 4),
        ({"gpus_per_worker": 0.3}, [{"CPU": 8, "GPU": 2}], 6),
        ({"gpus_per_worker": 0.1}, [{"CPU": 16, "GPU": 1}], 10),
        ({"gpus_per_worker": 2}, [{"CPU": 8, "GPU": 3}], 1),
        ({}, [{"CPU": 64, "memory": 8 * 2**30}], 16),  # half a GiB each
        ({}, [{"CPU": 2, "memory": 2**20}], 1),
    ],
)
def test_trials_that_fit(request_: dict, nodes: list[dict], expected: int) -> None:
    assert max_trials(ResourcesSection(**request_), Cluster(up=nodes)) == expected


def limits(max_workers: int, **types: dict) -> dict:
    node_types = {"head": {"resources": {"CPU": 0}}, **types}
    return {
        "head_node_type": "head",
        "max_workers": max_workers,
        "available_node_types": node_types,
    }


def test_the_cluster_s_own_limit_holds_over_all_node_types_and_the_best_nodes_count() -> None:
    small, large = {"resources": {"CPU": 4}}, {"resources": {"CPU": 16}, "max_workers": 3}
    config = limits(5, small=small, large=large)
    assert max_trials(ResourcesSection(), Cluster(up=[{"CPU": 0}], limits=config)) == 3 * 16 + 2 * 4
    assert len(scalable_nodes(config, ResourcesSection())) == 1 + 5


def test_limits_are_those_that_ray_fills_in() -> None:
    from ray.autoscaler._private.util import fill_node_type_min_max_workers

    config = limits(
        4, first={"resources": {"CPU": 1}}, second={"resources": {"CPU": 2}, "max_workers": 1}
    )
    before = scalable_nodes(config, ResourcesSection())
    fill_node_type_min_max_workers(config)
    assert (
        scalable_nodes(config, ResourcesSection())
        == before
        == [{"CPU": 0}, {"CPU": 2}, *[{"CPU": 1}] * 3]
    )


def test_a_node_that_joined_by_hand_counts_beside_an_autoscaler() -> None:
    config = limits(2, worker={"resources": {"CPU": 4}})
    cluster = Cluster(up=[{"CPU": 0}, {"CPU": 8, "GPU": 4}], limits=config, autoscales=True)
    assert max_trials(ResourcesSection(gpus_per_worker=1), cluster) == 4


def test_an_autoscaler_of_unknown_limits_is_believed_what_the_user_says(
    write_study: Callable[..., Path],
) -> None:
    study = load_study(write_study())
    unknown = Cluster(up=[{"CPU": 0}], autoscales=True)
    with pytest.raises(RequestError, match="its limits cannot be read: say with --max-concurrent"):
        require_capacity(study, unknown)
    assert require_capacity(study, unknown, 6) == 6
    with pytest.raises(RequestError, match="Name a cluster with --address"):
        require_capacity(
            study, Cluster(up=[{"CPU": 0}]), 6
        )  # without an autoscaler nothing will come


@pytest.fixture
def head(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The home of a head node that nobody has named."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("RAY_CLUSTER_NAME", raising=False)
    return tmp_path


@pytest.mark.usefixtures("head")
def test_a_head_that_was_started_by_hand_does_not_autoscale() -> None:
    assert autoscaler() == (None, False)


def test_the_limits_of_a_cluster_of_ray_up_are_those_of_its_file(head: Path) -> None:
    config = limits(3, worker={"resources": {"CPU": 1}})
    (head / "ray_bootstrap_config.yaml").write_text(yaml.safe_dump(config))
    assert autoscaler() == (config, True)


@pytest.mark.usefixtures("head")
def test_a_cluster_of_kuberay_may_autoscale_to_unknown_limits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("RAY_CLUSTER_NAME", "clsweep")
    assert autoscaler() == (None, True)
