"""The results folder, on a disk and in an object store: typed, atomic, readable at any moment."""

import errno
import fcntl
import itertools
import os
import re
import shutil
import threading
import time
from pathlib import Path

import pandas as pd
import pyarrow.parquet as pq
import pytest

from clsweep.api import open_results
from clsweep.cli.trials import trial_rows
from clsweep.errors import RequestError, UserError
from clsweep.results.folder import ResultsFolder, checkpoint_file
from clsweep.results.schemas import to_table
from clsweep.study.design import plan_row, plan_trials
from clsweep.study.resolve import load_study
from clsweep.sweeps.notes import reference_notes
from tests.results.conftest import STUDY, created


def outcome(row, **changes):
    return {**row, "status": "finished", "knn_top1": 90.0, "train_loss": 1.5, **changes}


def names(folder):
    return sorted(path for path in Path(folder.path).rglob("*") if path.is_file())


def test_a_row_is_written_without_the_plan_being_read_again(local, plan, monkeypatch):
    local.add_trial(outcome(plan[0]))
    with monkeypatch.context() as patch:
        patch.setattr(local.files, "read", None)
        local.add_trial(outcome(plan[1]))
    wider = [*plan[:2], {**plan[2], "sigma": 0.5}, *plan[3:]]
    local.create(load_study(STUDY).document.dump(), wider)  # as an extension does
    local.add_trial(outcome(wider[2]))
    assert open_results(local.path).trials["sigma"].notna().tolist() == [False, False, True]


def test_what_a_system_puts_beside_a_part_is_none(local, plan):
    local.add_trial(outcome(plan[0]), epochs=[{"epoch": 1}])
    for kind in ("trials", "epochs"):
        part = Path(local.path, "parts", kind, f"{plan[0]['trial_id']}.parquet")
        (part.parent / f"._{part.name}").write_bytes(b"of macOS")
        (part.parent / f".nfs0001{part.name}").write_bytes(part.read_bytes())
    results = open_results(local.path)
    assert len(results.trials) == len(results.epochs) == 1
    local.compact()
    assert len(open_results(local.path).trials) == 1


def test_epochs_that_are_gone_are_missed_while_trials_wait_for_compaction(folder, plan):
    folder.add_trial(outcome(plan[0]), epochs=[{"epoch": 1}])
    folder.compact()
    folder.add_trial(outcome(plan[1]), epochs=[{"epoch": 1}])
    assert len(open_results(folder.path).epochs) == 2
    for name in ("epochs", "plan"):
        folder.files.remove(f"{name}.parquet")
        message = rf"{name}\.parquet.*: this file of the results is missing"
        with pytest.raises(RequestError, match=message):
            _ = open_results(folder.path).epochs


def test_rows_are_readable_while_a_study_runs_and_in_plan_order(folder, plan):
    bars = [
        {"epoch": 1, "bin_low": 0.0, "bin_high": 0.5, "share": 0.25},
        {"epoch": 1, "share": 0.75},
    ]
    points = [{"index": 0, "label": 3, "x": 0.5, "y": -1.0}]
    hits = [{"metric": "knn_top1", "split": "test", "num_images": 9, "bits": b"\xff\x00"}]
    first, second = plan[0]["trial_id"], plan[3]["trial_id"]
    folder.add_trial(outcome(plan[3]), epochs=[], points=points, hits=hits)
    folder.add_trial(outcome(plan[0]), epochs=[{"epoch": 1, "q_b_mean": 0.4}], histograms=bars)
    for _ in range(2):  # from the parts, then from the compacted tables
        results = open_results(folder.path)
        assert results.trials["trial_id"].tolist() == [first, second]
        assert results.histograms["share"].tolist() == [0.25, 0.75]
        assert results.histograms["trial_id"].unique().tolist() == [first]
        assert results.points[["trial_id", "label"]].values.tolist() == [[second, 3]]
        assert results.epochs[["trial_id", "q_b_mean"]].values.tolist() == [[first, 0.4]]
        assert results.hits[["split", "bits"]].values.tolist() == [["test", b"\xff\x00"]]
        folder.compact()


def test_reference_lines_name_what_was_scored_and_its_spread(local):
    common = {"dataset": "digits", "knn_k": 5, "linear_probe": "none"}
    rows = [{"reference": "raw_pixels", **common, "knn_top1": 91.0}]
    for width, scores in ((4, (80.0, 82.0)), (8, (84.0, 84.0))):
        conv = {"reference": "untrained", "encoder": "conv4", "width": width, **common}
        rows += [{**conv, "seed": seed, "knn_top1": score} for seed, score in enumerate(scores)]
    local.add_references(rows)
    assert reference_notes(local.references().to_pylist(), metric="knn_top1") == [
        "without training, knn_top1: raw pixels 91.00; untrained conv4 (width 4) 81.00 (sd 1.41, 2 "
        "seeds); untrained conv4 (width 8) 84.00 (sd 0.00, 2 seeds)"
    ]


