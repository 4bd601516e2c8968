"""Shared by the tests: one thread, real gloo process groups, and an object store.

Run as a script, this file starts such groups, as lines of its input ask for them.
"""

import importlib
import json
import multiprocessing
import os
import runpy
import subprocess
import sys
import uuid
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

TIMEOUT_S = 240  # generous: a machine may be busy with something else
BUCKET = "studies"
STARTS_RAY = tuple(
    f"tests/{name}.py"
    for name in (
        "cluster/test_runner", "cluster/test_encoders", "cluster/test_own_parts",
        "cluster/test_gpus", "cluster/test_stall", "cluster/test_trainers",
        "cluster/test_ray_session", "contracts/test_kills",
    )
)  # fmt: skip

if "PYTEST_XDIST_WORKER" in os.environ:  # the other core has a worker of its own
    torch.set_num_threads(1)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What starts Ray first: one process has it all, and the other shall not wait for it at the
    end.
    """
    items.sort(key=lambda item: not item.nodeid.startswith(STARTS_RAY))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """A file's tests share a process, and so do all that start Ray: two clusters at once would only
    get into each other's way. (The marks of `--dist loadgroup` do not reach pytest 9.2.)
    """
    from xdist.scheduler import LoadScopeScheduling

    class FilesAndRay(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.partition("::")[0]
            return "ray" if file.startswith(STARTS_RAY) else file

    return FilesAndRay(config, log)


@pytest.fixture(scope="session")
def one_thread():
    """The tensors are small: a second thread only waits, and sums differ in their last bits."""
    num_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(num_threads)


@pytest.fixture(scope="session", autouse=True)
def _no_power_cuts():
    """What is written stays in the page cache: no test pulls the plug, and a disk is slow."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: None)
        yield


@pytest.fixture
def driver(monkeypatch):
    """A GPU as torch's Python sees it; see `tests/driver.py`."""
    from tests.driver import Driver

    return Driver().install(monkeypatch)


@pytest.fixture
def no_plugin_after():
    """Plug-ins of this test are none of a later one's."""
    from clsweep.catalog.plugins import activate

    yield
    activate(())


@pytest.fixture
def nothing_loaded():
    """No data set is kept from an earlier test, nor for a later one."""
    from clsweep.data import datasets

    datasets._load.cache_clear()
    yield
    datasets._load.cache_clear()


@pytest.fixture(scope="session")
def run_workers(tmp_path_factory):
    """`run_workers(__file__, "function", world_size, *args)`: what function(*args) returns in each
    worker, by rank.

    All groups are forked off one process: to import torch takes longer than what they compute.
    """
    servers: list[subprocess.Popen[str]] = []
    log = tmp_path_factory.mktemp("workers") / "stderr"

    def server() -> subprocess.Popen[str]:
        if not servers or servers[-1].poll() is not None:
            path = os.pathsep.join(filter(None, sys.path))
            with log.open("w") as stderr:
                started = subprocess.Popen(
                    [sys.executable, __file__],
                    env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": path},
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=stderr,
                    text=True,
                )
            servers.append(started)
        return servers[-1]

    def run(file: str, function: str, world_size: int, *args: Any) -> list[Any]:
        folder = tmp_path_factory.mktemp("workers")
        torch.save(args, folder / "args.pt")
        process = server()
        assert process.stdin is not None
        assert process.stdout is not None
        print(json.dumps([file, function, str(folder), world_size]), file=process.stdin, flush=True)
        assert process.stdout.readline() == "ended\n", log.read_text()
        return [torch.load(folder / f"{rank}.pt", weights_only=False) for rank in range(world_size)]

    yield run
    for process in servers:
        process.communicate()  # its input ends, and so does it


@pytest.fixture
def cli_command(monkeypatch, capsys):
    """Run the command line in this process: exit code, stdout, stderr."""
    from clsweep.cli import main as cli

    monkeypatch.setattr(os, "nice", lambda _: 0)  # of this process: it could not go back

    def run(*words: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["clsweep", *words])
        with pytest.raises(SystemExit) as caught:
            cli.run_app()
        code = caught.value.code
        return code if isinstance(code, int) else 0, *capsys.readouterr()

    return run


@pytest.fixture
def no_ray():
    """Trials run in this process, one after the other."""
    from tests.cluster.without_ray import without_ray  # it loads Ray

    with without_ray():
        yield


@pytest.fixture(scope="session")
def s3_server():
    """An object store; see `s3`."""
    pytest.importorskip("moto")
    from tests.s3_server import S3Server

    server = S3Server()
    server.create_bucket(BUCKET)
    yield server
    server.close()


@pytest.fixture
def s3(s3_server, monkeypatch):
    """The URI of an empty place in an object store; credentials for it are in the environment, for
    subprocesses too.
    """
    from tests.s3_server import ENVIRONMENT

    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    yield s3_server.uri(f"{BUCKET}/{uuid.uuid4().hex}/out")
    s3_server.refuse = lambda _: None


def _serve() -> None:
    """Answer each line of the input, a call of `_start`, when its workers have ended."""
    importlib.import_module("sklearn.datasets")  # of digits, once for all forked workers
    importlib.import_module("torch._dynamo")  # of whatever makes an optimizer
    torch.set_num_threads(1)
    replies, sys.stdout = sys.stdout, sys.stderr  # which a test may print to
    for line in sys.stdin:
        file, function, folder, world_size = json.loads(line)
        succeeded = _start(file, function, Path(folder), world_size)
        print("ended" if succeeded else "failed", file=replies, flush=True)


def _start(file: str, function: str, folder: Path, world_size: int) -> bool:
    """Fork the workers off this process, which has imported everything; whether all succeeded."""
    call = runpy.run_path(file)[function]
    args = torch.load(folder / "args.pt", weights_only=False)
    context = multiprocessing.get_context("fork")
    workers = [
        context.Process(target=_work, args=(call, args, folder, rank, world_size), daemon=True)
        for rank in range(world_size)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(TIMEOUT_S)
    return all(worker.exitcode == 0 for worker in workers)


def _work(
    call: Callable[..., Any], args: tuple[Any, ...], folder: Path, rank: int, world_size: int
) -> None:
    store = dist.FileStore(str(folder / "store"), world_size)
    dist.init_process_group(
        "gloo",
        store=store,
        rank=rank,
        world_size=world_size,
        timeout=timedelta(seconds=TIMEOUT_S / 2),
    )
    torch.save(call(*args), folder / f"{rank}.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    _serve()
