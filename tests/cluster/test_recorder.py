"""The row of a trial that has ended: what its numbers depend on stands beside them."""

import errno
import os
from unittest.mock import Mock

import pytest

from clsweep.cluster import recorder as recorder_module
from clsweep.cluster.recorder import Recorder
from clsweep.study.design import plan_row, plan_trials
from clsweep.study.resolve import load_study
from tests.cluster.without_ray import without_ray
from tests.planted import study_at


@pytest.mark.parametrize(("num_done", "compactions"), [(0, 4), (130, 4), (300, 2), (10_000, 0)])
def test_a_large_study_is_compacted_less_often(tmp_path, monkeypatch, num_done, compactions):
    """Every 5 parts, and later whenever 3 % of the trials that have ended are parts."""
    monkeypatch.setattr(recorder_module, "PARTS_BEFORE_COMPACTION", 5)
    study = load_study(study_at(tmp_path / "study.yaml"))
    folder, progress, seen = Mock(), Mock(), []
    folder.compact = lambda: seen.append(len(recorder.trial_ids))
    recorder = Recorder(study, folder, progress, Mock(), Mock())
    row = plan_row(study, plan_trials(study)[0])
    for i in range(20):
        progress.tally.num_done = num_done + i
        recorder.ended({**row, "trial_id": str(i)}, {"status": "finished"})
    assert len(seen) == compactions == len({*seen})


def test_a_full_disk_ends_a_run_with_a_sentence(tmp_path, cli_command, monkeypatch):
    def refuse(_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def outcome(_):
        monkeypatch.setattr(os, "fsync", refuse)
        return {"status": "finished", "knn_top1": 50.0}

    path = study_at(tmp_path / "study.yaml")
    with without_ray(outcome):
        code, _, error = cli_command("run", str(path), "--out", str(tmp_path / "out"))
    assert code == 2
    assert "No space left on device" in error
    assert "The study stopped. What has finished is kept; the same command continues it." in error
    assert "Traceback" not in error