def test_compaction_changes_nothing_that_a_reader_sees(folder, plan, monkeypatch):
    monkeypatch.setattr("clsweep.results.folder.CHUNKS", 3)
    for i, row in enumerate([*plan[:5], plan[1]]):  # one of them twice
        epochs = [{"epoch": epoch, "train_loss": float(i)} for epoch in range((i + 1) % 3)]
        folder.add_trial(outcome(row, knn_top1=float(i)), epochs=epochs)
    without_row = plan[0]["trial_id"]  # as if killed between the two writes
    folder.files.remove(f"parts/trials/{without_row}.parquet")
    before = open_results(folder.path)
    trials, epochs = before.trials, before.epochs
    assert without_row not in {*trials["trial_id"], *epochs["trial_id"]}
    folder.compact()
    assert not folder.has_parts()
    after = open_results(folder.path)
    pd.testing.assert_frame_equal(after.trials, trials)
    pd.testing.assert_frame_equal(after.epochs.sort_values(["trial_id"], ignore_index=True),
                                  epochs.sort_values(["trial_id"], ignore_index=True))  # fmt: skip


@pytest.mark.parametrize("call", ["fsync", "replace", "makedirs"])
def test_what_a_disk_refuses_is_one_line_and_no_file(local, plan, monkeypatch, call):
    def refuse(*_, **__):
        raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))

    before, reason = names(local), f"cannot be written: {os.strerror(errno.EDQUOT)}"
    monkeypatch.setattr(os, call, refuse)
    with pytest.raises(RequestError) as refused:
        local.write(checkpoint_file("a-0"), b"x")
    assert str(refused.value) == f"{local.path}/checkpoints/a-0.ckpt: {reason}"
    with pytest.raises(RequestError, match=reason):
        local.add_trial(outcome(plan[0]), epochs=[])
    assert local.trials().num_rows == 0
    assert names(local) == before


def test_checkpoints_are_replaced_listed_and_removed(folder):
    assert folder.stored("checkpoints") == []
    assert folder.checkpoint("a-0") is None
    payload = os.urandom(12_000_000)  # an object store takes it in parts
    for trial_id, data in (("a-0", b"old"), ("a-0", payload), ("b-1", b"")):
        folder.write(checkpoint_file(trial_id), data)
    assert folder.stored("checkpoints") == ["a-0", "b-1"]
    assert folder.checkpoint("a-0") == payload
    assert folder.checkpoint("b-1") == b""
    for _ in range(2):
        folder.remove(checkpoint_file("a-0"))
    assert folder.stored("checkpoints") == ["b-1"]
    assert folder.stored("encoders") == []


def test_a_folder_without_results_names_those_below_it(local):
    parent = os.path.dirname(local.path)
    with pytest.raises(RequestError, match=r"expected a results folder.*It holds: out"):
        open_results(parent)
    with pytest.raises(RequestError, match="found none"):
        open_results(f"{parent}/nothing")


def test_the_resolved_study_runs_again(local, plan):
    study = load_study(Path(local.path) / "study.yaml")
    assert [plan_row(study, trial) for trial in plan_trials(study)] == plan


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("plan.parquet", b"PAR1", r"plan\.parquet.*: cannot be read"),
        ("parts/trials/{}.parquet", b"x" * 99, r"cannot be read: .*runs again"),
        ("study.yaml", b"a: [1", r"study\.yaml.*:1: not valid YAML"),
        ("study.yaml", b"", r"study\.yaml.*: expected a mapping"),
    ],
)
def test_a_damaged_file_is_named(local, plan, name, content, message):
    local.add_trial(outcome(plan[0]), epochs=[])
    Path(local.path, name.format(plan[0]["trial_id"])).write_bytes(content)
    with pytest.raises(UserError, match=message):
        (open_results(local.path).study, open_results(local.path).trials)


def test_what_cannot_be_a_folder_is_refused():
    with (
        pytest.raises(RequestError, match="cannot be used as a results folder"),
        ResultsFolder(__file__).lock(),
    ):
        pass
    with pytest.raises(RequestError, match="expected a folder or an object store's URI"):
        ResultsFolder("s3x://foo")


@pytest.mark.parametrize("times", [1, 14])
def test_a_reader_misses_nothing_while_parts_are_compacted(local, plan, monkeypatch, times):
    """Under load a run compacts again and again while one table is read."""
    for row in plan[:2]:
        local.add_trial(outcome(row), epochs=[])
    local.compact()
    local.add_trial(outcome(plan[2]), epochs=[])
    reader, others, pauses = ResultsFolder(local.path), iter(plan[3 : 3 + times]), []
    is_file = reader.files.is_file

    def compacting(name):
        for row in itertools.islice(others, 1):
            local.compact()
            local.add_trial(outcome(row), epochs=[])
        return is_file(name)

    monkeypatch.setattr(reader.files, "is_file", compacting)
    monkeypatch.setattr(time, "sleep", pauses.append)
    assert reader.trials().num_rows == 3 + times
    assert (max(pauses) > 0) == (times > 1)  # it waits once looking at once was in vain


