"""Databases are read as they lie, and no link leads out of a sweep's folder."""

from __future__ import annotations

import os
import shutil
import sqlite3

import pytest

from clsweep.errors import RequestError
from clsweep.sweeps.from_mlflow import read_mlflow
from clsweep.sweeps.from_ray import read_ray
from clsweep.sweeps.from_trackio import read_trackio
from clsweep.sweeps.from_wandb import read_wandb
from clsweep.sweeps.source_files import open_sqlite
from tests.sweeps.recorded import unpack


@pytest.mark.parametrize("case", ["closed", "died", "open"])
def test_a_database_with_a_log_of_writes_is_read_whole_and_left_as_it_is(case, tmp_path):
    """Its log holds a row that the file lacks: of a process that died, or that goes on."""
    file, place = tmp_path / "a.db", tmp_path / "place"
    place.mkdir()
    with sqlite3.connect(file) as writer:
        writer.execute("PRAGMA journal_mode = WAL")
        writer.execute("CREATE TABLE rows (id)")
    if case == "closed":
        writer.close()
        shutil.copy(file, place)
    writer = sqlite3.connect(file)
    with writer:
        writer.execute("INSERT INTO rows VALUES (1)")
    if case == "died":
        for name in ("a.db", "a.db-wal"):
            shutil.copy(tmp_path / name, place)
    folder = tmp_path if case == "open" else place
    before = sorted(os.listdir(folder)), (folder / "a.db").read_bytes()
    with open_sqlite(folder / "a.db") as base:
        rows = base.execute("SELECT id FROM rows").fetchall()
        if case == "open":
            with writer:  # which nothing locks
                writer.execute("INSERT INTO rows VALUES (2)")
        if case != "died":  # of which a copy is read
            with pytest.raises(sqlite3.OperationalError, match="readonly"):
                base.execute("DELETE FROM rows")
    assert rows == ([] if case == "closed" else [(1,)])
    assert (sorted(os.listdir(folder)), (folder / "a.db").read_bytes()) == before
    writer.close()


META = "run_id: r\nstatus: 3\nstart_time: 1\n"


@pytest.mark.parametrize(
    ("read", "files", "linked"),
    [
        (read_ray, {"t/params.json": "{}", "t/result.json": '{"acc": 1}'}, "t/result.json"),
        (read_ray, {"t/params.json": "{}", "t/result.json": '{"acc": 1}'}, "t/params.json"),
        (read_ray, {"t/result.json": '{"acc": 1}', "t/error.txt": "x"}, "t/error.txt"),
        (read_ray, {"e/t/result.json": '{"acc": 1}', "e/experiment_state-1.json": "{}"},
         "e/experiment_state-1.json"),
        (read_ray, {"e/t/result.json": '{"acc": 1}'}, "e"),
        (read_mlflow, {"1/r/meta.yaml": META, "1/r/params/lr": "1"}, "1/r/params/lr"),
        (read_mlflow, {"1/r/meta.yaml": META, "1/r/params/lr": "1"}, "1/r/params"),
        (read_mlflow, {"1/r/meta.yaml": META, "1/r/metrics/a/b": "1 2 3"}, "1/r/metrics/a/b"),
        (read_mlflow, {"1/r/meta.yaml": META, "1/meta.yaml": "name: x"}, "1/meta.yaml"),
        (read_mlflow, {"1/r/meta.yaml": META}, "1"),
        (read_trackio, {"a.db": ""}, "a.db"),
        (read_wandb, {"offline-run-1/run-1.wandb": ":W&B..."}, "offline-run-1/run-1.wandb"),
    ],
)  # fmt: skip
def test_a_link_out_of_a_sweeps_folder_is_refused(read, files, linked, tmp_path):
    for name, text in files.items():
        (tmp_path / "sweep" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "sweep" / name).write_text(text)
    link, other = tmp_path / "sweep" / linked, tmp_path / "other"
    link.rename(other)
    link.symlink_to(other)
    options = (None,) if read in (read_mlflow, read_trackio) else ()
    with pytest.raises(RequestError, match=r"expected a file in .*, given a link out of it"):
        read(tmp_path / "sweep", *options)


def test_a_link_that_is_not_read_or_leads_within_is_none_of_those(tmp_path):
    """As W&B keeps a saved checkpoint, and the latest run."""
    run = tmp_path / "wandb" / "offline-run-1"
    (run / "files").mkdir(parents=True)
    shutil.move(unpack("run.wandb.gz", tmp_path), run / "run-1.wandb")
    (run / "files" / "model.pt").symlink_to(tmp_path)
    (tmp_path / "wandb" / "latest-run").symlink_to("offline-run-1")
    assert len(read_wandb(tmp_path / "wandb").trials) == 1
