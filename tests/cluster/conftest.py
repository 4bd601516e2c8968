"""Studies of seconds, run by the real command line on a real Ray.

`finished` is the one that the fast tier runs: tests that only read a study share it.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

import psutil
import pytest

from tests.planted import study_at

COMMAND = [sys.executable, "-c", "from clsweep.cli.main import run_app; run_app()"]


@pytest.fixture(scope="session", autouse=True)
def _hears_ctrl_c():
    """What a shell runs in the background ignores it, and so would every process it starts."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def write_study(tmp_path):
    return partial(study_at, tmp_path / "study.yaml")


class Listener(NamedTuple):
    """A socket that waits for others."""

    title: str  # of its process
    address: str
    port: int


@dataclass(frozen=True, kw_only=True)
class Finished:
    """A study that has run: its file, its results, which nobody changes, and what was printed."""

    path: Path
    out: Path
    code: int
    output: str
    listeners: set[Listener]  # of the run's processes, at any time; see `watched`


OBJECTIVES = {
    "dcl": {"framework": "simclr", "loss": "dcl"},
    "untrained": {"framework": "simclr", "loss": "dcl", "base": {"epochs": 0}},
    "bad": {"framework": "simclr", "loss": "infonce", "base": {"lr": 1e30}},
    "huge": {"framework": "simclr", "loss": "dcl", "base": {"proj_dim": 10**12}, "space": {}},
}


PRINTED = """\
# item: Table 1
# study: study.yaml
objective,dataset,encoder,tau,metric,value
dcl,digits,conv4,0.1,knn_top1,90.0
dcl,digits,conv4,0.7,knn_top1,90.0
"""


@pytest.fixture(scope="session")
def finished(tmp_path_factory):
    """Objectives that train, that do not, that diverge and that need more memory than there is."""
    folder = tmp_path_factory.mktemp("finished")
    path, out = folder / "study.yaml", folder / "out"
    study_at(path, objectives=OBJECTIVES, checkpoints={"keep": "best"})
    (folder / "table.csv").write_text(PRINTED)
    code, output, listeners = watched("run", path, "--out", out)
    return Finished(path=path, out=out, code=code, output=output, listeners=listeners)


def start(*arguments):
    """The command line in a process group of its own, as a terminal would start it."""
    return subprocess.Popen(
        [*COMMAND, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        # Ray lets whatever else runs go before its trials.
        env=os.environ | {"COLUMNS": "200", "RAY_worker_niceness": "0"},
    )


def clsweep(*arguments):
    """Exit code and output of one command."""
    process = start(*arguments)
    output, _ = process.communicate(timeout=600)
    return process.returncode, output


def watched(*arguments):
    """Exit code, output, and what the processes of a command listened on while it ran."""
    process, sockets = start(*arguments), set[Listener]()
    with ThreadPoolExecutor(1) as pool:
        ended = pool.submit(process.communicate, timeout=600)
        while not wait([ended], timeout=0.5).done:
            sockets |= listeners(process.pid)
    return process.returncode, ended.result()[0], sockets


def listeners(session):
    """All sockets on which the processes of a session wait for whoever comes, at this moment."""
    sockets = set()
    for socket in psutil.net_connections("inet"):
        waits = socket.status == psutil.CONN_LISTEN or (socket.laddr and not socket.raddr)
        with contextlib.suppress(psutil.Error, OSError):
            if waits and socket.pid and os.getsid(socket.pid) == session:
                title = " ".join(psutil.Process(socket.pid).cmdline())
                sockets.add(Listener(title, socket.laddr.ip, socket.laddr.port))
    return sockets


def assert_on_loopback(sockets, *titles):
    """Nobody on another machine reaches a process; those of these titles were seen."""
    for title in titles:
        assert any(title in listener.title for listener in sockets), title
    for listener in sockets:
        address = ipaddress.ip_address(listener.address)
        address = getattr(address, "ipv4_mapped", None) or address
        assert address.is_loopback, listener


def wait_until(condition, what, timeout_s=400):
    """Return as soon as the condition holds; fail if it never does."""
    pause = threading.Event()
    for _ in range(int(timeout_s / 0.05)):
        if condition():
            return
        pause.wait(0.05)
    pytest.fail(f"waited {timeout_s} s for {what}")


def installed(folder, *packages):
    """Where the commands of packages are, pinned ones in an environment of their own."""
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    subprocess.run([folder / "bin" / "pip", "install", "--quiet", *packages], check=True)
    return folder / "bin"