def test_asking_whether_a_run_holds_the_folder_neither_needs_nor_takes_the_right_to_write(
    local, monkeypatch
):
    assert not local.is_running()  # nobody ever locked it, and asking makes no file
    assert not os.path.exists(f"{local.path}/.lock")
    with local.lock():
        assert ResultsFolder(local.path).is_running()
    assert not local.is_running()
    with open(f"{local.path}/.lock") as held:  # as a status command holds it for an instant
        fcntl.flock(held, fcntl.LOCK_SH)
        assert not local.is_running()
        monkeypatch.setattr(threading.Event, "wait", lambda *_: held.close())
        with local.lock():
            pass


def test_a_row_without_a_value_is_not_selected_whatever_its_type(local, plan):
    """Neither of the two owns sigma, and one has neither temperature nor batch size."""
    trained = next(row for row in plan if row["objective"] == "simclr" and row["tau"] != 0.1)
    untrained = next(row for row in plan if row["objective"] == "untrained")
    local.add_trial(outcome(trained))
    local.add_trial(outcome(untrained, status="failed", error_class="MemoryError"))
    chosen = {"sigma != 0.7": [], "tau != 0.1": ["simclr"], "batch_size != 64": ["simclr"]}
    for where, objectives in chosen.items():
        rows, _ = trial_rows(open_results(local.path), [where], None, None, every_column=True)
        assert [row["objective"] for row in rows] == objectives


@pytest.mark.parametrize(
    ("name", "value", "compacted"),
    [
        ("tau", 0.123, False),
        ("tau", None, False),
        ("encoder", "resnet50", False),
        ("config", 99, False),
        ("tau", 0.123, True),
    ],
)
def test_a_row_that_is_not_as_planned_is_refused_whichever_columns_are_asked_for(
    local, plan, name, value, compacted
):
    over = plan[:5]
    ended = [outcome(row, **({name: value} if row is plan[3] else {})) for row in over]
    file, trial = f"parts/trials/{plan[3]['trial_id']}.parquet", plan[3]["trial_id"]
    for row, as_planned in zip(ended, over, strict=True):
        local.add_trial(outcome(as_planned) if compacted else row, epochs=[{"epoch": 1}])
    if compacted:
        file = "trials.parquet"
        local.compact()
        table = to_table(ended, pq.read_schema(f"{local.path}/{file}"))
        pq.write_table(table, f"{local.path}/{file}")
    message = re.escape(f"{local.path}/{file}: trial {trial}: {name}: expected {plan[3][name]} as ")
    for columns in (None, ["trial_id"], ["status", "tau"]):
        with pytest.raises(RequestError, match=f"{message}planned, found {value}"):
            local.trials(columns)
    for read in (lambda: local.side_table("epochs"), local.compact):
        with pytest.raises(RequestError, match=message):
            read()


def test_a_table_of_another_folder_is_refused_though_its_trials_have_the_same_ids(tmp_path, plan):
    """Such a table has no hyperparameters that could be compared with the plan's."""

    def read_all(folder):
        folder.trials()
        folder.running_epochs()
        folder.references()
        for name in ("epochs", "points"):
            folder.side_table(name)

    def made(name):
        folder = created(str(tmp_path / name), plan)
        for row in plan[:4]:
            points = [{"index": 0, "label": 0}]
            folder.add_trial(outcome(row), epochs=[{"epoch": 1}], points=points)
        folder.keep_running({plan[0]["trial_id"]: [{"epoch": 1}]})
        folder.add_references([{"reference": "pixels"}])
        return folder

    one, other = made("one"), made("other")
    one.create(load_study(STUDY).document.dump(), plan[:-1])  # as an extension does
    one.create(load_study(STUDY).document.dump(), plan)
    trial = plan[0]["trial_id"]
    parts = {f"parts/{name}/{trial}.parquet": name for name in ("trials", "epochs", "points")}
    tables = ["trials.parquet", "epochs.parquet", "points.parquet"]
    for names in ([*parts, "parts/running.parquet", "references.parquet"], tables):
        for name in names:
            content = (Path(one.path) / name).read_bytes()
            shutil.copy(Path(other.path) / name, Path(one.path) / name)
            with pytest.raises(RequestError, match=rf"{name}: .*of another results folder"):
                read_all(ResultsFolder(one.path))  # this one knows what it wrote
            (Path(one.path) / name).write_bytes(content)
        for folder in (one, other):
            folder.compact()
    assert one.trials().num_rows == 4


def test_what_a_live_search_chooses_is_no_difference(local, plan):
    local.create(load_study(STUDY).document.dump(), [{**plan[0], "tau": None}, *plan[1:]])
    local.add_trial(outcome({**plan[0], "tau": 0.3}))
    assert local.trials(["tau"]).to_pylist() == [{"tau": 0.3}]


def test_a_papers_numbers_are_kept_with_the_cells_at_its_scale(local, plan):
    assert local.paper_tables() == {}
    local.add_paper_tables({"b.csv": "# study: x\n", "a.csv": "τ\n"}, plan[:2])
    again = ResultsFolder(local.path)
    assert list(again.paper_tables().items()) == [("a.csv", "τ\n"), ("b.csv", "# study: x\n")]
    cells = again.paper_cells().to_pylist()
    assert [row["tau"] for row in cells] == [row["tau"] for row in plan[:2]]
