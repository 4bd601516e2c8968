"""Whether anything answers at the address of a cluster: Ray itself asks for minutes."""

from __future__ import annotations

import os
import socket
import threading
import time

import grpc
from ray._private.grpc_utils import init_grpc_channel
from ray._private.services import resolve_ip_for_localhost

from clsweep.errors import RequestError

PATIENCE_S = 10.0
_CLIENT = "ray://"


def require_answer(address: str) -> None:
    """Connect to the head of a named cluster, once.

    Args:
        address: what `--address` says: HOST:PORT, ray://HOST:PORT; "auto" is the RAY_ADDRESS of
            the environment, if there is one. Of "local" and other schemes nothing is asked.

    Raises:
        RequestError: it is no address, or no Ray answers there within `PATIENCE_S`.
    """
    asked = os.environ.get("RAY_ADDRESS", address) if address == "auto" else address
    place = asked.removeprefix(_CLIENT)
    if place in ("local", "auto") or "://" in place:
        return
    host, _, port = place.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port[:6]) < 2**16:
        raise _refusal(address, f"expected HOST:PORT, given {place:.80}")
    host = host.strip("[]")
    if not asked.startswith(_CLIENT):
        host = resolve_ip_for_localhost(host)  # as Ray does
    until = time.monotonic() + PATIENCE_S
    reason = _unconnected(host, int(port)) or _mute(host, port, until - time.monotonic())
    if reason:
        raise _refusal(address, reason)


def _unconnected(host: str, port: int) -> str:
    """Why no connection comes about; empty if one does. The look-up of a name has no time limit of
    its own, so all of it is in a thread that may be left behind.
    """
    reasons = [f"{host} does not answer within {PATIENCE_S:.0f} s"]

    def connect() -> None:
        try:
            socket.create_connection((host, port), timeout=PATIENCE_S).close()
            reasons.append("")
        except (OSError, UnicodeError) as error:
            if not isinstance(error, TimeoutError):
                reasons.append(getattr(error, "strerror", None) or f"no host {host:.80}")

    thread = threading.Thread(target=connect, daemon=True)
    thread.start()
    thread.join(PATIENCE_S)
    return reasons[-1]


def _mute(host: str, port: str, patience_s: float) -> str:
    """Why what is connected to is no Ray; empty if it speaks its protocol."""
    place = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    channel = init_grpc_channel(place, [("grpc.enable_http_proxy", 0)])
    try:
        grpc.channel_ready_future(channel).result(timeout=max(patience_s, 1.0))
    except grpc.FutureTimeoutError:
        return f"what listens at {place} does not answer as Ray does within {PATIENCE_S:.0f} s"
    finally:
        channel.close()
    return ""


def _refusal(address: str, reason: str) -> RequestError:
    return RequestError(
        f"--address {address:.80}: {reason}. Expected: local, auto on a machine of the cluster, or "
        "HOST:PORT of its head"
    )
