"""A trial that runs out of memory says what it asked for, what it had and what helps."""

from __future__ import annotations

import re
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from clsweep.cluster import trial
from clsweep.data.found import DataPlace
from clsweep.train.memory import OutOfMemoryError, limited_memory

ROW = {"trial_id": "dcl-0000-s0", "objective": "dcl", "batch_size": 512, "chunk_size": 512}
CUDA = (
    "CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has a total capacity of 79.10 GiB of "
    "which 15.88 MiB is free. Process 4711 has 79.08 GiB memory in use. 19.77 GiB allowed; of the "
    "allocated memory 18.01 GiB is in use"
)
CPU = (
    "[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory: you "
    "tried to allocate 1125899906842624 bytes. Error code 12 (Cannot allocate memory)"
)


def on_cpu(**changes: Any) -> trial.TrialContext:
    place = {"places": {"dcl": DataPlace()}, "results": "", "near": None}
    resources = {"workers": 1, "gpus_per_worker": 0.0, "cpus_per_worker": 1}
    return trial.TrialContext(**{**place, **resources, **changes})


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, Any]]:
    """Run one trial whose training does this; its error as the row has it."""

    def run(train: Callable[[], object], row: dict[str, Any] = ROW) -> dict[str, Any]:
        monkeypatch.setattr("clsweep.train.loop.train_trial", lambda *_, **__: train())
        monkeypatch.setattr(torch, "set_num_threads", lambda _: None)
        with pytest.raises(Exception) as caught:  # noqa: PT011
            trial._train(row, on_cpu())
        return trial.describe(caught.value)

    return run


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """A GPU of 80 GiB that is not there; the shares that were set."""
    shares: list[float] = []
    monkeypatch.setattr(
        torch.cuda, "set_per_process_memory_fraction", lambda share, _: shares.append(share)
    )
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda _: None)
    monkeypatch.setattr(torch.cuda, "max_memory_reserved", lambda _: 18.01 * 2**30)
    monkeypatch.setattr(
        torch.cuda, "get_device_properties", lambda _: SimpleNamespace(total_memory=80 * 2**30)
    )
    return shares


def raising(error: Exception) -> Callable[[], object]:
    def train() -> object:
        raise error

    return train


@pytest.mark.parametrize(
    ("error", "asked"),
    [
        (torch.OutOfMemoryError(CUDA), "asked for 20 GiB more"),
        (RuntimeError(CPU), "asked for 1,000,000 GiB more"),
        (MemoryError(), "asked for more than there is"),
        (
            RuntimeError(
                "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"
            ),
            "more than there",
        ),
    ],
    ids=["cuda", "cpu", "python", "cublas"],
)
def test_every_way_to_run_out_of_memory_is_named(
    failing: Any, error: Exception, asked: str
) -> None:
    row = failing(raising(error))
    assert row["error_class"] == "OutOfMemoryError"
    assert asked in row["error_message"]
    assert (
        "smaller batch_size, a smaller chunk_size (images that go through the network at once)"
        in (row["error_message"])
    )
    assert str(error) in row["error_traceback"]


@pytest.mark.parametrize(
    "allocate", [lambda: torch.empty(2**50, dtype=torch.uint8), lambda: np.empty(2**47)]
)
def test_a_real_allocation_that_is_too_large(failing: Any, allocate: Callable[[], object]) -> None:
    row = failing(allocate)
    assert row["error_class"] == "OutOfMemoryError"
    assert "out of memory: asked for 1,000,000 GiB more; the machine has " in row["error_message"]


def test_equal_failures_have_equal_messages(failing: Any) -> None:
    first = failing(lambda: torch.empty(2**50, dtype=torch.uint8))["error_message"]
    again = failing(lambda: torch.empty(2**50 + 4096, dtype=torch.uint8))["error_message"]
    assert again == first
    assert not re.search(r"0x|\d{4,}", first), "no addresses, no process ids"


def test_another_error_stays_what_it_is(failing: Any) -> None:
    assert failing(raising(RuntimeError("shapes do not match")))["error_class"] == "RuntimeError"


def test_a_share_of_a_gpu_is_held_and_named(gpu: list[float]) -> None:
    with (
        pytest.raises(OutOfMemoryError) as caught,
        limited_memory(ROW, torch.device("cuda", 0), 0.25),
    ):
        raise torch.OutOfMemoryError(CUDA)
    assert gpu == [0.25]
    assert str(caught.value) == (
        "out of memory: asked for 20 GiB more; the trial's share is 0.25 of the GPU's 80 GiB "
        "(resources.gpus_per_worker), 20 GiB, peak so far 18 GiB. What helps: a smaller "
        "batch_size, a smaller "
        "chunk_size (images that go through the network at once) or a larger gpus_per_worker"
    )


@pytest.mark.parametrize("gpus", [1.0, 2.0])
def test_a_whole_gpu_is_a_whole_gpu_again_after_a_share(gpu: list[float], gpus: float) -> None:
    for share in (0.5, gpus):
        with limited_memory(ROW, torch.device("cuda", 0), share):
            pass
    assert gpu == [0.5, 1.0]
    with pytest.raises(OutOfMemoryError, match=r"whole GPU of 80 GiB.* or more workers"):  # noqa: SIM117
        with limited_memory(ROW, torch.device("cuda", 0), gpus):
            raise torch.OutOfMemoryError(CUDA)
