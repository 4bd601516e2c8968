"""A folder that a run has left, with a file of every kind."""

import shutil
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def made(tmp_path_factory):
    from tests.damage import make_folder  # loads Ray

    return make_folder(tmp_path_factory.mktemp("made"))


@pytest.fixture
def out(made, tmp_path):
    """A copy that a test may change."""
    return Path(shutil.copytree(made, tmp_path / "out"))
