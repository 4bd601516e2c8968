"""Ray for the time of a run, beside whatever other Ray the machine has."""

import errno
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
import weakref
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import grpc
import pytest
from ray import tune
from ray._private import services
from ray._private.services import resolve_ip_for_localhost

from clsweep.cluster import ENVIRONMENT, on_one_machine
from clsweep.cluster import ray_session as module
from clsweep.cluster.ray_session import (
    PREFIX,
    _drop_ended,
    _keep_private,
    _private_folder,
    ray_session,
    require_answer,
)
from clsweep.errors import RequestError
from tests.cluster.conftest import listeners

WAIT = """
import os, sys
import ray
from clsweep.cluster.leftovers import remove_orphaned_groups
from clsweep.cluster.ray_session import ray_session


class Controller:
    def __init__(self):
        from ray.util.placement_group import placement_group

        placement_group([{"CPU": 0.1}]).wait(300)

    def state(self):
        from ray.util.state import get_actor

        return get_actor(ray.get_runtime_context().get_actor_id(), timeout=10).state


def states():
    return sorted(group["state"] for group in ray.util.placement_group_table().values())


with ray_session("local", dashboard=True):
    ray.get(ray.remote(lambda: None).remote(), timeout=300)
    controller, lost = (ray.remote(num_cpus=0)(Controller).remote() for _ in range(2))
    print(ray.get([controller.state.remote(), lost.state.remote()], timeout=300)[0], flush=True)
    ray.kill(lost)
    print(*states(), flush=True)
    while "REMOVED" not in states():  # until it is seen to be dead
        remove_orphaned_groups()
    print(*states(), flush=True)
    print(os.environ["RAY_AUTH_TOKEN_PATH"], flush=True)
    sys.stdin.read()
"""
# What other versions of Ray, and other clusters, ask for.
OTHERS = {
    "RAY_TRAIN_V2_ENABLED": "0", "RAY_ADDRESS": "127.0.0.1:1", "RAY_AUTH_MODE": "disabled",
    "RAY_AUTH_TOKEN": "theirs", "RAY_USE_TLS": "1", "RAY_TMPDIR": "/nowhere",
    "RAY_CHDIR_TO_TRIAL_DIR": "1", "RAY_RUNTIME_ENV_HOOK": "no.such.hook",
    "RAY_memory_monitor_refresh_ms": "often", "RAY_ROTATION_MAX_BYTES": "some",
    "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "soon", "TUNE_MAX_PENDING_TRIALS_PG": "many",
    "GLOO_SOCKET_IFNAME": "nowhere0", "OMP_NUM_THREADS": "all",
}  # fmt: skip
KEPT = {"RAY_AUTH_MODE", "GLOO_SOCKET_IFNAME", "OMP_NUM_THREADS"}  # of these, names alone


@pytest.fixture
def short(monkeypatch):
    """A temporary folder, of a name that leaves room for Ray's sockets."""
    with tempfile.TemporaryDirectory(prefix="clsweep-test-", dir="/tmp") as folder:
        os.chmod(folder, 0o755)
        monkeypatch.setenv("TMPDIR", folder)
        yield Path(folder)


