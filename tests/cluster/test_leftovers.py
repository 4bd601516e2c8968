"""What a killed run has left goes, and nothing else: processes and folders are planted here, as if
of Ray. `tests/contracts/test_kills.py` kills real runs.
"""

import importlib
import os
import subprocess
import tempfile

import pytest

from clsweep.cluster.leftovers import remove_leftovers
from clsweep.cluster.ray_session import OWNER, owner
from clsweep.cluster.watchdog import Watchdog
from clsweep.machine import here, living


@pytest.fixture
def start():
    """Start a process that has a file open, and only waits; its id."""
    started = []

    def begin(file):
        with open(file or os.devnull, "ab") as output:
            started.append(subprocess.Popen(["sleep", "600"], stdout=output))
        return started[-1].pid

    yield begin
    for process in started:
        process.kill()
        process.wait()


def gone():
    """As `owner` of a process that is no more."""
    process = subprocess.Popen(["true"])
    process.wait()
    return f"{here()} {process.pid} 1"


@pytest.fixture(autouse=True)
def temporary(tmp_path, monkeypatch):
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    return tmp_path / "tmp"


def folder_of(place, text, name="clsweep-ray-abc"):
    """A folder of a Ray, with a log."""
    (place / name / "ray" / "logs").mkdir(parents=True)
    (place / name / OWNER).write_text(text)
    return place / name


def test_what_a_killed_run_left_is_removed_and_strangers_stay(temporary, start):
    killed, living_one = (
        folder_of(temporary, text, f"clsweep-{text[-3:]}") for text in (gone(), owner())
    )
    mine = start(killed / "ray" / "logs" / "raylet.out")
    strangers = {start(None), start(living_one / "ray" / "logs" / "raylet.out")}
    remove_leftovers()
    assert mine not in living()
    assert strangers <= {*living()}
    assert (killed.exists(), living_one.exists()) == (False, True)


@pytest.mark.parametrize(
    "text", ["", "x", "\0", f"{here()} {'9' * 5000} 1", "another-machine 1 1", f"{here()} a b"]
)
def test_what_does_not_say_so_stays(temporary, text):
    folder = folder_of(temporary, text)
    remove_leftovers()
    assert folder.exists()


def test_what_is_another_user_s_is_not_read(temporary, monkeypatch):
    (temporary / "clsweep-ray-abc").mkdir()
    os.mkfifo(temporary / "clsweep-ray-abc" / OWNER)  # it would be waited for
    monkeypatch.setattr(os, "getuid", lambda: 12345)
    remove_leftovers()


def test_a_link_is_not_followed(temporary, tmp_path):
    thesis = folder_of(tmp_path, gone(), "thesis")
    (temporary / "clsweep-ray-abc").symlink_to(thesis)
    remove_leftovers()
    assert (thesis / OWNER).exists()


def test_a_run_says_whose_its_folder_is_and_removes_its_ray(tmp_path):
    importlib.import_module("ray")  # two threads look at it
    scratch, ray = tmp_path / "scratch", tmp_path / "clsweep-ray-abc"
    for folder in (scratch, ray):
        folder.mkdir()
    with Watchdog(str(scratch)) as watchdog:
        watchdog.begin(str(ray))
        watchdog.stop()
        assert (scratch / OWNER).read_text() == owner()
    assert not ray.exists()
