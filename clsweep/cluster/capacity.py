"""What a cluster can hold, checked before anything starts: Tune only warns, and Train would wait for ever."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from clsweep.errors import RequestError
from clsweep.study.document import preset_names
from clsweep.study.resolve import Study, load_study
from clsweep.study.schema import ResourcesSection

Resources = Mapping[str, float]


def max_trials(request: ResourcesSection, nodes: Sequence[Resources]) -> int:
    """How many trials fit at once. A worker lies on one node; the workers of a trial may lie on several."""
    workers = sum(_workers_on(node, request) for node in nodes)
    return workers // request.workers


def require_capacity(study: Study, nodes: Sequence[Resources]) -> int:
    """Trials that fit at once.

    Raises:
        RequestError: not a single one does; says request, capacity and what would run here.
    """
    request = study.sections.resources
    concurrent = max_trials(request, nodes)
    if concurrent:
        return concurrent
    worker = f"{request.gpus_per_worker:g} GPUs and {request.cpus_per_worker} CPUs"
    offered = "; ".join(f"{node.get('CPU', 0):g} CPUs, {node.get('GPU', 0):g} GPUs" for node in nodes) or "no node"
    wanted = f"{request.workers} x {worker}" if request.workers > 1 else worker
    message = f"a trial needs {wanted}, but the cluster has {len(nodes)} node(s): {offered}. {_advice(study, nodes)}"
    raise RequestError(study.document.error(("resources",), message))


def cluster_nodes() -> list[Resources]:
    """Resources of the nodes that are up and, with an autoscaler, of all that it may bring up. Ray must be running."""
    import ray

    up: list[Resources] = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    head_only = {"num_cpus": 0, "resources": {"node:__internal_head__": 0.001}}
    config = ray.get(ray.remote(**head_only)(autoscaling_config).remote())
    return scalable_nodes(config) if config else up


def autoscaling_config() -> dict[str, Any] | None:
    """The cluster.yaml of this head node's autoscaler, None without one; to be called on the head.

    Ray keeps the node types nowhere else: its own record of them is never filled in.
    """
    import psutil
    import yaml

    flag = "--autoscaling-config="
    for process in psutil.process_iter(["cmdline"]):
        arguments = process.info["cmdline"] or []
        paths = [argument.removeprefix(flag) for argument in arguments if argument.startswith(flag)]
        if paths and paths[0] and any(argument.endswith("monitor.py") for argument in arguments):
            config: dict[str, Any] = yaml.safe_load(Path(paths[0]).expanduser().read_text())
            return config
    return None


def scalable_nodes(config: Mapping[str, Any]) -> list[Resources]:
    """Resources of every node that a cluster.yaml allows, the head included."""
    nodes: list[Resources] = []
    for name, node_type in config["available_node_types"].items():
        limit = node_type.get("max_workers", config.get("max_workers", 0))
        count = min(limit, config.get("max_workers", limit)) + (name == config.get("head_node_type"))
        nodes += [node_type.get("resources", {})] * count
    return nodes


def _workers_on(node: Resources, request: ResourcesSection) -> int:
    needs = {"CPU": float(request.cpus_per_worker), "GPU": float(request.gpus_per_worker)}
    # A tenth of a GPU thrice is not more than 0.3: forgive rounding.
    return min(math.floor(node.get(name, 0.0) / need + 1e-9) for name, need in needs.items() if need)


def _advice(study: Study, nodes: Sequence[Resources]) -> str:
    for preset in preset_names(study.document.source):
        try:
            resources = load_study(study.document.source, preset=preset).sections.resources
        except ValueError:
            continue
        if max_trials(resources, nodes):
            return f"This would run here: --preset {preset}"
    most_cpus = int(max((node.get("CPU", 0) for node in nodes), default=0))
    if not most_cpus:
        return "Name a cluster with --address."
    smaller = study.sections.resources.model_copy(update={"gpus_per_worker": 0, "cpus_per_worker": 1, "workers": 1})
    settings = [
        f"--set resources.{key}={value}"
        for key, value in smaller.model_dump().items()
        if value != getattr(study.sections.resources, key)
    ]
    return f"This would run here: {' '.join(settings)}; or name a larger cluster with --address."
