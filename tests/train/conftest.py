"""Trials of a few digits."""

import pytest

from clsweep.train import loop, mutual_information
from tests.contracts.combinations import few_images


@pytest.fixture
def few(monkeypatch):
    """Trials train on a few digits, and critics five steps an epoch."""
    monkeypatch.setattr(loop, "load_splits", few_images)
    monkeypatch.setattr(mutual_information, "STEPS_PER_EPOCH", 5)
