"""A check of the GPUs that a cluster declares against a study: each node says so once before
anything starts, as otherwise all trials would fail alike.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any, NamedTuple

from clsweep.display.numbers import setting
from clsweep.display.printing import say
from clsweep.errors import RequestError
from clsweep.study.design import PlannedTrial, Study

ANSWER_S = 120.0  # for a node to load torch


class Seen(NamedTuple):
    """Devices that a node declares, and torch's view of them there, see `train/device.py`."""

    node: str
    declared: float
    why_unusable: str
    without_bf16: Sequence[str]


def look_at_nodes() -> list[Seen]:
    """The nodes that are up and declare GPUs, those that answer."""
    import ray

    nodes = [node for node in ray.nodes() if node["Alive"] and node["Resources"].get("GPU")]
    tasks = [_look_at(node["NodeID"]) for node in nodes]
    if not tasks:
        return []
    answered, _ = ray.wait(tasks, num_returns=len(tasks), timeout=ANSWER_S)
    seen = []
    for node, task in zip(nodes, tasks, strict=True):
        if task in answered:
            with contextlib.suppress(ray.exceptions.RayError):
                answer = ray.get(task)
                seen.append(Seen(node["NodeManagerHostname"], node["Resources"]["GPU"], *answer))
    return seen


def require_gpus(study: Study, planned: Sequence[PlannedTrial], seen: Sequence[Seen]) -> None:
    """Of nodes whose GPUs cannot train these trials a line is printed: what starts there fails.

    Raises:
        RequestError: no other node is there.
    """
    needs_bf16 = any(trial.params.get("precision") == "bf16" for trial in planned)
    unfit = [text for each in seen if (text := _why_unfit(each, needs_bf16))]
    for at, why in unfit:
        if len(unfit) == len(seen):
            raise RequestError(study.document.error(at, why))
        say(f"{'.'.join(at)}: {why}. Trials fail there.")


def _why_unfit(seen: Seen, needs_bf16: bool) -> tuple[tuple[str, ...], str] | None:
    """The key of a study that asks too much of a node, and why."""
    if seen.why_unusable:
        declared = f"node {seen.node} declares {setting(seen.declared)} GPUs"
        none = f"torch can use none there: {seen.why_unusable.rstrip('.')}"
        expected = "Expected a driver and a torch that work together, or gpus_per_worker: 0"
        return ("resources", "gpus_per_worker"), f"{declared}, but {none}. {expected}"
    if needs_bf16 and seen.without_bf16:
        lacks = f"{seen.without_bf16[0]} of node {seen.node} has no bf16 arithmetic"
        expected = "Expected fp16 or fp32, as in --set base.precision=fp16"
        return ("base", "precision"), f"{lacks}. {expected}"
    return None


def _look_at(node_id: str) -> Any:
    """The task that looks at a node. It holds no GPU: others may have them all, for hours."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    def look() -> tuple[str, list[str]]:
        # Ray hides the GPUs from where clsweep is loaded before: so this is no module's function.
        from clsweep.train.device import why_unusable, without_bf16

        why = why_unusable()
        return why, [] if why else without_bf16()

    there = NodeAffinitySchedulingStrategy(node_id, soft=False)
    sees_all = {"env_vars": {"RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}}
    task = ray.remote(num_cpus=0, max_calls=1, scheduling_strategy=there, runtime_env=sees_all)
    return task(look).remote()
