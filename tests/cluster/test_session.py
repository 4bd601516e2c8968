"""Ray for the time of a run, beside whatever other Ray the machine has."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

ASK = """
import ray
from clsweep.cluster.session import ray_session


class Controller:
    def state(self):
        from ray.util.state import get_actor

        return get_actor(ray.get_runtime_context().get_actor_id(), timeout=10).state


with ray_session("local", dashboard=True):
    print(ray.get(ray.remote(num_cpus=0)(Controller).remote().state.remote(), timeout=300))
"""


@pytest.mark.slow
def test_who_cleans_up_after_worker_groups_asks_the_ray_of_the_run() -> None:
    """And no other one: there, the controller of the group would count as dead."""
    elsewhere = {"RAY_ADDRESS": "127.0.0.1:1", "RAY_API_SERVER_ADDRESS": "http://127.0.0.1:1"}
    done = subprocess.run(
        [sys.executable, "-c", ASK], env=os.environ | elsewhere, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "ALIVE"
