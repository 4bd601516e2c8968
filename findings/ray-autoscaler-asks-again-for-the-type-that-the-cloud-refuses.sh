#!/usr/bin/env bash
# Ray 2.60.0: a node type whose launch the cloud refuses is asked for again and again; the next type never is.
#
# Guess:     with two node types of the same resources in `available_node_types`, spot and on demand, the
#            autoscaler starts the second where the cloud has none of the first: it keeps a score of
#            availability for each type, and sorts by it before `priority`.
# Behaviour: the score falls only where an instance was given and never came up (ALLOCATION_TIMEOUT). A
#            refused launch (on AWS InsufficientInstanceCapacity, MaxSpotInstanceCountExceeded) ends as
#            ALLOCATION_FAILED, which the monitor does not count. Each round asks for the same type.
# Where it meets this field: spot GPUs are refused often, and the spot quota of a new account is 0.
#            A study then waits for ever beside an on-demand type that would have run it. A node provider
#            that tries the next kind inside of `create_node` helps.
# Source:    ray/autoscaler/v2/instance_manager/subscribers/cloud_resource_monitor.py (notify) and
#            ray/autoscaler/v2/instance_manager/reconciler.py (_try_resolve_pending_allocation).
# Seen:      12 rounds: 12 launches of spot, 0 on demand.
#
# Installs ray into a temporary folder, needs no cloud; fails if this changes.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check 'ray[default]==2.60.0'
cat >"$work/refuse.py" <<'PY'
import collections
import time

from ray.autoscaler.node_launch_exception import NodeLaunchException
from ray.autoscaler.node_provider import NodeProvider
from ray.autoscaler.tags import NODE_KIND_HEAD, TAG_RAY_NODE_KIND, TAG_RAY_USER_NODE_TYPE
from ray.autoscaler.v2.instance_manager.config import AutoscalingConfig
from ray.autoscaler.v2.instance_manager.instance_manager import InstanceManager
from ray.autoscaler.v2.instance_manager.instance_storage import InstanceStorage
from ray.autoscaler.v2.instance_manager.node_provider import NodeProviderAdapter
from ray.autoscaler.v2.instance_manager.reconciler import Reconciler
from ray.autoscaler.v2.instance_manager.storage import InMemoryStorage
from ray.autoscaler.v2.instance_manager.subscribers.cloud_instance_updater import (
    CloudInstanceUpdater,
)
from ray.autoscaler.v2.instance_manager.subscribers.cloud_resource_monitor import (
    CloudResourceMonitor,
)
from ray.autoscaler.v2.scheduler import ResourceDemandScheduler
from ray.core.generated.autoscaler_pb2 import (
    ClusterResourceState,
    GangResourceRequest,
    NodeState,
    NodeStatus,
    ResourceRequest,
)


def worker(priority):
    return {"resources": {"GPU": 1}, "node_config": {}, "max_workers": 4, "priority": priority}


head_type = {"resources": {}, "node_config": {}, "max_workers": 0}
types = {"head": head_type, "spot": worker(2), "on_demand": worker(1)}
config = AutoscalingConfig(
    {"cluster_name": "c", "max_workers": 4, "provider": {"type": "aws", "region": "r"},
     "auth": {}, "available_node_types": types, "head_node_type": "head"},
    skip_content_hash=True,
)  # fmt: skip
launches = collections.Counter()


class NoSpot(NodeProvider):
    nodes = {"head": {TAG_RAY_NODE_KIND: NODE_KIND_HEAD, TAG_RAY_USER_NODE_TYPE: "head"}}

    def non_terminated_nodes(self, tag_filters):
        return [*self.nodes]

    def is_running(self, node_id):
        return True

    def node_tags(self, node_id):
        return self.nodes[node_id]

    def create_node_with_resources_and_labels(self, node_config, tags, count, resources, labels):
        launches[tags[TAG_RAY_USER_NODE_TYPE]] += 1
        if tags[TAG_RAY_USER_NODE_TYPE] == "spot":
            raise NodeLaunchException("InsufficientInstanceCapacity", "none left", None)
        self.nodes[str(len(self.nodes))] = dict(tags)


class Reader:
    def get_cached_autoscaling_config(self):
        return config


provider, monitor = NodeProviderAdapter(NoSpot({}, "c"), Reader()), CloudResourceMonitor()
storage = InstanceStorage("c", InMemoryStorage())
manager = InstanceManager(storage, [CloudInstanceUpdater(provider), monitor])
head = NodeState(
    node_id=b"h", instance_id="head", ray_node_type_name="head", status=NodeStatus.RUNNING,
    node_state_version=1, total_resources={"node:__internal_head__": 1},
)  # fmt: skip
waiting = GangResourceRequest(requests=[ResourceRequest(resources_bundle={"GPU": 1})])
for version in range(1, 13):
    before = sum(launches.values())
    state = ClusterResourceState(
        cluster_resource_state_version=version, node_states=[head],
        pending_gang_resource_requests=[waiting],
    )  # fmt: skip
    Reconciler.reconcile(
        manager, ResourceDemandScheduler(), provider, monitor, state,
        provider.get_non_terminated(), config, provider.poll_errors(),
    )  # fmt: skip
    for _ in range(200):  # launches are in threads
        if sum(launches.values()) > before and not provider._errors_queue.empty():
            break
        time.sleep(0.01)
print(launches["spot"], launches["on_demand"])
PY
seen=$("$work/venv/bin/python" "$work/refuse.py" 2>/dev/null | tail -n 1)
echo "ray 2.60.0, 12 rounds: launches of spot and on demand: $seen"
[ "$seen" = "12 0" ] || { echo "changed: another type is asked for, or the rounds differ"; exit 1; }
echo "as described"
