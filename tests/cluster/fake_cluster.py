"""A Ray cluster of several nodes on this machine, by Ray's own means, with token authentication.

Clients take `environment`; the token is the cluster's own. Every process is known by the session
(setsid) of the command that started it, which it keeps when its parent dies, or by a mark in its
environment.
"""

import contextlib
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import uuid
from pathlib import Path

import psutil

from tests.cluster.conftest import wait_until
from tests.contracts.disturbed import MARK, marked_processes

OBJECT_STORE_BYTES = 100 * 2**20
RAY = [sys.executable, "-c", "from ray.scripts.scripts import main; main()"]

# Asks the cluster's own tables, without being a driver of it. One question a line, one answer a
# line.
OBSERVER = """
import json, sys
from ray._private.state import GlobalState
from ray._raylet import GcsClientOptions
state = GlobalState()
state._initialize_global_state(
    GcsClientOptions.create(
        sys.argv[1], None, allow_cluster_id_nil=True, fetch_cluster_id_if_nil=False
    )
)
for question in sys.stdin:
    tables = {
        "nodes": state.node_table,
        "groups": lambda: list(state.placement_group_table().values()),
    }
    print(json.dumps(tables[question.strip()]()), flush=True)
"""


class FakeCluster:
    """A running cluster: head, nodes, and what a test asks of them."""

    def __init__(self, folder):
        # Ray's temporary folders are in it: short, for the sake of their sockets' paths.
        self._folder = folder
        self._mark = uuid.uuid4().hex
        self._sessions = set()
        self._started = []
        self._observer = None
        token = folder / "token"
        token.write_text(secrets.token_hex(32))
        self.environment = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(token)}
        self.address = f"{_own_ip()}:{_free_port()}"

    def start_head(self):
        """A head of no CPUs; returns when it answers."""
        ports = [
            f"--port={self.address.rpartition(':')[2]}",
            f"--dashboard-port={_free_port()}",
            f"--ray-client-server-port={_free_port()}",
        ]
        flags = ["--head", "--num-cpus=0", "--include-dashboard=true"]
        self._ray_start(*flags, *ports, *_SMALL)
        wait_until(self._answers, "the head", timeout_s=300)

    def add_node(self, num_cpus):
        """One more node, of a raylet of its own; it is up a little later."""
        numbers = [f"--num-cpus={num_cpus}", "--num-gpus=0"]
        self._ray_start(f"--address={self.address}", *numbers, *_SMALL)

    def nodes(self):
        """The live nodes, the head included."""
        return [node for node in self._ask("nodes") if node["Alive"]]

    def worker_nodes(self):
        """The live nodes without the head."""
        return [node for node in self.nodes() if "node:__internal_head__" not in node["Resources"]]

    def placement_groups(self):
        """Those that hold or await resources."""
        return [group for group in self._ask("groups") if group["state"] != "REMOVED"]

    def kill_node(self, node_id):
        """A machine that loses its power: the raylet and all that it started, killed in one go.
        True if it was there.
        """
        for process in self.processes(f"--node_id={node_id}"):
            with contextlib.suppress(psutil.NoSuchProcess):
                return bool(_kill([*process.children(recursive=True), process]))
        return False

    def processes(self, title=""):
        """Every living process of the cluster, wherever its parents have gone."""
        return marked_processes(dict.fromkeys(self._sessions, self._mark), title)

    def stop(self):
        """End every process. Killed, not asked: nothing here is worth an orderly end."""
        if self._observer:
            self._observer.kill()
            self._observer.communicate()
        wait_until(lambda: not _kill(self.processes()), "the cluster's processes to end", 30)
        for process in self._started:
            process.wait(timeout=120)

    def leftovers(self):
        """What is still running after `stop`."""
        return [" ".join(process.cmdline()) for process in self.processes()]

    def _ray_start(self, *options):
        # A disk of its own for each node, as machines have.
        temp = self._folder / f"r{len(self._started)}"
        own = {MARK: self._mark, "RAY_TMPDIR": str(temp)}
        process = subprocess.Popen(
            [*RAY, "start", "--block", "--disable-usage-stats", f"--temp-dir={temp}", *options],
            env=os.environ | self.environment | own,
            stdout=(self._folder / f"start-{len(self._started)}.log").open("wb"),
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self._started.append(process)
        self._sessions.add(process.pid)

    def _answers(self):
        assert self._started[0].poll() is None, (self._folder / "start-0.log").read_text()
        host, _, port = self.address.rpartition(":")
        with contextlib.suppress(OSError), socket.create_connection((host, int(port)), timeout=1):
            return any("node:__internal_head__" in node["Resources"] for node in self.nodes())
        return False

    def _ask(self, question):
        if self._observer is None:
            self._observer = subprocess.Popen(
                [sys.executable, "-c", OBSERVER, self.address],
                env=os.environ | self.environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )
        self._observer.stdin.write(f"{question}\n")
        self._observer.stdin.flush()
        return json.loads(self._observer.stdout.readline())


@contextlib.contextmanager
def static_cluster(nodes_cpus):
    """A head of no CPUs and a node for each number of CPUs, all up."""
    folder = Path(tempfile.mkdtemp(prefix="cl", dir="/tmp"))
    cluster = FakeCluster(folder)
    try:
        cluster.start_head()
        for num_cpus in nodes_cpus:
            cluster.add_node(num_cpus)
        wait_until(lambda: len(cluster.worker_nodes()) == len(nodes_cpus), "the nodes")
        yield cluster
    finally:
        cluster.stop()
        shutil.rmtree(folder, ignore_errors=True)


# Small, and on ports that are free: several nodes share the machine.
_SMALL = [
    f"--object-store-memory={OBJECT_STORE_BYTES}",
    *(
        f"--{port}=0"
        for port in ("min-worker-port", "max-worker-port", "dashboard-agent-listen-port")
    ),
]


def _kill(processes):
    """All of them stopped first, so that none can start or mourn another; returns them."""
    for signal_ in (signal.SIGSTOP, signal.SIGKILL):
        for process in processes:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(signal_)
    return processes


def _own_ip():
    from ray._private.services import get_node_ip_address

    return str(get_node_ip_address())


def _free_port():
    with socket.socket() as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])
