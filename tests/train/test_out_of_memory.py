"""A trial that runs out of memory says what it asked for, what it had and what helps."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from clsweep.cluster import trial
from clsweep.cluster.error_causes import root_cause
from clsweep.data.found import DataPlace
from clsweep.errors import RequestError
from clsweep.study.schema import ResourcesSection
from clsweep.train.images import on_device
from clsweep.train.memory import OutOfMemoryError, limited_memory
from tests.cluster.test_error_causes import GroupError
from tests.driver import Driver
from tests.train.test_images import some_split

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

ON_CPU = trial.TrialContext(
    places={"dcl": DataPlace()}, resources=ResourcesSection(), results="", near=None
)


@pytest.fixture
def failing(monkeypatch):
    """Run one trial whose training does this; its error as the row has it."""

    def run(train: Callable[[], object], row: dict[str, Any] = ROW) -> dict[str, Any]:
        monkeypatch.setattr("clsweep.train.loop.train_trial", lambda *_, **__: train())
        monkeypatch.setattr(torch, "set_num_threads", lambda _: None)
        with pytest.raises(Exception) as caught:  # noqa: PT011
            trial._train(row, ON_CPU)
        return trial.describe(caught.value)

    return run


def raising(error: Exception) -> Callable[[], object]:
    def train() -> object:
        raise error

    return train


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError(CUDA),
        RuntimeError(CPU),
        MemoryError(),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
        RuntimeError("CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(h)`"),
        RuntimeError("cuDNN error: CUDNN_STATUS_ALLOC_FAILED"),
        RuntimeError("GET was unable to find an engine to execute this computation"),
        RuntimeError("Unable to find a valid cuDNN algorithm to run convolution"),
    ],
    ids=["cuda", "cpu", "python", "cublas", "its start", "cudnn", "no engine", "no algorithm"],
)
def test_every_way_to_run_out_of_memory_is_named(failing, error):
    row = failing(raising(error))
    assert row["error_class"] == "OutOfMemoryError"
    assert row["error_message"] == (
        "out of memory. What helps: a smaller batch_size, a smaller chunk_size where it goes in "
        "chunks, or fewer trials at once (--max-concurrent), which share the machine's memory"
    )
    assert str(error) in row["error_traceback"]


@pytest.mark.parametrize(
    "allocate", [lambda: torch.empty(2**50, dtype=torch.uint8), lambda: np.empty(2**47)]
)
def test_a_real_allocation_that_is_too_large(failing, allocate):
    assert failing(allocate)["error_class"] == "OutOfMemoryError"


def test_another_error_stays_what_it_is(failing):
    assert failing(raising(RuntimeError("shapes do not match")))["error_class"] == "RuntimeError"


@pytest.fixture
def crowded(monkeypatch):
    """How a trial ends whose training needs all memory that images do not lie in, beside what it
    had before: the outcome, and where the images lay each time.
    """

    def run(where: str, *, fits: bool = True) -> tuple[dict[str, Any], list[bool]]:
        split, lay = some_split(), list[bool]()

        def train(_row: Any, report: Any, **_: Any) -> dict[str, Any]:
            report({"epoch": 1})
            images = on_device(split, split, torch.device("meta"))
            lay.append(images.pixels_NHWC.is_meta)
            if lay[-1] or not fits:
                raise torch.OutOfMemoryError(CUDA)
            return {"status": "finished"}

        monkeypatch.setattr("clsweep.train.images._free_memory", lambda _: 2**30)
        monkeypatch.setattr("clsweep.train.loop.train_trial", train)
        monkeypatch.setattr(torch, "set_num_threads", lambda _: None)
        monkeypatch.setattr(trial, "_fit", lambda row, context, _: trial._train(row, context))
        resources = ResourcesSection(images_on=where)
        context = replace(ON_CPU, resources=resources, one_machine=True)
        return trial._outcome({**ROW, "epochs": 0}, context), lay

    return run


def test_a_trial_without_memory_beside_its_images_goes_on_with_these_on_the_host(crowded):
    outcome, lay = crowded("auto")
    assert lay == [True, False]
    assert outcome["status"] == "finished"
    assert outcome["epochs"] == [{"epoch": 1}], "those of the first attempt are not there twice"


def test_what_a_worker_of_a_group_lacked_is_known_to_whoever_begins_the_group_anew(monkeypatch):
    monkeypatch.setattr("clsweep.train.memory.are_resident", lambda: True)
    with pytest.raises(OutOfMemoryError) as caught, limited_memory("cpu", 0):
        raise torch.OutOfMemoryError(CUDA)
    there = pickle.loads(pickle.dumps(caught.value))  # through Ray
    others = RuntimeError("NCCL communicator was aborted on rank 0.")
    assert root_cause(GroupError(others, there)).beside_images


@pytest.mark.parametrize(
    ("where", "expected", "helps"),
    [("auto", [True, False], False), ("gpu", [True], True), ("host", [False], False)],
)
def test_it_gives_way_once_and_only_where_the_study_leaves_it_open(crowded, where, expected, helps):
    outcome, lay = crowded(where, fits=False)
    assert (outcome["status"], lay) == ("failed", expected)
    assert (
        "the images on the host (resources.images_on=host)" in outcome["error_message"]
    ) is helps


@pytest.mark.parametrize("gpus", [1.0, 1])
def test_a_whole_gpu_is_a_whole_gpu_again_after_a_share(gpus, driver):
    for share in (0.25, gpus):
        with (
            pytest.raises(OutOfMemoryError, match="or more workers or a larger share of the GPU"),
            limited_memory("cuda", share),
        ):
            raise torch.OutOfMemoryError(CUDA)
    assert driver.shares[1:] == [1.0]


@pytest.mark.parametrize("share", [0.5, 1 / 3, 0.25, 0.1])
def test_shares_of_a_gpu_and_the_processes_that_have_them_fit_together(share, driver):
    """Each may take 0.6 GB that torch does not count; what that leaves is given out."""
    with limited_memory("cuda", share):
        taken = driver.shares[-1] * driver.total + 0.6e9
    assert round(1 / share) * taken == pytest.approx(driver.total)


def test_a_share_that_holds_no_process_is_refused(monkeypatch):
    driver = Driver(total=10 * 10**9).install(monkeypatch)
    with (
        pytest.raises(RequestError, match=r"more than 0\.06 .* given 0\.05\. Nearest .*: 0\.12$"),
        limited_memory("cuda", 0.05),
    ):
        pass
    assert not driver.shares
    with limited_memory("cuda", 0.12):
        assert driver.shares == pytest.approx([0.06])
