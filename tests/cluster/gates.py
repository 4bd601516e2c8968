"""What somebody gets out of a Ray that is not theirs. Run as a script: the answer is JSON.

A line of JSON on the standard input says whom to be (a user's id, or null), with which token, and
what to try: which calls (null: all) to which ports, sockets, files.
"""

from __future__ import annotations

import http.client
import importlib
import json
import os
import pkgutil
import socket
import sys
from pathlib import Path
from typing import Any

import grpc

# What answers everybody: whether there is a process, and the page that asks for the token.
PUBLIC = ("/grpc.health.v1.Health/Check",)
PATHS = (
    "/api/jobs/", "/api/job_agent/jobs/", "/api/v0/actors", "/logical/actors", "/api/version",
    "/get_or_create_runtime_env", "/worker/traceback?pid=1",
)  # fmt: skip


def calls() -> list[str]:
    """All that Ray's processes can be asked by gRPC."""
    import ray.core.generated as generated

    found = [f"/ray.rpc.ObjectManagerService/{name}" for name in ("Push", "Pull", "FreeObjects")]
    for module in pkgutil.iter_modules(generated.__path__):
        if module.name.endswith("_pb2"):
            file = importlib.import_module(f"ray.core.generated.{module.name}").DESCRIPTOR
            for service in file.services_by_name.values():
                found += [f"/{service.full_name}/{each.name}" for each in service.methods]
    return found


def by_grpc(port: int, token: str | None, names: list[str]) -> dict[str, str] | None:
    """What each call comes to; None where nobody speaks gRPC."""
    metadata = [("authorization", f"Bearer {token}")] if token else None
    with grpc.insecure_channel(f"127.0.0.1:{port}", [("grpc.enable_http_proxy", 0)]) as channel:
        try:
            grpc.channel_ready_future(channel).result(timeout=5)
        except grpc.FutureTimeoutError:
            return None
        asked = {
            name: channel.unary_unary(name).future(b"", timeout=60, metadata=metadata)
            for name in names
        }
        return {name: (call.exception() or call).code().name for name, call in asked.items()}


def by_http(port: int, token: str | None, verbs: list[str]) -> dict[str, int]:
    """The status of what is asked, as somebody who posts a job."""
    found = {}
    for path in PATHS:
        for verb in verbs:
            body = json.dumps({"entrypoint": "true"}) if verb == "POST" else None
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
            headers = {"Authorization": f"Bearer {token}"} if token else {}
            connection.request(verb, path, body, headers)
            found[f"{verb} {path}"] = connection.getresponse().status
            connection.close()
    return found


def reached(path: str) -> bool:
    """Whether a folder lists, a file reads, or a socket connects."""
    try:
        if Path(path).is_socket():
            with socket.socket(socket.AF_UNIX) as end:
                end.connect(path)
        else:
            os.listdir(path) if os.path.isdir(path) else Path(path).read_bytes()
    except OSError:
        return False
    return True


def main() -> None:
    """Try what the standard input names."""
    asked: dict[str, Any] = json.load(sys.stdin)
    token, names = asked["token"], asked["calls"] or [*calls(), *PUBLIC]
    # What is loaded late: another user may not read this Python.
    grpc.insecure_channel("localhost:1").close()
    http.client.HTTPConnection("localhost", 1).close()
    if asked["user"] is not None:
        os.setgroups([])
        os.setgid(asked["user"])
        os.setuid(asked["user"])
    grpcs = {port: by_grpc(port, token, names) for port in asked["ports"]}
    verbs = ["GET"] if asked["calls"] else ["GET", "POST"]
    https = {port: by_http(port, token, verbs) for port, found in grpcs.items() if found is None}
    paths = {path: reached(path) for path in asked["paths"]}
    print(json.dumps({"grpc": grpcs, "http": https, "paths": paths}))


if __name__ == "__main__":
    main()
