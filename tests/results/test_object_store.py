"""Results in an object store that misbehaves: nothing is half seen, an outage is survived, a
mistake explained.
"""

import os

import pytest

from clsweep import outages
from clsweep.errors import RequestError
from clsweep.results.folder import ResultsFolder, checkpoint_file
from clsweep.results.journal import open_storage
from tests.s3_server import ACCESS_DENIED, SLOW_DOWN

ROWS = [{"reference": "raw_pixels", "dataset": "digits", "knn_top1": 91.0}]


@pytest.fixture
def folder(s3):
    return ResultsFolder(s3)


def refuse_for(server, num_requests):
    """More often than pyarrow itself asks again."""
    left = iter(range(num_requests))
    server.refuse = lambda _: None if next(left, None) is None else SLOW_DOWN


@pytest.mark.slow  # it waits
def test_an_outage_is_waited_for_and_named_once(folder, s3_server, capsys, monkeypatch):
    monkeypatch.setattr(outages, "_noticed_at", -outages._PATIENCE_S)
    folder.write(checkpoint_file("a-0"), b"first")
    actions = [
        lambda: folder.write(checkpoint_file("a-0"), b"second"),
        lambda: folder.checkpoint("a-0") == b"second" or pytest.fail("not what was written"),
    ]
    for action in actions:
        refuse_for(s3_server, 40)
        action()
    notes = capsys.readouterr().err.splitlines()
    assert len(notes) == 1
    assert notes[0].startswith(f"{folder.path}: the store answers SLOW_DOWN")


def test_what_will_not_pass_is_said_at_once(folder, s3_server):
    with pytest.raises(RequestError, match="cannot be written: there is no such bucket"):
        ResultsFolder(s3_server.uri("nobodys/out")).write(checkpoint_file("a-0"), b"0")
    s3_server.refuse = lambda _: ACCESS_DENIED
    num_before = len(s3_server.requests)
    for action in (
        folder.exists,
        lambda: folder.stored("encoders"),
        lambda: folder.add_references(ROWS),
    ):
        with pytest.raises(
            RequestError, match=r"access is denied; expected credentials .*AWS_ACCESS_KEY_ID"
        ):
            action()
    assert len(s3_server.requests) == num_before + 3


def test_an_upload_that_fails_half_way_is_never_seen(folder, s3_server, monkeypatch):
    monkeypatch.setattr(outages, "_PATIENCE_S", 0.0)
    folder.write(checkpoint_file("a-0"), b"old")
    s3_server.refuse = lambda environ: (
        ACCESS_DENIED if "partNumber=2" in environ["QUERY_STRING"] else None
    )
    for trial_id in ("a-0", "a-1"):
        with pytest.raises(RequestError, match="cannot be written"):
            folder.write(checkpoint_file(trial_id), os.urandom(25_000_000))
    assert folder.checkpoint("a-0") == b"old"
    assert folder.stored("checkpoints") == ["a-0"]


def test_places_are_named_as_they_are_typed(folder):
    address, options = folder.path.split("?")
    assert folder.place("encoders/a-0.pt") == f"{address}/encoders/a-0.pt?{options}"
    assert not ResultsFolder(folder.place("plan.parquet")).exists()


def test_the_journal_is_a_local_copy_that_goes_back(folder):
    import optuna

    folder.keep_journal()  # there is none yet
    path = folder.journal_path
    optuna.create_study(storage=open_storage(path), study_name="dcl")
    with open(path, "ab") as file:
        file.write(b'{"op_code": 4, "half')  # a line that is being written
    folder.keep_journal()
    folder.remove_scratch()
    assert not os.path.exists(path)
    again, beside = ResultsFolder(folder.path), ResultsFolder(folder.path)
    for other in (again, beside):
        assert optuna.get_all_study_names(open_storage(other.journal_path)) == ["dcl"]
    assert again.scratch != beside.scratch
    again.remove_scratch()
    beside.remove_scratch()
