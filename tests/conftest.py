"""Shared by the tests: one thread, real gloo process groups, and an object store.

Run as a script, this file is such a group: FILE FUNCTION FOLDER WORLD_SIZE.
"""

import multiprocessing
import os
import runpy
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

TIMEOUT_S = 90
BUCKET = "studies"


@pytest.fixture(scope="session")
def one_thread() -> Iterator[None]:
    """The tensors are small: a second thread only waits, and sums differ in their last bits."""
    num_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(num_threads)


@pytest.fixture(scope="session")
def run_workers(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., list[Any]]:
    """`run_workers(__file__, "function", world_size, *args)`: what function(*args) returns in each worker, by rank."""

    def run(file: str, function: str, world_size: int, *args: Any) -> list[Any]:
        folder = tmp_path_factory.mktemp("workers")
        torch.save(args, folder / "args.pt")
        env = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        command = [sys.executable, __file__, file, function, str(folder), str(world_size)]
        group = subprocess.run(command, env=env, capture_output=True, text=True, timeout=2 * TIMEOUT_S, check=False)
        assert group.returncode == 0, group.stderr
        return [torch.load(folder / f"{rank}.pt", weights_only=False) for rank in range(world_size)]

    return run


@pytest.fixture
def cli_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str, str]]:
    """Run the command line in this process: exit code, stdout, stderr."""
    from clsweep import cli

    def run(*words: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["clsweep", *words])
        with pytest.raises(SystemExit) as caught:
            cli.main()
        code = caught.value.code
        return code if isinstance(code, int) else 0, *capsys.readouterr()

    return run


@pytest.fixture(scope="session")
def s3_server() -> Iterator[Any]:
    """An object store; see `s3`."""
    pytest.importorskip("moto")
    from tests.s3_server import S3Server

    server = S3Server()
    server.create_bucket(BUCKET)
    yield server
    server.close()


@pytest.fixture
def s3(s3_server: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The URI of an empty place in an object store; credentials for it are in the environment, for subprocesses too."""
    from tests.s3_server import ENVIRONMENT

    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    yield s3_server.uri(f"{BUCKET}/{uuid.uuid4().hex}/out")
    s3_server.refuse = lambda _: None


def _start(file: str, function: str, folder: Path, world_size: int) -> int:
    """Fork the workers off one process that has imported everything: the imports are what takes the time."""
    torch.set_num_threads(1)
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
    return int(any(worker.exitcode != 0 for worker in workers))


def _work(call: Callable[..., Any], args: tuple[Any, ...], folder: Path, rank: int, world_size: int) -> None:
    store = dist.FileStore(str(folder / "store"), world_size)
    dist.init_process_group(
        "gloo", store=store, rank=rank, world_size=world_size, timeout=timedelta(seconds=TIMEOUT_S / 2)
    )
    torch.save(call(*args), folder / f"{rank}.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    sys.exit(_start(sys.argv[1], sys.argv[2], Path(sys.argv[3]), int(sys.argv[4])))
