"""Projects of trackio: a recorded one, of an earlier version, in a folder, and damaged ones."""

from __future__ import annotations

import math
import shutil
import sqlite3

import pytest

from clsweep.errors import RequestError
from clsweep.sweeps.from_trackio import read_trackio
from clsweep.sweeps.import_table import import_sweep
from tests.sweeps.recorded import unpack


def test_a_recorded_project(tmp_path):
    """Four whole runs of one name; one that ended after 2 of 4 reports; one that ended in NaN; and
    one that logged nothing, which trackio does not keep.
    """
    source = unpack("trackio.db.gz", tmp_path)
    sweep = read_trackio(source, None)
    first, second, third, _, short, diverged = sweep.trials
    whole = {"seed": 0, "clip": 1.5, "net.width": 64}
    assert first.settings == {"lr": 0.1} | whole
    assert second.settings == {"lr": 0.1} | whole | {"seed": 1, "clip": None}
    assert third.settings == {"lr": 0.001} | whole
    assert short.settings["clip"] == math.inf
    assert first.results == {"acc": 80.0, "val.acc": 0.5, "loss": math.inf}
    assert (first.group, first.labels["name"], first.labels["group"]) == ("trackio", "same", "g")
    assert [trial.length for trial in sweep.trials] == [4, 4, 4, 4, 2, 4]
    assert math.isnan(diverged.results["acc"])
    rows = import_sweep(sweep, metric="acc", mode="max").rows
    assert [row["status"] for row in rows] == ["finished"] * 4 + ["stopped", "failed"]


def test_a_project_of_an_earlier_trackio(tmp_path):
    """Runs without ids, tables of text instead of bytes."""
    source = unpack("trackio.db.gz", tmp_path)
    with sqlite3.connect(source) as base:
        base.execute("DELETE FROM metrics WHERE run_id NOT IN (SELECT max(run_id) FROM metrics)")
        base.execute("DELETE FROM configs WHERE run_id NOT IN (SELECT run_id FROM metrics)")
        (config,) = base.execute("SELECT CAST(config AS TEXT) FROM configs").fetchone()
        reports = base.execute("SELECT step, CAST(metrics AS TEXT) FROM metrics").fetchall()
        base.executescript(
            "DROP TABLE metrics; DROP TABLE configs;"
            "CREATE TABLE metrics (id INTEGER PRIMARY KEY, run_name, step, metrics TEXT);"
            "CREATE TABLE configs (run_name, config TEXT);"
        )
        rows = [("a", *report) for report in reports]
        base.executemany("INSERT INTO metrics (run_name, step, metrics) VALUES (?, ?, ?)", rows)
        base.execute("INSERT INTO configs VALUES ('a', ?)", (config,))
    base.close()
    (trial,) = read_trackio(source, None).trials
    assert (trial.labels["name"], trial.length) == ("a", len(reports))
    assert {"lr", "seed"} <= trial.settings.keys()


def test_a_folder_has_a_project_each(tmp_path):
    unpack("trackio.db.gz", tmp_path)
    shutil.copy(tmp_path / "trackio.db", tmp_path / "other.db")
    (tmp_path / "inbox" / "x").mkdir(parents=True)
    (tmp_path / "inbox" / "x" / "1.jsonl").write_text("{}")
    sweep = read_trackio(tmp_path, None)
    assert [trial.group for trial in sweep.trials] == ["other"] * 6 + ["trackio"] * 6
    assert sweep.notes == ["left out: 1 files in inbox, which `trackio show` takes over"]
    assert len(read_trackio(tmp_path, "other").trials) == 6
    with pytest.raises(RequestError, match=r"no project .othre.\. Did you mean 'other'"):
        read_trackio(tmp_path, "othre")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ("UPDATE metrics SET metrics = '{' WHERE id = 1", "cannot be read as a project of trackio"),
        ("UPDATE metrics SET metrics = '[1]' WHERE id = 1", "expected a table of names and values"),
        ("UPDATE metrics SET metrics = X'ff00' WHERE id = 1", "cannot be read as a project"),
        ("UPDATE metrics SET step = 'a' WHERE id = 1", "invalid literal for int"),
        ("DROP TABLE configs", "no such table: configs"),
        ("CREATE VIEW endless AS SELECT 1", "expected tables, found a view"),
        ("DELETE FROM metrics", "expected a file PROJECT.db of trackio or its folder, with runs"),
    ],
)
def test_a_damaged_project_is_refused_in_a_line(change, says, tmp_path):
    source = unpack("trackio.db.gz", tmp_path)
    with sqlite3.connect(source) as base:
        base.execute(change)
    base.close()
    with pytest.raises(RequestError, match=says) as refused:
        read_trackio(source, None)
    assert str(refused.value).startswith(f"{source}: ")
    assert "\n" not in str(refused.value)
