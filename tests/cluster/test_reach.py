"""An address where no Ray answers is a message within seconds; Ray itself asks for minutes."""

import socket
import time
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest
from ray._private import services

from clsweep.cluster import ray_session
from clsweep.cluster.ray_session import require_answer
from clsweep.errors import RequestError


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    monkeypatch.setattr(ray_session, "_PATIENCE_S", 0.5)
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


@pytest.mark.parametrize("scheme", ["", "ray://"])
@pytest.mark.parametrize("listens", [True, False])
def test_what_says_nothing_is_no_ray(listener, scheme, listens):
    if listens:
        listener.listen()
    place = f"127.0.0.1:{port_of(listener)}"
    assert f"no Ray answers at {place} within " in refusal(f"{scheme}{place}")


def test_a_host_that_nobody_knows_is_told():
    assert "no Ray answers at nobody.invalid:6379 within " in refusal("nobody.invalid:6379")


@pytest.mark.parametrize(
    "address",
    ["", ":", "hello", "127.0.0.1", "127.0.0.1:", "host:0", "host:99999", "h:" + "9" * 9999],
)
def test_what_is_no_address_is_told(address):
    assert "expected HOST:PORT, given " in refusal(address)


def test_auto_asks_where_the_environment_points(listener, monkeypatch):
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    require_answer("auto")  # Ray looks for a cluster of this machine
    monkeypatch.setenv("RAY_ADDRESS", f"127.0.0.1:{port_of(listener)}")
    assert "no Ray answers at 127.0.0.1:" in refusal("auto")


def test_what_speaks_its_protocol_is_let_pass():
    with ThreadPoolExecutor() as threads:
        server = grpc.server(threads)
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        require_answer(f"127.0.0.1:{port}")
        require_answer(f"ray://127.0.0.1:{port}")
        server.stop(None)
