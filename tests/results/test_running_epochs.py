"""Epochs of trials under way: in the folder before their trials, and in no statistic."""

import json
from pathlib import Path

import pytest

from clsweep.api import open_results
from clsweep.cluster.mailbox import _EPOCHS, append_epoch, read_epochs
from clsweep.errors import RequestError
from clsweep.results.folder import RUNNING

ONE = [{"epoch": 1, "train_loss": 2.0}]
TWO = [*ONE, {"epoch": 2, "train_loss": 1.5, "knn_top1": 40.0}]


def finish(folder, row):
    folder.add_trial({**row, "status": "finished", "knn_top1": 90.0}, epochs=TWO)


def epochs(folder):
    frame = open_results(folder.path).epochs
    return list(zip(frame["trial_id"], frame["status"], frame["epoch"], strict=True))


def test_trials_under_way_are_shown_as_such(local, plan):
    first, second, third = (row["trial_id"] for row in plan[:3])
    finish(local, plan[0])
    with local.lock():
        local.held.beat({"state": "running", "running": [], "time": 0})
        local.keep_running({first: ONE, second: TWO, third: ONE})
        ended = [(first, "finished", 1), (first, "finished", 2)]
        left = [(second, "running", 1), (second, "running", 2), (third, "running", 1)]
        assert epochs(local) == ended + left, "of the one that has ended, those of its row"
        results = open_results(local.path)
        assert results.trials["trial_id"].tolist() == [first]
        assert results.folder.side_table("epochs").num_rows == 2
        local.keep_running({third: TWO})
        assert epochs(local) == [*ended, (third, "running", 1), (third, "running", 2)]
        local.compact()
        assert Path(local.path, "epochs.parquet").exists()
        assert len(epochs(local)) == 4
    assert [status for _, status, _ in epochs(local)][2:] == ["interrupted"] * 2
    local.keep_running({})
    assert not Path(local.path, RUNNING).exists()
    assert epochs(local) == ended


def test_a_damaged_file_of_theirs_is_named(local, plan):
    local.keep_running({plan[0]["trial_id"]: TWO})
    path = Path(local.path) / RUNNING
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(RequestError, match=r"running\.parquet: cannot be read.*nothing is lost"):
        _ = open_results(local.path).epochs
    assert open_results(local.path).trials.empty


def test_half_a_line_is_none_and_an_attempt_begins_anew(tmp_path):
    scratch = str(tmp_path)
    for number, row in enumerate(TWO):
        append_epoch(scratch, "a", row, is_first=not number)
    append_epoch(scratch, "b", ONE[0], is_first=True)
    with (tmp_path / _EPOCHS / "a").open("a") as file:
        file.write(json.dumps({"epoch": 3, "train_loss": 1.0})[:-5])
    assert read_epochs(scratch, ["a"]) == {"a": TWO}
    assert read_epochs(scratch, ["a", "b"]) == {"a": TWO}, "those of others are forgotten"
    append_epoch(scratch, "a", ONE[0], is_first=True)
    assert read_epochs(scratch, ["a"]) == {"a": ONE}
