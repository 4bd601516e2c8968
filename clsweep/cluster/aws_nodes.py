"""AWS nodes for `ray up`: where EC2 refuses one kind of instance, the next kind is tried."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ray.autoscaler._private.aws.node_provider import AWSNodeProvider
from ray.autoscaler.node_launch_exception import NodeLaunchException


class AwsNodes(AWSNodeProvider):
    """Ray's own nodes on AWS, of several kinds for one node type.

    Ray's autoscaler asks again and again for the type that EC2 refuses, without a look at others.
    `Otherwise` in a `node_config` lists what differs in the kinds to try next, in their order; null
    leaves a key out.
    """

    def create_node(
        self, node_config: Mapping[str, Any], tags: dict[str, str], count: int
    ) -> dict[str, Any]:
        """Instances by their ids, at most `count`, of the first kind that EC2 has.

        Raises:
            NodeLaunchException: it has none; why not the last.
        """
        first = {key: value for key, value in node_config.items() if key != "Otherwise"}
        kinds = [first, *(first | other for other in node_config.get("Otherwise", ()))]
        for kind in kinds:
            stated = {key: value for key, value in kind.items() if value is not None}
            try:
                return super().create_node(stated, tags, count)
            except NodeLaunchException:
                if kind is kinds[-1]:
                    raise
        raise AssertionError
