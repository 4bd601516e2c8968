"""A check of a study's data and of a cluster's room before anything starts: Tune only warns, and
Train would wait for ever.
"""

from __future__ import annotations

import math
import os
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path

from clsweep.catalog import DATASET
from clsweep.data.locations import DataPlace, require_data
from clsweep.display.numbers import setting
from clsweep.errors import RequestError, listed
from clsweep.machine import num_cores
from clsweep.study.design import Study, split_columns
from clsweep.study.document import preset_names
from clsweep.study.resolve import load_study
from clsweep.study.schema import ResourcesSection

TrialResources = Mapping[str, float]

# of memory that a worker's process takes at least: Ray, torch and its own copies of their tables
PROCESS_GIB = 0.5
# Where `ray up` leaves the configuration of a cluster on its head.
RAY_UP_CONFIG = Path("~/ray_bootstrap_config.yaml")


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """Nodes that are up, and whether more may come.

    `up` counts a node in full though others may use it now: they end, and trials wait.
    """

    up: Sequence[TrialResources]
    autoscales: bool = False
    is_here: bool = False  # this machine alone


def max_trials(request: ResourcesSection, cluster: Cluster) -> int:
    """Trials that fit at once. A worker lies on one node, the workers of a trial on several."""
    return sum(_workers_on(node, request) for node in cluster.up) // request.workers


def require_capacity(study: Study, cluster: Cluster, stated: int | None = None) -> int:
    """Trials that fit at once.

    Args:
        stated: how many the user says may run at once; believed of an autoscaler, whose limits
            nobody knows here, and there alone.

    Raises:
        RequestError: not a single one does; says request, capacity and what would run here.
    """
    request = study.sections.resources
    concurrent = stated if cluster.autoscales and stated else max_trials(request, cluster)
    if concurrent:
        return concurrent
    alike = Counter(
        f"{setting(node.get('CPU', 0))} CPUs, {setting(node.get('GPU', 0))} GPUs"
        for node in cluster.up
    )
    shown = "; ".join(f"{num} x {text}" if num > 1 else text for text, num in alike.items())
    worker = f"{setting(request.gpus_per_worker)} GPUs and {request.cpus_per_worker} CPUs"
    wanted = f"{request.workers} x {worker}" if request.workers > 1 else worker
    advice = (
        "Its autoscaler may add others, but its limits cannot be read: say with --max-concurrent "
        "how many trials may run at once."
        if cluster.autoscales
        else _advice(study, cluster)
    )
    place = "this machine has" if cluster.is_here else f"the cluster has {len(cluster.up)} node(s):"
    message = f"a trial needs {wanted}, but {place} {shown or 'no node'}. {advice}"
    raise RequestError(study.document.error(("resources",), message))


def running_cluster() -> Cluster:
    """The cluster that Ray, which must be running, has joined."""
    import ray

    nodes = [node for node in ray.nodes() if node["Alive"]]
    heads = {n["NodeID"] for n in nodes if "node:__internal_head__" in n["Resources"]}
    if ray.get_runtime_context().get_node_id() in heads:
        autoscales = has_autoscaler()
    else:
        on_head = {"num_cpus": 0, "resources": {"node:__internal_head__": 0.001}}
        autoscales = ray.get(ray.remote(**on_head)(has_autoscaler).remote())
    # Several nodes on one machine each count its whole memory, of which they have a part.
    sharing = Counter(node["NodeManagerHostname"] for node in nodes)
    up = [
        {
            name: amount / (sharing[node["NodeManagerHostname"]] if name == "memory" else 1)
            for name, amount in node["Resources"].items()
        }
        for node in nodes
    ]
    return Cluster(up=up, autoscales=autoscales)


def this_machine() -> Cluster | None:
    """This machine as a local run has it, without asking Ray or loading torch; None where its GPUs
    cannot be counted so.
    """
    num_gpus = _gpus_here()
    if num_gpus is None:
        return None
    return Cluster(up=[{"CPU": num_cores(), "GPU": num_gpus}], is_here=True)