def codes(ports, *metadata):
    """What comes of a call to each of Ray's ports that speaks gRPC."""
    names, call = set(), "/ray.rpc.InternalKVGcsService/GetInternalConfig"
    for port in ports:
        with grpc.insecure_channel(f"127.0.0.1:{port}", [("grpc.enable_http_proxy", 0)]) as channel:
            answer = channel.unary_unary(call).future(b"", timeout=20, metadata=metadata)
            names.add((answer.exception() or answer).code().name)
    return names


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_nobody_gets_in_without_the_token(short):
    """With it, they do; the folder, with its sockets, is nobody else's. Who cleans up after worker
    groups asks this Ray, and no other one: there, their controller would count as dead. What the
    group of a dead one held is given back, though nothing cleaned up after it.
    """
    elsewhere = {"RAY_ADDRESS": "127.0.0.1:1", "RAY_API_SERVER_ADDRESS": "http://127.0.0.1:1"}
    process = subprocess.Popen(
        [sys.executable, "-c", WAIT],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True,
        umask=0o000, env=os.environ | elsewhere,
    )  # fmt: skip
    lines = [next(process.stdout).strip()]
    while not lines[-1].startswith("/"):
        lines.append(next(process.stdout).strip())
    *_, state, before, after, token = lines
    assert (state, before, after) == ("ALIVE", "CREATED CREATED", "CREATED REMOVED")
    sockets = listeners(process.pid)
    ports = {listener.port for listener in sockets if "gcs_server" in listener.title}
    without = codes(ports)
    inside = codes(ports, ("authorization", f"Bearer {Path(token).read_text()}"))
    [folder] = short.glob(f"{PREFIX}*")
    mode = stat.S_IMODE(folder.stat().st_mode)
    process.communicate("")
    assert process.returncode == 0

    titles = " ".join(listener.title for listener in sockets)
    assert all(name in titles for name in ("raylet", "ray::IDLE", "dashboard.py"))
    assert "ray::DashboardAgent" not in titles
    assert mode == 0o700
    assert "UNAUTHENTICATED" in without
    assert "OK" not in without
    assert "OK" in inside
    assert "UNAUTHENTICATED" not in inside


def test_a_token_that_others_can_read_is_mended(tmp_path):
    home, theirs = tmp_path / ".ray", tmp_path / "shared"
    home.mkdir(mode=0o755)
    theirs.write_text("of a group")
    theirs.chmod(0o640)
    token, link = home / "auth_token", home / "link"
    token.write_text("secret")
    token.chmod(0o644)
    link.symlink_to(theirs)
    for place in (home, token, link, home / "nothing"):
        _keep_private(place)
    modes = [stat.S_IMODE(place.stat().st_mode) for place in (home, token, theirs)]
    assert modes == [0o700, 0o600, 0o640]
    assert token.read_text() == "secret"


@pytest.mark.parametrize("name", ["x" * 60, "é"])
def test_where_ray_can_have_no_folder_it_has_one_in_tmp(name, tmp_path, monkeypatch):
    (tmp_path / name).mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / name))
    with _private_folder() as folder:
        assert Path(folder).parent == Path("/tmp")
    shutil.rmtree(folder)


def test_where_no_socket_can_be_is_one_line(monkeypatch):
    def refused(**_):
        raise PermissionError

    monkeypatch.setenv("TMPDIR", "/nowhere")
    monkeypatch.setattr(tempfile, "mkdtemp", refused)
    with pytest.raises(RequestError, match=r"^TMPDIR=/nowhere: expected [^\n]+$"):
        ray_session("local", dashboard=False).__enter__()


def test_a_machine_without_a_loopback_interface_is_told_at_once(monkeypatch):
    def unreachable(*_):
        raise OSError(errno.ENETUNREACH, os.strerror(errno.ENETUNREACH))

    monkeypatch.setattr(socket, "create_connection", unreachable)
    expected = "expected a loopback interface that is up.*, given: Network is unreachable"
    with pytest.raises(RequestError, match=expected), ray_session("local", dashboard=False):
        pass


def test_a_local_run_has_its_own_environment_and_gives_it_back(monkeypatch):
    for name, value in OTHERS.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("RAY_memory_usage_threshold", "0.9")
    before = dict(os.environ)
    with on_one_machine(RAY_AUTH_MODE="token"):
        inside = dict(os.environ)
    assert inside.items() >= {**ENVIRONMENT, "RAY_AUTH_MODE": "token"}.items()
    assert inside["RAY_memory_usage_threshold"] == "0.9"
    assert not inside.keys() & (OTHERS.keys() - ENVIRONMENT.keys() - KEPT)
    assert dict(os.environ) == before


def test_joining_what_is_no_ray_ends_with_ctrl_c():
    """At its first call; Ray itself would ask for 20 s and more."""
    called = []

    class Nothing(grpc.GenericRpcHandler):
        def service(self, _):
            if not called:
                called.append(time.monotonic())
                os.kill(os.getpid(), signal.SIGINT)

    server = grpc.server(ThreadPoolExecutor(1), handlers=[Nothing()])
    address = resolve_ip_for_localhost("127.0.0.1")
    port = server.add_insecure_port(f"{address}:0")
    server.start()
    with pytest.raises(KeyboardInterrupt):
        ray_session(f"{address}:{port}", dashboard=False).__enter__()
    server.stop(None)
    assert time.monotonic() - called[0] < 10


