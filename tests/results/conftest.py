"""An empty results folder of a small study, on a disk and in an object store."""

from pathlib import Path

import pytest

from clsweep.results.folder import ResultsFolder
from clsweep.study.design import plan_row, plan_trials
from clsweep.study.resolve import load_study

STUDY = Path(__file__).parents[1] / "taus.yaml"


@pytest.fixture
def plan():
    study = load_study(STUDY)
    return [plan_row(study, trial) for trial in plan_trials(study)]


@pytest.fixture(params=["disk", "s3"])
def place(request, tmp_path):
    """Where an empty results folder may be."""
    return str(tmp_path / "out") if request.param == "disk" else str(request.getfixturevalue("s3"))


@pytest.fixture
def folder(place, plan):
    return created(place, plan)


@pytest.fixture
def local(tmp_path, plan):
    return created(str(tmp_path / "out"), plan)


def created(place, plan):
    folder = ResultsFolder(place)
    folder.create(load_study(STUDY).document.dump(), plan)
    return folder