def _gpus_here() -> int | None:
    """Those of NVIDIA, by their device files on Linux."""
    if not sys.platform.startswith("linux") or Path("/dev/kfd").exists():  # AMD's
        return None
    there = [path for path in Path("/dev").glob("nvidia*") if path.name[6:].isdecimal()]
    names = visible_gpus()
    return len(there) if names is None else min(len(there), len(names))


def visible_gpus() -> list[str] | None:
    """The names in CUDA_VISIBLE_DEVICES as CUDA reads them: what stands behind a name of none, such
    as -1, is not seen. None: all GPUs are.
    """
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return None
    names = map(str.strip, visible.split(","))
    return [*takewhile(lambda name: name and not name.startswith("-"), names)]


def has_autoscaler() -> bool:
    """True if this head node may have one: of `ray up`, or KubeRay's. To be called on the head."""
    return RAY_UP_CONFIG.expanduser().is_file() or "RAY_CLUSTER_NAME" in os.environ


def _workers_on(node: TrialResources, request: ResourcesSection) -> int:
    by_cpus = math.floor(node.get("CPU", 0.0) / request.cpus_per_worker)
    if "memory" in node:  # as Ray counts it, in bytes; one trial is always tried
        by_cpus = min(by_cpus, max(1, math.floor(node["memory"] / (PROCESS_GIB * 2**30))))
    gpus, need = node.get("GPU", 0.0), float(request.gpus_per_worker)
    if not need:
        return by_cpus
    # Parts of a GPU are parts of one GPU. A tenth of it fits ten times: forgive rounding.
    of_one = math.floor(1 / need + 1e-9)
    return min(by_cpus, math.floor(gpus) * of_one)


def _advice(study: Study, cluster: Cluster) -> str:
    for preset in preset_names(study.document.source):
        try:
            resources = load_study(study.document.source, preset=preset).sections.resources
        except ValueError:
            continue
        if max_trials(resources, cluster):
            return f"This would run here: --preset {preset}"
    return "Ask for less under resources, or name a larger cluster with --address."


def require_files(study: Study) -> None:
    """Look for the files of every data set that is not to be fetched; reads their heads alone.

    Raises:
        RequestError: they are missing, `AbsentError` their folder is; says where
            they are looked for, and what else would do.
    """
    for cell in study.cells or (study,):
        place = cell.sections.dataset.place
        others = {str(o.fixed.get("transfer_dataset", "none")) for o in cell.objectives} - {"none"}
        if place.download:
            continue
        try:
            _require_there(cell.dataset.name, place)
            for name in sorted(others):
                _require_there(name, place.transferred)
        except RequestError as error:
            presets = preset_names(study.document.source)
            hint = f" This study has the presets: {', '.join(presets)}." if presets else ""
            raise type(error)(study.document.error(("dataset",), f"{error}{hint}")) from None


def _require_there(name: str, place: DataPlace) -> None:
    if not place.is_remote:
        require_data(name, place.root_folder)
    elif layout := DATASET[name].layout:
        from clsweep.data.buckets import listed_bucket

        bucket, objects = listed_bucket(place.root, DATASET[name].folder)
        if lost := [file for file in layout if not {file, f"{file}.gz"} & objects.keys()]:
            raise RequestError(f"{bucket.place}: expected {listed(layout)}, given no {lost[0]}")


def prepare_files(study: Study) -> None:
    """Make of the data sets what trials read, and say what is wrong with a user's own images.

    Raises:
        RequestError: they are missing or damaged, or the disk has no room.
    """
    from clsweep.data.datasets import load_splits, prepare, transferred_splits

    require_files(study)
    for cell in study.cells or (study,):
        place = cell.sections.dataset.place
        prepare(cell.dataset, place)
        if cell.dataset.files:
            load_splits(split_columns(cell), place)
        for objective in cell.objectives:
            name = str(objective.fixed.get("transfer_dataset", "none"))
            is_own = name != "none" and DATASET[name].files
            for size in objective.extremes("view_size") if is_own else ():
                row = {"transfer_dataset": name, "view_size": size, **split_columns(cell)}
                transferred_splits(row, place)
