"""How many trials a cluster holds, and what is said where it holds none."""

from pathlib import Path

import pytest

from clsweep.cluster import resources
from clsweep.cluster.resources import Cluster, has_autoscaler, max_trials, require_capacity
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
        ({"workers": 2, "gpus_per_worker": 1}, [{"CPU": 8, "GPU": 3}], 1),
        ({}, [{"CPU": 64, "memory": 8 * 2**30}], 16),  # half a GiB each
        ({}, [{"CPU": 2, "memory": 2**20}], 1),
    ],
)
def test_trials_that_fit(request_, nodes, expected):
    assert max_trials(ResourcesSection(**request_), Cluster(up=nodes)) == expected


@pytest.mark.parametrize(
    ("visible", "expected"),
    [("0", 1), ("1,0", 2), ("0,1,2", 2), ("-1", 0), ("0,-1,1", 1), ("", 0), (None, 2)],
)
def test_gpus_that_are_hidden_do_not_count(visible, expected, monkeypatch):
    there = [Path(f"/dev/nvidia{name}") for name in ("0", "1", "ctl", "-uvm")]
    monkeypatch.setattr(Path, "glob", lambda *_: there)
    monkeypatch.setattr(Path, "exists", lambda _: False)
    monkeypatch.setattr(resources.sys, "platform", "linux")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert resources._gpus_here() == expected


def test_an_autoscaler_of_unknown_limits_is_believed_what_the_user_says(write_study):
    study = load_study(write_study())
    unknown = Cluster(up=[{"CPU": 0}], autoscales=True)
    with pytest.raises(RequestError, match="its limits cannot be read: say with --max-concurrent"):
        require_capacity(study, unknown)
    assert require_capacity(study, unknown, 6) == 6
    with pytest.raises(RequestError, match="a larger cluster with --address"):
        require_capacity(
            study, Cluster(up=[{"CPU": 0}]), 6
        )  # without an autoscaler nothing will come


def test_a_request_that_never_fits_is_refused_with_the_preset_that_would(write_study):
    presets = {
        "huge": {"resources": {"cpus_per_worker": 9999}},
        "cpu": {"resources": {"gpus_per_worker": 0, "cpus_per_worker": 1}},
    }
    path = write_study(resources={"gpus_per_worker": 1, "cpus_per_worker": 6}, presets=presets)
    with pytest.raises(RequestError) as caught:
        require_capacity(load_study(path), Cluster(up=[{"CPU": 2, "memory": 2**33}]))
    message = str(caught.value)
    assert message.startswith(f"{path}:")
    assert "a trial needs 1 GPUs and 6 CPUs, but the cluster has 1 node(s): 2 CPUs, 0" in message
    assert message.endswith("This would run here: --preset cpu")


@pytest.fixture
def head(tmp_path, monkeypatch):
    """The home of a head node that nobody has named."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("RAY_CLUSTER_NAME", raising=False)
    return tmp_path


def test_ray_up_and_kuberay_may_start_further_nodes_and_a_head_by_hand_does_not(head, monkeypatch):
    assert not has_autoscaler()
    (head / "ray_bootstrap_config.yaml").write_text("max_workers: 3")
    assert has_autoscaler()
    (head / "ray_bootstrap_config.yaml").unlink()
    monkeypatch.setenv("RAY_CLUSTER_NAME", "clsweep")
    assert has_autoscaler()
