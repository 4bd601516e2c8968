"""The device of a trial, as whoever begins one names it."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from clsweep.cli import try_trial
from clsweep.cluster import trial
from clsweep.data.locations import DataPlace
from clsweep.study.schema import ResourcesSection
from clsweep.train import evaluation, loop
from clsweep.train.device import trial_device
from tests.contracts.combinations import CASES

FIRST = torch.device("cuda", 0)
CONFIG = {**CASES["simclr-dcl-none-ecpp"], "reference": "untrained"}


class BegunError(Exception):
    """A trial has begun."""


@pytest.fixture
def begun(request, monkeypatch):
    """The devices on which trials have begun; none goes further."""
    request.getfixturevalue("driver")
    devices = []

    def begin(_split: Any, _splits: Any, _config: Any, device: torch.device) -> None:
        torch.cuda.get_per_process_memory_fraction(device)  # refuses one without an index
        devices.append(device)
        raise BegunError

    for module in (loop, evaluation):
        monkeypatch.setattr(module, "scored_images", begin)
    return devices


@pytest.mark.usefixtures("driver")
def test_a_gpu_without_an_index_is_the_current_one(monkeypatch):
    assert trial_device("cuda") == trial_device(torch.device("cuda")) == FIRST
    monkeypatch.setattr(torch._C, "_cuda_getDevice", lambda: 3)
    assert trial_device("cuda") == torch.device("cuda", 3)
    assert trial_device("cuda:0") == FIRST
    assert trial_device("cpu") == torch.device("cpu")


def test_a_trial_and_a_reference_begin_on_a_gpu_of_some_number(begun):
    with pytest.raises(BegunError):
        loop.train_trial(CONFIG, lambda _: None, device="cuda")
    with pytest.raises(BegunError):
        evaluation.score_reference(CONFIG, place=DataPlace(), device="cuda")
    assert begun == [FIRST] * 2


def test_the_references_of_a_study_have_their_share_of_a_gpu(begun, driver, monkeypatch):
    monkeypatch.setattr(torch, "set_num_threads", lambda _: None)
    resources = ResourcesSection(gpus_per_worker=1)
    context = trial.TrialContext(places={}, resources=resources, results="", near=None)
    with pytest.raises(BegunError):
        trial._score([(CONFIG, DataPlace())], context)
    assert driver.shares == [1.0]
    assert begun == [FIRST]


@pytest.mark.usefixtures("driver")
def test_what_try_is_given_has_an_index(monkeypatch):
    monkeypatch.setattr(torch, "empty", lambda *_, **__: torch.zeros(1))
    assert try_trial._device("cuda") == FIRST