# An address where no Ray answers is a message within seconds; Ray itself asks for minutes.


@pytest.fixture
def impatient(monkeypatch):
    monkeypatch.setattr(module, "_PATIENCE_S", 0.5)
    monkeypatch.setattr(services, "resolve_ip_for_localhost", lambda host: host)


@pytest.fixture
def listener():
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        yield listening


def refusal(address):
    begin = time.monotonic()
    with pytest.raises(RequestError) as caught:
        require_answer(address)
    assert time.monotonic() - begin < 4
    message = str(caught.value)
    assert message.startswith(f"--address {address[:80]}: ")
    assert message.endswith("auto on a machine of the cluster, or HOST:PORT of its head")
    return message


def port_of(listener):
    return int(listener.getsockname()[1])


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("scheme", ["", "ray://"])
@pytest.mark.parametrize("listens", [True, False])
def test_what_says_nothing_is_no_ray(listener, scheme, listens):
    if listens:
        listener.listen()
    place = f"127.0.0.1:{port_of(listener)}"
    assert f"no Ray answers at {place} within " in refusal(f"{scheme}{place}")


@pytest.mark.usefixtures("impatient")
def test_what_is_no_address_and_a_host_that_nobody_knows_are_told():
    assert "no Ray answers at nobody.invalid:6379 within " in refusal("nobody.invalid:6379")
    for wrong in ("", ":", "hello", "127.0.0.1:", "host:0", "host:99999", "h:" + "9" * 9999):
        assert "expected HOST:PORT, given " in refusal(wrong)


@pytest.mark.usefixtures("impatient")
def test_auto_asks_where_the_environment_points(listener, monkeypatch):
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    require_answer("auto")  # Ray looks for a cluster of this machine
    monkeypatch.setenv("RAY_ADDRESS", f"127.0.0.1:{port_of(listener)}")
    assert "no Ray answers at 127.0.0.1:" in refusal("auto")


@pytest.mark.usefixtures("impatient")
def test_what_speaks_its_protocol_is_let_pass():
    with ThreadPoolExecutor() as threads:
        server = grpc.server(threads)
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        require_answer(f"127.0.0.1:{port}")
        require_answer(f"ray://127.0.0.1:{port}")
        server.stop(None)


class Census(tune.Callback):
    """The most trials of Tune that were alive as one ended."""

    def __init__(self):
        self.alive, self.most, self.num = weakref.WeakSet(), 0, 0

    def on_trial_complete(self, iteration, trials, trial, **_):
        self.alive.add(trial)
        self.most, self.num = max(self.most, len(self.alive)), self.num + 1


@pytest.mark.slow
def test_a_trial_that_has_ended_is_held_by_nobody(tmp_path):
    census = Census()
    with ray_session("local", dashboard=False):
        results = tune.Tuner(
            lambda config: {"score": config["n"]},
            param_space={"n": tune.grid_search(list(range(12)))},
            tune_config=tune.TuneConfig(max_concurrent_trials=1, reuse_actors=True),
            run_config=tune.RunConfig(storage_path=str(tmp_path), verbose=0, callbacks=[census]),
        ).fit()
    assert census.num == 12
    assert census.most <= 3
    # the last stays, for Tune's own end
    assert [result.metrics["score"] for result in results] == [11]


def test_of_another_version_of_tune_nothing_is_dropped():
    ended = {Mock(**{"is_finished.return_value": True}) for _ in range(2)}
    tune = SimpleNamespace(
        _stopped_trials=set(ended), _failed_trials=set(), _live_trials=set(ended),
        _trials_to_cache=set(), _trials=[*ended],
        _actor_manager=SimpleNamespace(_pending_actors_to_enqueued_actor_tasks={1: []}),
    )  # fmt: skip
    _drop_ended(tune)
    assert (len(tune._trials), len(tune._live_trials)) == (2, 2)
    tune._actor_manager._pending_actors_to_attrs = {}
    _drop_ended(tune)
    assert (len(tune._trials), len(tune._live_trials)) == (1, 0)
