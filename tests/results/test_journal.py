"""The Optuna journal after kills, full disks and losses; Optuna itself reads what is left."""

import json
import os
import time

import optuna
import pytest
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import TrialState

from clsweep.errors import RequestError
from clsweep.results.journal import Journal, Outcome, open_storage

SPACE = {
    "tau": FloatDistribution(0.01, 1, log=True),
    "num_views": IntDistribution(2, 8),
    "lr_rule": CategoricalDistribution(("none", "sqrt")),
}
# one more than the space has
PARAMS = {"tau": 0.1 + 0.2, "num_views": 3, "lr_rule": "sqrt", "epochs": 9}


def made(path, mode="max", alone=True):
    return Journal(open_storage(str(path), alone=alone), "dcl", [mode], SPACE, key="trial_id")


def named(number):
    return {"trial_id": f"dcl-{number}", "config": number, "seed": 0}


def read(path):
    """By a reader of Optuna's own."""
    storage = JournalStorage(JournalFileBackend(str(path)))
    return optuna.load_study(study_name="dcl", storage=storage).trials


def filled(path, num_trials=3):
    journal = made(path)
    for number in range(num_trials):
        journal.start(named(number), PARAMS)
        journal.finish(named(number), PARAMS, Outcome(status="finished", score=float(number)))
    return journal


def test_a_half_line_at_any_byte_is_cut_off_by_the_next_writer(tmp_path):
    path = tmp_path / "journal"
    filled(path)
    whole = path.read_bytes()
    lines = whole.splitlines(keepends=True)
    end = len(whole) - len(lines[-1])
    for size in (end, end + 1, (end + len(whole)) // 2, len(whole) - 2, len(whole) - 1):
        path.write_bytes(whole[:size])
        journal = made(path)
        states = [trial.state for trial in read(path)]
        assert states == [TrialState.COMPLETE] * 2 + [TrialState.RUNNING]
        journal.finish(named(2), PARAMS, Outcome(status="finished", score=2.0))
        assert [trial.value for trial in read(path)] == [0, 1, 2]
        operations = [json.loads(line) for line in path.read_bytes().splitlines()]
        assert len(operations) == len(lines)


def test_a_half_line_of_another_writer_is_cut_off_while_the_journal_is_open(tmp_path):
    path = tmp_path / "journal"
    driver, beside = filled(path), made(path, alone=False)
    with open(path, "ab") as file:
        file.write(b'{"op_code":5,"worker')
    driver.start(named(3), PARAMS)
    beside.finish(named(2), PARAMS, Outcome(status="finished", score=2.0))
    assert [trial.state for trial in read(path)] == [TrialState.COMPLETE] * 3 + [TrialState.RUNNING]


@pytest.mark.parametrize("content", [b"", b"{", b'{"op_code":0'])
def test_a_journal_of_half_a_line_is_begun_again(tmp_path, content):
    path = tmp_path / "journal"
    path.write_bytes(content)
    filled(path)
    assert [trial.value for trial in read(path)] == [0, 1, 2]


def test_a_journal_of_an_earlier_version_goes_on(tmp_path):
    """Its lines have checksums, by a key that Optuna passes over."""
    path = tmp_path / "journal"
    filled(path)
    lines = path.read_bytes().splitlines()
    path.write_bytes(b"".join(b'%b,"crc":123}\n' % line[:-1] for line in lines))
    made(path).start(named(3), PARAMS)
    assert [trial.value for trial in read(path)] == [0, 1, 2, None]


def test_the_lock_of_a_killed_process_holds_up_nobody(tmp_path):
    path = tmp_path / "optuna.journal"
    filled(path)
    os.symlink(path, f"{path}.lock")
    os.symlink(path, f"{path}.lock0b1c.rename")
    start = time.monotonic()
    made(path).start(named(3), PARAMS)
    assert time.monotonic() - start < 25  # Optuna waits for 30
    assert os.listdir(tmp_path) == ["optuna.journal"]
    assert len(read(path)) == 4


def test_a_lock_is_left_to_its_holder_where_others_have_the_journal_open(tmp_path):
    path = tmp_path / "journal"
    filled(path)
    os.symlink(path, f"{path}.lock")
    open_storage(str(path))
    assert os.path.lexists(f"{path}.lock")


@pytest.mark.parametrize("damage", [b"\0\0\0\n", b"[]\n", b"{}\n"])
def test_a_damaged_journal_is_the_users_to_move_away(tmp_path, damage):
    path = tmp_path / "journal"
    filled(path)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:2], damage, *lines[2:]]))
    message = r"journal: expected an Optuna journal, given a damaged one .*Move it away"
    with pytest.raises(RequestError, match=message):
        made(path)


