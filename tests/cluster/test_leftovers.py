"""What a killed run has left goes, and nothing else: processes and folders are planted here, as if
of Ray. `test_faults.py` kills real runs.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from clsweep.cluster.losses import MARK, Watchdog, remove_leftovers
from clsweep.machine import here, living, temporary_prefix
from clsweep.results.folder import LEFTOVERS, ResultsFolder

Start = Callable[[Path | None], int]


@pytest.fixture
def start() -> Iterator[Start]:
    """Start a process that has a file open, and only waits; its id."""
    started: list[subprocess.Popen[bytes]] = []

    def begin(file: Path | None) -> int:
        with open(file or os.devnull, "ab") as output:
            started.append(subprocess.Popen(["sleep", "600"], stdout=output))
        return started[-1].pid

    yield begin
    for process in started:
        process.kill()
        process.wait()


def ended_pid() -> int:
    process = subprocess.Popen(["true"])
    process.wait()
    return process.pid


class Killed:
    """A results folder, and what a run on it that was killed has left."""

    def __init__(self, tmp_path: Path, start: Start):
        self.folder = ResultsFolder(str(tmp_path / "out"))
        self.ray = tmp_path / f"session_2026-01-02_03-04-05_678901_{ended_pid()}"
        (self.ray / "logs").mkdir(parents=True)
        (self.ray / MARK).write_text(self.folder.place(""))
        self.log = self.ray / "logs" / "raylet.out"
        self.agent = start(self.log)

    def note(self, **changes: Any) -> None:
        """What such a run has noted, but for the changes."""
        noted = {"machine": here(), "ray": str(self.ray), "scratch": None}
        self.folder.write(LEFTOVERS, json.dumps({**noted, **changes}).encode())

    def is_alive(self) -> bool:
        return self.agent in living()


@pytest.fixture
def killed(tmp_path: Path, start: Start) -> Killed:
    return Killed(tmp_path, start)


def test_what_a_killed_run_left_is_removed(killed: Killed) -> None:
    killed.note()
    remove_leftovers(killed.folder)
    assert not killed.is_alive()
    assert not killed.ray.exists()
    assert killed.folder.leftovers() is None


def test_a_stranger_stays(killed: Killed, start: Start, tmp_path: Path) -> None:
    strangers = {start(None), start(tmp_path / "of another Ray")}
    killed.note()
    remove_leftovers(killed.folder)
    assert not killed.is_alive()
    assert strangers <= {*living()}


def test_nothing_goes_while_the_driver_is_there(killed: Killed, start: Start) -> None:
    driver = start(killed.log)
    killed.ray = killed.ray.rename(killed.ray.with_name(f"session_2026-01-02_03-04-05_{driver}"))
    killed.note()
    remove_leftovers(killed.folder)
    assert killed.is_alive()
    assert killed.ray.exists()


def edit_the_mark(killed: Killed) -> dict[str, Any]:
    (killed.ray / MARK).write_text("/another/results/folder/")
    return {}


def lose_the_mark(killed: Killed) -> dict[str, Any]:
    (killed.ray / MARK).unlink()
    return {}


def hide_behind_a_link(killed: Killed) -> dict[str, Any]:
    link = killed.ray.parent / "link"
    link.symlink_to(killed.ray.parent)
    return {"ray": str(link / killed.ray.name)}


@pytest.mark.parametrize(
    "change",
    [
        edit_the_mark,
        lose_the_mark,
        hide_behind_a_link,
        lambda _: {"machine": "another"},
        lambda killed: {"ray": str(killed.ray.parent)},
        lambda killed: {"ray": f"{killed.ray}/../{killed.ray.name}"},
        lambda _: {"ray": "/\0/session_1_1"},
        lambda _: {"ray": f"/tmp/session_1_{'9' * 5000}"},
        lambda _: {"ray": None},
    ],
)
def test_a_damaged_or_hostile_note_harms_nothing(
    killed: Killed, change: Callable[[Killed], dict[str, Any]]
) -> None:
    killed.note(**change(killed))
    remove_leftovers(killed.folder)
    assert killed.is_alive()
    assert killed.ray.exists()


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b"[" * 100_000, b"7", b'{"machine"'])
def test_a_note_that_cannot_be_read_is_none(killed: Killed, content: bytes) -> None:
    place = Path(killed.folder.place(LEFTOVERS))
    place.parent.mkdir()
    place.write_bytes(content)
    remove_leftovers(killed.folder)
    assert killed.is_alive()


def test_only_a_dead_run_s_temporary_folder_goes(
    killed: Killed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    dead, living_one, foreign = (
        tmp_path / f"clsweep-{ended_pid()}-1-abc",
        tmp_path / f"{temporary_prefix()}abc",
        tmp_path / "thesis",
    )
    for path in (dead, living_one, foreign):
        path.mkdir()
        killed.note(scratch=str(path))
        remove_leftovers(killed.folder)
    assert [path.exists() for path in (dead, living_one, foreign)] == [False, True, True]


def test_a_run_notes_its_ray(tmp_path: Path) -> None:
    folder, ray = ResultsFolder(str(tmp_path / "out")), tmp_path / "session_1_1"
    ray.mkdir()
    with Watchdog(folder) as watchdog:
        watchdog.begin(str(ray))
        watchdog.stop()
        noted = json.loads(Path(folder.place(LEFTOVERS)).read_text())
        assert noted["ray"] == str(ray)
    assert folder.leftovers() is None