def test_a_journal_that_cannot_be_written_is_the_users_to_mend(tmp_path, monkeypatch):
    with pytest.raises(RequestError, match="nowhere/journal: cannot be opened: No such file"):
        open_storage(str(tmp_path / "nowhere" / "journal"))
    journal = filled(tmp_path / "journal")

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(RequestError, match="journal: cannot be written: No space left on device"):
        journal.start(named(3), PARAMS)
    assert not os.path.lexists(tmp_path / "journal.lock")


@pytest.mark.parametrize(
    ("outcome", "state", "value"),
    [
        (Outcome(status="finished", score=0.1 + 0.2), TrialState.COMPLETE, 0.1 + 0.2),
        (Outcome(status="stopped", score=7.5, epoch=4), TrialState.PRUNED, 7.5),
        (Outcome(status="failed"), TrialState.FAIL, None),
        (Outcome(status="failed", score=3.0), TrialState.FAIL, None),
        (Outcome(status="finished"), TrialState.FAIL, None),
        (Outcome(status="finished", score=float("nan")), TrialState.FAIL, None),
        (Outcome(status=None), TrialState.FAIL, None),
    ],
)
def test_an_outcome_as_optuna_has_it(tmp_path, outcome, state, value):
    """Whether the journal knew the trial or not; told again, nothing changes."""
    for _ in range(2):  # what runs goes on under its number
        journal = made(tmp_path / "journal")
        journal.start(named(0), PARAMS)
    for _ in range(2):
        for number in (0, 1):
            journal.finish(named(number), PARAMS, outcome)
    trials = read(tmp_path / "journal")
    assert [trial.user_attrs for trial in trials] == [named(0), named(1)]
    for trial in trials:
        assert (trial.state, trial.value, trial.distributions) == (state, value, SPACE)
        assert trial.params == {name: PARAMS[name] for name in SPACE}
        assert trial.datetime_complete
    assert trials[1].intermediate_values == ({4: 7.5} if state == TrialState.PRUNED else {})


def test_a_hyperparameter_more_leaves_the_entries_of_before_as_they_are(tmp_path):
    """Those of trials drawn beforehand; of a search, which goes by them, none may lack a value."""
    filled(tmp_path / "journal", 1)
    grown = {**SPACE, "lr": CategoricalDistribution((0.1, 0.3))}
    storage = open_storage(str(tmp_path / "journal"))
    Journal(storage, "dcl", ["max"], grown, key="trial_id").start(named(1), {**PARAMS, "lr": 0.3})
    assert [trial.params.get("lr") for trial in read(tmp_path / "journal")] == [None, 0.3]
    Journal(storage, "byol", ["max"], SPACE, key="config").start({"config": 0}, PARAMS)
    with pytest.raises(RequestError, match="entry 0 lacks a value"):
        Journal(storage, "byol", ["max"], grown, key="config")


def test_a_row_that_says_otherwise_is_a_new_entry(tmp_path):
    """An older copy of the journal beside newer rows."""
    journal = filled(tmp_path / "journal", 1)
    journal.finish(named(0), PARAMS, Outcome(status="finished", score=5.0))
    assert [trial.value for trial in read(tmp_path / "journal")] == [0, 5]
    entry = made(tmp_path / "journal").entry("dcl-0")
    assert entry.value == 5
    assert entry.system_attrs == {"failed_trial": 0, "retry_history": [0]}


def test_entries_come_in_the_order_of_their_names(tmp_path):
    journal = Journal(open_storage(str(tmp_path / "journal")), "dcl", ["min"], SPACE, key="config")
    for config in (11, 2, 7):
        journal.start({"config": config}, PARAMS)
    assert list(journal.entries()) == [2, 7, 11]
    assert journal.entry(5) is None
    study = optuna.load_study(study_name="dcl", storage=open_storage(str(tmp_path / "journal")))
    assert study.direction == optuna.study.StudyDirection.MINIMIZE


def test_nothing_is_written_to_a_journal_that_has_come_in_its_place(tmp_path):
    path = tmp_path / "journal"
    journal = filled(path)
    path.rename(tmp_path / "moved")
    with pytest.raises(RequestError, match="journal: cannot be written: No such file"):
        journal.start(named(3), PARAMS)
    filled(path, 1)
    theirs = path.read_bytes()
    with pytest.raises(RequestError, match="another file has come in its place"):
        journal.start(named(3), PARAMS)
    assert path.read_bytes() == theirs
